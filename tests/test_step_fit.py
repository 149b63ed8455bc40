"""Fitting the constants that only step times show: what is known is found, and nothing else is fitted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner
from validation_cases import case_document, write_cases

from stepsim.cli.calibrate import PRESETS, write_constants
from stepsim.cli.main import app
from stepsim.hardware.profile import load_profile, profile_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate
from stepsim.sim.software.software import Software
from stepsim.sim.validation.case import read_cases
from stepsim.sim.validation.constants import (
    CLOCKS,
    CORUNS,
    FIXED_S,
    HOSTS_S,
    UNFITTED_PRESET,
    unfitted,
)
from stepsim.sim.validation.fit.choice import WORTH, Data, best_fixed, fit_constants, fittable, mean_error
from stepsim.sim.validation.fit.files import edited_presets
from stepsim.sim.validation.fit.page import fit_markdown
from stepsim.sim.validation.fit.report import StepFit, half_of, judge
from stepsim.sim.validation.fit.rows import StepTimes, TimedRow, step_time_s
from stepsim.sim.validation.fit.search import around, climb, coarse_to_fine
from stepsim.sim.validation.to_scenario import to_scenario
from stepsim.sim.validation.trial import Trial

GPU, PRESET = "H100-SXM5-80GB", "nanotron-2024"

SMALL = {
    "hardware.gpus": 8,
    "hardware.interconnect": "nvlink-only",
    "model.num_layers": 4,
    "model.hidden_size": 1024,
    "model.num_attention_heads": 8,
    "model.num_query_groups": 8,
    "model.kv_channels": 128,
    "model.ffn_hidden_size": 4096,
    "layout.tp": 2,
    "layout.pp": 2,
    "layout.vpp": 1,
    "layout.schedule": "1f1b",
    "layout.global_batch": 8,
}
"""A case that is simulated in some milliseconds."""


@dataclass(frozen=True)
class Job:
    """A step in closed form: math, partly beside communication, or a host that is slower."""

    math_s: float
    beside: float
    kernels: float

    def step_s(self, trial: Trial) -> float:
        busy_s = self.math_s / trial.clock_fraction * (1 + self.beside * trial.corun_slowdown)
        return max(busy_s, self.kernels * trial.host_s_per_kernel)


JOBS = {
    "large": Job(math_s=9.0, beside=0.0, kernels=2e4),
    "wide": Job(math_s=4.0, beside=0.5, kernels=2e4),
    "overlapped": Job(math_s=6.0, beside=0.8, kernels=2e4),
    "small": Job(math_s=0.1, beside=0.0, kernels=5e5),
    "tiny": Job(math_s=0.01, beside=0.0, kernels=8e4),
    "tiny too": Job(math_s=0.02, beside=0.0, kernels=1e5),
}
"""By family."""


def row(family: str, measured_s: float, source: str = "one", gpu: str = GPU) -> TimedRow:
    """A row that no simulator needs to know."""
    nothing = cast("Any", None)
    return TimedRow(
        source=source, family=family, gpu=gpu, preset=PRESET, measured_s=measured_s, scenario=nothing
    )


def closed_form(jobs: Mapping[str, Job]) -> Callable[[Sequence[tuple[TimedRow, Trial]]], list[float]]:
    """Times of rows by their family."""
    return lambda wanted: [jobs[one.family].step_s(trial) for one, trial in wanted]


def measured(jobs: Mapping[str, Job], trial: Trial, fixed_s: float = 0.0) -> list[TimedRow]:
    """A row of each job, as it runs under ``trial``."""
    return [row(name, job.step_s(trial) + fixed_s) for name, job in jobs.items()]


def data_of(rows: Sequence[TimedRow], jobs: Mapping[str, Job]) -> Data:
    wanted = fittable(rows)
    return Data(rows=rows, times=closed_form(jobs), wanted=wanted, start=unfitted(rows, wanted))


@settings(max_examples=30)
@given(
    clock=st.sampled_from(CLOCKS),
    corun=st.sampled_from([0.0, CORUNS[6], CORUNS[15]]),
    host_s=st.sampled_from([host for host in HOSTS_S[:-1] if host >= 1e-5]),
    fixed_s=st.sampled_from([0.0, FIXED_S[20], FIXED_S[30]]),
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


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.floats(-1, 3)), min_size=1))
def test_rows_that_are_said_twice_weigh_nothing(members: list[tuple[str, str, float]]) -> None:
    rows = [row(family, 1.0, source=source) for source, family, _ in members]
    errors = [error for *_, error in members]
    once = mean_error(rows, errors)
    assert mean_error(rows * 3, errors * 3) == pytest.approx(once, abs=1e-12)
    first = [one for one in rows if one.source == rows[0].source]
    first_errors = [error for one, error in zip(rows, errors, strict=True) if one.source == rows[0].source]
    assert mean_error(rows + first, errors + first_errors) == pytest.approx(once, abs=1e-12)


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


@pytest.fixture
def case_file(tmp_path: Path) -> Path:
    """Two families on one GPU, at measurements that a clock in reach explains."""
    cases = [
        case_document(
            {
                **SMALL,
                "id": f"{size}",
                "family": f"gpt {size}",
                "model.num_layers": size,
                "measured.step_time_s": 1.0,
            }
        )
        for size in (4, 8)
    ]
    slow = Trial(clock_fraction=0.75, corun_slowdown=0.0, host_s_per_kernel=6e-6)
    for case, read in zip(cases, read_cases(write_cases(tmp_path / "any.yaml", cases)), strict=True):
        case["measured"]["step_time_s"] = step_time_s(to_scenario(read), slow)
    return write_cases(tmp_path / "small.yaml", cases)


@pytest.fixture
def scenario(case_file: Path) -> Scenario:
    """The first of those cases."""
    return to_scenario(read_cases(case_file)[0])


def test_a_step_can_be_simulated_with_another_profile(scenario: Scenario) -> None:
    shipped = load_profile(scenario.cluster.gpu)
    assert simulate(scenario, profile=shipped).step_time_s == simulate(scenario).step_time_s
    slower = replace(shipped, clock_fraction=shipped.clock_fraction / 2)
    assert simulate(scenario, profile=slower).step_time_s > simulate(scenario).step_time_s


def test_a_trial_is_what_the_simulator_says(scenario: Scenario) -> None:
    trial = Trial(clock_fraction=0.72, corun_slowdown=0.1, host_s_per_kernel=2e-5)
    profile = replace(load_profile(scenario.cluster.gpu), clock_fraction=0.72, corun_slowdown=0.1)
    software = scenario.software.model_copy(update={"host_s_per_kernel": 2e-5, "step_fixed_s": 0.03})
    said = simulate(scenario.model_copy(update={"software": software}), profile=profile)
    assert said.step_time_s == pytest.approx(step_time_s(scenario, trial) + 0.03, rel=1e-12)


def test_a_slower_host_never_shortens_a_step(scenario: Scenario) -> None:
    """What lets a row between two equal host times stay unsimulated."""
    trials = [Trial(clock_fraction=1.0, corun_slowdown=0.0, host_s_per_kernel=host) for host in HOSTS_S[::4]]
    steps_s = [step_time_s(scenario, trial) for trial in trials]
    assert steps_s == sorted(steps_s)
    assert steps_s[-1] > 2 * steps_s[0]


def test_nothing_is_simulated_twice(scenario: Scenario) -> None:
    one = TimedRow(
        source="a", family="a", gpu=scenario.cluster.gpu, preset="x", measured_s=1.0, scenario=scenario
    )
    trial = Trial(clock_fraction=0.92, corun_slowdown=0.0, host_s_per_kernel=2e-6)
    with StepTimes(jobs=1) as times:
        assert times([(one, trial)]) == times([(one, trial)]) == [step_time_s(scenario, trial)]
        assert times.simulated == 1
        times([(one, replace(trial, host_s_per_kernel=2.0001e-6))])
        assert times.simulated == 2
        times([(one, replace(trial, host_s_per_kernel=2.00005e-6))])  # between two that are as good as equal
        assert times.simulated == 2
        times([(one, replace(trial, host_s_per_kernel=1e-4))])
        times([(one, replace(trial, host_s_per_kernel=5e-5))])  # between two that are not
        assert times.simulated == 4


@pytest.mark.parametrize("clock", [0.61, 0.75, 0.9, 0.9686])
def test_between_two_knots_of_the_clock_a_step_is_as_simulated(scenario: Scenario, clock: float) -> None:
    one = TimedRow(
        source="a", family="a", gpu=scenario.cluster.gpu, preset="x", measured_s=1.0, scenario=scenario
    )
    trial = Trial(clock_fraction=clock, corun_slowdown=0.0, host_s_per_kernel=2e-6)
    with StepTimes(jobs=1) as times:
        assert times([(one, trial)]) == [pytest.approx(step_time_s(scenario, trial), rel=1e-3)]
        assert times.simulated == 2


def test_a_constant_at_the_end_of_its_range_is_not_adopted() -> None:
    """A bias that every small step has is no time per step: a larger one would always be better."""
    jobs = {name: Job(math_s=seconds, beside=0.0, kernels=1e3) for name, seconds in (("a", 1.0), ("b", 2.0))}
    rows = [row("a", jobs["a"].math_s + 0.5), row("b", jobs["b"].math_s + 0.5)]
    data = data_of(rows, jobs)
    choice = best_fixed(data, data.start, PRESET)
    assert choice.best == FIXED_S[-1]
    assert choice.gain > WORTH
    assert choice.adopted == 0.0


def a_fit() -> StepFit:
    """A fit that has found a clock and a host time."""
    trial = Trial(clock_fraction=0.83, corun_slowdown=0.0, host_s_per_kernel=3.1e-5)
    rows = measured(JOBS, trial)
    return judge(rows, closed_form(JOBS), fittable(rows))


def test_presets_keep_every_other_line() -> None:
    before = PRESETS.read_text()
    after = edited_presets(before, a_fit())
    own = [line for line in after.splitlines() if line.startswith("  host_s_per_kernel: 3.1e-05")]
    assert len(own) == 1
    assert "6 rows, 6 families, 1 source" in own[0]
    assert _without_hosts(after) == _without_hosts(before)
    assert edited_presets(after, a_fit()) == after
    read = yaml.safe_load(after)
    assert Software(name=PRESET, **read[PRESET]).host_s_per_kernel == 3.1e-5
    others = {name: fields for name, fields in yaml.safe_load(before).items() if name != PRESET}
    assert {name: fields for name, fields in read.items() if name != PRESET} == others


def test_a_field_that_a_preset_lacks_joins_its_block() -> None:
    preset = (
        "first:\n  title: one\n  step_fixed_s: 1.0\nnanotron-2024:\n  title: two\nlast:\n  title: three\n"
    )
    after = edited_presets(preset, a_fit())
    assert yaml.safe_load(after) == {
        "first": {"title": "one", "step_fixed_s": 1.0},
        "nanotron-2024": {"title": "two", "host_s_per_kernel": 3.1e-5},
        "last": {"title": "three"},
    }


def test_profiles_are_written_with_where_they_come_from(tmp_path: Path) -> None:
    presets = tmp_path / "presets.yaml"
    presets.write_text(PRESETS.read_text())
    write_constants(a_fit(), tmp_path, presets)
    written = profile_from_document(yaml.safe_load((tmp_path / f"{GPU}.yaml").read_text()))
    assert written.clock_fraction == 0.83
    assert written.step_time_fit.startswith("fitted: 6 rows, 6 families, 1 source")
    shipped = load_profile(GPU)
    assert written.step_time_residual == pytest.approx(
        next(g for g in a_fit().gpus if g.name == GPU).coverage.held_out, abs=1e-3
    )
    assert written == replace(
        shipped,
        clock_fraction=0.83,
        corun_slowdown=0.0,
        step_time_fit=written.step_time_fit,
        step_time_residual=written.step_time_residual,
    )
    assert presets.read_text() != PRESETS.read_text()


def test_the_page_shows_every_constant_and_both_errors() -> None:
    fit = a_fit()
    page = fit_markdown(fit)
    assert f"Constants fitted: {fit.fitted_constants}; cases: 6 in 6 families" in page
    assert "`clock_fraction` 0.83" in page
    assert "`host_s_per_kernel` 31.00 us" in page
    assert "in sample" in page
    assert "held out" in page
    assert fit_markdown(a_fit()) == page


def test_calibrate_steps_finds_the_clock(case_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = CliRunner().invoke(
        app,
        [
            "calibrate",
            "steps",
            str(case_file),
            "--gpu",
            "A100-SXM4-80GB",
            "--jobs",
            "1",
            "--json",
            "--markdown",
            str(page),
        ],
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["constants"]["gpus"]["A100-SXM4-80GB"]["clock_fraction"] == 0.75
    assert document["fitted_constants"] == 1
    assert document["presets"] == []
    assert "## A100-SXM4-80GB" in page.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpu", "H100-SXM5-80G"], "H100-SXM5-80GB"),
        (["--software", "nanotron"], "nanotron-2024"),
        (["--gpu", "B200-SXM-180GB"], "nothing to fit"),
    ],
)
def test_what_cannot_be_fitted_is_refused(options: list[str], message: str, case_file: Path) -> None:
    done = CliRunner().invoke(app, ["calibrate", "steps", str(case_file), "--jobs", "1", *options])
    assert done.exit_code == 2
    assert message in done.stderr


def _without_hosts(text: str) -> list[str]:
    return [line for line in text.splitlines() if "host_s_per_kernel:" not in line]


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
