"""The end of a step: gradient norm, clipping, the optimizer's update, and the 16-bit copy of the parameters.

All but the update, which is written by another, are memory-bound kernels over the rank's share of the
parameters; bytes are read plus written per parameter, FP32 master weights (Megatron's mixed-precision
optimizer).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...network.transfer import Transfer
from ...program.program import Collective, Compute
from ...program.program_builder import ProgramBuilder
from ..layers.issued import NOTHING, Issued
from ..layers.layer_builder import KernelPricing
from ..layers.local_shape import LocalShape

if TYPE_CHECKING:
    from .offload import Offload


@dataclass(frozen=True, kw_only=True)
class SliceKernels:
    """Kernels of the busiest rank's slices: one for the gradient of each, which makes it FP32, and those that
    ``cast`` what was updated. Such a cast moves ``more_bytes`` for each parameter of a layer than a kernel
    that reads FP32 and writes the model's type."""

    gradients: int
    cast: int
    more_bytes: float


@dataclass(frozen=True, kw_only=True)
class OptimizerShare:
    """Parameters that this rank updates, each ``width`` bytes wide, those of them that it casts to 16 bit
    afterwards, and those whose gradients it sets to zero (none where they are freed). ``body`` is the part of
    all that it holds that is in layers, not at the ends of the model; of ``quantised`` of these it makes
    copies in the GEMMs' type once a step, not in each forward, in ``weight_casts`` kernels. ``slices``:
    gradients are made FP32, and what is updated is cast, by kernels of their own for each slice of a
    parameter."""

    body: float
    quantised: float
    updated: float
    cast: float
    cleared: float
    width: int = 4
    weight_casts: int = 2
    slices: SliceKernels | None = None


def write_optimizer(
    writer: ProgramBuilder,
    share: OptimizerShare,
    costs: KernelPricing,
    local: LocalShape,
    *,
    update: Callable[[ProgramBuilder], None],
    norm: Transfer | None,
    offload: Offload | None,
    sent: bool,
    skips: bool,
    check_s: float,
) -> None:
    """Append the gradient norm, then the ``update`` and what follows it.

    ``norm`` reduces the gradient norm over all ranks: there the pipeline meets.
    Without it each rank updates by itself and the norm is checked later (post-validation), or never.
    ``offload``: the CPU updates; ``sent``: it has the gradients already. A step that ``skips`` ends with the
    check for infinities, which reduces one number over all ranks as the norm does. For ``check_s`` the
    checks of what the norm takes hold the host.
    """
    if local.dtype == "fp16":
        # Unscaling to FP32 main gradients with the check for infinities (read, write).
        unscaled = share.updated * (local.grad_bytes + share.width)
        _kernels(writer, [("unscale gradients", unscaled, 2)], costs)
    if skips:
        _meet(writer, "overflow check all_reduce", norm, costs, check_s)
        return
    _write_norm(writer, share, costs, local)
    _meet(writer, "gradient norm all_reduce", norm, costs, check_s)
    if offload:
        from .offload import write_offloaded

        write_offloaded(writer, offload, share.updated, sent=sent)
        return
    _kernels(writer, [("clip gradients", 2 * share.updated * share.width, 1)], costs)
    update(writer)
    _write_copies(writer, share, costs, local)


def _write_norm(
    writer: ProgramBuilder, share: OptimizerShare, costs: KernelPricing, local: LocalShape
) -> None:
    """Append the norm of the rank's own gradients. They are cast to FP32 before it where slices have
    kernels of their own."""
    grad = local.grad_bytes
    if share.slices and grad < share.width:
        _kernel(
            writer,
            "gradients to FP32",
            share.updated * (grad + 4),
            share.slices.gradients,
            costs,
            instructions=costs.issued("cast to FP32", share.updated),
        )
        grad = 4
    _kernels(writer, [("gradient norm", share.updated * grad, 2)], costs)


def _write_copies(
    writer: ProgramBuilder, share: OptimizerShare, costs: KernelPricing, local: LocalShape
) -> None:
    """What the next step needs: parameters in the model's type and in that of GEMMs, gradients of zero."""
    after: list[tuple[str, float, int]] = []
    if local.dtype != "fp32" and share.cast:
        # read FP32, write 16 bit or the GEMMs' type
        written = local.element_bytes + share.body * (local.weights.written - local.element_bytes)
        launches, more = (share.slices.cast, share.slices.more_bytes) if share.slices else (2, 0.0)
        after.append(("copy parameters", share.cast * (4 + written + share.body * more), launches))
    _kernels(writer, after, costs)
    if local.weights.made and share.quantised:
        made = share.quantised * local.weights.made
        # Cast where forward meets them: the calls of its modules launch them, which are counted there.
        _kernel(writer, "quantise weights", made, share.weight_casts, costs, calls=2)
    if share.cleared:
        _kernel(writer, "zero gradients", share.cleared * local.grad_bytes, 1, costs)


def _meet(
    writer: ProgramBuilder, name: str, reduces: Transfer | None, costs: KernelPricing, check_s: float
) -> None:
    """Append a reduction of one number over all ranks, for which the host waits."""
    if reduces is None:
        return
    work = Collective("all_reduce", "world", reduces)
    host_s = costs.host_collective_s + check_s
    writer.wait(writer.on_stream(name, "world", "optimizer", work, host_s=host_s, host_sync=True))


def _kernels(writer: ProgramBuilder, passes: list[tuple[str, float, int]], costs: KernelPricing) -> None:
    for name, hbm_bytes, launches in passes:
        _kernel(writer, name, hbm_bytes, launches, costs)


def _kernel(
    writer: ProgramBuilder,
    name: str,
    hbm_bytes: float,
    launches: int,
    costs: KernelPricing,
    *,
    calls: int | None = None,
    instructions: Issued = NOTHING,
) -> None:
    """Append kernels that move ``hbm_bytes`` in ``launches`` launches, of which the host issues ``calls``
    here (None: all)."""
    kernel = instructions.kernel(hbm_bytes, launches=launches)
    work = Compute(costs.seconds(kernel), "memory-bound", bytes=hbm_bytes)
    issued = launches if calls is None else calls
    writer.compute(name, work, category="optimizer", host_s=issued * costs.host_s)
