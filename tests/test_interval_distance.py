"""Intervals widen with the distance from what was measured, and headlines say what they count."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_doubts import doubt

from stepsim.calibration.fit.growth import (
    NORMAL_NINTH,
    LeftOut,
    growth_per_doubling,
    level_for_another,
    spreads_that_hold,
    witnesses,
)
from stepsim.hardware.calibrated.overlay import load_profile, profile_names
from stepsim.hardware.deviations import shipped_deviations
from stepsim.hardware.provenance import Provenance
from stepsim.kernels.cost import beyond_range, in_range
from stepsim.kernels.kernel import Gemm
from stepsim.sim.evidence.interval import doubt_of, interval_of
from stepsim.sim.evidence.measured_steps import (
    DIFFERENCES,
    POOLED,
    Doubt,
    Regime,
    RoutedExperts,
    differences,
    is_outside,
    measured_steps,
    nearest,
    precision_class,
    spanning,
    unlike,
)
from stepsim.sim.evidence.run_noise import NOISE, deviations_that_hold
from stepsim.sim.lowering.lower import lower
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.report.tables import headline
from stepsim.sim.result.result import CAUSAL_HEADLINE, Result
from stepsim.sim.result.step import Interval, PathSegment
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import build_cluster, simulate

SCENARIO = "llama3-8b-h100"

regimes = st.builds(
    Regime,
    software=st.sampled_from(("a", "b", "c")),
    gpu=st.sampled_from(("A100", "H100")),
    precision=st.sampled_from(("bf16", "fp8")),
    sequence=st.sampled_from([2**n for n in range(10, 21)]),
    gpus=st.sampled_from([2**n for n in range(15)]),
)
sigmas = st.fixed_dictionaries({name: st.floats(0.002, 0.5) for name in DIFFERENCES})


def width(doubt: Doubt) -> float:
    interval = interval_of(1.0, doubt, measured_steps())
    assert interval.low_s < 1.0 < interval.high_s
    return interval.high_s - interval.low_s


@given(measured=st.sampled_from(measured_steps().families), longer=st.integers(1, 8), more=st.integers(1, 8))
def test_every_doubling_away_from_measured_steps_widens(measured: Regime, longer: int, more: int) -> None:
    def away(sequence: int, gpus: int) -> float:
        return width(
            doubt(replace(measured, sequence=measured.sequence * sequence, gpus=measured.gpus * gpus))
        )

    assert away(1, 1) <= away(2**longer, 1) <= away(2 ** (longer + 1), 1)
    assert away(1, 1) <= away(1, 2**more) <= away(1, 2 ** (more + 1))
    assert away(2**longer, 1) <= away(2**longer, 2**more)
    far = replace(measured, sequence=2**40, gpus=2**40)
    assert width(doubt(far)) > width(doubt(measured))


@given(
    measured=st.sampled_from(measured_steps().families),
    share=st.floats(0.01, 0.49),
    more=st.integers(1, 12),
)
def test_waits_of_more_gpus_and_of_more_communication_widen_above_alone(
    measured: Regime, share: float, more: int
) -> None:
    def ends(gpus: int, network: float) -> tuple[float, float]:
        made = doubt(replace(measured, gpus=gpus), network=network)
        interval = interval_of(1.0, made, replace(measured_steps(), families=(measured,)))
        return interval.low_s, interval.high_s

    assert ends(1, share) == ends(1, 0.0)  # one GPU waits for none
    few, many, much = ends(2, share), ends(2 * 2**more, share), ends(2, 2 * share)
    assert few[1] < min(many[1], much[1])
    assert few[0] == much[0] == ends(2, 0.0)[0]


@given(
    sigma=st.floats(0.01, 0.3),
    common=st.floats(0.01, 0.3),
    few=st.integers(0, 40),
    more=st.integers(1, 1000),
)
def test_a_gpus_own_residual_counts_by_its_families(sigma: float, common: float, few: int, more: int) -> None:
    def pooled(families: int) -> float:
        known = replace(measured_steps(), steps=common, families_on={"A": families})
        return known.pooled(sigma, "A")

    steps = replace(measured_steps(), steps=common)
    assert steps.pooled(sigma, "never measured") == pytest.approx(common)
    assert pooled(int(POOLED)) == pytest.approx(math.sqrt((sigma**2 + common**2) / 2))
    assert abs(pooled(few + more) - sigma) <= abs(pooled(few) - sigma) + 1e-12


@given(less=st.floats(0.001, 0.5), more=st.floats(1.001, 10.0))
def test_a_larger_standard_deviation_reaches_further_but_not_as_many_times(less: float, more: float) -> None:
    near, far = (deviations_that_hold(1.3, sigma) for sigma in (less, less * more))
    assert near * less < far * less * more
    assert far < near
    assert near * less > 1.3 * NOISE


@given(measured=st.sampled_from(measured_steps().families))
def test_software_gpu_precision_and_experts_that_nobody_measured_widen(measured: Regime) -> None:
    usual = measured_steps().steps  # so that it is no news of a GPU that its steps are off by so much
    known = width(doubt(measured, sigma=usual))
    for name in ("software", "gpu", "precision"):
        assert width(doubt(replace(measured, **cast(Any, {name: "new"})), sigma=usual)) > known
    some, all_ = RoutedExperts(share=0.5), RoutedExperts(share=1.0)
    across = RoutedExperts(share=1.0, across_domains=True)
    widths = [
        known,
        *(width(doubt(measured, experts=experts, sigma=usual)) for experts in (some, all_, across)),
    ]
    assert widths == sorted(widths)
    assert len(set(widths)) == 4


@given(run=regimes, families=st.lists(regimes, min_size=1, max_size=8), sigma=sigmas, seed=st.integers(0, 99))
def test_the_order_of_families_and_what_others_cover_change_nothing(
    run: Regime, families: list[Regime], sigma: dict[str, float], seed: int
) -> None:
    def variance(known: list[Regime]) -> float:
        _, far = nearest(run, known, sigma)
        return sum((sigma[name] * one) ** 2 for name, one in zip(DIFFERENCES, far, strict=True))

    shuffled = families[:]
    Random(seed).shuffle(shuffled)
    assert nearest(run, shuffled, sigma) == nearest(run, families, sigma)
    assert variance(list(spanning(families))) == pytest.approx(variance(families))
    assert (unlike(doubt(run), families) == 0) == any(not any(differences(run, one)) for one in families)


def test_of_runs_as_near_the_one_on_a_like_gpu_is_named() -> None:
    """A100 comes first by name, and has no GEMMs of 8 bits."""
    like = Regime(software="nemo-2025", gpu="GB200-NVL72", precision="bf16", sequence=8192, gpus=64)
    old = replace(like, gpu="A100-SXM4-80GB")
    run = replace(like, gpu="B200-SXM-180GB", precision="mxfp8")
    sigma = dict.fromkeys(DIFFERENCES, 0.05)
    assert nearest(run, [old, like], sigma)[0] == like
    assert nearest(run, [old, replace(like, gpus=32)], sigma)[0] == old


@given(
    errors=st.lists(
        st.tuples(st.floats(-1, 1), st.floats(0.1, 2), st.floats(0.1, 2), st.sampled_from([0.5, 1.0, 3.0])),
        min_size=1,
        max_size=20,
    ),
    share=st.sampled_from([0.5, 0.9]),
)
def test_no_fewer_spreads_hold_as_much(errors: list[tuple[float, float, float, float]], share: float) -> None:
    weights = sum(weight for *_, weight in errors)

    def held(spreads: float) -> float:
        inside = [w for error, low, high, w in errors if -spreads * low <= error <= spreads * high]
        return sum(inside) / weights

    found = spreads_that_hold(errors, share)
    assert held(found * (1 + 1e-9)) >= share - 1e-9
    assert found == 0 or held(found * (1 - 1e-9)) < share


@given(
    families=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    others=st.lists(st.integers(1, 5), min_size=1, max_size=30),
)
def test_sources_count_alike_and_so_do_families_of_one(families: list[int], others: list[int]) -> None:
    """``families`` of a source, each of so many rows, beside ``others`` of another."""
    rows = [
        (source, str(family))
        for source, sizes in (("a", families), ("b", others))
        for family, many in enumerate(sizes)
        for _ in range(many)
    ]
    of_family: dict[tuple[str, str], float] = {}
    for row, weight in zip(rows, witnesses(rows), strict=True):
        of_family[row] = of_family.get(row, 0.0) + weight
    for source, sizes in (("a", families), ("b", others)):
        own = [weight for (name, _), weight in of_family.items() if name == source]
        assert own == pytest.approx([1.0 / len(sizes)] * len(sizes))


@given(sources=st.integers(1, 60), seed=st.integers(0, 99))
def test_one_more_source_is_held_as_promised(sources: int, seed: int) -> None:
    """Of so many sources of one error each, and one more, each in turn the new one: nine in ten are held."""
    random = Random(seed)
    errors = [random.gauss(0, 1) for _ in range(sources + 1)]
    level = level_for_another(0.9, sources)
    held = 0
    for place, error in enumerate(errors):
        others = [(one, 1.0, 1.0, 1.0) for one in errors[:place] + errors[place + 1 :]]
        held += abs(error) <= spreads_that_hold(others, level)
    assert held >= 0.9 * len(errors) - 1e-9 or (level == 1.0 and held == sources)


@given(
    errors=st.lists(st.floats(-1, 1), min_size=3, max_size=40),
    distance=st.floats(0.5, 4),
    more=st.floats(1, 3),
    seed=st.integers(0, 99),
)
def test_growth_holds_nine_in_ten_and_grows_with_the_errors(
    errors: list[float], distance: float, more: float, seed: int
) -> None:
    points = [LeftOut(group="a", distance=distance, error=error, sigma=0.02) for error in errors]
    growth = growth_per_doubling(points)
    limit = NORMAL_NINTH * math.hypot(0.02, growth * distance) * (1 + 1e-9)
    assert sum(abs(error) <= limit for error in errors) >= 0.9 * len(errors)
    assert growth_per_doubling([replace(point, error=point.error * more) for point in points]) >= growth
    assert growth_per_doubling([replace(point, distance=point.distance * more) for point in points]) <= growth
    Random(seed).shuffle(points)
    assert growth_per_doubling(points) == growth


def test_groups_count_alike_and_near_points_say_nothing_of_growth() -> None:
    many = [LeftOut(group="calm", distance=1.0, error=0.0, sigma=0.0) for _ in range(95)]
    few = [LeftOut(group="wild", distance=1.0, error=0.5, sigma=0.0) for _ in range(5)]
    assert growth_per_doubling(many + few) == pytest.approx(0.5 / NORMAL_NINTH)
    with pytest.raises(ValueError, match="doubling"):
        growth_per_doubling([replace(few[0], distance=0.1)])


def test_a_kernel_is_beyond_a_range_exactly_where_it_is_not_inside() -> None:
    for gpu in profile_names():
        profile = load_profile(gpu)
        for exponent in range(6, 22):
            shapes = [
                Gemm(m=2**exponent, n=4096, k=8192, dtype="bf16"),
                Gemm(m=4096, n=4096, k=2**exponent, dtype="bf16"),
            ]
            for kernel in shapes:
                assert (beyond_range(kernel, profile) is None) == in_range(kernel, profile)
    seq = Provenance(source="made", ranges=(("seq", 512.0, 16384.0),))
    far = seq.beyond(seq=131072.0)
    assert far is not None
    assert (far.doublings, far.end) == (3.0, "largest")
    assert seq.beyond(seq=1024.0) is None
    assert Provenance(source="made").beyond(seq=1.0) is None


@functools.cache
def planned(sequence: int) -> StepPlan:
    changes = [f"training.seq_length={sequence}", "training.recompute=full"]
    scenario = load_scenario(SCENARIO, changes)
    return lower(scenario, build_cluster(scenario)).plan


def test_longer_sequences_are_less_certain_and_say_so() -> None:
    path = [PathSegment(name="GEMM", seconds=0.4), PathSegment(name="attention", seconds=0.6)]

    def interval(sequence: int) -> Interval:
        return interval_of(1.0, doubt_of(1.0, path, planned(sequence), microbatches=1), measured_steps())

    found = [interval(sequence) for sequence in (8192, 65536, 262144, 1048576)]
    widths = [one.high_s - one.low_s for one in found]
    assert widths == sorted(widths)
    assert widths[-1] > 1.5 * widths[0]
    distances = [
        max((part.distance for part in one.parts if part.name.startswith("attention:")), default=0.0)
        for one in found
    ]
    assert distances[0] == 0.0
    assert distances[-1] == pytest.approx(distances[-2] + 2.0)
    assert is_outside(doubt_of(1.0, path, planned(1048576), microbatches=1), measured_steps().families)


def test_kernels_of_a_gpu_whose_clock_no_step_shows_count_in_full() -> None:
    plan = planned(8192)
    path = [PathSegment(name="GEMM", seconds=1.0)]
    record = replace(plan.profile.gemm.provenance, carried=True, median_residual=None, p90_residual=None)
    carried = replace(plan.profile, gemm=replace(plan.profile.gemm, provenance=record))
    unfitted = replace(carried, step_time_residual=None, clock_from_steps=False)

    def gemm(own: StepPlan) -> float:
        interval = interval_of(1.0, doubt_of(1.0, path, own, microbatches=1), measured_steps())
        return next(part.sigma for part in interval.parts if part.name == "GEMM")

    assert gemm(replace(plan, profile=unfitted)) == shipped_deviations()["carried_kernels"].sigma
    assert gemm(plan) < gemm(replace(plan, profile=unfitted))


def test_a_gpu_that_differs_in_links_alone_is_known_by_the_steps_of_the_other() -> None:
    """Its kernels are those of the other; what crosses its links is doubtful by itself."""
    path = [PathSegment(name="GEMM", seconds=1.0)]

    def parts(gpu: str) -> dict[str, tuple[str, float]]:
        scenario = load_scenario(SCENARIO, [f"cluster.gpu={gpu}"])
        made = doubt_of(1.0, path, lower(scenario, build_cluster(scenario)).plan, microbatches=1)
        return {part.name: (part.kind, part.sigma) for part in interval_of(1.0, made, measured_steps()).parts}

    own, fewer_links, other = parts("H100-SXM5-80GB"), parts("H800-SXM5-80GB"), parts("H200-SXM-141GB")
    assert fewer_links["what no curve knows"] == own["what no curve knows"]
    assert {name for name, (kind, _) in fewer_links.items() if kind == "unlike"} == set()
    assert {name for name, (kind, _) in other.items() if kind == "unlike"} != set()


def test_both_16_bit_types_are_one_precision() -> None:
    assert precision_class("fp16") == precision_class("bf16") != precision_class("fp8")


@functools.cache
def simulated() -> Result:
    return simulate(load_scenario(SCENARIO))


@given(ratio=st.floats(1.0, 2.0))
def test_the_headline_is_causal_where_the_scores_are_much_of_the_step(ratio: float) -> None:
    step = simulated()
    one = replace(step, model_flops=step.model_flops_causal * ratio)
    assert one.headline_mfu == ("mfu_causal" if ratio > CAUSAL_HEADLINE or one.mfu > 1 else "mfu")
    shown = {what: figure for what, figure, _ in headline(one)}
    first = one.mfu if one.headline_mfu == "mfu" else one.mfu_causal
    assert shown["MFU"] == f"{first:.1%}".replace("%", " %")
    assert ("MFU, full" in shown) == (one.headline_mfu == "mfu_causal")


def test_no_headline_is_above_one() -> None:
    step = simulated()
    peak = step.step_time_s * step.gpus * step.peak_flops_per_gpu
    one = replace(step, model_flops=1.1 * peak, model_flops_causal=0.95 * peak)
    assert one.mfu > 1
    assert one.headline_mfu == "mfu_causal"


def test_a_clock_that_no_step_has_shown_is_not_shown_where_it_is_carried_to() -> None:
    """L40S has a clock that was carried itself; H100's is its steps'."""
    assert not load_profile("L40S").clock_from_steps
    for gpu, shown in (("RTX-4090", False), ("MI250X-GCD", False), ("H20-96GB", True)):
        assert load_profile(gpu).clock_from_steps is shown
