"""Work is estimated before it starts: how well, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from faults_campaigns import document, plan_of
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import layouts, scenario
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.estimate import (
    TooMuchWork,
    check_work,
    default_limit,
    programs_work,
    step_work,
)
from stepsim.sim.fold.fold import folded
from stepsim.sim.lowering.lower import lower
from stepsim.sim.reliability.campaign.replicate import replicate
from stepsim.sim.reliability.planning.estimate import PER_FAILURE, check_replications, expected_events
from stepsim.sim.replay import replay_program, save_program
from stepsim.sim.simulate import build_cluster, simulate

FACTOR = 3.0
MOST_OFF = 0.1
"""Of drawn layouts: those whose blocks run in detail."""


@pytest.mark.slow
def test_estimates_are_within_a_factor_of_the_events() -> None:
    """Before anything is lowered, and of the programs."""
    off: list[tuple[float, float]] = []

    @settings(max_examples=80, database=None)
    @given(data=st.data())
    def draw(data: st.DataObject) -> None:
        run = data.draw(layouts(microbatches=data.draw(st.sampled_from([1, 4, 16, 32]))))
        events = simulate(run, faults=()).events
        programs = folded(lower(run, build_cluster(run))).programs
        off.append((step_work(run).events / events, programs_work(programs).events / events))

    draw()
    for ratios in zip(*off, strict=True):
        beyond = sum(not 1 / FACTOR <= ratio <= FACTOR for ratio in ratios)
        assert beyond <= MOST_OFF * len(ratios)
        assert 0.5 < math.exp(sum(map(math.log, ratios)) / len(ratios)) < 2.0


def test_every_rank_by_itself_is_more_work() -> None:
    run = scenario(tp=2, pp=2, dp=4)
    assert step_work(run, ranks=16).events == pytest.approx(8 * step_work(run).events)
    found = simulate(run, fold=False)
    assert 1 / FACTOR < step_work(run, ranks=16).events / found.events < FACTOR


HUGE: tuple[dict[str, Any], ...] = (
    {"pp": 16, "num_layers": 16, "schedule": "1f1b", "microbatches": 1_000_000},
    {"pp": 64, "num_layers": 64 * 100, "vpp": 100, "schedule": "interleaved", "microbatches": 64_000},
)


@pytest.mark.parametrize("fields", HUGE)
def test_what_would_take_for_ever_is_refused_at_once(fields: dict[str, Any]) -> None:
    """Nothing that grows with it is built before."""
    run = scenario(**fields)
    with pytest.raises(TooMuchWork) as refused:
        simulate(run)
    assert refused.value.work.events > refused.value.limit == default_limit()
    assert refused.value.work.seconds > 0.0
    assert "microbatches" in str(refused.value)


def test_the_limit_is_the_users() -> None:
    run = scenario(pp=2)
    events = step_work(run).events
    with pytest.raises(TooMuchWork):
        simulate(run, max_events=int(events / 2))
    assert simulate(run, max_events=int(events * 4)).events > 0
    check_work(step_work(run), int(events) + 1)


def test_programs_are_estimated_too(tmp_path: Any) -> None:
    path = tmp_path / "program.json"
    save_program(path, scenario(pp=2))
    with pytest.raises(TooMuchWork):
        replay_program(path, max_events=3)
    assert replay_program(path, max_events=100_000).events > 3


def test_commands_refuse_with_2_and_the_estimate() -> None:
    for command in (["run"], ["memory", "--json"], ["compare", "llama3-8b-h100"]):
        done = CliRunner().invoke(app, [*command, "llama3-8b-h100", "--max-events", "5"])
        assert done.exit_code == 2
        assert "--max-events" in done.output
    done = CliRunner().invoke(app, ["run", "llama3-8b-h100", "--max-events", "1000000", "--json"])
    assert done.exit_code in (0, 1)


# Weeks -----------------------------------------------------------------------------------------------------


def campaign(**blocks: Any) -> Any:
    found = {"run": {"horizon": "60 d", "replications": 4}, **blocks}
    return plan_of(document(**found))


def test_faults_of_weeks_are_estimated() -> None:
    processes = [{"kind": "software_crash", "scope": "job", "mtbf": "10 h"}]
    plan = campaign(faults={"processes": processes})
    found = [sum(replicate(plan, number).failures.values()) for number in range(8)]
    faults = expected_events(plan) / PER_FAILURE
    assert 1 / FACTOR < faults / (sum(found) / len(found)) < FACTOR


def test_too_many_replications_are_refused() -> None:
    processes = [{"kind": "software_crash", "scope": "job", "mtbf": "1 h"}]
    plan = campaign(faults={"processes": processes})
    check_replications([plan], 10)
    with pytest.raises(TooMuchWork, match="replications"):
        check_replications([plan], 10**9)
    with pytest.raises(TooMuchWork, match="points"):
        check_replications([plan] * 400, 10**6)


def test_a_sweep_of_too_many_points_is_never_listed() -> None:
    words = ["faults", "llama3.1-405b-16k", "--sweep", "recovery.spares.warm=0..1000000000/1000000000"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "1,000,000,000 points" in done.output
