"""What an interval widens by outside the measured range: each cause, with how far it is from the nearest
measurement.

Knows three ranges: of the curves of kernels (shapes, in doublings), of collectives (GPUs of a group, in
doublings; fabrics and GPUs without a log), and of whole steps (software, GPU, precision, sequence length,
number of GPUs, experts). Does not know how causes are put together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...hardware.deviations import Deviation, measured_collectives, shipped_deviations
from ...kernels.cost import beyond_range
from ...kernels.kernel import Attention, Gemm
from ..lowering.communication import nearest_curve
from ..result.step import IntervalPart
from .measured_steps import DIFFERENCES, EXPERTS, Doubt, MeasuredSteps, nearest

if TYPE_CHECKING:
    from ..lowering.communication import CollectiveRequest
    from ..lowering.plan import StepPlan

_WORDS = {
    "seq": ("longest", "shortest", "sequence"),
    "head_dim": ("largest", "smallest", "head dimension"),
    "narrow": ("widest", "narrowest", "product"),
    "k": ("deepest", "shallowest", "product"),
    "flops": ("largest", "smallest", "product"),
}
"""How the ends of a measured range are called."""

_MATRIX_PATH = {Gemm: "GEMM", Attention: "attention"}


def beyond_measured(
    shares: Mapping[str, float], tiers: Mapping[str, float], plan: StepPlan
) -> Iterator[IntervalPart]:
    """Parts of kernels and of collectives outside their measured ranges."""
    yield from _kernels(shares, plan)
    for tier, share in tiers.items():
        yield from _collectives(tier, share, plan)


def _kernels(shares: Mapping[str, float], plan: StepPlan) -> Iterator[IntervalPart]:
    """One part for each quantity and end: its share of the path, and the mean distance of its kernels.

    Kernels of one curve are off together, so their distances add up, each by its share of the time. Sums are
    exact, since kernels are in the order in which they were priced, which may differ from run to run.
    """
    seconds_of: dict[str, list[float]] = {}
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for kernel, seconds in plan.kernels.items():
        name = _MATRIX_PATH.get(type(kernel))
        if name is None:
            continue  # the time of a kernel bound by memory is its bytes over a rate at any size
        seconds_of.setdefault(name, []).append(seconds)
        if far := beyond_range(kernel, plan.profile):
            found.setdefault((name, far.quantity, far.end), []).append((seconds, far.doublings))
    for (name, quantity, end), members in sorted(found.items()):
        outside_s = math.fsum(seconds for seconds, _ in members)
        doublings = math.fsum(seconds * far for seconds, far in members) / outside_s
        share = shares.get(name, 0.0) * outside_s / math.fsum(seconds_of[name])
        one = shipped_deviations()[f"{name.lower()}_beyond_{end}"]
        largest, smallest, what = _WORDS[quantity]
        edge = largest if end == "largest" else smallest
        text = f"{name}: {doublings:.1f} doublings beyond the {edge} measured {what}"
        if share > 0:
            yield _grown(text, share, one, doublings)


def _collectives(tier: str, share: float, plan: StepPlan) -> Iterator[IntervalPart]:
    """What was asked of that tier, by the time that each takes alone, beyond what logs reach."""
    asked = {
        one: seconds
        for one, seconds in plan.communication.asked.items()
        if (one.domains == 1) == (tier == "node") and not _is_own(one, plan)
    }
    total = math.fsum(asked.values())
    if not total:
        return
    known, logs = shipped_deviations(), measured_collectives()
    network = plan.cluster.interconnect.kind
    reach = logs.domains.get(network, max(logs.domains.values())) if tier == "network" else 0
    far = math.fsum(
        seconds * _doublings(one, reach or logs.ranks_in_a_domain) for one, seconds in asked.items()
    )
    if far > 0:
        what = (
            f"NVLink domains (logs have {reach})" if reach else f"GPUs (logs have {logs.ranks_in_a_domain})"
        )
        text = f"communication, {tier}: {far / total:.1f} doublings beyond the most measured {what}"
        yield _grown(text, share, known[f"collectives_{tier}_beyond"], far / total)
    unknown = [
        what
        for what, there in (
            (f"{network} fabric", tier == "node" or network in logs.domains),
            (f"{plan.cluster.gpu.architecture} GPU", plan.cluster.gpu.architecture in logs.architectures),
        )
        if not there
    ]
    if unknown:
        text = f"communication, {tier}: no log of a{'n' * (unknown[0][0] in 'aeiou')} {' and '.join(unknown)}"
        yield _grown(text, share, known[f"collectives_{tier}_carried"], 1.0)


def _is_own(asked: CollectiveRequest, plan: StepPlan) -> bool:
    """Whether a measured curve of the user's own prices the communication that was asked for."""
    return nearest_curve(plan.profile.collectives, asked.kind, asked.ranks, asked.domains) is not None


def _doublings(asked: CollectiveRequest, reach: int) -> float:
    size = asked.ranks if asked.domains == 1 else asked.domains
    return max(0.0, math.log2(size / reach))


def _grown(name: str, share: float, one: Deviation, distance: float) -> IntervalPart:
    """The part of an interval for a cause whose deviation grows with its distance from measurements."""
    return IntervalPart(
        name=name,
        share=share,
        sigma=one.sigma * distance,
        source=one.source,
        kind="beyond",
        distance=distance,
    )


def routed_experts(doubt: Doubt, steps: MeasuredSteps) -> Iterator[IntervalPart]:
    """Parts of layers that route tokens to experts."""
    for name, amount in zip(EXPERTS, doubt.experts.amounts, strict=True):
        if amount > 0:
            text = "routed experts" if name == EXPERTS[0] else "routed experts across NVLink domains"
            one = steps.terms[name]
            yield IntervalPart(name=text, share=amount, sigma=one.sigma, source=one.source, kind="experts")


def unlike_measured(doubt: Doubt, steps: MeasuredSteps) -> Iterator[IntervalPart]:
    """Parts of routed experts, of code that nobody read, and of every difference to the nearest measured
    run."""
    yield from routed_experts(doubt, steps)
    run = doubt.regime
    if not doubt.read:
        one = steps.of_unread(run.software)
        text = "software.read false: nobody read the code of this trainer"
        yield IntervalPart(name=text, share=1.0, sigma=one.sigma, source=one.source, kind="unlike")
    sigmas = {name: steps.terms[name].sigma for name in DIFFERENCES}
    measured, far = nearest(run, steps.families, sigmas)
    words = {
        "software": f"the nearest measured ran {measured.software}",
        "gpu": f"the nearest measured ran on {measured.gpu}",
        "precision": f"the nearest measured ran in {measured.precision}",
        "sequence": "doublings beyond the nearest measured sequence",
        "gpus": "doublings beyond the nearest measured number of GPUs",
    }
    for name, distance in zip(DIFFERENCES, far, strict=True):
        if distance > 0:
            one = steps.terms[name]
            count = f"{distance:.1f} " if name in ("sequence", "gpus") else ""
            yield IntervalPart(
                name=f"steps: {count}{words[name]}",
                share=1.0,
                sigma=one.sigma * distance,
                source=one.source,
                kind="unlike",
                distance=distance,
            )
