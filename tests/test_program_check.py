"""The check of programs: all that is lowered passes, and it agrees with the engine on what would not end."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.bare import ActionTimes, bare_programs
from small_scenarios import LOOPED, layouts, lowered

from stepsim.schedules.orders.schedule import Shape
from stepsim.schedules.p2p.point_to_point import RULES
from stepsim.schedules.pipeline import get, names
from stepsim.sim.engine.replay import replay
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.check import program_problems
from stepsim.sim.program.program import Collective, Compute, Exchange, MessageEnd, Op, Program, Programs
from stepsim.sim.scenario.models import Scenario

MESSAGE = Transfer(0.5, 0.0, math.inf)


@given(scenario=layouts())
@settings(max_examples=40)
def test_whatever_is_lowered_is_right(scenario: Scenario) -> None:
    assert program_problems(lowered(scenario).programs) == ()


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("rule", RULES)
def test_bare_schedules_are_right(name: str, rule: str) -> None:
    """Under every rule that is defined for them; messages that block nobody are for all."""
    shape = Shape(ranks=4, microbatches=8, chunks=2 if name in LOOPED else get(name).chunks)
    times = ActionTimes(forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0, latency_s=0.1)
    try:
        programs = bare_programs(get(name), shape, times, rule)
    except ValueError as refusal:
        assert rule != "async"
        assert "use async" in str(refusal)  # noqa: PT017 - the rule is not defined for this order
        return
    assert program_problems(programs) == ()


@st.composite
def tangles(draw: st.DrawFn) -> Programs:
    """Matched collectives and messages that each class reaches in an order and with waits of its own."""
    classes = draw(st.integers(1, 4))
    everyone = tuple(range(classes))
    work: list[list[Any]] = [[Compute(1.0, "gemm")] for _ in everyone]
    communicators = {}
    for k in range(draw(st.integers(0, 3))):
        name = f"group {k}"
        communicators[name] = tuple(sorted(draw(st.sets(st.sampled_from(everyone), min_size=1))))
        for r in communicators[name]:
            work[r].append(Collective("all_reduce", name, MESSAGE))
    for k in range(draw(st.integers(0, 5)) if classes > 1 else 0):
        a, b, *_ = draw(st.permutations(everyone))
        work[a].append(MessageEnd(True, b, f"0F{k}", MESSAGE))
        work[b].append(MessageEnd(False, a, f"0F{k}", MESSAGE))
    return Programs(
        classes=tuple(Program(ops=tuple(_ops(draw, mine))) for mine in work),
        communicators=communicators,
        links=({},) * classes,
        sms=1,
        corun_slowdown=0.0,
    )


def _ops(draw: st.DrawFn, mine: list[Any]) -> list[Op]:
    ops: list[Op] = []
    left = draw(st.permutations(mine))
    while left:
        work: Any = left.pop()
        if isinstance(work, MessageEnd):
            grouped = [work]
            while left and isinstance(left[-1], MessageEnd) and draw(st.booleans()):
                grouped.append(left.pop())
            work = Exchange(tuple(grouped))
        stream = draw(st.sampled_from(("compute", "side", "free")))
        earlier = st.sets(st.integers(0, len(ops) - 1), max_size=2) if ops else st.just(set())
        sync = draw(st.integers(0, 5)) == 0
        ops.append(Op("op", stream, "pp", work, tuple(sorted(draw(earlier))), host_s=0.1, host_sync=sync))
    return ops


@pytest.mark.slow
@given(programs=tangles())
@settings(max_examples=300)
def test_the_check_and_the_engine_agree_on_what_ends(programs: Programs) -> None:
    problems = program_problems(programs)
    if problems:
        assert problems[0].startswith("deadlock: class")
        with pytest.raises(RuntimeError, match="deadlock"):
            replay(programs)
    else:
        assert replay(programs).makespan_s > 0
