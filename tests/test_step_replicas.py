"""Weeks ask for the step under a set of effects: several replicas are replayed at once, as a step is."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import scenario
from struck_steps import TWIN

from stepsim.sim.bounded import bounds, conditions
from stepsim.sim.reliability.campaign.plan import Effect
from stepsim.sim.reliability.planning.step_time import TOGETHER, SimulatedStep
from stepsim.sim.scenario.checks_faults import machine_of
from stepsim.sim.scenario.faults.faults import Domains
from stepsim.sim.scenario.faults.targets import parse_target
from stepsim.sim.simulate import simulate

SHORT = {**TWIN, "microbatches": 4}
"""One microbatch for each stage, so that all of them wait for one another."""

RUN = scenario(**SHORT)
STEP = SimulatedStep(RUN, machine_of(RUN.cluster, RUN.parallelism, Domains()))
PER_STAGE = RUN.world_size // RUN.parallelism.pp
PLACED = list(range(RUN.parallelism.pp))
"""Of so few stages each stands for itself."""


def effect(stage: int, replica: int, factor: float) -> Effect:
    rank = stage * PER_STAGE + replica * RUN.parallelism.tp
    return Effect("gpu_throttle", parse_target(f"rank/{rank}"), factor)


@cache
def exact_s(*lines: str) -> float:
    """As ``stepsim run`` has it with these faults."""
    return simulate(RUN, faults=lines).step_time_s


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, RUN.parallelism.dp - 1),
        st.tuples(st.sampled_from(PLACED), st.sampled_from([1.1, 1.6])),
        min_size=1,
        max_size=TOGETHER,
    )
)
def test_replicas_with_different_things_wrong_are_as_in_a_step(wrong: dict[int, tuple[int, float]]) -> None:
    effects = [effect(stage, replica, factor) for replica, (stage, factor) in wrong.items()]
    lines = [f"{one.kind} {one.target} slow_factor={one.slow_factor}" for one in effects]
    found = STEP(frozenset(effects))
    assert found == max(found, *(STEP(frozenset([one])) for one in effects))
    # One that is late can make room for another on a shared link: a set counts as the worst of it at least.
    exact = max(exact_s(*told) for told in (lines, *([line] for line in lines)))
    assert abs(found - exact) <= 1e-9 * exact


def test_two_replicas_together_are_slower_than_the_worst_of_them() -> None:
    """Their stages are late at different times; the law above could fail."""
    one, other = effect(PLACED[0], 0, 1.1), effect(PLACED[-1], 1, 1.1)
    alone = max(STEP(frozenset([one])), STEP(frozenset([other])))
    assert STEP(frozenset([one, other])) > 1.0003 * alone


def test_a_set_is_replayed_once() -> None:
    """Also where other replicas have the same wrong."""
    STEP(frozenset([effect(0, 0, 1.1), effect(3, 1, 1.1)]))
    known = dict(STEP.simulated)
    STEP(frozenset([effect(0, 2, 1.1), effect(3, 3, 1.1)]))
    STEP(frozenset([effect(0, 2, 1.1), effect(3, 3, 1.1), effect(0, 1, 1.1)]))
    assert STEP.simulated == known


@pytest.mark.parametrize(
    "fields",
    [
        {"order": "tp-cp-ep-pp-dp"},
        {"placement": {"kind": "scattered", "seed": 3}},
        {"other_gpus": [{"gpu": "H100-SXM5-80GB", "hosts": [1]}]},
    ],
)
def test_replicas_that_are_not_alike_are_replayed_where_they_are(fields: dict[str, Any]) -> None:
    """As ``stepsim run`` has it, with several at once, and one twice."""
    run = scenario(**SHORT, **fields)
    step = SimulatedStep(run, machine_of(run.cluster, run.parallelism, Domains()))
    effects = [effect(0, 0, 1.1), effect(2, 1, 1.6), effect(3, 3, 1.3)]
    lines = [f"{one.kind} {one.target} slow_factor={one.slow_factor}" for one in effects]
    for count in (1, 3):
        exact = simulate(run, faults=lines[:count]).step_time_s
        assert step(frozenset(effects[:count])) == pytest.approx(exact, rel=1e-9)


def test_many_slow_ranks_are_between_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ranks are placed and more classes differ than are replayed."""
    run = scenario(**SHORT, placement={"kind": "contiguous"})
    step = SimulatedStep(run, machine_of(run.cluster, run.parallelism, Domains()))
    effects = frozenset(
        effect(stage, replica, 1.1 + 0.1 * stage) for stage in range(4) for replica in range(4)
    )
    exact, asked, bounded = step(effects), [], bounds.bounded

    def watched(*args: Any, **options: Any) -> bounds.Bounded | None:
        asked.append(args)
        return bounded(*args, **options)

    monkeypatch.setattr(conditions, "MOST_CLASSES", 4)
    monkeypatch.setattr(bounds, "MOST_EVENTS", 0)
    monkeypatch.setattr(bounds, "bounded", watched)
    again = SimulatedStep(run, machine_of(run.cluster, run.parallelism, Domains()))
    assert again(effects) == pytest.approx(exact, rel=5e-3)
    assert len(asked) == 1
