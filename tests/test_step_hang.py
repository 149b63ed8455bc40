"""A rank that stops: who waits for it, where and since when, and when the watchdog ends the job."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from oracles.expanded import expanded
from small_scenarios import layouts, lowered, scenario
from struck_steps import LINKED, TWIN, cost
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.degradation.hang import _stuck
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded
from stepsim.sim.fold.partition import partition_of
from stepsim.sim.fold.programs import programs_of_classes
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.result.step_faults import StepFaults
from stepsim.sim.result.step_hang import Hang
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def hang(run: Scenario, line: str, fold: bool = True) -> Hang:
    found = cost(run, line, fold=fold).hang
    assert found is not None
    return found


@pytest.mark.slow
@examples(15)
@given(layouts(), st.data())
def test_a_hang_is_the_same_expanded(run: Scenario, data: st.DataObject) -> None:
    """Every class comes as far as op by op, and waits in the same communication."""
    step = lowered(run)
    rank = data.draw(st.integers(0, run.world_size - 1))
    at_s = data.draw(st.floats(0.0, 1.0)) * replay(folded(step).programs).makespan_s
    ranks, degradation = ranks_of(step), Degradation(later=((at_s, Degradation(slow={rank: math.inf})),))
    classes = partition_of(ranks, degradation).rank
    programs = programs_of_classes(step.programs, ranks, classes, degradation)
    short, full = replay(programs), replay(expanded(programs))
    for r in set(classes.tolist()) - {int(classes[rank])}:
        mine, other = _stuck(short, r), _stuck(full, r)
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            assert (mine.axis, mine.operation) == (other.axis, other.operation)
            assert mine.since_s == pytest.approx(other.since_s, rel=1e-9, abs=1e-12)


@pytest.mark.slow
@examples(12)
@given(layouts(), st.data())
def test_a_folded_hang_is_the_unfolded_one(run: Scenario, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, run.world_size - 1))
    at_s = data.draw(st.floats(0.0, 0.9)) * simulate(run, faults=()).makespan_s
    line = f"hang rank/{rank} at={at_s!r}s"
    found, each = hang(run, line), hang(run, line, fold=False)
    assert found == each
    told = sum(one.ranks for one in found.blocked) + found.finished + found.stopped
    assert told == run.world_size
    assert sum(one.blocked for one in found.waiters) == sum(one.ranks for one in found.blocked)


def test_who_waits_first() -> None:
    """The tensor-parallel peer at once, then the neighbours in the pipeline, then the other replicas."""
    found = hang(scenario(**TWIN), "hang rank/9 at=45ms")
    assert [(one.axis, one.ranks) for one in found.blocked] == [("tp", 1), ("pp", 6), ("dp", 24)]
    assert 0.045 <= found.blocked[0].first_s < 0.05
    first = [one.first_s for one in found.blocked]
    assert first == sorted(first)
    assert found.blocked[0].first_s == found.blocked[0].last_s  # one rank
    assert found.blocked[2].first_s < found.blocked[2].last_s  # stage by stage
    assert [one.name for one in found.waiters] == [
        "same TP group",
        "same replica, other stages",
        "same stage, other replicas",
        "other replicas and stages",
    ]
    assert all(one.blocked == one.ranks for one in found.waiters)
    assert found.stopped == 1
    assert found.finished == 0


def test_replicas_come_to_the_gradients_and_no_further() -> None:
    """Data parallelism alone: all end their backward passes as if nothing were wrong, and wait there."""
    run = scenario(dp=8)
    found = hang(run, "hang rank/3")
    assert [(one.axis, one.ranks) for one in found.blocked] == [("dp", run.world_size - 1)]
    assert found.blocked[0].first_s == found.blocked[0].last_s
    late = hang(run, f"hang rank/3 at={0.9 * simulate(run, faults=()).makespan_s!r}s")
    assert late.blocked[0].first_s == pytest.approx(found.blocked[0].first_s, rel=1e-9)


def test_the_watchdog_counts_from_the_first_wait() -> None:
    found = hang(scenario(**LINKED), "hang rank/3")
    assert found.watchdog_s == 600.0
    assert found.ends_s == found.entered_s + 600.0
    assert found.entered_s <= found.blocked[0].first_s
    document = {**scenario(**TWIN).to_document(), "faults": ["hang rank/9 at=1ms"]}
    run = scenario_from_document({**document, "detection": {"watchdog": {"timeout": "2min"}}}, "small")
    sooner = simulate(run).faults
    assert sooner is not None
    assert sooner.hang is not None
    assert sooner.hang.watchdog_s == 120.0


def test_a_job_that_stops_has_nobody_who_waits() -> None:
    run = scenario(**TWIN)
    found = hang(run, "hang job at=60ms")
    assert (found.stopped, found.finished, found.blocked, found.waiters) == (run.world_size, 0, (), ())
    assert found.entered_s == pytest.approx(0.06)


def test_a_hang_after_the_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hang rank/3: at: 1\.0 s .*0\.0"):
        cost(scenario(**LINKED), "hang rank/3 at=1s")


def test_other_faults_beside_a_hang() -> None:
    run, slow = scenario(**TWIN), "gpu_throttle rank/9 slow_factor=1.5"
    found: StepFaults = cost(run, slow, "hang rank/9 at=55ms")
    assert found.step_time_s == math.inf
    assert found.without_s == (math.inf, cost(run, slow).step_time_s)
    assert found.hang is not None
    assert found.hang.stopped == 1


def test_the_command_tells_who_waits() -> None:
    words = ["run", "llama3-8b-h100", "--fault", "hang rank/3 at=1s"]
    text = CliRunner().invoke(app, words)
    assert text.exit_code == 0, text.output
    for shown in ("1 rank stopped at 1.00", "never ends", "the watchdog ends the job", "who waits"):
        assert shown in text.output
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    faults = document["faults"]
    assert faults["slowdown"] is None
    assert faults["step_time_s"]["after"] is None
    assert faults["step_time_s"]["before"] == document["step_time_s"]
    assert faults["hang"]["stopped_ranks"] == 1
    assert sum(one["ranks"] for one in faults["hang"]["blocked"]) == document["ranks"] - 1
