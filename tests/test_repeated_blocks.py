"""Repeated blocks give what their ops give one by one: the short cut against the programs expanded."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.expanded import expanded
from repeated_programs import LINKS, OVERLAPS, SMS, assert_same_times, host, seconds, transfers
from small_experts import expert_layouts
from small_scenarios import changed, layouts, lowered

from stepsim.sim.engine.replay import replay
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.check import program_problems
from stepsim.sim.program.program import (
    Block,
    Collective,
    Compute,
    Exchange,
    MessageEnd,
    Op,
    Program,
    Programs,
    RepeatedBlocks,
)
from stepsim.sim.scenario.models import Scenario


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    layouts(),
    st.sampled_from([{}, OVERLAPS]),
    st.sampled_from([None, 0.0, 3e-6, 3e-5, 3e-4]),
)
def test_a_step_is_the_same_expanded(run: Scenario, overlaps: dict[str, Any], host_s: float | None) -> None:
    """Every schedule, software preset and layout; with the preset's host, none, and slower ones."""
    host = {} if host_s is None else {"host_s_per_kernel": host_s}
    assert_same_times(lowered(changed(run, software={**overlaps, **host})).programs)


@settings(max_examples=12, deadline=None)
@given(
    expert_layouts(routing="balanced"),
    st.sampled_from([3e-6, 3e-5, 3e-4]),
)
def test_a_host_that_waits_inside_layers_is_the_same_expanded(run: Scenario, host_s: float) -> None:
    """Experts whose rows nobody knows beforehand cut the blocks of a forward where the host waits."""
    assert_same_times(lowered(changed(run, software={"host_s_per_kernel": host_s})).programs)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Kernels and local collectives on two streams, with waits of any kind."""
    ops: list[Op] = []
    for i in range(draw(st.integers(1, 6))):
        earlier = st.sets(st.integers(0, i - 1), max_size=2) if i else st.just(set[int]())
        after = tuple(sorted(draw(earlier)))
        if draw(st.booleans()):
            kind, stays = draw(st.sampled_from([("gemm", False), ("gemm", True), ("memory-bound", False)]))
            work = Compute(draw(seconds), kind, static_schedule=stays)
            ops.append(Op("kernel", "compute", "compute", work, after, host_s=draw(host)))
        else:
            stream = draw(st.sampled_from(["tp", "tp", "cp"]))
            collective = Collective("all_reduce", stream, draw(transfers()))
            ops.append(Op("sum", stream, stream, collective, after, host_s=draw(host)))
    return Block("block", tuple(ops))


@st.composite
def classes(
    draw: st.DrawFn, known: list[Block], collectives: list[Transfer], messages: list[MessageEnd]
) -> Program:
    """Repeated blocks beside kernels, collectives and messages that wait for anything before them."""
    ops: list[Op] = []
    calls, left = list(collectives), list(messages)
    for i in range(draw(st.integers(2, 12))):
        earlier = st.sets(st.integers(0, i - 1), max_size=2) if i else st.just(set[int]())
        after = tuple(sorted(draw(earlier)))
        what = draw(st.sampled_from(["repeated", "repeated", "kernel", "local", "shared", "message"]))
        if what == "repeated":
            picked = draw(
                st.lists(st.tuples(st.sampled_from(known), st.integers(1, 3)), min_size=1, max_size=3)
            )
            repeated = RepeatedBlocks(tuple(picked))
            ops.append(Op("repeated", "compute", "compute", repeated, after, "0F0", repeated.host_s))
        elif what == "shared" and calls:
            work = Collective("all_reduce", "world", calls.pop(0))
            ops.append(Op("world", "world", "dp", work, after, host_s=draw(host)))
        elif what == "message" and left:
            ops.append(Op("message", "free", "pp", Exchange((left.pop(0),)), after))
        elif what == "kernel":
            sync = draw(st.integers(0, 4)) == 0
            kernel = Compute(draw(seconds), "gemm")
            ops.append(Op("kernel", "compute", "compute", kernel, after, host_s=draw(host), host_sync=sync))
        else:
            stream = draw(st.sampled_from(["dp", "tp", "free"]))
            work = Collective("all_reduce", "own", draw(transfers()))
            ops.append(Op("own", stream, "dp", work, after, host_s=draw(host)))
    ops += [Op("world", "world", "dp", Collective("all_reduce", "world", one)) for one in calls]
    ops += [Op("message", "free", "pp", Exchange((part,))) for part in left]
    return Program(ops=tuple(ops))


@st.composite
def interfering(draw: st.DrawFn) -> Programs:
    """Classes whose repeated blocks others interfere with in every way that the format knows."""
    count = draw(st.integers(1, 3))
    known = draw(st.lists(blocks(), min_size=1, max_size=3))
    world = draw(st.lists(transfers(), max_size=3))
    messages: list[list[MessageEnd]] = [[] for _ in range(count)]
    for k in range(draw(st.integers(0, 4)) if count > 1 else 0):
        a, b = draw(st.permutations(range(count)))[:2]
        tier = draw(st.sampled_from(["nvlink", "nic"]))
        transfer = Transfer(0.1, draw(st.floats(1.0, 50.0)), 50.0, ((tier, 1.0),))
        messages[a].append(MessageEnd(True, b, f"0F{k}", transfer))
        messages[b].append(MessageEnd(False, a, f"0F{k}", transfer))
    return Programs(
        classes=tuple(draw(classes(known, world, messages[r])) for r in range(count)),
        communicators={"world": tuple(range(count))},
        links=(LINKS,) * count,
        sms=SMS,
        corun_slowdown=draw(st.sampled_from([0.0, 0.1])),
    )


@settings(max_examples=80, deadline=None)
@given(interfering())
def test_any_program_is_the_same_expanded(programs: Programs) -> None:
    """Streams shared with blocks, foreign SMs and flows on the links of blocks, hosts ahead and behind."""
    problems = program_problems(programs)
    if problems:  # messages and collectives in orders that do not agree
        assert [problem.partition(":")[0] for problem in problems] == ["deadlock"]
        for one in (programs, expanded(programs)):
            with pytest.raises(RuntimeError, match="deadlock"):
                replay(one)
    else:
        assert_same_times(programs)


# Messages at any moment of a block ------------------------------------------------------------------


@st.composite
def joining(draw: st.DrawFn) -> Block:
    """Ops that wait for the one before them, for all, or for none: streams that fork and join again."""
    ops: list[Op] = []
    for i in range(draw(st.integers(4, 8))):
        after = draw(st.sampled_from([(i - 1,), tuple(range(i)), (), ()])) if i else ()
        if draw(st.booleans()):
            kernel = Compute(draw(st.sampled_from([0.25, 0.5, 1.0])), "gemm")
            host_s = draw(st.sampled_from([0.0, 0.0, 0.25]))
            ops.append(Op("kernel", "compute", "compute", kernel, after, host_s=host_s))
        else:
            stream, bytes_ = draw(st.sampled_from(["tp", "cp"])), draw(st.sampled_from([5.0, 20.0]))
            sum_ = Transfer(0.0, bytes_, 10.0, (("nic.in", 1.0),), draw(st.sampled_from([0, 10, 20])))
            ops.append(Op("sum", stream, stream, Collective("all_reduce", stream, sum_), after))
    return Block("block", tuple(ops))


@settings(max_examples=120, deadline=None)
@given(
    joining(), st.lists(st.tuples(st.integers(0, 12), st.sampled_from([5.0, 20.0])), min_size=1, max_size=2)
)
def test_a_message_at_any_moment_of_a_block_is_the_same_expanded(
    block: Block, messages: list[tuple[int, float]]
) -> None:
    """Blocks that open where they use a link of a message, and close where their streams join again."""
    sent: list[Op] = []
    received: list[Op] = []
    for k, (quarters, bytes_) in enumerate(messages):
        transfer = Transfer(0.0, bytes_, 10.0, (("nic", 1.0),))
        delay = Collective("all_reduce", f"delay {k}", Transfer(quarters / 4, 0.0, math.inf))
        send, receive = (Exchange((MessageEnd(one, int(one), f"0F{k}", transfer),)) for one in (True, False))
        sent += [Op("delay", f"delay {k}", "dp", delay), Op("message", f"pp {k}", "pp", send, (2 * k,))]
        received.append(Op("message", f"pp {k}", "pp", receive))
    repeated = RepeatedBlocks(((block, 2),))
    runs = Op("repeated", "compute", "compute", repeated, (), "0F0", repeated.host_s)
    assert_same_times(
        Programs(
            classes=(Program(ops=tuple(sent)), Program(ops=(*received, runs))),
            communicators={},
            links=(LINKS, LINKS),
            sms=SMS,
            corun_slowdown=0.0,
        )
    )
