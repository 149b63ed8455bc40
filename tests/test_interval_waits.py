"""What communicates waits for its own group where ranks split a layer, and for all GPUs elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from small_scenarios import WIDE, scenario

from stepsim.calibration.fit.growth import sides_that_hold
from stepsim.sim.evidence.interval import interval_of_parts
from stepsim.sim.evidence.interval_waits import awaited_doublings
from stepsim.sim.evidence.measured_steps import measured_steps
from stepsim.sim.lowering.lower import lower
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.simulate import build_cluster, simulate


def plan(tp: int, dp: int) -> StepPlan:
    run = scenario(
        **WIDE | {"num_layers": 2, "seq_length": 2048},
        gpu="H100-SXM5-80GB",
        interconnect="ib-ndr400-x8",
        tp=tp,
        dp=dp,
        zero=1,
        microbatches=1,
        software={"preset": "megatron-core-2024", "host": {"host_s_per_kernel": 1e-7}},  # GPUs set the pace
    )
    return lower(run, build_cluster(run)).plan


def test_tensor_parallel_ranks_wait_for_their_own_group_however_many_gpus_there_are() -> None:
    for dp in (1, 8, 32):
        assert awaited_doublings({"tp": 0.2}, plan(4, dp)) == pytest.approx(2.0)
        assert awaited_doublings({"waiting for tp peers": 0.2}, plan(4, dp)) == pytest.approx(2.0)
    assert awaited_doublings({"dp": 0.2}, plan(4, 8)) == pytest.approx(5.0)
    assert awaited_doublings({"waiting for dp peers": 0.2}, plan(4, 8)) == pytest.approx(5.0)


def test_groups_count_by_their_time() -> None:
    assert awaited_doublings({"tp": 0.3, "dp": 0.1}, plan(4, 8)) == pytest.approx((0.3 * 2 + 0.1 * 5) / 0.4)
    assert awaited_doublings({}, plan(4, 8)) == 0.0


def test_the_interval_of_a_step_has_the_doublings_of_its_own_groups() -> None:
    found = []
    for dp in (2, 16):
        result = simulate(plan(4, dp).scenario)
        assert result.interval is not None
        found += [part.distance for part in result.interval.parts if part.kind == "waits"]
    few, many = found
    assert 2.0 < few < 3.0  # between those of four and of eight GPUs
    assert few < many < math.log2(64)


@pytest.mark.parametrize("side", ["quantile", "quantile_below"])
def test_each_side_reaches_by_its_own_count_of_standard_deviations(side: str) -> None:
    run = plan(4, 2).scenario
    record = simulate(run)
    assert record.interval is not None
    steps = measured_steps()
    wider = replace(steps, **{side: 2.0 * getattr(steps, side)})
    parts = record.interval.parts
    one, two = (interval_of_parts(record.step_time_s, parts, each) for each in (steps, wider))
    assert (one.low_s, one.high_s) == (record.interval.low_s, record.interval.high_s)
    assert (two.high_s > one.high_s) == (side == "quantile")
    assert (two.low_s < one.low_s) == (side == "quantile_below")


@pytest.mark.parametrize("late", [1.0, -1.0])
def test_errors_to_one_side_widen_that_side_alone(late: float) -> None:
    errors = [(late * place / 100, 0.5, 0.5, 1.0) for place in range(-30, 100)]
    below, above = sides_that_hold(errors, 0.9)
    inside = [-below * 0.5 <= error <= above * 0.5 for error, *_ in errors]
    assert sum(inside) / len(inside) >= 0.9
    assert (above > below) == (late > 0)
    beyond_above = sum(error > above * 0.5 for error, *_ in errors)
    beyond_below = sum(error < -below * 0.5 for error, *_ in errors)
    assert max(beyond_above, beyond_below) <= 0.05 * len(errors)
