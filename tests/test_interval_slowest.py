"""Intervals reach above the prediction by what the slowest of many GPUs may take longer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_scenarios import WIDE, scenario

from stepsim.sim.evidence.interval_slowest import SLOWEST, expected_largest, slowest_of_many
from stepsim.sim.lowering.lower import lower
from stepsim.sim.result.step import LENGTHENS, IntervalPart
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate


def many(gpus: int, variation: Any = None) -> Scenario:
    return scenario(
        **WIDE | {"num_layers": 2, "seq_length": 2048},
        gpu="H100-SXM5-80GB",
        interconnect="ib-ndr400-x8",
        dp=gpus,
        zero=1,
        microbatches=1,
        software="megatron-core-2024",
        **({"variation": variation} if variation else {}),
    )


def parts(gpus: int, variation: Any = None) -> list[IntervalPart]:
    run = many(gpus, variation)
    return list(slowest_of_many(lower(run, build_cluster(run)).plan))


@given(st.integers(2, 20_000))
def test_the_largest_of_many_is_near_the_integral_of_its_law(count: int) -> None:
    x = np.linspace(-8.0, 8.0, 1_001)
    law = np.array([math.erfc(-one / math.sqrt(2.0)) / 2 for one in x]) ** count
    mean = float(((x[1:] + x[:-1]) / 2 * np.diff(law)).sum())
    assert expected_largest(count) == pytest.approx(mean, rel=0.05)
    assert expected_largest(count) < expected_largest(count + 1)


def test_one_gpu_waits_for_none_and_more_for_the_slowest_of_more() -> None:
    assert parts(1) == []
    few, many = parts(8), parts(64)
    assert [part.kind for part in (*few, *many)] == [SLOWEST, SLOWEST]
    assert few[0].sigma / expected_largest(8) == pytest.approx(many[0].sigma / expected_largest(64))
    assert "arXiv:2208.11035" in few[0].source
    assert few[0].sigma == pytest.approx(0.0148 * 1.424, rel=0.02)  # of eight, the tables of order statistics


def test_gpus_that_the_scenario_says_how_they_differ_are_replayed_and_no_doubt() -> None:
    assert parts(8, {"gpu_speed": {"normal": {"cv": 0.01}}}) == []
    assert len(parts(8, {"link": {"normal": {"cv": 0.01}}})) == 1


def test_the_slowest_gpu_only_lengthens_the_interval() -> None:
    result = simulate(many(8))
    interval = result.interval
    assert interval is not None
    (part,) = [one for one in interval.parts if one.kind == SLOWEST]
    either = [one for one in interval.parts if one.kind not in LENGTHENS]
    low = math.log(result.step_time_s / interval.low_s) / interval.quantile_below
    high = math.log(interval.high_s / result.step_time_s) / interval.quantile
    assert low == pytest.approx(math.hypot(*(one.share * one.sigma for one in either)))
    assert high >= math.hypot(low, part.sigma) * (1 - 1e-12)
