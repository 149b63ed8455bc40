"""A few measured steps of one's own: factors scale steps, are found again, and leave other steps surer."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from own_step_runs import GPU, SMALL, SPREAD, job, made_rows, measured_on, shares, slower, width_of
from typer.testing import CliRunner

from stepsim.calibration.fit.own.steps import FittedSteps, fit_own_steps
from stepsim.calibration.fit.steps.source_terms import (
    after_most_alike,
    calibrated,
    fit_source_spread,
    spreads_without,
)
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import calibrated_profile, load_profile
from stepsim.hardware.step_factors import AS_SHIPPED, CAUSES, OwnStep, StepKind
from stepsim.sim.brief.step import brief_step
from stepsim.sim.evidence.interval import interval_of
from stepsim.sim.evidence.measured_steps import measured_steps
from stepsim.sim.evidence.own_steps import (
    FREEDOM,
    StepSample,
    conditioned,
    distances,
    variances_of_runs,
)
from stepsim.sim.lowering.step_kind import step_kind
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

SIZES = st.sampled_from([1.0, 2.0, 8.0, 64.0])
kinds = st.builds(
    StepKind,
    sizes=st.fixed_dictionaries(dict.fromkeys(("tp", "pp", "dp"), SIZES)),
    kinds=st.fixed_dictionaries({"schedule": st.sampled_from(["1f1b", "gpipe"])}),
)
samples = st.builds(StepSample, shares=shares, step_s=st.floats(0.1, 100), kind=kinds)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@given(one=kinds, two=kinds, three=kinds)
def test_distance_is_a_metric_and_its_array_the_same(one: StepKind, two: StepKind, three: StepKind) -> None:
    assert one.distance(two) == two.distance(one)
    assert one.distance(three) <= one.distance(two) + two.distance(three) + 1e-9
    assert (one.distance(two) == 0) == (one == two)
    found = distances([one, two], [two, three])
    assert found == pytest.approx(
        np.array([[one.distance(two), one.distance(three)], [0.0, two.distance(three)]])
    )


@given(seen=st.lists(samples, min_size=1, max_size=4), step=samples)
def test_more_measured_steps_never_leave_more_open(seen: list[StepSample], step: StepSample) -> None:
    open_ = [conditioned(SPREAD, seen[:n], [0.0] * n).variance(step) for n in range(len(seen) + 1)]
    assert all(after <= before * (1 + 1e-6) + 1e-12 for before, after in pairwise(open_))


@given(seen=samples, step=samples, error=st.floats(-0.5, 0.5))
def test_one_step_says_what_the_closed_form_says(seen: StepSample, step: StepSample, error: float) -> None:
    def shared(one: StepSample, two: StepSample) -> float:
        fade = SPREAD.kind**2 * math.exp(-one.kind.distance(two.kind) / SPREAD.reach)
        return float(one.loads @ SPREAD.factors @ two.loads) + fade

    known = conditioned(SPREAD, [seen], [error])
    alone = variances_of_runs(SPREAD.run, np.array([[shared(seen, seen)]]), np.array([error]))[0]
    whole = shared(seen, seen) + alone
    fade = math.exp(-seen.kind.distance(step.kind) / SPREAD.reach)
    moved = float(step.loads @ known.factors) + float(known.pulls[0]) * fade
    assert moved == pytest.approx(shared(seen, step) / whole * error)
    assert known.variance(step) == pytest.approx(shared(step, step) - shared(seen, step) ** 2 / whole)


@given(common=st.floats(0.01, 0.2), run_sigma=st.floats(0.01, 0.1), error=st.floats(-1.0, 1.0))
def test_a_run_is_alone_as_far_as_students_t_says_of_what_is_left_of_it(
    common: float, run_sigma: float, error: float
) -> None:
    (found,) = variances_of_runs(run_sigma, np.array([[common**2]]), np.array([error]))
    whole = common**2 + found
    left, open_ = error * found / whole, common**2 * found / whole
    student = (FREEDOM * run_sigma**2 + left**2 + open_) / (FREEDOM + 1)
    if abs(error) < 2 * math.hypot(common, run_sigma):
        assert math.sqrt(found) == pytest.approx(math.sqrt(student), rel=0.02)
    (further,) = variances_of_runs(run_sigma, np.array([[common**2]]), np.array([1.5 * error]))
    assert 0.8 * run_sigma**2 <= found <= further


@given(seen=samples, far=st.floats(0.3, 2.0))
def test_a_run_far_off_moves_little_and_what_all_are_off_by_is_the_clusters(
    seen: StepSample, far: float
) -> None:
    def moved(*errors: float) -> float:
        known = conditioned(SPREAD, [seen] * len(errors), errors)
        return float(seen.loads @ known.factors) + float(known.pulls.sum())

    assert moved(far) / far < moved(0.02) / 0.02
    assert moved(far, 0.0, 0.0) < far / 6
    assert moved(far, far, far) > 2 * moved(far, 0.0, 0.0)
    assert moved(-far) == pytest.approx(-moved(far))


@pytest.mark.parametrize(
    "changes", [{}, {"parallelism__tp": 8}, {"cluster__gpus": 32, "cluster__interconnect": "ib-ndr400-x8"}]
)
def test_all_factors_alike_scale_the_step(changes: dict[str, Any]) -> None:
    scenario = job(**changes)
    plain = brief_step(scenario, load_profile(GPU)).step_time_s
    twice = brief_step(scenario, slower(**dict.fromkeys(CAUSES, 2.0))).step_time_s
    # A link that several communications share gives none of them less than before.
    assert twice == pytest.approx(2 * plain, rel=0.01)
    assert twice <= 2 * plain * (1 + 1e-9)


def test_what_a_run_pulls_scales_a_step_of_its_kind_alone() -> None:
    scenario, other = job(), job(**{"training.seq_length": 1024, "training.global_batch": 512})
    near = OwnStep(
        name="run",
        measured_s=1.0,
        predicted_s=1.0,
        calibrated_s=1.0,
        shares={"matrix": 1.0},
        kind=step_kind(scenario),
        pull=math.log(1.5),
    )
    profile = slower(reach=1.0, runs=(near,))
    plain = [brief_step(one, load_profile(GPU)).step_time_s for one in (scenario, other)]
    found = [brief_step(one, profile).step_time_s for one in (scenario, other)]
    assert found[0] == pytest.approx(1.5 * plain[0], rel=0.01)
    assert 1 < found[1] / plain[1] < 1.1


def test_a_fixed_time_comes_to_every_step() -> None:
    plain = brief_step(job(), load_profile(GPU)).step_time_s
    assert brief_step(job(), slower(fixed_s=0.25)).step_time_s == pytest.approx(plain + 0.25)


CLUSTERS = {
    "slow products": {"matrix": 1.2},
    "slow everything": dict.fromkeys(CAUSES, 1.15),
    "fast everything": dict.fromkeys(CAUSES, 0.9),
}


@pytest.mark.parametrize("factors", CLUSTERS.values(), ids=list(CLUSTERS))
def test_one_run_makes_others_nearer_and_surer(factors: dict[str, float]) -> None:
    cluster = slower(**factors)
    (own,) = measured_on(cluster, job())
    fit = fit_own_steps([own])
    for other in (job(parallelism__tp=4), job(training__micro_batch=2), job(training__seq_length=4096)):
        measured_s = brief_step(other, cluster).step_time_s
        before = brief_step(other, load_profile(GPU))
        after = brief_step(other, replace(load_profile(GPU), steps=fit.factors))
        assert abs(math.log(after.step_time_s / measured_s)) < abs(math.log(before.step_time_s / measured_s))
        as_shipped = interval_of(after.step_time_s, replace(after.doubt, own=()), measured_steps())
        assert width_of(after.interval) <= width_of(as_shipped)
        assert after.interval.low_s <= measured_s <= after.interval.high_s
    again = brief_step(job(), replace(load_profile(GPU), steps=fit.factors))
    assert width_of(again.interval) < 0.97 * width_of(brief_step(job(), load_profile(GPU)).interval)


def test_more_runs_come_nearer() -> None:
    cluster, other = slower(matrix=1.2), job(training__micro_batch=2)
    runs = measured_on(cluster, job(), job(parallelism__tp=4), job(training__seq_length=4096))
    errors = []
    for few in (runs[:1], runs):
        profile = replace(load_profile(GPU), steps=fit_own_steps(few).factors)
        errors.append(
            abs(brief_step(other, profile).step_time_s / brief_step(other, cluster).step_time_s - 1)
        )
    assert errors[1] < errors[0]


def test_a_run_as_predicted_moves_nothing_and_a_strange_one_is_named() -> None:
    (exact,) = measured_on(load_profile(GPU), job())
    fit = fit_own_steps([exact])
    assert [one.factor for one in fit.moved] == pytest.approx([1.0] * len(CAUSES))
    assert all(one.after <= one.before for one in fit.moved)
    assert not fit.doubtful
    strange = fit_own_steps([replace(exact, name="strange", step_time_s=3 * exact.step_time_s)])
    assert strange.doubtful == ("strange",)


def test_steps_on_two_gpus_or_calibrated_before_are_refused(tmp_path: Path) -> None:
    (own,) = measured_on(load_profile(GPU), job())
    other = load_scenario("llama3-8b-h100", SMALL | {"cluster.gpu": "A100-SXM4-80GB"})
    with pytest.raises(ValueError, match="A100-SXM4-80GB, H100-SXM5-80GB"):
        fit_own_steps([own, replace(own, scenario=other)])
    profile = _written(tmp_path, 10.0)
    again = load_scenario("llama3-8b-h100", {"calibration": [str(profile)]})
    with pytest.raises(ValueError, match="calibrated"):
        fit_own_steps([replace(own, scenario=again)])


def test_the_command_writes_what_a_scenario_reads(tmp_path: Path) -> None:
    shipped = simulate(load_scenario("llama3-8b-h100"))
    measured_s = 1.1 * shipped.step_time_s
    profile = _written(tmp_path, measured_s)
    read = calibrated_profile(GPU, [str(profile)]).steps
    assert read != AS_SHIPPED
    (own,) = read.runs
    assert own.measured_s == pytest.approx(measured_s, rel=1e-5)
    assert own.predicted_s == pytest.approx(shipped.step_time_s, rel=1e-5)
    result = simulate(load_scenario("llama3-8b-h100", {"calibration": [str(profile)]}))
    assert result.step_time_s == pytest.approx(own.calibrated_s, rel=1e-3)
    assert abs(result.step_time_s - measured_s) < abs(shipped.step_time_s - measured_s)
    assert width_of(result.interval) < width_of(shipped.interval)
    assert any("own steps" in one.text and "run.yaml" in one.source for one in result.assumptions)


def test_the_command_as_json(tmp_path: Path) -> None:
    document = json.loads(_called(tmp_path, 14.0, "--json").stdout)
    assert document["gpu"] == GPU
    assert {one["cause"] for one in document["factors"]} == set(CAUSES)
    (one,) = document["runs"]
    assert one["calibrated_interval_s"][0] < one["calibrated_step_time_s"] < one["calibrated_interval_s"][1]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"scenario": "llama3-8b-h100", "measured": {"memory_bytes": 1e9}}, "step_time_s is missing"),
        ({"measured": {"step_time_s": 1.0}}, "give either scenario, or run"),
        ({"scenario": "x", "run": "y", "measured": {"step_time_s": 1.0}}, "give either scenario, or run"),
        ({"scenario": "x", "given": {"gpus": 8}, "measured": {"step_time_s": 1.0}}, "scenario takes set"),
        ({"scenario": "llama3-8b-h100", "measured": {"step_time_s": -1.0}}, "measured.step_time_s"),
    ],
)
def test_a_run_that_says_too_little_is_told(tmp_path: Path, document: dict[str, Any], said: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    called = run("calibrate", "steps", "--own", path, "--out", tmp_path / "out.yaml")
    assert called.exit_code == 2
    assert said in called.output.replace("\n", " ")
    assert not (tmp_path / "out.yaml").exists()


def test_runs_of_ones_own_go_with_no_cases(tmp_path: Path) -> None:
    called = run("calibrate", "steps", "cases.yaml", "--own", tmp_path / "run.yaml")
    assert called.exit_code == 2
    assert "leave out CASES" in called.output.replace("\n", " ")
    assert "--own RUN.yaml" in run("calibrate", "steps").output.replace("\n", " ")


@pytest.mark.slow
def test_sources_that_differ_as_a_whole_are_told_from_runs_that_differ() -> None:
    together, apart = (
        fit_source_spread(made_rows(source, own)) for source, own in ((0.12, 0.02), (0.005, 0.1))
    )
    assert together.common > 3 * math.hypot(together.kind, together.run)
    assert math.hypot(apart.kind, apart.run) > 3 * apart.common
    assert together.quantile > 0


@pytest.mark.slow
def test_one_run_of_a_source_takes_most_of_what_its_runs_have_in_common() -> None:
    rows = made_rows(0.12, 0.02)
    after = list(calibrated(rows, spreads_without(rows, SPREAD)))
    left = sum(one.weight * one.error**2 for one in after) / sum(
        one.weight * one.row.error**2 for one in after
    )
    assert left < 0.2


@pytest.mark.slow
def test_the_run_most_alike_is_the_nearest_of_another_kind() -> None:
    made = made_rows(0.12, 0.02)
    rows = [*made, *(replace(row, name=f"{row.name} again") for row in made)]
    after = list(after_most_alike(rows, dict.fromkeys({row.source for row in rows}, SPREAD)))
    assert len(after) == len(rows)
    for one in after:
        own = [row.sample.kind for row in rows if row.source == one.row.source]
        far = distances([one.row.sample.kind], own)
        assert one.apart == far[far > 0].min()


def _written(folder: Path, step_time_s: float) -> Path:
    _called(folder, step_time_s)
    return folder / "mine.profile.yaml"


def _called(folder: Path, step_time_s: float, *options: str) -> Any:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({"scenario": "llama3-8b-h100", "measured": {"step_time_s": step_time_s}}))
    called = run("calibrate", "steps", "--own", path, "--out", folder / "mine.profile.yaml", *options)
    assert called.exit_code == 0, called.output
    return called


def test_the_fit_is_the_same_twice() -> None:
    runs = measured_on(slower(matrix=1.1, host=1.3), job())
    first, second = (fit_own_steps(runs) for _ in range(2))
    assert isinstance(first, FittedSteps)
    assert first.factors == second.factors
