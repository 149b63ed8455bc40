"""The interval that holds nine in ten of the step times that a prediction may turn out to be.

Knows what a step time is made of (its critical path), how uncertain each part is (the residuals of
the profile's curves, else of hardware/residuals.yaml) and how parts go together: errors of one curve
are one error, so its kernels add up linearly; those of different curves, of the sustained clock and
of what no curve knows are independent. Each is log-normal, and so is the step time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..hardware.residuals import NORMAL_MEAN, NORMAL_MEDIAN, Residual, shipped_residuals
from .report.result import Interval, IntervalPart, PathSegment
from .step.communication import nearest_curve

if TYPE_CHECKING:
    from ..hardware.profile import GpuProfile, Provenance
    from .step.plan import Plan

LEVEL = 0.9
_QUANTILE = 1.6449  # of the standard normal distribution: 95 % lie below
_KERNELS = ("GEMM", "attention", "memory-bound kernels", "optimizer")
_HOST = ("host", "step overhead")


def step_interval(step_time_s: float, path: Iterable[PathSegment], plan: Plan) -> Interval:
    """The 90 % interval of ``step_time_s``, whose critical path is ``path``."""
    shares = {segment.name: segment.seconds / step_time_s for segment in path}
    parts = tuple(_parts(shares, plan))
    sigma = math.sqrt(sum((part.share * part.sigma) ** 2 for part in parts))
    return Interval(
        level=LEVEL,
        low_s=step_time_s * math.exp(-_QUANTILE * sigma),
        high_s=step_time_s * math.exp(_QUANTILE * sigma),
        parts=parts,
    )


def _parts(shares: Mapping[str, float], plan: Plan) -> Iterator[IntervalPart]:
    profile, known = plan.profile, shipped_residuals()
    curves = {
        "GEMM": _of_curve(profile.gemm.provenance, "GEMM"),
        "attention": _attention(profile, plan.scenario.software.attention),
        "memory-bound kernels": known["pointwise"],
        "optimizer": known["pointwise"],
    }
    fitted = profile.step_time_residual is not None
    compute = sum(shares.get(name, 0.0) for name in _KERNELS)
    for name, residual in curves.items():
        if shares.get(name, 0.0) > 0:
            yield _part(name, shares[name], residual)
    for tier, share in _communication(shares, plan).items():
        yield _part(f"communication, {tier}", share, _collectives(plan, tier))
    if host := sum(shares.get(name, 0.0) for name in _HOST):
        yield _part("host", host, known["host"])
    yield _part("sustained clock", compute, known["fitted_clock" if fitted else "unfitted_clock"])
    yield _part("what no curve knows", 1.0, _of_steps(profile))


def _part(name: str, share: float, residual: Residual) -> IntervalPart:
    return IntervalPart(name=name, share=share, sigma=residual.sigma, source=residual.source)


def _of_curve(provenance: Provenance, what: str) -> Residual:
    """The residual of a curve: of points that its fit did not see where there are any; else as carried."""
    median = _stated_median(provenance)
    seen = "in sample" if provenance.held_out_median is None else "held out"
    if median is None or provenance.carried:
        return shipped_residuals()["carried_kernels"]
    source = (
        f"{what}: median residual {median:.1%} over {provenance.points} points {seen} ({provenance.source})"
    )
    return Residual(sigma=NORMAL_MEDIAN * median, source=source)


def _attention(profile: GpuProfile, implementation: str) -> Residual:
    for curve in profile.attention:
        if curve.implementation == implementation:
            return _of_curve(curve.provenance, f"attention {implementation}")
    return shipped_residuals()["pointwise"]  # an unfused chain is bound by memory


def _communication(shares: Mapping[str, float], plan: Plan) -> dict[str, float]:
    """Share of communication by the tier that its axis crosses."""
    groups, several = plan.groups, plan.cluster.gpus > plan.cluster.nvlink_domain
    tiers = {
        name: any(seat.domains > 1 for seat in (first, *plan.seatings.groups.get(name, ())))
        for name, first in (("tp", groups.tp), ("cp", groups.cp))
    }
    found: dict[str, float] = {}
    for name, share in shares.items():
        if name not in (*_KERNELS, *_HOST) and share > 0:
            tier = "network" if tiers.get(name, several) else "node"
            found[tier] = found.get(tier, 0.0) + share
    return found


def _collectives(plan: Plan, tier: str) -> Residual:
    """The residual of the user's own curves of that tier, the worst of those in use; else as shipped."""
    used = [
        curve
        for asked in plan.communication.asked
        if (asked.domains == 1) == (tier == "node")
        and (curve := nearest_curve(plan.profile.collectives, asked.kind, asked.ranks, asked.domains))
    ]
    medians = [median for curve in used if (median := _stated_median(curve.provenance)) is not None]
    whole = len(used) == sum((a.domains == 1) == (tier == "node") for a in plan.communication.asked)
    if not medians or not whole:
        return shipped_residuals()[f"collectives_{tier}"]
    source = f"own measurements: median residual {max(medians):.1%} ({used[0].provenance.source})"
    return Residual(sigma=NORMAL_MEDIAN * max(medians), source=source)


def _stated_median(provenance: Provenance) -> float | None:
    """The median residual of points that the fit did not see; where there are none, of those that it saw."""
    held_out = provenance.held_out_median
    return provenance.median_residual if held_out is None else held_out


def _of_steps(profile: GpuProfile) -> Residual:
    mean = profile.step_time_residual
    if mean is None:
        return shipped_residuals()["step"]
    return Residual(sigma=NORMAL_MEAN * mean, source=f"steps of {profile.gpu}: {profile.step_time_fit}")
