"""Measured steps of one's own under a trainer that nobody read: they say less of other kinds of steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from own_step_runs import GPU, SPREAD, job, made_rows, measured_on, slower, width_of

from stepsim.calibration.fit.own.steps import fit_own_steps
from stepsim.calibration.fit.steps.source_terms import fit_source_spread
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.profile import GpuProfile
from stepsim.sim.brief.step import Brief, brief_step
from stepsim.sim.evidence.interval import interval_of
from stepsim.sim.evidence.measured_steps import measured_steps
from stepsim.sim.evidence.own_steps import SourceSpread, after_own


def left_open(step: Brief, spread: SourceSpread, profile: GpuProfile) -> float:
    """What own steps leave open of the cluster, as a standard deviation."""
    return math.sqrt(after_own(spread, profile.steps.runs).variance(step.doubt.sample))


def test_own_steps_of_a_trainer_that_nobody_read_say_less_of_others() -> None:
    """What its kin's preset tells wrongly is another in each kind of step, and the same in the same."""
    preset = "generic-megatron"
    (own,) = measured_on(slower(matrix=1.1), job(software=preset))
    profile = replace(load_profile(GPU), steps=fit_own_steps([own]).factors)
    far, same = (
        brief_step(job(software=preset, **changes), profile)
        for changes in ({"training__seq_length": 1024, "parallelism__tp": 4}, {})
    )
    spread = SPREAD.of_trainer(read=False)
    for step in (far, same):
        (of_cluster,) = (part for part in step.interval.parts if "nobody read" in part.name)
        assert of_cluster.sigma == pytest.approx(left_open(step, spread, profile))
        shipped = interval_of(step.step_time_s, replace(step.doubt, own=()), measured_steps())
        assert width_of(step.interval) < width_of(shipped)
    assert left_open(far, spread, profile) > 1.5 * left_open(far, SPREAD, profile)
    assert left_open(same, spread, profile) < 0.5 * left_open(far, spread, profile)


def test_a_run_of_a_trainer_that_nobody_read_moves_its_steps_further() -> None:
    fits = {
        preset: fit_own_steps(measured_on(slower(matrix=1.1), job(software=preset)))
        for preset in ("megatron-core-2025", "generic-megatron")
    }
    read, unread = fits["megatron-core-2025"], fits["generic-megatron"]
    for one, other in zip(unread.moved, read.moved, strict=True):
        assert one.before == pytest.approx(math.hypot(other.before, SPREAD.unread_common))
    errors = [
        abs(math.log(fit.after[0].step_time_s / fit.factors.runs[0].measured_s)) for fit in (unread, read)
    ]
    assert errors[0] < errors[1]


@pytest.mark.slow
def test_what_nobody_read_comes_to_the_spreads_of_what_was_read() -> None:
    rows = made_rows(0.03, 0.03)
    known = fit_source_spread(rows)
    together, apart = (
        fit_source_spread(rows, made_rows(*sigmas, seed=8)) for sigmas in ((0.2, 0.03), (0.03, 0.2))
    )
    for one in (together, apart):
        assert replace(one, unread_common=0.0, unread_kind=0.0) == replace(
            known, unread_common=0.0, unread_kind=0.0
        )
    assert together.unread_common > 3 * together.unread_kind
    assert apart.unread_kind > 3 * apart.unread_common
