"""Reasons of the validator of action tables: tables broken by hand, and what each of them is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from broken_tables import TWO_RANKS, TWO_WAY, TWO_WAY_SHAPE, V_SHAPED, table

from stepsim.schedules.orders.action import Action, Orders, Overlap
from stepsim.schedules.orders.schedule import Placement, Shape, loop_placement, two_way_placement, v_placement
from stepsim.schedules.orders.validate import BrokenOrders, Reason, find_problems, validate


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
        orders=(
            table("0F0 0F1 0B0 0B1")[0],
            (Overlap(Action.parse("1F0"), Action.parse("1F1")), *table("1B0 1B1")[0]),
        ),
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
    with pytest.raises(BrokenOrders) as refusal:
        validate(broken.orders, broken.shape, broken.rank_of)
    assert refusal.value.problems == tuple(found)


def test_every_reason_of_a_table_has_its_broken_tables() -> None:
    """IN_FLIGHT is in test_schedule_validator.py, CROSSED in test_message_deadlock.py."""
    assert {reason for broken in BROKEN for reason in broken.reasons} == set(Reason) - {
        Reason.IN_FLIGHT,
        Reason.CROSSED,
    }
