"""Repeated blocks that meet other classes give what their ops give one by one, closed and opened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.expanded import expanded
from repeated_programs import LINKS, SMS, assert_same_times, degraded, host, seconds, transfers
from small_scenarios import lowered, scenario

from stepsim.sim.engine.groups import JointGroups
from stepsim.sim.engine.record import Stretch
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.partition import partition_of
from stepsim.sim.fold.programs import programs_of_classes
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.bind import bound
from stepsim.sim.program.check import program_problems
from stepsim.sim.program.program import (
    Binding,
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
@settings(max_examples=15, deadline=None)
@given(degraded())
def test_a_degraded_step_is_the_same_expanded(drawn: tuple[Scenario, Degradation]) -> None:
    assert_same_times(folded(*drawn))


def test_a_stream_whose_slow_stage_waits_for_its_host_is_the_same_expanded() -> None:
    """What its own actions take holds what its host is late by within them, in a block as op by op."""
    small: dict[str, Any] = {"tp": 2, "pp": 2, "microbatches": 2, "seq_length": 128}
    run = scenario(**small, schedule="pipedream", precision="fp32", software="bigscience-2022")
    assert_same_times(folded(run, Degradation(slow={0: 1.25})))


def folded(run: Scenario, degradation: Degradation) -> Programs:
    """Programs of classes."""
    step = lowered(run)
    ranks = ranks_of(step)
    return programs_of_classes(step.programs, ranks, partition_of(ranks, degradation).rank, degradation)


# Any programs --------------------------------------------------------------------------------------


@st.composite
def rows(draw: st.DrawFn, count: int, names: list[str]) -> list[Block]:
    """A block for each of ``count`` classes: collectives that all call in the same places, and kernels and
    waits of each one's own.
    """
    size = draw(st.integers(1, 6))
    calls = {i: draw(st.sampled_from(names)) for i in range(size) if draw(st.booleans())}
    shared = {i: draw(transfers()) for i in calls}
    blocks = []
    for _ in range(count):
        ops: list[Op] = []
        for i in range(size):
            earlier = st.sets(st.integers(0, i - 1), max_size=2) if i else st.just(set[int]())
            after, host_s = tuple(sorted(draw(earlier))), draw(host)
            if i in calls:
                work = Collective("all_reduce", calls[i], shared[i])
                ops.append(Op("sum", calls[i], "tp", work, after, host_s=host_s))
            else:
                kind, stays = draw(
                    st.sampled_from([("gemm", False), ("gemm", True), ("memory-bound", False)])
                )
                kernel = Compute(draw(seconds), kind, static_schedule=stays)
                ops.append(Op("kernel", "compute", "compute", kernel, after, host_s=host_s))
        blocks.append(Block("block", tuple(ops)))
    return blocks


@st.composite
def rendezvous(draw: st.DrawFn) -> Programs:
    """Classes that meet in blocks, over one communicator or two in a chain, beside ops of their own."""
    count = draw(st.integers(2, 3))
    communicators = {"tp": tuple(range(count)), "world": tuple(range(count))}
    names, means = ["tp", "own"], [dict[str, str]() for _ in range(count)]
    if count == 3 and draw(st.booleans()):
        communicators |= {"tp": (0, 1), "cp": (1, 2)}
        names, means = ["tp", "cp"], [{"cp": "own"}, {}, {"tp": "own"}]
    known = [draw(rows(count, names)) for _ in range(draw(st.integers(1, 2)))]
    picked = st.lists(st.tuples(st.sampled_from(known), st.integers(1, 3)), min_size=1, max_size=3)
    repeated_blocks = draw(st.lists(picked, min_size=1, max_size=4))
    world = draw(st.lists(transfers(), max_size=2))
    message = Transfer(0.1, draw(st.floats(1.0, 50.0)), 50.0, (("nvlink", 1.0),))
    programs = []
    for m in range(count):
        ops: list[Op] = []
        calls = list(world)
        for number, row in enumerate(repeated_blocks):
            repeated = RepeatedBlocks(tuple((blocks[m], times) for blocks, times in row))
            earlier = st.sets(st.integers(0, len(ops) - 1), max_size=2) if ops else st.just(set[int]())
            after = tuple(sorted(draw(earlier)))
            ops.append(
                Op("repeated", "compute", "compute", repeated, after, f"0F{number}", host_s=repeated.host_s)
            )
            for _ in range(draw(st.integers(0, 2))):
                after = tuple(sorted(draw(st.sets(st.integers(0, len(ops) - 1), max_size=2))))
                what = draw(st.sampled_from(["kernel", "local", "shared"]))
                if what == "kernel":
                    ops.append(Op("kernel", "compute", "compute", Compute(draw(seconds), "gemm"), after))
                elif what == "shared" and calls:
                    work = Collective("all_reduce", "world", calls.pop(0))
                    ops.append(Op("world", "world", "dp", work, after, host_s=draw(host)))
                else:
                    stream = draw(st.sampled_from(["dp", "own", "free"]))
                    ops.append(
                        Op("own", stream, "dp", Collective("all_reduce", "mine", draw(transfers())), after)
                    )
            if number == 0 and m < 2:
                part = MessageEnd(m == 0, 1 - m, "0F0", message)
                ops.append(Op("message", "free", "pp", Exchange((part,)), (0,) if m == 0 else ()))
        ops += [Op("world", "world", "dp", Collective("all_reduce", "world", one)) for one in calls]
        programs.append(Program(ops=tuple(ops)))
    slow = [draw(st.sampled_from([1.0, 1.0, 1.5])) for _ in range(count)]
    return Programs(
        classes=tuple(programs),
        communicators=communicators,
        links=tuple({**LINKS, "nic.out": draw(st.sampled_from([10.0, 5.0]))} for _ in range(count)),
        sms=SMS,
        corun_slowdown=draw(st.sampled_from([0.0, 0.1])),
        bindings=tuple(Binding(slow=one, communicators=to) for one, to in zip(slow, means, strict=True)),
    )


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(rendezvous())
def test_any_classes_that_meet_in_blocks_are_the_same_expanded(programs: Programs) -> None:
    problems = program_problems(programs)
    if problems:
        assert {problem.partition(":")[0] for problem in problems} == {"deadlock"}
        for one in (programs, expanded(programs)):
            with pytest.raises(RuntimeError, match="deadlock"):
                replay(one)
    else:
        assert_same_times(programs)


# By hand -------------------------------------------------------------------------------------------


def pair(
    *ops: Op, others: tuple[tuple[Op, ...], ...] = ((), ()), slow: float = 1.0, times: int = 1
) -> Programs:
    """Two classes that run the same block, ``times`` over, after ops of their own; the second is slow."""
    repeated = RepeatedBlocks(((Block("block", ops), times),))
    op = Op("repeated", "compute", "compute", repeated, action="0F0")
    return Programs(
        classes=tuple(Program(ops=(*own, op)) for own in others),
        communicators={"both": (0, 1)},
        links=(LINKS, LINKS),
        sms=100,
        corun_slowdown=0.0,
        bindings=(Binding(communicators={"tp": "both"}), Binding(slow=slow, communicators={"tp": "both"})),
    )


def kernel(duration_s: float, *after: int) -> Op:
    return Op("kernel", "compute", "compute", Compute(duration_s, "gemm"), after)


def call(transfer: Transfer, *after: int) -> Op:
    return Op("sum", "tp", "tp", Collective("all_reduce", "tp", transfer), after)


SECOND = Transfer(1.0, 0.0, 1.0)


def test_the_slow_one_sets_the_pace() -> None:
    """A kernel of 1 or 3 s, a sum of 1 s, a kernel: in step from the first sum on but for the last kernel."""
    record = replay(pair(kernel(1.0), call(SECOND, 0), kernel(1.0, 1), slow=3.0, times=2))
    assert [list(ends) for ends in record.end] == [[12.0], [14.0]]
    assert all(record.whole(*key) for key in record.repeated_blocks())


def test_one_that_is_late_is_waited_for_and_nothing_opens() -> None:
    late = (Op("before", "compute", "compute", Compute(5.0, "gemm")),)
    record = replay(pair(kernel(1.0), call(SECOND, 0), others=((), late)))
    assert [list(ends) for ends in record.end] == [[7.0], [5.0, 7.0]]
    assert all(
        isinstance(piece, Stretch) for key in record.repeated_blocks() for piece in record.pieces(*key)
    )


def test_what_interferes_with_one_opens_both() -> None:
    """Half of the first one's SMs are taken from 0.5 s on: its kernel takes 1.5 s, and both are later."""
    taken = Transfer(9.0, 0.0, 1.0, sms=50)
    wait, held = (
        Op("wait", "dp", "dp", Collective("all_reduce", "dp", Transfer(0.5, 0.0, 1.0))),
        Op("held", "dp", "dp", Collective("all_reduce", "dp", taken)),
    )
    record = replay(pair(kernel(1.0), call(SECOND, 0), others=((wait, held), ())))
    assert [list(ends) for ends in record.end] == [[0.5, 9.5, 2.5], [2.5]]
    assert not any(
        isinstance(piece, Stretch) for key in record.repeated_blocks() for piece in record.pieces(*key)
    )


def test_groups_are_those_that_meet_in_blocks() -> None:
    programs = folded(scenario(tp=4, pp=2, dp=2, schedule="1f1b"), Degradation(slow={1: 2.0}))
    groups = JointGroups(programs)
    for r in range(len(programs.classes)):
        joined = programs.joins(r, "tp")
        assert groups.of(r).members == (programs.communicators[joined] if joined else (r,))
    record = replay(programs)
    assert record.events < replay(expanded(programs)).events / 2


def test_programs_are_shared_by_classes() -> None:
    step = lowered(scenario(tp=4, pp=2, dp=2, schedule="1f1b"))
    ranks, degradation = ranks_of(step), Degradation(slow={1: 2.0})
    programs = programs_of_classes(step.programs, ranks, partition_of(ranks, degradation).rank, degradation)
    assert {id(one) for one in programs.classes} <= {id(one) for one in step.programs.classes}
    alike = bound(programs)
    assert alike.bindings == ()
    assert replay(alike).step_s == pytest.approx(replay(programs).step_s, rel=1e-12)
    assert bound(alike) is alike
    assert program_problems(replace(programs, bindings=())) != ()


def test_a_block_that_ends_on_one_before_another_begins_is_not_run_together() -> None:
    """Three in a chain: the first two meet, the last two meet; the first may end before the last begins."""
    first = Block("first", (call(SECOND), Op("x", "cp", "cp", Collective("all_reduce", "own", SECOND))))
    middle_ops = (call(SECOND), Op("x", "cp", "cp", Collective("all_reduce", "cp", SECOND)))
    middle = Block("middle", middle_ops)
    late = Op("before", "compute", "compute", Compute(5.0, "gemm"))
    third = Block("third", (Op("y", "tp", "tp", Collective("all_reduce", "own", SECOND)), middle_ops[1]))
    repeated_blocks = [
        Op("repeated", "compute", "compute", RepeatedBlocks(((b, 1),))) for b in (first, middle, third)
    ]
    programs = Programs(
        classes=(
            Program(ops=(repeated_blocks[0],)),
            Program(ops=(repeated_blocks[1],)),
            Program(ops=(late, repeated_blocks[2])),
        ),
        communicators={"tp": (0, 1), "cp": (1, 2)},
        links=(LINKS,) * 3,
        sms=100,
        corun_slowdown=0.0,
    )
    assert [list(ends) for ends in replay(programs).end] == [[1.0], [6.0], [5.0, 6.0]]
    assert_same_times(programs)
