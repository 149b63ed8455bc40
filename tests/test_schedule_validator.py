"""The validator of action tables: each kind of broken table, and random breakage against an oracle."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

import pytest
from asap import Stuck, Times, asap
from broken_tables import TWO_WAY, TWO_WAY_SHAPE, Drawn, broken_tables, table, valid_tables
from hypothesis import given

from stepsim.schedules.orders.action import Action, Kind, Order, Orders, Overlap, actions_of, parts
from stepsim.schedules.orders.schedule import (
    Placement,
    Shape,
    loop_placement,
    two_way_placement,
    v_placement,
)
from stepsim.schedules.orders.validate import Reason, find_problems, validate
from stepsim.schedules.pipeline import get

TWO_RANKS = Shape(ranks=2, microbatches=2)
FOUR_RANKS = Shape(ranks=4, microbatches=4)
V_SHAPED = Shape(ranks=2, microbatches=1, chunks=2)


# Broken tables, each with its reason -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A table, and what is wrong with it: everything, as rank and reason, and one message in full."""

    why: str
    orders: Orders
    reasons: tuple[Reason, ...]
    message: str
    shape: Shape = TWO_RANKS
    rank_of: Placement = loop_placement


BROKEN = [
    # Ranks
    Broken(
        why="a rank too few",
        orders=table("0F0 0F1 0B0 0B1"),
        reasons=(Reason.RANKS,),
        message="rank 1 has no order, but the pipeline has 2 ranks",
    ),
    Broken(
        why="a rank too many",
        orders=table("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", "2F0"),
        reasons=(Reason.RANKS,),
        message="rank 2 has an order, but the pipeline has 2 ranks",
    ),
    # Completeness
    Broken(
        why="no backward",
        orders=table("0F0 0F1 0B0 0B1", "1F0 1B0 1F1"),
        reasons=(Reason.MISSING,),
        message="rank 1 never runs 1B1",
    ),
    Broken(
        why="no forward",
        orders=table("0F0 0F1 0B0 0B1", "1F0 1B0 1B1"),
        reasons=(Reason.MISSING,),
        message="rank 1 never runs 1F1",
    ),
    Broken(
        why="I without W",
        orders=table("0F0 0F1 0I0 0W0 0I1", "1F0 1B0 1F1 1B1"),
        reasons=(Reason.MISSING,),
        message="rank 0 never runs 0W1, without which 0I1 is half a backward",
    ),
    Broken(
        why="W without I",
        orders=table("0F0 0F1 0I0 0W0 0W1", "1F0 1B0 1F1 1B1"),
        reasons=(Reason.MISSING,),
        message="rank 0 never runs 0I1, without which 0W1 is half a backward",
    ),
    Broken(
        why="the half of a pair is left out",
        orders=table("0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B"),
        reasons=(Reason.MISSING,),
        message="rank 1 never runs 1B1",
    ),
    Broken(
        why="missing on the rank that has the stage for this microbatch",
        orders=tuple(order[:-2] for order in TWO_WAY),
        shape=TWO_WAY_SHAPE,
        rank_of=two_way_placement,
        reasons=(Reason.MISSING, Reason.MISSING),
        message="rank 1 never runs 0B3",
    ),
    # Work done twice
    Broken(
        why="a forward twice",
        orders=table("0F0 0F1 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"),
        reasons=(Reason.REPEATED,),
        message="rank 0, action 3 (0F1) repeats the work of rank 0, action 1 (0F1)",
    ),
    Broken(
        why="W besides B",
        orders=table("0F0 0F1 0B0 0B1", "1F0 1I0 1W0 1F1 1B1 1W1"),
        reasons=(Reason.REPEATED,),
        message="rank 1, action 5 (1W1) repeats the work of rank 1, action 4 (1B1): a B is the I and the W "
        "of its microbatch in one",
    ),
    Broken(
        why="B besides I",
        orders=table("0F0 0F1 0B0 0B1", "1F0 1I0 1B0 1F1 1B1"),
        reasons=(Reason.REPEATED,),
        message="rank 1, action 2 (1B0) repeats the work of rank 1, action 1 (1I0): a B is the I and the W "
        "of its microbatch in one",
    ),
    Broken(
        why="in a pair and by itself",
        orders=table("0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B0 1B1"),
        reasons=(Reason.REPEATED,),
        message="rank 1, action 2 (1B0) repeats the work of rank 1, action 1 ((1F1;1B0)OVERLAP_F_B)",
    ),
    Broken(
        why="by itself and in a pair",
        orders=table("0F0 0F1 0B0 0B1", "1F0 1F1 (1F1;1B0)OVERLAP_F_B 1B1"),
        reasons=(Reason.REPEATED,),
        message="rank 1, action 2 ((1F1;1B0)OVERLAP_F_B) holds 1F1, which repeats the work of rank 1, "
        "action 1 (1F1)",
    ),
    # Placement
    Broken(
        why="on another rank",
        orders=table("0F0 0F1 0B0 0B1 1B1", "1F0 1B0 1F1"),
        reasons=(Reason.WRONG_RANK,),
        message="rank 0, action 4 (1B1) is of stage 1, which rank 1 holds",
    ),
    Broken(
        why="a pair on another rank",
        orders=table("0F0 0F1 0B1 (1F1;0B0)OVERLAP_F_B", "1F0 1B0 1B1"),
        reasons=(Reason.WRONG_RANK,),
        message="rank 0, action 3 ((1F1;0B0)OVERLAP_F_B) holds 1F1, which is of stage 1, which rank 1 holds",
    ),
    Broken(
        why="on the rank of the other direction",
        orders=(TWO_WAY[0] + TWO_WAY[1][:1], TWO_WAY[1][1:]),
        shape=TWO_WAY_SHAPE,
        rank_of=two_way_placement,
        reasons=(Reason.WRONG_RANK,),
        message="rank 0, action 8 (0F2) is of stage 0, which rank 1 holds for microbatch 2",
    ),
    Broken(
        why="loop instead of V",
        orders=table("0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0"),
        shape=V_SHAPED,
        rank_of=v_placement,
        reasons=(Reason.WRONG_RANK,) * 4,
        message="rank 0, action 1 (2F0) is of stage 2, which rank 1 holds",
    ),
    Broken(
        why="no such stage",
        orders=table("0F0 0F1 0B0 0B1 2F0", "1F0 1B0 1F1 1B1"),
        reasons=(Reason.OUTSIDE,),
        message="rank 0, action 4 (2F0) is of stage 2, but stages go from 0 to 1",
    ),
    Broken(
        why="no such microbatch",
        orders=table("0F0 0F1 0B0 0B1 0F2", "1F0 1B0 1F1 1B1"),
        reasons=(Reason.OUTSIDE,),
        message="rank 0, action 4 (0F2) is of microbatch 2, but microbatches go from 0 to 1",
    ),
    Broken(
        why="no such microbatch, in a pair",
        orders=table("0F0 0F1 0B0 0B1", "1F0 1F1 (1F2;1B0)OVERLAP_F_B 1B1"),
        reasons=(Reason.OUTSIDE,),
        message="rank 1, action 2 ((1F2;1B0)OVERLAP_F_B) holds 1F2, which is of microbatch 2, but "
        "microbatches go from 0 to 1",
    ),
    Broken(
        why="a pair of two forwards",
        orders=(table("0F0 0F1 0B0 0B1")[0], (Overlap(*table("1F0 1F1")[0]), *table("1B0 1B1")[0])),
        reasons=(Reason.PAIR,),
        message="rank 1, action 0 ((1F0;1F1)OVERLAP_F_B) holds 1F1, which does not belong there: a pair is "
        "a forward (F), then a whole backward (B)",
    ),
    # A rank's own order
    Broken(
        why="backward before forward",
        orders=table("0F0 0F1 0B0 0B1", "1B0 1F0 1F1 1B1"),
        reasons=(Reason.ORDER,),
        message="rank 1, action 0 (1B0) waits for 1F0, which the same rank runs later, as action 1",
    ),
    Broken(
        why="W before its I",
        orders=table("0F0 0F1 0B0 0W1 0I1", "1F0 1B0 1F1 1B1"),
        reasons=(Reason.ORDER,),
        message="rank 0, action 3 (0W1) waits for 0I1, which the same rank runs later, as action 4",
    ),
    Broken(
        why="I before its forward",
        orders=table("0F0 0I1 0F1 0B0 0W1", "1F0 1B0 1F1 1B1"),
        reasons=(Reason.ORDER,),
        message="rank 0, action 1 (0I1) waits for 0F1, which the same rank runs later, as action 2",
    ),
    Broken(
        why="an upper chunk of the rank before the lower one that feeds it",
        orders=table("0F0 3F0 3B0 0B0", "2F0 1F0 2B0 1B0"),
        shape=V_SHAPED,
        rank_of=v_placement,
        reasons=(Reason.ORDER,),
        message="rank 1, action 0 (2F0) waits for 1F0, which the same rank runs later, as action 1",
    ),
    Broken(
        why="the gradient of the rank's upper chunk comes later",
        orders=table("0F0 3F0 3B0 0B0", "1F0 2F0 1B0 2B0"),
        shape=V_SHAPED,
        rank_of=v_placement,
        reasons=(Reason.ORDER,),
        message="rank 1, action 2 (1B0) waits for 2B0, which the same rank runs later, as action 3",
    ),
    Broken(
        why="a pair whose backward needs its own forward",
        orders=table("0F0 0F1 0B0 0B1", "(1F0;1B0)OVERLAP_F_B 1F1 1B1"),
        reasons=(Reason.ORDER,),
        message="rank 1, action 0 ((1F0;1B0)OVERLAP_F_B) can never begin: 1B0 waits for 1F0, the forward of "
        "its own pair",
    ),
    Broken(
        why="a pair whose backward needs a later forward",
        orders=table("0F0 0F1 0B0 0B1", "(1F0;1B1)OVERLAP_F_B 1F1 1B0"),
        reasons=(Reason.ORDER,),
        message="rank 1, action 0 ((1F0;1B1)OVERLAP_F_B) waits for 1F1, which the same rank runs later, as "
        "action 1",
    ),
    Broken(
        why="two mistakes on one rank, one on another",
        orders=table("0B0 0F0 0F1 0B1", "1B1 1B0 1F0 1F1"),
        reasons=(Reason.ORDER,) * 3,
        message="rank 1, action 1 (1B0) waits for 1F0, which the same rank runs later, as action 2",
    ),
    # Ranks that wait for each other
    Broken(
        why="GPipe above, one at a time below",
        orders=table("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"),
        reasons=(Reason.DEADLOCK,) * 2,
        message="rank 0, action 1 (0B0) waits for 1B0, which rank 1 runs only after 1F1: deadlock of ranks "
        "0 and 1",
    ),
    Broken(
        why="a split backward too early",
        orders=table("0F0 0I0 0F1 0I1 0W0 0W1", "1F0 1F1 1I0 1W0 1I1 1W1"),
        reasons=(Reason.DEADLOCK,) * 2,
        message="rank 0, action 1 (0I0) waits for 1I0, which rank 1 runs only after 1F1: deadlock of ranks "
        "0 and 1",
    ),
    Broken(
        why="pairs that wait for each other's forward and backward",
        orders=table("0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1"),
        reasons=(Reason.DEADLOCK,) * 2,
        message="rank 1, action 1 ((1F1;1B0)OVERLAP_F_B) waits for 0F1 of (0F1;0B0)OVERLAP_F_B, for which "
        "rank 0 itself waits: deadlock of ranks 0 and 1",
    ),
    Broken(
        why="three ranks in a circle",
        orders=table(
            "0F0 3F0 0F1 3F1 3B0 3B1 0B0 0B1",
            "1F0 1F1 4F0 4F1 4B0 4B1 1B0 1B1",
            "2F1 2F0 5F0 5F1 5B0 5B1 2B0 2B1",
        ),
        shape=Shape(ranks=3, microbatches=2, chunks=2),
        reasons=(Reason.DEADLOCK,) * 3,
        message="rank 2, action 0 (2F1) waits for 1F1, for which rank 1 itself waits: deadlock of ranks 0, 2 "
        "and 1",
    ),
    Broken(
        why="in both directions, a backward before its forward",
        orders=table("0F0 1B2 0F1 1F2 1F3 1B3 0B0 0B1", "0F2 1B0 0F3 1F0 1F1 1B1 0B2 0B3"),
        shape=TWO_WAY_SHAPE,
        rank_of=two_way_placement,
        reasons=(Reason.ORDER,) * 2,
        message="rank 0, action 1 (1B2) waits for 1F2, which the same rank runs later, as action 3",
    ),
    Broken(
        why="each direction begins with the other's end",
        orders=table("1F1 0F0 1B1 0B0", "1F0 0F1 1B0 0B1"),
        rank_of=two_way_placement,
        reasons=(Reason.DEADLOCK,) * 2,
        message="rank 0, action 0 (1F1) waits for 0F1, which rank 1 runs only after 1F0: deadlock of ranks "
        "0 and 1",
    ),
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.why)
def test_a_broken_table_is_told_why(broken: Broken) -> None:
    found = find_problems(broken.orders, broken.shape, broken.rank_of)
    assert Counter(problem.reason for problem in found) == Counter(broken.reasons)
    assert broken.message in [str(problem) for problem in found]
    with pytest.raises(ValueError, match=re.escape(broken.message)):
        validate(broken.orders, broken.shape, broken.rank_of)


def test_every_reason_of_a_table_has_its_broken_tables() -> None:
    """IN_FLIGHT is below, CROSSED in test_message_deadlock.py."""
    assert {reason for broken in BROKEN for reason in broken.reasons} == set(Reason) - {
        Reason.IN_FLIGHT,
        Reason.CROSSED,
    }


@pytest.mark.parametrize(
    ("orders", "shape", "rank_of"),
    [
        (table("0F0 0F1 0B1 0B0", "1F0 1F1 1B0 1B1"), TWO_RANKS, loop_placement),
        (table("0F0 0F1 0I1 0B0 0W1", "1F0 1I0 1F1 1B1 1W0"), TWO_RANKS, loop_placement),
        (table("0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1"), TWO_RANKS, loop_placement),
        (table("0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"), V_SHAPED, v_placement),
        (TWO_WAY, TWO_WAY_SHAPE, two_way_placement),
    ],
    ids=["any order of backwards", "split and whole", "pairs", "V", "two ways"],
)
def test_an_unusual_table_is_valid(orders: Orders, shape: Shape, rank_of: Placement) -> None:
    assert find_problems(orders, shape, rank_of) == ()


def test_every_rank_of_a_circle_is_named_and_no_other() -> None:
    orders = [list(order) for order in get("1f1b").orders(FOUR_RANKS)]
    third, last = orders[2], orders[3]
    third[1:3] = reversed(third[1:3])  # 2B0 before 2F1
    last[1:3] = reversed(last[1:3])  # 3F1 before 3B0
    swapped = tuple(tuple(order) for order in orders)
    assert [str(problem) for problem in find_problems(swapped, FOUR_RANKS, loop_placement)] == [
        "rank 2, action 1 (2B0) waits for 3B0, which rank 3 runs only after 3F1: deadlock of ranks 2 and 3",
        "rank 3, action 1 (3F1) waits for 2F1, which rank 2 runs only after 2B0: deadlock of ranks 2 and 3",
    ]


def test_a_circle_through_an_inversion_is_told_as_the_inversion() -> None:
    """1B0 waits for rank 2, which waits for 1F0, which rank 1 runs after 1B0."""
    shape = Shape(ranks=3, microbatches=1)
    (problem,) = find_problems(table("0F0 0B0", "1B0 1F0", "2F0 2B0"), shape, loop_placement)
    assert problem.reason is Reason.ORDER


def test_a_circle_behind_an_inversion_is_told_as_well() -> None:
    """Rank 1 never comes to its own mistake that rank 2 waits for, nor past the one before it."""
    shape = Shape(ranks=3, microbatches=3)
    orders = table(
        "0F0 0W0 0I0 0F1 0F2 0B1 0B2",
        "1F0 1B0 1F1 1B1 1F2 1B2",
        "2F0 2B0 2F1 2F2 2B1 2B2",
    )
    found = find_problems(orders, shape, loop_placement)
    assert [(problem.reason, problem.rank, problem.position) for problem in found] == [
        (Reason.ORDER, 0, 1),
        (Reason.DEADLOCK, 1, 3),
        (Reason.DEADLOCK, 2, 3),
    ]


def test_too_many_activations_are_named_where_they_begin() -> None:
    orders = get("gpipe").orders(FOUR_RANKS)
    one_f_one_b = get("1f1b")
    found = find_problems(orders, FOUR_RANKS, one_f_one_b.rank_of, one_f_one_b.in_flight)
    assert {problem.reason for problem in found} == {Reason.IN_FLIGHT}
    assert [problem.rank for problem in found] == [1, 2, 3]
    assert str(found[0]) == "rank 1, action 3 (1F3) holds 4 chunk activations, more than the 3 allowed"
    assert find_problems(orders, FOUR_RANKS, one_f_one_b.rank_of) == ()


def test_activations_are_counted_by_steps_and_held_until_the_weight_gradient() -> None:
    """A pair holds both its activations while it runs."""
    orders = table("0F0 0F1 0B0 0I1 0W1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1")
    found = find_problems(orders, TWO_RANKS, loop_placement, lambda rank, _: 1)
    assert [str(problem) for problem in found] == [
        "rank 0, action 1 (0F1) holds 2 chunk activations, more than the 1 allowed",
        "rank 1, action 1 ((1F1;1B0)OVERLAP_F_B) holds 2 chunk activations, more than the 1 allowed",
    ]
    found = find_problems(TWO_WAY, TWO_WAY_SHAPE, two_way_placement, lambda rank, _: 2)
    assert [(problem.position, str(problem.action)) for problem in found] == [(2, "0F1"), (2, "0F3")]
    after_pairs = table("0F0 (0F1;0B0)OVERLAP_F_B (0F2;0B1)OVERLAP_F_B 0F3 0F4 0B2 0B3 0B4")
    shape = Shape(ranks=1, microbatches=5)
    (problem,) = find_problems(after_pairs, shape, loop_placement, lambda rank, _: 2)
    assert str(problem) == "rank 0, action 4 (0F4) holds 3 chunk activations, more than the 2 allowed"
    split = table("0F0 0I0 0F1 0W0 0I1 0W1", "1F0 1B0 1F1 1B1")
    (problem,) = find_problems(split, TWO_RANKS, loop_placement, lambda rank, _: 1)
    assert (problem.rank, problem.position) == (0, 2)


def test_a_long_list_of_problems_is_cut() -> None:
    shape = Shape(ranks=2, microbatches=20)
    with pytest.raises(ValueError, match=r"never runs 0F0; .*; and 70 more$"):
        validate(((), ()), shape, loop_placement)


# Random breakage against an oracle --------------------------------------------------------------------------


def wrong_work(drawn: Drawn) -> set[Reason]:
    """What is wrong with the work whatever its order, by counting."""
    orders, shape = drawn.orders, drawn.shape
    found = set()
    done: Counter[tuple[int, int, str]] = Counter()
    for rank, order in enumerate(orders):
        for action in actions_of(order):
            if action.stage >= shape.stages or action.microbatch >= shape.microbatches:
                found.add(Reason.OUTSIDE)
                continue
            if drawn.rank_of(action.stage, action.microbatch, shape) != rank:
                found.add(Reason.WRONG_RANK)
            halves = "IW" if action.kind is Kind.BACKWARD else action.kind.value
            done.update((action.stage, action.microbatch, half) for half in halves)
        for step in order:
            if isinstance(step, Overlap) and [one.kind.value for one in parts(step)] != ["F", "B"]:
                found.add(Reason.PAIR)
    everything = {
        (s, k, part) for s in range(shape.stages) for k in range(shape.microbatches) for part in "FIW"
    }
    if any(done[work] == 0 for work in everything):
        found.add(Reason.MISSING)
    if any(count > 1 for count in done.values()):
        found.add(Reason.REPEATED)
    return found


def inverted(order: Order) -> set[int]:
    """Positions of a backward before its forward, of W before I, of a chunk before one that feeds it."""
    at = {
        (action.stage, "F" if action.kind is Kind.FORWARD else "I", action.microbatch): i
        for i, step in enumerate(order)
        for action in parts(step)
        if action.kind is not Kind.WEIGHT_GRAD
    }
    return {
        i
        for i, step in enumerate(order)
        for action in parts(step)
        for need in needs(action)
        if at.get(need, -1) >= i
    }


def needs(action: Action) -> list[tuple[int, str, int]]:
    s, k = action.stage, action.microbatch
    if action.kind is Kind.FORWARD:
        return [(s - 1, "F", k)]
    if action.kind is Kind.WEIGHT_GRAD:
        return [(s, "I", k)]
    return [(s, "F", k), (s + 1, "I", k)]


@given(broken_tables())
def test_a_changed_table_is_valid_or_refused_for_the_right_reason(drawn: Drawn) -> None:
    orders, shape = drawn.orders, drawn.shape
    problems = find_problems(orders, shape, drawn.rank_of, drawn.in_flight)
    reasons = {problem.reason for problem in problems}
    for problem in problems:  # names what is there
        if problem.position is not None:
            assert orders[problem.rank][problem.position] == problem.action
            assert f"rank {problem.rank}, action {problem.position} ({problem.action})" in str(problem)
    if wrong := wrong_work(drawn):
        assert reasons == wrong
        return
    assert (Reason.IN_FLIGHT in reasons) == overfull(drawn)
    reasons.discard(Reason.IN_FLIGHT)
    upside_down = {(rank, i) for rank, order in enumerate(orders) for i in inverted(order)}
    found = {(one.rank, one.position) for one in problems if one.reason is Reason.ORDER}
    assert found == upside_down
    try:
        asap(orders, shape.stages, Times(forward=1, input_grad=1, weight_grad=1))
    except Stuck:
        assert reasons
        assert reasons <= {Reason.ORDER, Reason.DEADLOCK}
        if shape.ranks == 1:
            assert reasons == {Reason.ORDER}
    else:
        assert reasons == set()


def overfull(drawn: Drawn) -> bool:
    held = {Kind.FORWARD: 1, Kind.INPUT_GRAD: 0}
    return drawn.in_flight is not None and any(
        held_now > drawn.in_flight(rank, drawn.shape)
        for rank, order in enumerate(drawn.orders)
        for held_now in accumulate(held.get(action.kind, -1) for action in actions_of(order))
    )


@given(valid_tables())
def test_what_is_valid_raises_nothing(drawn: Drawn) -> None:
    validate(drawn.orders, drawn.shape, drawn.rank_of, drawn.in_flight)
