"""The actions of all pipeline ranks, one after another, such that each comes behind what it waits for.

Knows orders and shapes; does not know how long anything takes. So it is the same for all layouts whose orders
are, and whoever goes through it needs not ask whether an action can begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from ...schedules.orders.action import Action, ActionKind, Overlap

if TYPE_CHECKING:
    from ...schedules.orders.action import Orders
    from ...schedules.orders.schedule import Shape

FORWARD, WEIGHT_GRAD = ActionKind.FORWARD, ActionKind.WEIGHT_GRAD


class Numbers(NamedTuple):
    """Numbers of the actions of one kind and stage: that of microbatch 0, and that of the action it waits
    for (-1: none). Other microbatches follow."""

    first: int
    awaited: int


def numbers_of(stage: int, kind: ActionKind, shape: Shape) -> Numbers:
    """The numbers of actions of that kind of a stage. Those of other microbatches follow.

    A whole backward and the input gradient of a split one have the same, since either may follow the other.
    Nobody waits for weight gradients, which share the last numbers.
    """
    if kind is WEIGHT_GRAD:
        return Numbers(2 * shape.stages * shape.microbatches, -1)
    forward = kind is FORWARD
    before = stage - 1 if forward else stage + 1
    there = 0 <= before < shape.stages
    first, awaited = ((2 * one + forward) * shape.microbatches for one in (stage, before))
    return Numbers(first, awaited if there else -1)


def numbers_in_all(shape: Shape) -> int:
    """How many numbers there are."""
    return (2 * shape.stages + 1) * shape.microbatches


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTurns:
    """All actions in an order in which each comes behind what it waits for.

    Each entry of ``rows`` is (kind, microbatch), where the kind is an index into ``kinds``: the actions of
    microbatch 0, rank by rank, whose ranks are in ``ranks``. ``following`` is the index of the next action of
    the same rank (or the number of all rows). ``places`` has, by stage and kind, the index of each
    microbatch's action (-1: there is none), and ``first`` the index of each kind's first action.
    """

    rows: Sequence[tuple[int, int]]
    following: Sequence[int]
    kinds: Sequence[Action]
    ranks: Sequence[int]
    places: Mapping[tuple[int, ActionKind], Sequence[int]]
    first: Sequence[int]

    def place_of(self, action: Action) -> int:
        """The place of an action among the rows of all actions in turn."""
        return self.places[action.stage, action.kind][action.microbatch]


def turns_of_actions(orders: Orders, shape: Shape) -> ActionTurns | None:
    """The actions of these orders in turn; None where some of them overlap a forward with a backward. Each
    stage must be on one rank; orders that deadlock have been refused before."""
    if any(isinstance(step, Overlap) for order in orders for step in order):
        return None
    alone = cast("tuple[tuple[Action, ...], ...]", orders)
    rank_of: dict[tuple[int, ActionKind], int] = {}
    for rank, order in enumerate(alone):
        rank_of.update({(stage, kind): rank for stage, kind, _ in order})
    number, ranks = {one: count for count, one in enumerate(rank_of)}, [*rank_of.values()]
    each = [[(number[stage, kind], microbatch) for stage, kind, microbatch in order] for order in alone]
    rows = _in_turn(each, [numbers_of(*one, shape) for one in number], shape)
    places = [[-1] * shape.microbatches for _ in number]
    first, following, after = [0] * len(number), [0] * len(rows), [len(rows)] * len(orders)
    for place in range(len(rows) - 1, -1, -1):
        kind, microbatch = rows[place]
        rank = ranks[kind]
        following[place], after[rank] = after[rank], place
        places[kind][microbatch] = first[kind] = place
    return ActionTurns(
        rows=rows,
        following=following,
        kinds=[Action(stage, kind, 0) for stage, kind in number],
        ranks=ranks,
        places=dict(zip(number, places, strict=True)),
        first=first,
    )


def _in_turn(
    orders: Sequence[Sequence[tuple[int, int]]], numbers: Sequence[Numbers], shape: Shape
) -> list[tuple[int, int]]:
    """Rows of orders in turn, by the ``numbers`` of kinds: each rank goes on until it waits for another,
    which comes next."""
    turns: list[tuple[int, int]] = []
    done, left = bytearray(numbers_in_all(shape)), [iter(order) for order in orders]
    waiting = [next(order, None) for order in left]
    ranks = [rank for rank, row in enumerate(waiting) if row is not None]
    while ranks:
        before = len(turns)
        for rank in ranks:
            row, order = waiting[rank], left[rank]
            while row is not None:
                kind, microbatch = row
                first, awaited = numbers[kind]
                if awaited >= 0 and not done[awaited + microbatch]:
                    break
                done[first + microbatch] = 1
                turns.append(row)
                row = next(order, None)
            waiting[rank] = row
        assert len(turns) > before, "orders that deadlock are refused"
        ranks = [rank for rank in reversed(ranks) if waiting[rank] is not None]
    return turns
