"""Fitting the constants that only step times show: what is known is found, and nothing else is fitted."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_fit_jobs import GPU, JOBS, PRESET, Job, closed_form, data_of, measured, row

from stepsim.calibration.cases.constants import (
    CLOCKS,
    CLOCKS_CARRIED,
    CORUNS,
    EAGER_HOST_S,
    FIXED_S,
    HOSTS_CARRIED,
    HOSTS_S,
    UNFITTED_PRESET,
    UNTIMED_PRESET,
    unfitted,
)
from stepsim.calibration.cases.trial import Trial
from stepsim.calibration.fit.steps import left_out
from stepsim.calibration.fit.steps.left_out import without_source
from stepsim.calibration.fit.steps.page import fit_markdown
from stepsim.calibration.fit.steps.report import half_of, judge
from stepsim.calibration.fit.steps.search import around, climb, coarse_to_fine
from stepsim.calibration.fit.steps.step_constants import (
    WORTH,
    best_fixed,
    fit_constants,
    fittable,
    mean_error,
)
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.limited_clock import clock_carried
from stepsim.sim.scenario.software import get_software
from stepsim.sim.scenario.software.presets import software_names

WITHOUT_AUTOGRAD_S = 2.4e-5
"""Host time of a launch where autograd records nothing (docs/decisions/0087-launches-counted.md)."""

MODULE_BY_MODULE = ("megatron-core", "nemo-", "megatron-bridge", "primus")


@settings(max_examples=30)
@given(
    clock=st.sampled_from(CLOCKS),
    corun=st.sampled_from([0.0, CORUNS[6], CORUNS[15]]),
    host_s=st.sampled_from([host for host in HOSTS_S[:-1] if host >= 1e-5]),
    fixed_s=st.sampled_from(
        [0.0, FIXED_S[20], FIXED_S[35]]
    ),  # none, too little to show, 2 % of two families or more
)
def test_constants_that_made_the_steps_are_found(
    clock: float, corun: float, host_s: float, fixed_s: float
) -> None:
    """Not each constant to the digit, since one may stand in for another; what they predict is right."""
    trial = Trial(clock_fraction=clock, corun_slowdown=corun, host_s_per_kernel=host_s)
    data = data_of(measured(JOBS, trial, fixed_s), JOBS)
    found = fit_constants(data)
    assert data.error(found, data.rows) < 0.01
    if not corun and not fixed_s:
        assert found.gpus[GPU].clock_fraction == clock
        assert found.presets[PRESET].host_s_per_kernel == host_s
        assert found.gpus[GPU].corun_slowdown == found.presets[PRESET].step_fixed_s == 0.0


def test_what_no_step_shows_is_not_fitted() -> None:
    """Math-bound steps, and measurements that scatter: the clock takes it all."""
    jobs = {name: JOBS[name] for name in ("large", "wide", "overlapped")}
    trial = Trial(clock_fraction=0.8, corun_slowdown=0.0, host_s_per_kernel=6e-6)
    scatter = (1.05, 0.97, 0.99)
    rows = [
        replace(one, measured_s=one.measured_s * by)
        for one, by in zip(measured(jobs, trial), scatter, strict=True)
    ]
    found = fit_constants(data_of(rows, jobs))
    assert found.presets[PRESET] == UNFITTED_PRESET
    assert found.gpus[GPU].corun_slowdown == 0.0


def test_one_family_alone_cannot_bring_in_a_constant() -> None:
    jobs = {name: JOBS[name] for name in ("large", "wide", "small")}
    slow_host = Trial(clock_fraction=0.8, corun_slowdown=0.0, host_s_per_kernel=4e-5)
    one_shows_it = fit_constants(data_of(measured(jobs, slow_host), jobs))
    assert one_shows_it.presets[PRESET].host_s_per_kernel == UNFITTED_PRESET.host_s_per_kernel
    jobs |= {"tiny": JOBS["tiny"]}
    two_show_it = fit_constants(data_of(measured(jobs, slow_host), jobs))
    assert two_show_it.presets[PRESET].host_s_per_kernel == 4e-5


def test_a_gpu_with_one_family_is_left_as_shipped() -> None:
    rows = [row("large", 1.0), row("wide", 1.0), row("large", 1.0, gpu="A100-SXM4-80GB")]
    wanted = fittable(rows)
    assert wanted.gpus == (GPU,)
    start = unfitted(rows, wanted)
    assert (
        start.gpus["A100-SXM4-80GB"].clock_fraction == load_profile("A100-SXM4-80GB").clock_fraction
    )  # and not measured_clock_fraction, where a fit would start
    assert start.gpus[GPU].clock_fraction == load_profile(GPU).measured_clock_fraction


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.floats(-0.9, 3)), min_size=1))
def test_rows_that_are_said_twice_weigh_nothing(members: list[tuple[str, str, float]]) -> None:
    rows = [row(family, 1.0, source=source) for source, family, _ in members]
    errors = [error for *_, error in members]
    once = mean_error(rows, errors)
    assert mean_error(rows * 3, errors * 3) == pytest.approx(once, abs=1e-12)
    first = [one for one in rows if one.source == rows[0].source]
    first_errors = [error for one, error in zip(rows, errors, strict=True) if one.source == rows[0].source]
    assert mean_error(rows + first, errors + first_errors) == pytest.approx(once, abs=1e-12)


@given(st.floats(0.1, 10))
def test_too_short_by_a_factor_counts_as_too_long_by_it(factor: float) -> None:
    """Of relative errors the shorter step would count less, and a fit would tell steps too short."""
    rows = [row("large", 1.0)]
    assert mean_error(rows, [factor - 1]) == pytest.approx(mean_error(rows, [1 / factor - 1]), abs=1e-12)


def test_families_that_disagree_do_not_take_the_faster_clock() -> None:
    """Three families ask for one clock, two for a faster: the majority wins, however far apart they are."""
    jobs = {f"family {i}": Job(math_s=5.0 + i, beside=0.0, kernels=1e3) for i in range(5)}
    wishes = (0.62, 0.62, 0.62, 0.98, 0.98)
    rows = [row(name, jobs[name].math_s / clock) for name, clock in zip(jobs, wishes, strict=True)]
    assert fit_constants(data_of(rows, jobs)).gpus[GPU].clock_fraction == 0.62


def test_a_large_source_does_not_outvote_a_small_one() -> None:
    """Two small sources want one clock, hundreds of rows of a third another: the majority of sources wins."""
    jobs = {name: JOBS[name] for name in ("large", "wide")}
    wishes = {"a": (0.9, 1), "b": (0.9, 1), "sweep": (0.7, 200)}
    rows = [
        row(name, job.math_s / clock, source=source)
        for source, (clock, times) in wishes.items()
        for name, job in jobs.items()
        for _ in range(times)
    ]
    assert fit_constants(data_of(rows, jobs)).gpus[GPU].clock_fraction == 0.9


def test_the_order_of_rows_changes_nothing() -> None:
    trial = Trial(clock_fraction=0.83, corun_slowdown=0.0, host_s_per_kernel=3.1e-5)
    noise = random.Random(1)
    rows = [
        replace(one, measured_s=one.measured_s * noise.uniform(0.9, 1.1)) for one in measured(JOBS, trial)
    ]
    shuffled = rows[:]
    noise.shuffle(shuffled)
    assert fit_constants(data_of(rows, JOBS)) == fit_constants(data_of(shuffled, JOBS))


def test_families_stay_in_their_half() -> None:
    """Pinned: another split would silently change every published held-out figure."""
    assert [half_of(name) for name in ("gpt 22b", "gpt 175b", "llama 7b", "llama 70b")] == [1, 0, 1, 0]


def test_held_out_rows_are_predicted_by_the_other_half() -> None:
    """Halves that disagree give each its own clock, and the other's to the rows that it did not see."""
    clocks = (0.7, 0.9)
    jobs = {f"family {i}": Job(math_s=5.0 + i, beside=0.0, kernels=1e3) for i in range(12)}
    rows = [row(name, job.math_s / clocks[half_of(name)]) for name, job in jobs.items()]
    fit = judge(rows, closed_form(jobs), fittable(rows))
    assert fit.gpus[0].halves == clocks
    expected = [clocks[half_of(name)] / clocks[1 - half_of(name)] - 1 for name in jobs]
    assert fit.held_out.error == pytest.approx(mean_error(rows, expected))
    assert fit.fitted.error < fit.held_out.error
    assert fit.fitted_constants == 1


@given(best=st.integers(0, 40), stride=st.sampled_from([1, 2, 4, 8, 16]))
def test_one_valley_is_searched_to_its_bottom(best: int, stride: int) -> None:
    values = tuple(float(i) for i in range(41))
    asked: list[float] = []

    def score(value: float) -> float:
        asked.append(value)
        return abs(value - best) ** 1.5

    assert coarse_to_fine(values, score, stride) == best
    assert climb(values, score, 20.0, (1,)) == best
    assert set(asked) <= set(values)
    assert best in around(values, best, stride)


def test_a_constant_at_the_end_of_its_range_is_not_adopted() -> None:
    """A bias that every small step has is no time per step: a larger one would always be better."""
    jobs = {name: Job(math_s=seconds, beside=0.0, kernels=1e3) for name, seconds in (("a", 1.0), ("b", 2.0))}
    rows = [row("a", jobs["a"].math_s + 0.5), row("b", jobs["b"].math_s + 0.5)]
    data = data_of(rows, jobs)
    choice = best_fixed(data, data.start, PRESET)
    assert choice.best == FIXED_S[-1]
    assert choice.gain > WORTH
    assert choice.adopted == 0.0


def test_a_near_fit_finds_what_a_whole_one_finds() -> None:
    """From the shipped constants, where the error has one valley."""
    trial = Trial(clock_fraction=0.81, corun_slowdown=0.0, host_s_per_kernel=3.1e-5)
    rows = measured(JOBS, trial)
    whole = judge(rows, closed_form(JOBS), fittable(rows))
    near = judge(rows, closed_form(JOBS), fittable(rows), near=True)
    assert near.constants == whole.constants
    page = fit_markdown(near)
    assert "no constant fitted" not in page
    assert "--near" in page


def test_a_source_is_left_out_of_what_predicts_it() -> None:
    """Two sources with clocks of their own: without one, the other's clock is found, and without the only
    source of a preset its host is as no step has shaped it."""
    jobs = {name: JOBS[name] for name in ("large", "wide")}
    fast, slow = (
        Trial(clock_fraction=clock, corun_slowdown=0.0, host_s_per_kernel=6e-6) for clock in (0.9, 0.7)
    )
    rows = [
        replace(one, source=source)
        for source, trial in (("fast", fast), ("slow", slow))
        for one in measured(jobs, trial)
    ]
    data = data_of(rows, jobs)
    assert without_source(data, "slow").gpus[GPU].clock_fraction == 0.9
    assert without_source(data, "fast").gpus[GPU].clock_fraction == 0.7
    alone = replace(data, rows=[one for one in rows if one.source == "fast"])
    found = without_source(alone, "fast")
    assert found.gpus == unfitted(alone.rows, alone.wanted).gpus
    assert found.presets[PRESET] == UNTIMED_PRESET
    carrying = {name for name, origin in HOSTS_CARRIED.items() if origin == PRESET}
    assert carrying
    for name in carrying:  # what one source has shown of several presets goes with it
        assert found.presets[name].host_s_per_kernel == UNTIMED_PRESET.host_s_per_kernel
        assert found.presets[name].step_fixed_s == get_software(name).host.step_fixed_s


def test_a_gpu_of_no_other_source_has_the_clock_of_its_kin_at_its_own_power_limit() -> None:
    capped = "H100-SXM-HBM2e-96GB-500W"
    jobs = {name: JOBS[name] for name in ("large", "wide")}
    trial = Trial(clock_fraction=0.86, corun_slowdown=0.0, host_s_per_kernel=6e-6)
    own = [replace(one, source="many") for one in measured(jobs, trial)]
    rows = [*own, *(replace(one, source="one", gpu=capped) for one in own)]
    found = without_source(data_of(rows, jobs), "one")
    assert found.gpus[GPU].clock_fraction == 0.86
    assert found.gpus[capped].clock_fraction == round(clock_carried(0.86, get_gpu(GPU), get_gpu(capped)), 2)
    assert found.gpus[capped].clock_fraction < 0.8


def test_kin_is_what_most_sources_ran_on_and_not_what_one_ran_most_on() -> None:
    trial = Trial(clock_fraction=0.86, corun_slowdown=0.0, host_s_per_kernel=6e-6)
    (one,) = measured({"large": JOBS["large"]}, trial)
    often = [replace(one, gpu="B200-SXM-180GB", source="one", family=f"family {k}") for k in range(9)]
    widely = [replace(one, gpu="GB200-NVL72", source=f"source {k}") for k in range(2)]
    known = ["B200-SXM-180GB", "GB200-NVL72", "H100-SXM5-80GB"]
    assert left_out._relative("GB300-NVL72", known, [*often, *widely]) == "GB200-NVL72"
    assert left_out._relative("GB300-NVL72", known, [*often, *widely[:1]]) == "B200-SXM-180GB"
    assert left_out._relative("MI300X", known, often) is None


def test_a_gpu_of_the_same_chip_and_power_has_the_clock_that_is_fitted() -> None:
    jobs = {name: JOBS[name] for name in ("large", "wide")}
    own = measured(jobs, Trial(clock_fraction=0.8, corun_slowdown=0.0, host_s_per_kernel=6e-6))
    rows = [*own, *(replace(one, gpu="H200-SXM-141GB", measured_s=1.1 * one.measured_s) for one in own)]
    data = data_of(rows, jobs)
    alone = replace(data, wanted=replace(data.wanted, gpus=(GPU,)))
    assert fit_constants(alone).gpus["H200-SXM-141GB"].clock_fraction == 0.8
    assert fit_constants(data).gpus["H200-SXM-141GB"].clock_fraction < 0.79  # who asks for its own gets it
    for name, origin in CLOCKS_CARRIED.items():
        shipped, carried = load_profile(origin), load_profile(name)
        assert carried.clock_fraction == shipped.clock_fraction
        assert origin in carried.step_time_fit
        assert get_gpu(name).tdp_w == get_gpu(origin).tdp_w


def test_presets_that_carry_a_host_time_have_that_of_its_origin() -> None:
    for name, origin in HOSTS_CARRIED.items():
        assert get_software(name).host.host_s_per_kernel == get_software(origin).host.host_s_per_kernel, (
            f"{name}: no longer carried from {origin}"
        )


def test_presets_say_which_published_time_of_a_launch_they_have(root: Path) -> None:
    """A figure that many presets state is the one of the measurement which they name."""
    text = (root / "sim" / "scenario" / "software" / "presets.yaml").read_text(encoding="utf-8")
    stated = re.findall(r"host_s_per_kernel: (\S+) +# of (eager PyTorch, by|PyTorch where autograd)", text)
    assert {kind for _, kind in stated} == {"eager PyTorch, by", "PyTorch where autograd"}
    for host_s, kind in stated:
        assert float(host_s) == (EAGER_HOST_S if kind.startswith("eager") else WITHOUT_AUTOGRAD_S)


@pytest.mark.parametrize("name", [name for name in software_names() if name.startswith(MODULE_BY_MODULE)])
def test_layers_of_modules_are_launched_no_faster_than_eager_training(name: str) -> None:
    assert get_software(name).host.host_s_per_kernel == EAGER_HOST_S
