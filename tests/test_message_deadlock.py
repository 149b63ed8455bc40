"""Tables under a rule for their messages: what the validator says is what the engine does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from asap import Stuck, Times
from broken_tables import (
    REORDERINGS,
    TWO_WAY,
    TWO_WAY_SHAPE,
    Drawn,
    broken_tables,
    table,
)
from hypothesis import given
from hypothesis import strategies as st
from oracles.bare import ActionTimes, bare_table
from oracles.messages_of_tables import find_problems, message_problems, validate
from refusals import refused_at
from rendezvous import rendezvous
from schedule_shapes import schedules_and_shapes
from small_scenarios import lowered, scenario

from stepsim.schedules.orders import validate as table_validate
from stepsim.schedules.orders.action import Action, Orders, Overlap
from stepsim.schedules.orders.schedule import Schedule, Shape, loop_placement, two_way_placement
from stepsim.schedules.orders.table_file import format_table
from stepsim.schedules.orders.validate import Reason, TableProblem
from stepsim.schedules.p2p.deadlock import instruction_problems
from stepsim.schedules.p2p.instructions import Instruction, MessageGroup, Recv, RunAction, Send, Wait
from stepsim.schedules.p2p.point_to_point import RULES, point_to_point
from stepsim.sim.engine.replay import replay

TWO_RANKS = Shape(ranks=2, microbatches=2)
FOUR_MICROBATCHES = Shape(ranks=2, microbatches=4)

GPIPE_ABOVE_1F1B = table("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3")
"""Rank 0 never fuses a send with a receive, rank 1 always does."""

TIMES = ActionTimes(forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0, latency_s=0.1)


def ends_in_the_engine(drawn: Drawn, rule: str) -> bool:
    try:
        replay(bare_table(drawn.orders, drawn.shape, drawn.rank_of, TIMES, rule))
    except RuntimeError as mistake:
        assert str(mistake).startswith("deadlock")  # noqa: PT017 - of all its reasons, this one
        return False
    return True


# Tables that only a rule breaks ----------------------------------------------------------------------------


def test_a_step_refuses_a_table_whose_messages_deadlock(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(format_table(GPIPE_ABOVE_1F1B))
    fields = {"pp": 2, "schedule": str(path), "microbatches": 4}
    assert lowered(
        scenario(**fields, software={"preset": "megatron-2022-sp", "pipeline": {"point_to_point": "async"}})
    )
    with refused_at("software.pipeline.point_to_point", "deadlock", "ranks 0 and 1", "blocking"):
        lowered(
            scenario(
                **fields, software={"preset": "megatron-2022-sp", "pipeline": {"point_to_point": "blocking"}}
            )
        )


def test_a_table_may_deadlock_under_blocking_messages_only() -> None:
    assert find_problems(GPIPE_ABOVE_1F1B, FOUR_MICROBATCHES, loop_placement, "async") == ()
    found = find_problems(GPIPE_ABOVE_1F1B, FOUR_MICROBATCHES, loop_placement, "blocking")
    assert [(problem.reason, problem.rank, problem.position) for problem in found] == [
        (Reason.DEADLOCK, 0, 2),
        (Reason.DEADLOCK, 1, 1),
    ]
    end = "deadlock of ranks 0 and 1 under rule blocking"
    waits, up, down = "has run, but its rank then waits", "send 0F2 to rank 1", "send 1B0 to rank 0"
    assert [str(problem) for problem in found] == [
        f"rank 0, action 2 (0F2) {waits} to {up}, while rank 1 waits to {down}: {end}",
        f"rank 1, action 1 (1B0) {waits} to {down}, while rank 0 waits to {up}: {end}",
    ]
    with pytest.raises(ValueError, match=r"action 2 \(0F2\) has run.*; rank 1, action 1 \(1B0\) has run"):
        validate(GPIPE_ABOVE_1F1B, FOUR_MICROBATCHES, loop_placement, "blocking")


@pytest.mark.parametrize(
    ("orders", "which"),
    [
        (
            table("0F0 0F1 0B0 0B1", "1F1 1F0 1B0 1B1"),
            "rank 1, action 0 (1F1) takes 0F1 as message 1 of the activations of rank 0, which sends 0F0",
        ),
        (
            table("0F0 0F1 0B1 0B0", "1F0 1F1 1B0 1B1"),
            "rank 0, action 2 (0B1) takes 1B1 as message 1 of the gradients of rank 1, which sends 1B0",
        ),
    ],
    ids=["activations", "gradients"],
)
def test_crossed_messages_pair_wrongly_where_they_pair_by_order(orders: Orders, which: str) -> None:
    assert find_problems(orders, TWO_RANKS, loop_placement, "async") == ()
    (problem,) = find_problems(orders, TWO_RANKS, loop_placement, "blocking")
    assert problem.reason is Reason.CROSSED
    assert str(problem) == (
        f"{which} as that one: messages between two ranks pair by their order; run the two actions in the "
        "same order on both ranks, or use async"
    )


@pytest.mark.parametrize("rule", RULES)
def test_what_is_wrong_with_the_table_comes_first(rule: str) -> None:
    """Under any rule, also one that is not defined for it."""
    for orders in (table("0F0", "1F0 1B0"), table("0B0 0F0", "1F0 1B0")):
        shape = Shape(ranks=2, microbatches=1)
        found = find_problems(orders, shape, loop_placement, rule)
        assert found == table_validate.find_problems(orders, shape, loop_placement)
        assert found


def test_too_many_activations_are_named_beside_a_deadlock() -> None:
    found = find_problems(
        GPIPE_ABOVE_1F1B, FOUR_MICROBATCHES, loop_placement, "blocking", lambda rank, _: 2 - rank
    )
    assert Counter(problem.reason for problem in found) == {Reason.IN_FLIGHT: 1, Reason.DEADLOCK: 2}


def test_a_rule_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="'eager'; known: async"):
        find_problems(GPIPE_ABOVE_1F1B, FOUR_MICROBATCHES, loop_placement, "eager")


@given(schedules_and_shapes(), st.sampled_from(RULES))
def test_no_schedule_has_a_problem_under_a_rule_that_takes_it(
    drawn: tuple[Schedule, Shape], rule: str
) -> None:
    schedule, shape = drawn
    orders = schedule.orders(shape)
    if takes(
        Drawn(rows=[list(row) for row in orders], shape=shape, rank_of=schedule.rank_of, in_flight=None), rule
    ):
        assert message_problems(orders, shape, schedule.rank_of, rule) == ()


def test_the_two_way_table_has_no_problem() -> None:
    assert find_problems(TWO_WAY, TWO_WAY_SHAPE, two_way_placement, "async") == ()


# Instructions by hand --------------------------------------------------------------------------------------


def forward(stage: int, microbatch: int = 0) -> Action:
    return Action.parse(f"{stage}F{microbatch}")


def ring(blocking: bool) -> list[list[Instruction]]:
    """Three ranks, each of which hands its result on before it takes the one that comes round."""
    programs: list[list[Instruction]] = []
    for rank in range(3):
        send, recv = Send(forward(rank), (rank + 1) % 3), Recv(forward((rank - 1) % 3), (rank - 1) % 3)
        sent: list[Instruction] = [MessageGroup((send,), blocking=blocking)]
        taken: list[Instruction] = [
            MessageGroup((recv,), blocking=False),
            Wait(recv),
            RunAction(forward(rank + 3)),
        ]
        programs.append([RunAction(forward(rank)), *sent, *taken])
    return programs


def test_three_ranks_that_send_before_they_take() -> None:
    assert instruction_problems(ring(blocking=False), "rule R") == ()
    assert [str(problem) for problem in instruction_problems(ring(blocking=True), "rule R")] == [
        f"rank {rank}, action 0 ({rank}F0) has run, but its rank then waits to send {rank}F0 to rank {peer}, "
        f"while rank {peer} waits to send {peer}F0 to rank {(peer + 1) % 3}: deadlock of ranks 0, 1 and 2 "
        "under rule R"
        for rank, peer in ((0, 1), (1, 2), (2, 0))
    ]


def test_a_group_goes_over_when_all_its_parts_do() -> None:
    """Send and receive in one call meet whatever the other rank does first; in two calls they may not."""
    up, down = forward(0), Action.parse("1B0")
    fused: list[Instruction] = [
        RunAction(up),
        MessageGroup((Send(up, 1), Recv(down, 1)), blocking=True),
        RunAction(Action.parse("0B0")),
    ]
    waits: list[Instruction] = [
        MessageGroup((Recv(up, 0),), blocking=True),
        RunAction(forward(1)),
        RunAction(down),
        MessageGroup((Send(down, 0),), blocking=True),
    ]
    assert instruction_problems([fused, waits], "rule R") == ()
    early: list[Instruction] = [waits[2], waits[3], waits[0], waits[1]]
    assert instruction_problems([fused, early], "rule R") == ()
    apart: list[Instruction] = [
        RunAction(up),
        MessageGroup((Send(up, 1),), blocking=True),
        MessageGroup((Recv(down, 1),), blocking=True),
        RunAction(Action.parse("0B0")),
    ]
    found = instruction_problems([apart, early], "rule R")
    assert [(problem.rank, problem.position) for problem in found] == [(0, 0), (1, 0)]


def test_a_rank_that_takes_before_it_sends_is_named_at_what_it_cannot_begin() -> None:
    programs: list[list[Instruction]] = []
    for rank in range(2):
        other = 1 - rank
        programs.append(
            [
                MessageGroup((Recv(forward(other), other),), blocking=True),
                RunAction(forward(rank + 2)),
                RunAction(forward(rank)),
                MessageGroup((Send(forward(rank), other),), blocking=True),
            ]
        )
    assert [str(problem) for problem in instruction_problems(programs, "rule R")] == [
        f"rank {rank}, action 0 ({rank + 2}F0) cannot begin: its rank waits to receive {other}F0 from rank "
        f"{other}, while rank {other} waits to receive {rank}F0 from rank {rank}: deadlock of ranks 0 and 1 "
        "under rule R"
        for rank, other in ((0, 1), (1, 0))
    ]


def test_ranks_that_only_wait_for_a_circle_are_not_named() -> None:
    programs = ring(blocking=True)
    programs[0].append(RunAction(forward(0, 1)))
    programs[0].append(MessageGroup((Send(forward(0, 1), 3),), blocking=True))
    programs.append([MessageGroup((Recv(forward(0, 1), 0),), blocking=True), RunAction(forward(6))])
    assert [problem.rank for problem in instruction_problems(programs, "rule R")] == [0, 1, 2]


def test_crossed_receives_are_told_apart_from_ones_that_a_runtime_orders() -> None:
    """In one group they pair by order; each alone and waited for, torch posts them as they are sent."""
    sends: list[Instruction] = []
    for k in range(2):
        sends += [RunAction(forward(0, k)), MessageGroup((Send(forward(0, k), 1),), blocking=False)]
    recvs = [Recv(forward(0, k), 0) for k in (1, 0)]
    alone: list[Instruction] = []
    for recv in recvs:
        alone += [
            MessageGroup((recv,), blocking=False),
            Wait(recv),
            RunAction(forward(1, recv.action.microbatch)),
        ]
    assert instruction_problems([sends, alone], "rule R") == ()
    group: list[Instruction] = [MessageGroup(tuple(recvs), blocking=False)]
    for recv in recvs:
        group += [Wait(recv), RunAction(forward(1, recv.action.microbatch))]
    (problem,) = instruction_problems([sends, group], "rule R")
    assert (problem.reason, problem.rank, problem.position) == (Reason.CROSSED, 1, 0)


# The engine as judge ---------------------------------------------------------------------------------------


def takes(drawn: Drawn, rule: str) -> bool:
    try:
        point_to_point(drawn.orders, drawn.shape, drawn.rank_of, rule)
    except ValueError:
        return False
    return True


def judged(drawn: Drawn, rule: str) -> Sequence[TableProblem] | None:
    """Problems under the rule; None where it is not defined for the order. Work must be complete."""
    if not takes(drawn, rule):
        return None
    return find_problems(drawn.orders, drawn.shape, drawn.rank_of, rule)


@pytest.mark.slow
@given(broken_tables(REORDERINGS))
def test_the_engine_ends_exactly_what_the_validator_accepts(drawn: Drawn) -> None:
    """Under every rule that is defined for the order; the engine knows no dependencies within a rank."""
    for rule in RULES:
        found = judged(drawn, rule)
        if found is None:
            continue
        reasons = {problem.reason for problem in found}
        if not reasons:
            assert ends_in_the_engine(drawn, rule), rule
        if Reason.DEADLOCK in reasons:
            assert not ends_in_the_engine(drawn, rule), rule
        messages = message_problems(drawn.orders, drawn.shape, drawn.rank_of, rule)
        if not any(problem.reason is Reason.CROSSED for problem in messages):
            assert ends_in_the_engine(drawn, rule) == (not messages), rule


@given(broken_tables())
def test_any_change_that_the_validator_accepts_ends_in_the_engine(drawn: Drawn) -> None:
    if table_validate.find_problems(drawn.orders, drawn.shape, drawn.rank_of):
        return
    for rule in RULES:
        if judged(drawn, rule) == ():
            assert ends_in_the_engine(drawn, rule), rule


@st.composite
def in_turns(draw: st.DrawFn) -> Drawn:
    """One chunk per rank; forwards and backwards each in order, in any turns that a rank can take."""
    p, m = draw(st.integers(2, 4)), draw(st.integers(1, 6))
    rows = []
    for rank in range(p):
        row: list[Action | Overlap] = []
        forwards, backwards = 0, 0
        while backwards < m:
            up = forwards == backwards or (forwards < m and draw(st.booleans()))
            row.append(Action.parse(f"{rank}F{forwards}" if up else f"{rank}B{backwards}"))
            forwards, backwards = forwards + up, backwards + (not up)
        rows.append(row)
    return Drawn(rows=rows, shape=Shape(ranks=p, microbatches=m), rank_of=loop_placement, in_flight=None)


@given(in_turns())
def test_one_chunk_in_any_turns_ends_or_deadlocks_as_told(drawn: Drawn) -> None:
    """Nothing is crossed here, so accepted or deadlocked is all there is; two references agree."""
    for rule in RULES:
        found = judged(drawn, rule)
        if found is None:
            continue
        assert {problem.reason for problem in found} <= {Reason.DEADLOCK}
        assert ends_in_the_engine(drawn, rule) == (not found), rule
        programs = point_to_point(drawn.orders, drawn.shape, drawn.rank_of, rule)
        try:
            rendezvous(programs, Times(forward=1, input_grad=1, weight_grad=1))
        except Stuck:
            assert found
        else:
            assert not found
