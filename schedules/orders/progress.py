"""How far ranks get that work strictly in order, each action waiting for what it needs.

An activation is needed by the next stage and by its own backward, a gradient by the stage below and by
its own weight gradient (reference: section 0 of the schedule definitions of torch.distributed.pipelining).
Both actions of an overlapped pair need all that either needs before the pair begins.

Orders that cannot be run to the end have an inversion (a rank runs something before what it needs of its
own) or a circle (ranks wait for each other's results), and nothing else: all inversions are named, and the
circles that ranks run into even if inversions held up nobody. Linear in the number of actions: a rank that
waits is woken once, by what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from .action import Action, Orders, Step, parts
from .circles import circles
from .dependencies import needed_by, result_of
from .schedule import Shape


class Maker(NamedTuple):
    """Where a result is made: ``action`` is, or is a part of, the step at ``position`` of ``rank``."""

    rank: int
    position: int
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """``rank`` can never go past ``position``: ``action`` there needs what ``by`` makes.

    In an inversion ``by`` is on the same rank, at the same position (its own pair) or later. Else
    ``circle`` names the ranks that wait for each other, and rank ``by.rank`` stands at ``by_rank_at``.
    """

    rank: int
    position: int
    action: Action
    by: Maker
    by_rank_at: int
    circle: tuple[int, ...] = ()


_Needs: TypeAlias = Callable[[int, Step], Iterator[tuple[Action, int]]]
"""For a step of a rank, what must be there before it begins, each with the action that needs it."""


def stalls(orders: Orders, shape: Shape) -> tuple[Stall, ...]:
    """Why the orders cannot be run to the end; nothing if they can. ``orders`` lack and repeat no action.

    Ranks that only wait for such a circle or inversion are not named, nor circles that pass through an
    inversion: that is to be put right first.
    """

    def needs(rank: int, step: Step) -> Iterator[tuple[Action, int]]:
        del rank  # everything must be there
        return ((action, need) for action in parts(step) for need in needed_by(action, shape))

    if _all_done(_run(orders, shape, needs), orders):
        return ()
    makers = {
        made: Maker(rank, position, action)
        for rank, order in enumerate(orders)
        for position, step in enumerate(order)
        for action, made in _makes(step, shape)
    }

    def needs_of_others(rank: int, step: Step) -> Iterator[tuple[Action, int]]:
        return ((action, need) for action, need in needs(rank, step) if makers[need].rank != rank)

    inversions = tuple(_inversions(orders, needs, makers))
    inverted = {(stall.rank, stall.position) for stall in inversions}
    around = _circles(orders, shape, needs_of_others, makers)
    return inversions + tuple(
        stall
        for circle in around
        if inverted.isdisjoint((stall.rank, stall.position) for stall in circle)
        for stall in circle
    )


def _inversions(orders: Orders, needs: _Needs, makers: dict[int, Maker]) -> Iterator[Stall]:
    """The first of each step."""
    for rank, order in enumerate(orders):
        for position, step in enumerate(order):
            for action, need in needs(rank, step):
                by = makers[need]
                if by.rank == rank and by.position >= position:
                    yield Stall(rank=rank, position=position, action=action, by=by, by_rank_at=position)
                    break


def _circles(
    orders: Orders, shape: Shape, needs: _Needs, makers: dict[int, Maker]
) -> Iterator[tuple[Stall, ...]]:
    heads = _run(orders, shape, needs)
    found = {}
    for rank, order in enumerate(orders):
        if heads[rank] == len(order):
            continue
        needed = ((action, makers[need]) for action, need in needs(rank, order[heads[rank]]))
        # Done is what lies before the head of the rank that makes it.
        action, by = next((action, by) for action, by in needed if by.position >= heads[by.rank])
        found[rank] = action, by
    for circle in circles({rank: by.rank for rank, (_, by) in found.items()}):
        yield tuple(
            Stall(
                rank=rank,
                position=heads[rank],
                action=found[rank][0],
                by=found[rank][1],
                by_rank_at=heads[found[rank][1].rank],
                circle=circle,
            )
            for rank in circle
        )


def _run(orders: Orders, shape: Shape, needs: _Needs) -> list[int]:
    """The position at which each rank stops."""
    heads = [0] * len(orders)
    done: set[int] = set()
    asleep: dict[int, list[int]] = {}  # ranks by what they wait for
    awake = list(range(len(orders)))
    while awake:
        rank = awake.pop()
        order = orders[rank]
        while heads[rank] < len(order):
            step = order[heads[rank]]
            unmet = next((need for _, need in needs(rank, step) if need not in done), None)
            if unmet is not None:
                asleep.setdefault(unmet, []).append(rank)
                break
            heads[rank] += 1
            for _, made in _makes(step, shape):
                done.add(made)
                awake += asleep.pop(made, ())
    return heads


def _all_done(heads: list[int], orders: Orders) -> bool:
    return all(head == len(order) for head, order in zip(heads, orders, strict=True))


def _makes(step: Step, shape: Shape) -> Iterator[tuple[Action, int]]:
    """The results of a step."""
    for action in parts(step):
        made = result_of(action, shape)
        if made is not None:
            yield action, made
