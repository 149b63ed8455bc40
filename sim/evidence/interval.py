"""The interval around a predicted step time that holds nine in ten measured ones.

Knows what a step time is made of (its critical path), how uncertain each part is (the residuals of the
profile's curves, else of hardware/deviations.yaml), how far it lies from what was measured
(measured_steps.py here, and the measured ranges of curves and collectives) and how causes go together:
errors of one curve are one error, so its kernels add up linearly; those of different curves, of the
sustained clock, of what no curve knows and of each difference to measured runs are independent. Waits of many
GPUs for one another, and for the slowest of them, only lengthen a step. How many standard deviations hold
nine in ten is measured, too, and falls with their size: none is known better than runs of one configuration
agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...hardware.calibrated.overlay import load_profile, profile_names
from ...hardware.deviations import NORMAL_MEAN, NORMAL_MEDIAN, Deviation, shipped_deviations
from ..lowering.communication import nearest_curve
from ..lowering.host_checks import share_of_checks
from ..lowering.step_kind import step_kind
from ..result.step import LENGTHENS, SHORTENS, Interval, IntervalPart, PathSegment
from .interval_beyond import beyond_measured, routed_experts, unlike_measured
from .interval_hardware import unmeasured_hardware, unmeasured_kernels
from .interval_host import SLOWER_HOST, slower_hosts
from .interval_kernel import FASTER, SLOWER, assumed_attention
from .interval_overlap import OVERLAP, assumed_overlap
from .interval_routing import ROUTER, uneven_router
from .interval_slowest import slowest_of_many
from .interval_waits import awaited_doublings, waits_of_many
from .measured_steps import Doubt, MeasuredSteps, experts_of_plan, measured_steps, regime_of
from .own_steps import StepSample, after_own
from .run_noise import deviations_that_hold

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from ...hardware.profile import GpuProfile, Provenance
    from ..lowering.plan import StepPlan

LEVEL = 0.9
"""Share of measured steps that an interval is to hold."""
_KERNELS = ("GEMM", "attention", "memory-bound kernels", "optimizer")
_HOST = ("host", "step overhead")
_BEYOND = ("beyond", "hardware")  # kinds of causes that lie outside what was measured
REACHES = (OVERLAP, SLOWER, FASTER, SLOWER_HOST, ROUTER)
"""Kinds of causes that are facts which a scenario takes and may be otherwise: each reaches the step that it
would then be, and is no residual."""


def step_interval(step_time_s: float, path: Iterable[PathSegment], plan: StepPlan) -> Interval:
    """The 90 % interval of ``step_time_s``, whose critical path is ``path``."""
    doubt = doubt_of(step_time_s, path, plan, microbatches=plan.scenario.num_microbatches)
    return interval_of(step_time_s, doubt, measured_steps())


def doubt_of(step_time_s: float, path: Iterable[PathSegment], plan: StepPlan, *, microbatches: int) -> Doubt:
    """What is uncertain about a step of ``microbatches``, whatever measured steps say of it; ``plan`` may be
    that of a shorter one."""
    shares = {segment.name: segment.seconds / step_time_s for segment in path}
    checks = share_of_checks(plan, microbatches) if shares.get("host", 0.0) else 0.0
    kernels = unmeasured_kernels(shares, plan)
    assumed = assumed_overlap(step_time_s, shares.get("dp", 0.0) * step_time_s, plan, microbatches)
    return Doubt(
        causes=(
            *_causes(shares, checks, plan),
            *((kernels,) if kernels else ()),
            *slowest_of_many(plan),
            *assumed,
            *assumed_attention(shares.get("attention", 0.0), plan),
            *slower_hosts(step_time_s, plan, microbatches),
            *uneven_router(plan),
        ),
        regime=regime_of(plan.scenario),
        experts=experts_of_plan(plan),
        sample=_sample(step_time_s, shares, checks, plan),
        awaited_doublings=awaited_doublings(_messages(shares), plan),
        read=plan.scenario.software.read,
        own=plan.profile.steps.runs,
        kernels=kernels,
    )


def _sample(step_time_s: float, shares: Mapping[str, float], checks: float, plan: StepPlan) -> StepSample:
    """The share of each cause in the step time, ``checks`` of the hosts' of which are checks of collectives.
    Time that has no cause, such as waits, is spread over all causes in proportion."""
    tiers, host = _communication(shares, plan), shares.get("host", 0.0)
    found = {
        "matrix": shares.get("GEMM", 0.0) + shares.get("attention", 0.0),
        "memory": shares.get("memory-bound kernels", 0.0) + shares.get("optimizer", 0.0),
        "host": host * (1.0 - checks),
        "checks": host * checks,
        "node": tiers.get("node", 0.0),
        "network": tiers.get("network", 0.0),
    }
    known = sum(found.values())
    rest = 1.0 - shares.get("step overhead", 0.0)
    whole = {cause: share * rest / known for cause, share in found.items()} if known else {"matrix": rest}
    return StepSample(shares=whole, step_s=step_time_s, kind=step_kind(plan.scenario))


def interval_of(step_time_s: float, doubt: Doubt, steps: MeasuredSteps) -> Interval:
    """The interval of a step with the uncertainties ``doubt``, weighed by measured ``steps``."""
    return interval_of_parts(step_time_s, parts_of(doubt, steps), steps)


def parts_of(doubt: Doubt, steps: MeasuredSteps) -> tuple[IntervalPart, ...]:
    """What is uncertain, each by the weight that ``steps`` gives it, and what they add; or, where it is less,
    what measured steps of the user's own leave open: to know more never widens."""
    known = (
        *(_weighed(part, doubt, steps) for part in doubt.causes if part.kind not in REACHES),
        *waits_of_many(doubt, steps),
        *unlike_measured(doubt, steps),
    )
    shipped = *known, *_reaching(doubt, known, steps)
    if not doubt.own:
        return shipped
    return min(shipped, tuple(_after_own_steps(doubt, steps)), key=lambda parts: sum(reach_of(parts, steps)))


def _reaching(doubt: Doubt, known: tuple[IntervalPart, ...], steps: MeasuredSteps) -> Iterator[IntervalPart]:
    """Facts that are assumed, beside what is ``known``: each of such a size that it alone reaches the step
    without it."""
    below, above = _counted_of(deviations_of(known), steps)
    for part in doubt.causes:
        if part.kind in REACHES:
            yield replace(part, sigma=part.sigma / (below if part.kind in SHORTENS else above))


def _after_own_steps(doubt: Doubt, steps: MeasuredSteps) -> Iterator[IntervalPart]:
    """The uncertainty that the user's own measured steps leave; what lies outside measured ranges counts as
    without them."""
    spread, count = steps.sources.of_trainer(read=doubt.read).of_kernels(doubt.kernels_sigma), len(doubt.own)
    left = after_own(spread, doubt.own)
    seen = f"{count} measured step{'s' * (count > 1)} of the profile; stepsim calibrate residuals"
    cluster = "this cluster" if doubt.read else "this cluster and a trainer whose code nobody read"
    for name, sigma in (
        (f"{cluster}, after its own steps", math.sqrt(left.variance(doubt.sample))),
        ("one run of a kind", spread.run),
    ):
        yield IntervalPart(name=name, share=1.0, sigma=sigma, source=seen, kind="own steps")
    beyond = (part for part in doubt.causes if part.kind in _BEYOND and part is not doubt.kernels)
    yield from (_weighed(part, doubt, steps) for part in beyond)
    yield from waits_of_many(doubt, steps)
    yield from routed_experts(doubt, steps)


def interval_of_parts(step_time_s: float, parts: tuple[IntervalPart, ...], steps: MeasuredSteps) -> Interval:
    """The interval of a step whose ``parts`` are weighed already."""
    below, above = reach_of(parts, steps)
    counted_below, counted_above = _counted(parts, steps)
    return Interval(
        level=LEVEL,
        low_s=step_time_s * math.exp(-below),
        high_s=step_time_s * math.exp(above),
        parts=parts,
        quantile=counted_above,
        quantile_below=counted_below,
    )


def _counted(parts: tuple[IntervalPart, ...], steps: MeasuredSteps) -> tuple[float, float]:
    """How many standard deviations of such parts hold nine in ten, below the prediction and above it. After
    own steps the noise of a run is one of the parts, and is not added again."""
    if any(part.kind == "own steps" for part in parts):
        return steps.sources.quantile, steps.sources.quantile
    return _counted_of(deviations_of(part for part in parts if part.kind not in REACHES), steps)


def _counted_of(deviations: tuple[float, float], steps: MeasuredSteps) -> tuple[float, float]:
    """How many of the standard deviations below the prediction, and above it, hold nine in ten."""
    below, above = deviations
    return deviations_that_hold(steps.quantile_below, below), deviations_that_hold(steps.quantile, above)


def reach_of(parts: tuple[IntervalPart, ...], steps: MeasuredSteps) -> tuple[float, float]:
    """How far an interval of weighed ``parts`` reaches below the prediction, and above it, in logarithms."""
    counted_below, counted_above = _counted(parts, steps)
    below, above = deviations_of(parts)
    return counted_below * below, counted_above * above


def deviations_of(parts: Iterable[IntervalPart]) -> tuple[float, float]:
    """The standard deviations of all ``parts`` together, below the prediction and above it."""
    either = lengthens = shortens = 0.0
    for part in parts:
        if part.kind in LENGTHENS:
            lengthens += (part.share * part.sigma) ** 2
        elif part.kind in SHORTENS:
            shortens += (part.share * part.sigma) ** 2
        else:
            either += (part.share * part.sigma) ** 2
    return math.sqrt(either + shortens), math.sqrt(either + lengthens)


def _weighed(part: IntervalPart, doubt: Doubt, steps: MeasuredSteps) -> IntervalPart:
    """Residuals of measurements by the weight that measured steps give to their kind, those of a GPU's steps
    pooled with other GPUs'; all others as they are."""
    if part.kind == "steps":
        return replace(part, sigma=steps.pooled(part.sigma, doubt.regime.gpu))
    weight = steps.weights.get(part.kind)
    if weight is None:
        return part
    return replace(
        part, sigma=weight * part.sigma, source=f"{part.source}; in steps {weight:.2g} times as much shows"
    )


def _causes(shares: Mapping[str, float], checks: float, plan: StepPlan) -> Iterator[IntervalPart]:
    """Every cause of doubt that a measurement shows, each as those who measured saw it.

    ``shares`` of the critical path by name; ``checks`` of the hosts' is what checks of collectives take.
    """
    profile, known = plan.profile, shipped_deviations()
    curves = {
        "GEMM": _of_curve(profile.gemm.provenance, "GEMM"),
        "attention": _attention(profile, plan.scenario.software.kernels.attention),
        "memory-bound kernels": known["pointwise"],
        "optimizer": known["pointwise"],
    }
    shipped = _has_shipped_curves(profile, plan.cluster.gpu) and _is_fitted(profile)
    kernels = "kernels" if shipped else "own kernels"
    compute = sum(shares.get(name, 0.0) for name in _KERNELS)
    for name, residual in curves.items():
        if shares.get(name, 0.0) > 0:
            yield _part(name, shares[name], residual, kernels)
    tiers = _communication(shares, plan)
    for tier, share in tiers.items():
        yield _part(f"communication, {tier}", share, _collectives(plan, tier), "communication")
    checked = checks * shares.get("host", 0.0)
    if host := sum(shares.get(name, 0.0) for name in _HOST) - checked:
        yield _part("host", host, known["host"], "host")
    if checked:  # messages between CPUs: nothing makes them and launches slow together
        yield _part("checks of collectives", checked, known["checks"], "host")
    yield _clock(compute, profile)
    yield _part("what no curve knows", 1.0, _of_steps(profile), "steps")
    yield from beyond_measured(shares, tiers, plan)
    yield from unmeasured_hardware(shares, tiers, plan)


def _part(name: str, share: float, residual: Deviation, kind: str) -> IntervalPart:
    return IntervalPart(name=name, share=share, sigma=residual.sigma, source=residual.source, kind=kind)


def _is_fitted(profile: GpuProfile) -> bool:
    """Whether steps have shown the clock of this GPU, or of the one that it was carried from."""
    return profile.step_time_residual is not None or profile.clock_from_steps


def _has_shipped_curves(profile: GpuProfile, gpu: Gpu) -> bool:
    """Whether the clock was fitted with these very curves, so that it makes up for their common error."""
    if gpu.measured_as not in profile_names():
        return False
    shipped = load_profile(gpu.measured_as)
    return profile.gemm.provenance == shipped.gemm.provenance and all(
        curve.provenance == other.provenance
        for curve, other in zip(profile.attention, shipped.attention, strict=False)
    )


def _clock(compute: float, profile: GpuProfile) -> IntervalPart:
    """The doubt about the clock: smallest where steps of this GPU gave it, larger where it was carried from a
    GPU whose steps did, and largest where no step has shown it (the ``kind`` of the part says which)."""
    known = shipped_deviations()
    if profile.step_time_residual is not None:
        return _part("sustained clock", compute, known["fitted_clock"], "fitted clock")
    kind = "clock" if _is_fitted(profile) else "unfitted clock"
    return _part("sustained clock", compute, known["unfitted_clock"], kind)


def _of_curve(provenance: Provenance, what: str) -> Deviation:
    """The residual of a curve: of points that its fit did not see where there are any; else as carried."""
    median = _stated_median(provenance)
    seen = "in sample" if provenance.held_out_median is None else "held out"
    if median is None or provenance.carried:
        return shipped_deviations()["carried_kernels"]
    source = (
        f"{what}: median residual {median:.1%} over {provenance.points} points {seen} ({provenance.source})"
    )
    return Deviation(sigma=NORMAL_MEDIAN * median, source=source)


def _attention(profile: GpuProfile, implementation: str) -> Deviation:
    for curve in profile.attention:
        if curve.implementation == implementation:
            return _of_curve(curve.provenance, f"attention {implementation}")
    return shipped_deviations()["pointwise"]  # an unfused chain is bound by memory


def _communication(shares: Mapping[str, float], plan: StepPlan) -> dict[str, float]:
    """Share of communication by the tier that its axis crosses."""
    groups, several = plan.groups, plan.cluster.gpus > plan.cluster.nvlink_domain
    tiers = {
        name: any(placement.domains > 1 for placement in (first, *plan.placements.groups.get(name, ())))
        for name, first in (("tp", groups["tp"]), ("cp", groups["cp"]))
    }
    found: dict[str, float] = {}
    for name, share in _messages(shares).items():
        tier = "network" if tiers.get(name, several) else "node"
        found[tier] = found.get(tier, 0.0) + share
    return found


def _messages(shares: Mapping[str, float]) -> dict[str, float]:
    """The ``shares`` of the critical path that are communication."""
    return {name: share for name, share in shares.items() if name not in (*_KERNELS, *_HOST) and share > 0}


def _collectives(plan: StepPlan, tier: str) -> Deviation:
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
        return shipped_deviations()[f"collectives_{tier}"]
    source = f"own measurements: median residual {max(medians):.1%} ({used[0].provenance.source})"
    return Deviation(sigma=NORMAL_MEDIAN * max(medians), source=source)


def _stated_median(provenance: Provenance) -> float | None:
    """The median residual of points that the fit did not see; where there are none, of those that it saw."""
    held_out = provenance.held_out_median
    return provenance.median_residual if held_out is None else held_out


def _of_steps(profile: GpuProfile) -> Deviation:
    mean = profile.step_time_residual
    if mean is None:
        return shipped_deviations()["step"]
    return Deviation(sigma=NORMAL_MEAN * mean, source=f"steps of {profile.gpu}: {profile.step_time_fit}")
