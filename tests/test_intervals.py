"""Intervals: they hold the prediction, widen with what they rest on, and are judged by what was measured."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from stepsim.calibration.validation.intervals import (
    interval_figures,
    interval_grid,
    interval_score,
    intervals_by_group,
)
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.collective_curve import CollectiveCurve
from stepsim.hardware.deviations import shipped_deviations
from stepsim.hardware.profile import GpuProfile
from stepsim.hardware.provenance import Provenance
from stepsim.sim.evidence.interval import step_interval
from stepsim.sim.evidence.measured_steps import measured_steps
from stepsim.sim.lowering.lower import lower
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.result.result import Result
from stepsim.sim.result.step import LENGTHENS, Interval
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import build_cluster, simulate

SCENARIO = "llama3-70b-h100"
GPU = "H100-SXM5-80GB"


@functools.cache
def simulated() -> Result:
    return simulate(load_scenario(SCENARIO))


@functools.cache
def lowered_plan() -> StepPlan:
    scenario = load_scenario(SCENARIO)
    return lower(scenario, build_cluster(scenario)).plan


@pytest.fixture
def result() -> Result:
    return simulated()


def interval_with(profile: GpuProfile) -> Interval:
    """The interval of the same step, had its profile other residuals."""
    step = simulated()
    return step_interval(step.step_time_s, step.critical_path, replace(lowered_plan(), profile=profile))


def test_the_parts_make_the_width_on_either_side_of_the_prediction(result: Result) -> None:
    interval = result.interval
    assert interval is not None
    assert interval.low_s < result.step_time_s < interval.high_s
    above = math.hypot(*(part.share * part.sigma for part in interval.parts))
    either = [part for part in interval.parts if part.kind not in LENGTHENS]
    below = math.hypot(*(part.share * part.sigma for part in either))
    assert len(either) == len(interval.parts) - 2  # what communication waits for, and the slowest GPU
    assert math.log(interval.high_s / result.step_time_s) == pytest.approx(interval.quantile * above)
    assert math.log(result.step_time_s / interval.low_s) == pytest.approx(interval.quantile_below * below)
    assert all(part.source and part.sigma > 0 and 0 <= part.share <= 1 + 1e-9 for part in interval.parts)


def test_every_second_of_the_path_has_an_uncertainty(result: Result) -> None:
    assert result.interval is not None
    whole = [part for part in result.interval.parts if part.kind in ("kernels", "communication", "host")]
    assert sum(part.share for part in whole) == pytest.approx(1.0)


@given(few=st.floats(0.001, 0.2), more=st.floats(1.01, 3.0))
def test_a_worse_curve_makes_a_wider_interval(few: float, more: float) -> None:
    shipped = load_profile(GPU)

    def width(residual: float) -> float:
        record = Provenance(source="made", points=9, median_residual=residual)
        one = interval_with(replace(shipped, gemm=replace(shipped.gemm, provenance=record)))
        return one.high_s - one.low_s

    assert width(few * more) > width(few)


def test_what_was_held_out_counts_before_what_was_fitted() -> None:
    shipped = load_profile(GPU)
    record = Provenance(source="made", points=9, median_residual=0.01, held_out_median=0.05)
    one = interval_with(replace(shipped, gemm=replace(shipped.gemm, provenance=record)))
    gemm = next(part for part in one.parts if part.name == "GEMM")
    assert gemm.sigma == pytest.approx(0.05 * 1.4826)
    assert "9 points held out" in gemm.source


def test_a_gpu_without_step_times_is_less_certain(result: Result) -> None:
    little = interval_with(replace(load_profile(GPU), step_time_residual=None))
    unfitted = interval_with(replace(load_profile(GPU), step_time_residual=None, clock_from_steps=False))
    assert result.interval is not None
    assert unfitted.high_s > little.high_s > result.interval.high_s
    assert {part.sigma for part in unfitted.parts} >= {shipped_deviations()["unfitted_clock"].sigma}


def test_own_collectives_count_where_all_of_a_tier_were_measured() -> None:
    def curve(kind: str) -> CollectiveCurve:
        return CollectiveCurve(
            kind=kind, ranks=8, domains=1, alpha_s=2e-5, gamma_s=0.0, bytes_per_s=3e11, low_bytes=8,
            high_bytes=1e9,
            provenance=Provenance(source="mine", points=20, median_residual=0.02),
        )  # fmt: skip

    def sigma(*kinds: str) -> float:
        profile = replace(load_profile(GPU), collectives=tuple(map(curve, kinds)))
        parts = interval_with(profile).parts
        return next(part.sigma for part in parts if part.name == "communication, node")

    weight = measured_steps().weights["communication"]
    assert sigma("all_gather") == pytest.approx(weight * shipped_deviations()["collectives_node"].sigma)
    assert sigma("all_gather", "reduce_scatter", "all_reduce") == pytest.approx(weight * 0.02 * 1.4826)


def test_every_residual_has_its_source() -> None:
    for name, one in shipped_deviations().items():
        assert 0 < one.sigma < 0.5, name
        assert len(one.source) > 20, name


def test_json_and_table_show_it() -> None:
    printed = CliRunner().invoke(app, ["run", SCENARIO])
    assert "90 % interval" in printed.stdout
    document = json.loads(CliRunner().invoke(app, ["run", SCENARIO, "--json"]).stdout)
    low, high = document["step_time_interval_s"]
    assert low < document["step_time_s"] < high
    assert document["interval"]["level"] == 0.9
    keys = {"name", "share", "sigma", "source", "kind", "distance"}
    assert keys == set(document["interval"]["parts"][0])
    assert document[document["headline_mfu"]] <= 1


def row(measured: float, low: float, high: float, trust: str = "high", source: str = "a") -> Any:
    case = SimpleNamespace(trust=trust, measured=SimpleNamespace(step_time_s=measured))
    prediction = SimpleNamespace(step_time_s=math.sqrt(low * high), interval_s=(low, high))
    return SimpleNamespace(case=case, prediction=prediction, source=source)


def test_figures_of_intervals() -> None:
    rows = [row(10, 9, 16), row(8, 9, 16), row(17, 9, 16), row(12, 9, 16, "low", "b")]
    figures = interval_figures(rows[:3])
    assert figures is not None
    assert (figures.coverage, figures.below, figures.above) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert figures.median_width == pytest.approx(7 / 12)
    assert figures.score == pytest.approx((7 + 2 * (7 + 20)) / 3 / 12)
    groups = intervals_by_group(rows)
    assert {name: one.cases for name, one in groups.items()} == {"high trust": 3, "a": 3, "all": 4}
    less = intervals_by_group([*rows, row(12, 9, 16, "medium")])
    assert {name: one.cases for name, one in less.items()} == {
        "high trust": 3, "a": 3, "medium trust": 1, "a, medium": 1, "all": 5,
    }  # fmt: skip
    assert interval_grid(groups).rows[0][:3] == ("high trust", "3", "33.3 %")
    assert interval_figures([]) is None


@given(low=st.floats(0.1, 10), width=st.floats(0.01, 10), measured=st.floats(0.01, 30))
def test_the_score_is_the_width_but_for_what_lies_outside(low: float, width: float, measured: float) -> None:
    score, high = interval_score(low, low + width, measured), low + width
    missed = max(low - measured, measured - high)
    assert score == pytest.approx(width + (20 * missed if missed > 0 else 0.0))
