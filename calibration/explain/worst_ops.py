"""The ops of a step that take longest, and what the same shapes take by the curves of the GPU.

Knows ops with shapes and the cost models of kernels; a kernel without shapes, or of no curve,
has a time alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...hardware.calibrated.overlay import load_profile
from ...hardware.gpus import get_gpu
from ...kernels.cost import kernel_seconds
from ...kernels.kernel import Kernel
from .step_record import LATE, DeviceOp

SHOWN = 10
"""Groups of ops that a report names."""


@dataclass(frozen=True, kw_only=True)
class WorstOp:
    """Ops of one name and shape in one step: ``seconds`` of all ``count``, and what ``priced_s`` says of as
    many on this GPU (None: no curve prices them).
    """

    name: str
    kind: str
    shape: str
    count: int
    seconds: float
    priced_s: float | None

    @property
    def to_win_s(self) -> float | None:
        """Seconds above the curve: what a step could win; None where nothing prices the op."""
        return None if self.priced_s is None else max(0.0, self.seconds - self.priced_s)


def worst_ops(ops: Iterable[DeviceOp], gpu: str | None) -> tuple[WorstOp, ...]:
    """The ``SHOWN`` groups of ops that take longest, the longest first."""
    groups: dict[tuple[str, str, str], list[DeviceOp]] = {}
    for op in ops:
        named = op.name if op.kind == "communication" else op.operator or op.name
        groups.setdefault((named, op.kind, op.shape), []).append(op)
    ordered = sorted(groups.items(), key=lambda one: -sum(op.end_s - op.start_s for op in one[1]))
    return tuple(
        WorstOp(
            name=name,
            kind=kind,
            shape=shape,
            count=_calls(found),
            seconds=sum(op.end_s - op.start_s for op in found),
            priced_s=_priced(found, gpu),
        )
        for (name, kind, shape), found in ordered[:SHOWN]
    )


def _calls(found: list[DeviceOp]) -> int:
    """Calls of an operator; kernels where it is unknown. Several kernels of one call count once, and so does
    a message with the wait before it.
    """
    calls = {op.call for op in found if op.call is not None}
    return len(calls) or sum(op.axis != LATE for op in found)


def _priced(found: list[DeviceOp], gpu: str | None) -> float | None:
    kernel: Kernel | None = found[0].priced
    if kernel is None or gpu is None:
        return None
    try:
        return _calls(found) * kernel_seconds(kernel, get_gpu(gpu), load_profile(gpu))
    except ValueError:  # no profile, or a type that this GPU has no units for
        return None
