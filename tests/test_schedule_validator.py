"""The validator of action tables: each kind of broken table, and random breakage against an oracle."""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate

import pytest
from asap import Stuck, Times, asap
from hypothesis import given
from hypothesis import strategies as st
from schedule_shapes import parse, schedules_and_shapes

from stepsim.schedules.orders.action import Action, Kind, Orders, Overlap, Step, actions_of, parts
from stepsim.schedules.orders.schedule import Placement, Schedule, Shape, loop_placement
from stepsim.schedules.orders.validate import Reason, find_problems, validate
from stepsim.schedules.pipeline import get

Table = list[list[Step]]

TWO_RANKS = Shape(ranks=2, microbatches=2)
FOUR_RANKS = Shape(ranks=4, microbatches=4)


def table(*orders: str) -> Orders:
    return parse([order.split() for order in orders])


# Broken tables, each with its reason -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("orders", "reason", "message"),
    [
        (
            table("0F0 0F1 0B0 0B1"),
            Reason.RANKS,
            "rank 1 has no order, but the pipeline has 2 ranks",
        ),
        (
            table("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", "2F0"),
            Reason.RANKS,
            "rank 2 has an order, but the pipeline has 2 ranks",
        ),
        (
            table("0F0 0F1 0B0 0B1", "1F0 1B0 1F1"),
            Reason.MISSING,
            "rank 1 never runs 1B1",
        ),
        (
            table("0F0 0F1 0I0 0W0 0I1", "1F0 1B0 1F1 1B1"),
            Reason.MISSING,
            "rank 0 never runs 0W1",
        ),
        (
            table("0F0 0F1 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"),
            Reason.REPEATED,
            "rank 0, action 3 (0F1) repeats the work of rank 0, action 1 (0F1)",
        ),
        (
            table("0F0 0F1 0B0 0B1", "1F0 1I0 1W0 1F1 1B1 1W1"),
            Reason.REPEATED,
            "rank 1, action 5 (1W1) repeats the work of rank 1, action 4 (1B1)",
        ),
        (
            table("0F0 0F1 0B0 0B1 1B1", "1F0 1B0 1F1"),
            Reason.WRONG_RANK,
            "rank 0, action 4 (1B1) is of stage 1, which rank 1 holds",
        ),
        (
            table("0F0 0F1 0B0 0B1 2F0", "1F0 1B0 1F1 1B1"),
            Reason.OUTSIDE,
            "rank 0, action 4 (2F0) is of stage 2, but stages go from 0 to 1",
        ),
        (
            table("0F0 0F1 0B0 0B1 0F2", "1F0 1B0 1F1 1B1"),
            Reason.OUTSIDE,
            "rank 0, action 4 (0F2) is of microbatch 2, but microbatches go from 0 to 1",
        ),
        (
            table("0F0 0F1 0B0 0B1", "1B0 1F0 1F1 1B1"),
            Reason.ORDER,
            "rank 1, action 0 (1B0) waits for 1F0, which the same rank runs later, as action 1",
        ),
        (
            table("0F0 0F1 0B0 0W1 0I1", "1F0 1B0 1F1 1B1"),
            Reason.ORDER,
            "rank 0, action 3 (0W1) waits for 0I1, which the same rank runs later, as action 4",
        ),
        (
            table("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"),
            Reason.DEADLOCK,
            "rank 0, action 1 (0B0) waits for 1B0, which rank 1 runs only after 1F1: deadlock",
        ),
        (
            table("0F0 0F1 0B1 0B0", "1F0 1F1 1B0 1B1"),
            None,
            "",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Reason) else "",
)
def test_a_broken_table_is_told_why(orders: Orders, reason: Reason | None, message: str) -> None:
    found = find_problems(orders, TWO_RANKS, loop_placement)
    if reason is None:
        assert found == ()
        return
    assert reason in {problem.reason for problem in found}
    assert message in [str(problem) for problem in found]
    with pytest.raises(ValueError, match=re.escape(message)):
        validate(orders, TWO_RANKS, loop_placement)


def test_every_rank_of_a_circle_is_named_and_no_other() -> None:
    orders = [list(order) for order in get("1f1b").orders(FOUR_RANKS)]
    third, last = orders[2], orders[3]
    third[1:3] = reversed(third[1:3])  # 2B0 before 2F1
    last[1:3] = reversed(last[1:3])  # 3F1 before 3B0
    assert [str(problem) for problem in find_problems(frozen(orders), FOUR_RANKS, loop_placement)] == [
        "rank 2, action 1 (2B0) waits for 3B0, which rank 3 runs only after 3F1: deadlock",
        "rank 3, action 1 (3F1) waits for 2F1, which rank 2 runs only after 2B0: deadlock",
    ]


def test_a_rank_in_a_circle_may_wait_right_at_the_awaited_action() -> None:
    shape = Shape(ranks=3, microbatches=1)
    orders = table("0F0 0B0", "1B0 1F0", "2F0 2B0")
    (problem,) = find_problems(orders, shape, loop_placement)
    assert problem.reason is Reason.ORDER
    orders = table("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", "2F0 2B0 2F1 2B1")
    found = [str(one) for one in find_problems(orders, Shape(ranks=3, microbatches=2), loop_placement)]
    assert found == [
        "rank 0, action 1 (0B0) waits for 1B0, which rank 1 runs only after 1F1: deadlock",
        "rank 1, action 1 (1F1) waits for 0F1, which rank 0 runs only after 0B0: deadlock",
    ]


def test_too_many_activations_are_named_where_they_begin() -> None:
    orders = get("gpipe").orders(FOUR_RANKS)
    one_f_one_b = get("1f1b")
    found = find_problems(orders, FOUR_RANKS, one_f_one_b.rank_of, one_f_one_b.in_flight)
    assert {problem.reason for problem in found} == {Reason.IN_FLIGHT}
    assert [problem.rank for problem in found] == [1, 2, 3]
    assert str(found[0]) == "rank 1, action 3 (1F3) holds 4 chunk activations, more than the 3 allowed"
    assert find_problems(orders, FOUR_RANKS, one_f_one_b.rank_of) == ()


def test_a_long_list_of_problems_is_cut() -> None:
    shape = Shape(ranks=2, microbatches=20)
    with pytest.raises(ValueError, match=r"never runs 0F0; .*; and 70 more$"):
        validate(((), ()), shape, loop_placement)


# Random breakage against an oracle --------------------------------------------------------------------------


def frozen(orders: Table) -> Orders:
    return tuple(tuple(order) for order in orders)


@st.composite
def valid_tables(draw: st.DrawFn) -> tuple[Schedule, Shape, Table]:
    """Any schedule, half of the time with split backwards (W right after I: as valid as before)."""
    schedule, shape = draw(schedules_and_shapes())
    orders = [list(order) for order in schedule.orders(shape)]
    if draw(st.booleans()):
        orders = [[half for action in order for half in split(action)] for order in orders]
    return schedule, shape, orders


def split(step: Step) -> list[Step]:
    if isinstance(step, Overlap) or step.kind is not Kind.BACKWARD:
        return [step]
    return [Action(step.stage, kind, step.microbatch) for kind in (Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)]


@st.composite
def broken_tables(draw: st.DrawFn) -> tuple[Schedule, Shape, Table]:
    """A valid table after one or two changes, which may leave it valid."""
    schedule, shape, orders = draw(valid_tables())
    for _ in range(draw(st.integers(1, 2))):
        change = draw(st.sampled_from([drop, duplicate, move, move_near, swap, swap_near, rename]))
        change(draw, shape, orders)
    return schedule, shape, orders


def place(draw: st.DrawFn, orders: Table) -> tuple[list[Step], int]:
    order = draw(st.sampled_from([order for order in orders if order]))
    return order, draw(st.integers(0, len(order) - 1))


def drop(draw: st.DrawFn, shape: Shape, orders: Table) -> None:
    order, position = place(draw, orders)
    del order[position]


def duplicate(draw: st.DrawFn, shape: Shape, orders: Table) -> None:
    order, position = place(draw, orders)
    target, at = place(draw, orders)
    target.insert(at, order[position])


def move(draw: st.DrawFn, shape: Shape, orders: Table) -> None:
    order, position = place(draw, orders)
    action = order.pop(position)
    target = draw(st.sampled_from(orders))
    target.insert(draw(st.integers(0, len(target))), action)


def move_near(draw: st.DrawFn, shape: Shape, orders: Table) -> None:
    order, position = place(draw, orders)
    action = order.pop(position)
    order.insert(max(0, position + draw(st.integers(-4, 4))), action)


def swap(draw: st.DrawFn, shape: Shape, orders: Table) -> None:
    (one, i), (other, j) = place(draw, orders), place(draw, orders)
    one[i], other[j] = other[j], one[i]


def swap_near(draw: st.DrawFn, shape: Shape, orders: Table) -> None:
    order, i = place(draw, orders)
    j = min(len(order) - 1, i + draw(st.integers(1, 3)))
    order[i], order[j] = order[j], order[i]


def rename(draw: st.DrawFn, shape: Shape, orders: Table) -> None:
    order, i = place(draw, orders)
    stage, microbatch = st.integers(0, shape.stages), st.integers(0, shape.microbatches)
    order[i] = draw(st.builds(Action, stage, st.sampled_from(Kind), microbatch))


def wrong_work(orders: Table, shape: Shape, rank_of: Placement) -> set[Reason]:
    """What is wrong with the work whatever its order, by counting."""
    found = set()
    done: Counter[tuple[int, int, str]] = Counter()
    for rank, order in enumerate(orders):
        for action in actions_of(order):
            if action.stage >= shape.stages or action.microbatch >= shape.microbatches:
                found.add(Reason.OUTSIDE)
                continue
            if rank_of(action.stage, action.microbatch, shape) != rank:
                found.add(Reason.WRONG_RANK)
            work = "IW" if action.kind is Kind.BACKWARD else action.kind.value
            done.update((action.stage, action.microbatch, part) for part in work)
    everything = {
        (s, k, part) for s in range(shape.stages) for k in range(shape.microbatches) for part in "FIW"
    }
    if any(done[work] == 0 for work in everything):
        found.add(Reason.MISSING)
    if any(count > 1 for count in done.values()):
        found.add(Reason.REPEATED)
    return found


def inverted(order: list[Step]) -> bool:
    """Whether a rank runs a backward before its forward, W before I, or a chunk before one that feeds it."""
    placed = [(i, action) for i, step in enumerate(order) for action in parts(step)]
    at = {(action.stage, "F" if action.kind is Kind.FORWARD else "I", action.microbatch): i
          for i, action in placed if action.kind is not Kind.WEIGHT_GRAD}  # fmt: skip
    for i, action in placed:
        s, k = action.stage, action.microbatch
        needs = {
            Kind.FORWARD: [(s - 1, "F", k)],
            Kind.WEIGHT_GRAD: [(s, "I", k)],
        }.get(action.kind, [(s, "F", k), (s + 1, "I", k)])
        if any(at.get(need, -1) > i for need in needs):
            return True
    return False


@given(broken_tables())
def test_a_changed_table_is_valid_or_refused_for_the_right_reason(
    drawn: tuple[Schedule, Shape, Table],
) -> None:
    schedule, shape, orders = drawn
    problems = find_problems(frozen(orders), shape, schedule.rank_of, schedule.in_flight)
    reasons = {problem.reason for problem in problems}
    for problem in problems:  # names what is there
        if problem.position is not None:
            step = orders[problem.rank][problem.position]
            assert problem.action in (step, *parts(step))
            assert f"rank {problem.rank}, action {problem.position} ({problem.action})" in str(problem)
    if wrong := wrong_work(orders, shape, schedule.rank_of):
        assert reasons == wrong
        return
    assert (Reason.IN_FLIGHT in reasons) == overfull(schedule, shape, orders)
    reasons.discard(Reason.IN_FLIGHT)
    try:
        asap(frozen(orders), shape.stages, Times(forward=1, input_grad=1, weight_grad=1))
    except Stuck:
        assert reasons
        assert reasons <= {Reason.ORDER, Reason.DEADLOCK}
        if not any(inverted(order) for order in orders):
            assert reasons == {Reason.DEADLOCK}
        if shape.ranks == 1:
            assert reasons == {Reason.ORDER}
    else:
        assert reasons == set()


def overfull(schedule: Schedule, shape: Shape, orders: Table) -> bool:
    held = {Kind.FORWARD: 1, Kind.INPUT_GRAD: 0}
    return schedule.in_flight is not None and any(
        held_now > schedule.in_flight(rank, shape)
        for rank, order in enumerate(orders)
        for held_now in accumulate(held.get(action.kind, -1) for action in actions_of(order))
    )


@given(valid_tables())
def test_what_is_valid_raises_nothing(drawn: tuple[Schedule, Shape, Table]) -> None:
    schedule, shape, orders = drawn
    validate(frozen(orders), shape, schedule.rank_of, schedule.in_flight)
