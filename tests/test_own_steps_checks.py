"""Own steps of jobs that check their collectives: checks have a factor of their own, apart from launches."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from small_scenarios import lowered, scenario

from stepsim.calibration.fit.own.steps import MeasuredRun, fit_own_steps
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.deviations import shipped_deviations
from stepsim.hardware.profile import GpuProfile
from stepsim.hardware.step_factors import StepFactors
from stepsim.sim.brief.step import brief_step
from stepsim.sim.lowering.host_checks import share_of_checks
from stepsim.sim.scenario.models import Scenario

GPU = "A100-SXM4-80GB"
CHECKED = {"preset": "nanotron-2025"}
UNCHECKED = {"preset": "nanotron-2025", "host": {"collective_checks": False}}


def job(software: dict[str, Any], **fields: Any) -> Scenario:
    """A step that waits for its hosts throughout: small GEMMs, launched from Python."""
    layout = {
        "tp": 4,
        "sequence_parallel": True,
        "num_layers": 4,
        "hidden_size": 1024,
        "seq_length": 1024,
        "num_attention_heads": 8,
    }
    return scenario(**layout | fields, software=software)


def slower(**factors: Any) -> GpuProfile:
    return replace(load_profile(GPU), steps=StepFactors(**factors))


def seconds(one: Scenario, **factors: float) -> float:
    return brief_step(one, slower(**factors)).step_time_s


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_checks_have_their_share_of_the_hosts_time(tp: int) -> None:
    """What a step grows by when checks are dearer, and when launches are, is what its sample says of both."""
    one = job(CHECKED, tp=tp)
    shares = brief_step(one, slower()).doubt.sample.shares
    plain = seconds(one)
    assert shares["checks"] > 0.2
    for cause in ("checks", "host"):
        assert seconds(one, **{cause: 1.1}) / plain - 1 == pytest.approx(0.1 * shares[cause], rel=0.1), cause


def test_nothing_is_a_check_where_none_is_made() -> None:
    one = job(UNCHECKED)
    sample = brief_step(one, slower()).doubt.sample
    assert sample.shares["checks"] == 0.0
    assert sample.shares["host"] > 0.5
    assert seconds(one, checks=1.5) == seconds(one)


@pytest.mark.parametrize("microbatches", [1, 3])
def test_the_share_is_that_of_a_step_of_so_many_microbatches(microbatches: int) -> None:
    """Whichever step it is asked of: a shorter one has more of its end, where all ranks are checked."""
    fields = {"tp": 2, "dp": 4, "zero": 1}
    long = lowered(job(CHECKED, global_batch=4 * microbatches, **fields)).plan
    short = lowered(job(CHECKED, global_batch=4, **fields)).plan
    assert share_of_checks(short, microbatches) == share_of_checks(long, microbatches)
    assert share_of_checks(short, 64) < share_of_checks(short, 1)


def test_a_run_with_dear_checks_leaves_launches_as_they_are() -> None:
    """One factor for both would call the launches of all other jobs slow."""
    dear = {"checks": 1.3}
    run, other, unchecked = (
        job(kind, num_layers=layers, global_batch=32)
        for kind, layers in ((CHECKED, 4), (CHECKED, 8), (UNCHECKED, 4))
    )
    fit = fit_own_steps([MeasuredRun(name="run", scenario=run, step_time_s=seconds(run, **dear))])
    after = brief_step(other, replace(load_profile(GPU), steps=fit.factors)).step_time_s
    measured_s = seconds(other, **dear)
    assert abs(math.log(after / measured_s)) < 0.5 * abs(math.log(seconds(other) / measured_s))
    assert fit.factors.checks - 1 > 2 * (fit.factors.host - 1) > 0
    left = brief_step(unchecked, replace(load_profile(GPU), steps=replace(fit.factors, runs=(), fixed_s=0.0)))
    assert left.step_time_s == pytest.approx(seconds(unchecked), rel=0.1)


def test_checks_are_in_doubt_apart_from_launches() -> None:
    """Each by its own standard deviation, and by the share of the path that it has: together the hosts'."""
    one = brief_step(job(CHECKED), slower()).doubt
    doubts = {part.name: part for part in one.causes if part.kind == "host"}
    assert set(doubts) == {"host", "checks of collectives"}
    checks, host = doubts["checks of collectives"], doubts["host"]
    assert checks.sigma == shipped_deviations()["checks"].sigma
    assert host.sigma == shipped_deviations()["host"].sigma
    shares = one.sample.shares
    assert checks.share / host.share == pytest.approx(shares["checks"] / shares["host"], rel=0.05)
    plain = brief_step(job(UNCHECKED), slower()).doubt
    assert [part.name for part in plain.causes if part.kind == "host"] == ["host"]
