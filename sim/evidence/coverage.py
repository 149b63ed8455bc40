"""Which operations of a scenario a profile was measured on, and which lie outside.

Knows the distinct kernels and communications of a step, what each costs once, and the measured ranges
of the profile's curves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...kernels.cost import curve_provenance, in_range, range_quantities
from ...kernels.kernel import Attention, Gemm, Kernel
from ..lowering.communication import CollectiveRequest, nearest_curve

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ...hardware.provenance import Provenance
    from ..lowering.plan import StepPlan


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """One operation: its kind (gemm, attention, memory, or a collective's), its shape as text, its seconds
    alone, and why it is outside the measured range (empty if it is inside)."""

    kind: str
    shape: str
    seconds: float
    outside: str
    ranks: int = 1
    bytes: float = 0.0


def coverage(plan: StepPlan) -> tuple[Coverage, ...]:
    """Every distinct kernel and communication of a lowered step, the longest first."""
    found = [*_kernels(plan), *_communications(plan)]
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.kind, one.shape)))


def _kernels(plan: StepPlan) -> Iterator[Coverage]:
    for kernel, seconds in plan.kernels.items():
        provenance = curve_provenance(kernel, plan.profile)
        inside = in_range(kernel, plan.profile)
        reason = "" if inside else _beyond(kernel, provenance)
        if inside and provenance.carried:
            reason = f"carried: {provenance.note or provenance.source}"
        kind = {Gemm: "gemm", Attention: "attention"}.get(type(kernel), "memory")
        yield Coverage(kind=kind, shape=_shape(kernel), seconds=seconds, outside=reason)


def _communications(plan: StepPlan) -> Iterator[Coverage]:
    for asked, seconds in plan.communication.asked.items():
        yield Coverage(
            kind=asked.kind,
            shape=f"{asked.ranks} ranks, {asked.domains} domains, {asked.bytes:.4g} B",
            seconds=seconds,
            outside=_uncovered(asked, plan.profile),
            ranks=asked.ranks,
            bytes=asked.bytes,
        )


def _uncovered(asked: CollectiveRequest, profile: GpuProfile) -> str:
    curve = nearest_curve(profile.collectives, asked.kind, asked.ranks, asked.domains)
    if curve is None:
        return "not measured: as shipped"
    if (curve.ranks, curve.domains) != (asked.ranks, asked.domains):
        return f"carried from {curve.ranks} ranks in {curve.domains} domains"
    if not curve.covers(asked.bytes):
        return f"measured from {curve.low_bytes:.4g} to {curve.high_bytes:.4g} B"
    return ""


def _beyond(kernel: Kernel, provenance: Provenance) -> str:
    """The quantities of a kernel that lie beyond what was measured, as text; empty where all lie inside."""
    values = range_quantities(kernel)
    beyond = [
        f"{name} {values[name]:.4g} (measured {low:.4g} to {high:.4g})"
        for name, low, high in provenance.ranges
        if name in values and not low <= values[name] <= high
    ]
    return ", ".join(beyond) or "not measured"


def _shape(kernel: Kernel) -> str:
    match kernel:
        case Gemm():
            many = f"{kernel.batch} x " if kernel.batch > 1 else ""
            return f"{many}{kernel.m} x {kernel.n} x {kernel.k} {kernel.dtype}"
        case Attention():
            mask = ", causal" if kernel.causal else ""
            heads = f"{kernel.heads}/{kernel.kv_heads} heads of {kernel.head_dim}"
            return (
                f"{kernel.implementation} {kernel.direction}, {kernel.batch} x {kernel.seq_q}, {heads}{mask}"
            )
        case _:
            return f"{kernel.hbm_bytes:.4g} B"
