"""The validator of action tables: unusual ones are valid; circles, activations and long lists are told."""

from __future__ import annotations

import pytest
from broken_tables import TWO_RANKS, TWO_WAY, TWO_WAY_SHAPE, V_SHAPED, table

from stepsim.schedules.orders.action import Orders
from stepsim.schedules.orders.schedule import Placement, Shape, loop_placement, two_way_placement, v_placement
from stepsim.schedules.orders.validate import BrokenOrders, Reason, find_problems, validate
from stepsim.schedules.pipeline import get

FOUR_RANKS = Shape(ranks=4, microbatches=4)


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
    with pytest.raises(BrokenOrders, match=r"0F0; .*; and 70 more$") as refusal:
        validate(((), ()), shape, loop_placement)
    assert len(refusal.value.problems) == 80
