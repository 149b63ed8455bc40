"""Measures the kernels of one layer, handed over as a plain list, with real kernels on the device at hand.

GEMMs and attention run as torch's libraries have them, fused norms and activations as the Triton kernels
of kernels/run, their unfused chains as torch's; a memory-bound kernel of another kind (rope, residual,
copies of QKV) is stood in for by copies of the same bytes in as many launches. Where a framework's own kernel
issues instructions for longer than its bytes take, what stands in for it does not, and the table says so.
Knows no model and no layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...kernels.kernel import ELEMENT_BYTES, Attention, Gemm, Kernel, MemoryBound
from .device import Device, read_device, release
from .operands import Run, memory_run, prepare, reason_of
from .points import Point, memory_kernel
from .timing import time_run

# A CPU computes some 1e10 to 1e12 FLOP/s: beyond this a layer would take minutes to hours.
_MOST_CPU_FLOPS = 1e12
_ATTENTION = {"fa1": "fa2", "fa2": "fa2", "fa3": "cudnn", "cudnn": "cudnn"}
"""What torch has of each implementation: it ships no FlashAttention-3, whose like on Hopper is cuDNN's."""


@dataclass(frozen=True, kw_only=True)
class LayerOp:
    """One kernel of a layer, predicted to take ``predicted_s``.

    ``operation`` names a norm or an activation over ``rows`` x ``columns`` as points.memory_kernel does;
    empty for anything else. ``dtype`` is that of the layer.
    """

    name: str
    direction: str
    kernel: Kernel
    predicted_s: float
    dtype: str
    operation: str = ""
    rows: int = 0
    columns: int = 0


@dataclass(frozen=True, kw_only=True)
class MeasuredOp:
    """``op`` took ``measured_s``; ``ran`` says which kernel stood for it, or why none did (None).

    ``sm_clock_hz`` is what the SMs ran at meanwhile, None where it cannot be read.
    """

    op: LayerOp
    measured_s: float | None
    ran: str
    sm_clock_hz: float | None = None


def measure_layer(
    ops: Sequence[LayerOp], device: Device, say: Callable[[str], None]
) -> tuple[MeasuredOp, ...]:
    """Each of ``ops`` measured alone, equal ones once.

    Raises ValueError for a layer that is too large for a CPU.
    """
    flops = sum(op.kernel.flops for op in ops)
    if device.kind == "cpu" and flops > _MOST_CPU_FLOPS:
        raise ValueError(
            f"one layer computes {flops * 1e-12:.3g} TFLOP, too many for a CPU (at most "
            f"{_MOST_CPU_FLOPS * 1e-12:g}); shorten it, as by --set training.seq_length=128"
        )
    known: dict[LayerOp, MeasuredOp] = {}
    for number, op in enumerate(ops):
        key = replace(op, direction="", predicted_s=0.0)
        if key not in known:
            say(f"{number + 1} of {len(ops)}: {op.direction} {op.name}")
            known[key] = _measured(op, device)
    found = (known[replace(op, direction="", predicted_s=0.0)] for op in ops)
    return tuple(replace(one, op=op) for one, op in zip(found, ops, strict=True))


def _measured(op: LayerOp, device: Device) -> MeasuredOp:
    found = _tried(op, device)
    if found.measured_s is None:
        release(device.kind, after=op.name)
    return found


def _tried(op: LayerOp, device: Device) -> MeasuredOp:
    try:
        run, ran = _runnable(op, device)
        clocks: list[float | None] = [None]
        found = time_run(
            run, device.kind, meanwhile=lambda: clocks.append(read_device(device.kind).sm_clock_hz)
        )
        return MeasuredOp(op=op, measured_s=found.median_s, ran=ran, sm_clock_hz=clocks[-1])
    except Exception as reason:  # torch's, Triton's and its compilers' own, which have no base in common
        return MeasuredOp(op=op, measured_s=None, ran=reason_of(reason))


def _runnable(op: LayerOp, device: Device) -> tuple[Run, str]:
    """What runs ``op``, and its name in the table."""
    kernel, cuda = op.kernel, device.kind == "cuda"
    if isinstance(kernel, Gemm):
        point = _point(op, "torch")
        return prepare(point, device.kind, device.sram_bytes), _product(kernel, cuda=cuda)
    if isinstance(kernel, Attention):
        implementation = _ATTENTION[kernel.implementation] if cuda else "torch"
        note = "" if implementation == kernel.implementation else f" for {kernel.implementation}"
        return prepare(_point(op, implementation), device.kind, device.sram_bytes), implementation + note
    fused = cuda and kernel.launches == 1
    lacks = ", not its instructions" if kernel.instructions else ""
    try:
        memory_kernel(op.operation, op.rows, op.columns, op.dtype, fused=fused)
    except ValueError:  # of another kind, or a chain that torch runs in autograd
        return _copies(kernel, op.dtype, device.kind), f"{_count(kernel.launches)} of the same bytes{lacks}"
    run = memory_run(op.operation, op.rows, op.columns, op.dtype, device.kind, fused=fused)
    return run, (f"triton {op.operation}" if fused else f"torch chain of {op.operation}") + lacks


def _product(kernel: Gemm, *, cuda: bool) -> str:
    """Which GEMM of torch's runs; where it cannot add in the same kernel, what became of the addition."""
    name = "cuBLAS" if cuda else "torch"
    if not kernel.accumulate:
        return name
    if kernel.dtype == "fp8":
        return f"{name} without its addition"
    fused = cuda and kernel.batch == kernel.calls
    return name if fused else f"{name}, added apart"


def _point(op: LayerOp, implementation: str) -> Point:
    return Point(
        family="layer", operation=op.name, implementation=implementation, kernel=op.kernel, dtype=op.dtype
    )


def _count(launches: int) -> str:
    return "a copy" if launches == 1 else f"{launches} copies"


def _copies(kernel: MemoryBound, dtype: str, device: str) -> Run:
    """Copies in place of a kernel: one for each of its launches, which together move the kernel's bytes."""
    elements = max(1, int(kernel.hbm_bytes / kernel.launches / 2 / ELEMENT_BYTES[dtype]))
    copy = memory_run("copy", 1, elements, dtype, device, fused=False)

    def run() -> None:
        for _ in range(kernel.launches):
            copy()

    return run
