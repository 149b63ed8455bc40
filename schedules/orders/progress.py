"""How far ranks get that work strictly in order, each action waiting for what it needs.

An activation is needed by the next stage and by its own backward, a gradient by the stage below and by
its own weight gradient (reference: section 0 of the schedule definitions of torch.distributed.pipelining).
Linear in the number of actions: a rank that waits is woken once, by what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .action import Orders, Step, parts
from .dependencies import needed_by, result_of
from .schedule import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """``rank`` stands at ``position`` for ever: it needs what ``by_rank`` makes at ``by_position``.

    That rank itself stands at ``by_rank_at``.
    """

    rank: int
    position: int
    by_rank: int
    by_position: int
    by_rank_at: int


def stalls(orders: Orders, shape: Shape) -> tuple[Stall, ...]:
    """The ranks that wait for each other in a circle; none if the orders can be run to the end.

    ``orders`` lack no action. Ranks that only wait for such a circle are not named.
    """
    heads = _run(orders, shape)
    stuck = [rank for rank, order in enumerate(orders) if heads[rank] < len(order)]
    if not stuck:
        return ()
    makers = {
        made: (rank, position)
        for rank, order in enumerate(orders)
        for position, step in enumerate(order)
        for made in _makes(step, shape)
    }
    found = {}
    for rank in stuck:
        step = orders[rank][heads[rank]]
        # Done is what lies before the head of the rank that makes it.
        unmet = (makers[need] for need in _needs(step, shape))
        by_rank, by_position = next(place for place in unmet if place[1] >= heads[place[0]])
        found[rank] = Stall(
            rank=rank,
            position=heads[rank],
            by_rank=by_rank,
            by_position=by_position,
            by_rank_at=heads[by_rank],
        )
    circles = _on_circles({rank: stall.by_rank for rank, stall in found.items()})
    return tuple(found[rank] for rank in sorted(circles))


def _run(orders: Orders, shape: Shape) -> list[int]:
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
            unmet = next((need for need in _needs(step, shape) if need not in done), None)
            if unmet is not None:
                asleep.setdefault(unmet, []).append(rank)
                break
            heads[rank] += 1
            for made in _makes(step, shape):
                done.add(made)
                awake += asleep.pop(made, ())
    return heads


def _makes(step: Step, shape: Shape) -> Iterator[int]:
    """The results of a step."""
    for action in parts(step):
        made = result_of(action, shape)
        if made is not None:
            yield made


def _needs(step: Step, shape: Shape) -> Iterator[int]:
    """What a step needs before it can begin. A pair's backward may need its own forward: then never."""
    for action in parts(step):
        yield from needed_by(action, shape)


def _on_circles(waits_for: dict[int, int]) -> set[int]:
    """Ranks that reach themselves by following whom they wait for."""
    circles: set[int] = set()
    seen: set[int] = set()
    for start in waits_for:
        path: list[int] = []
        rank = start
        while rank not in seen:
            seen.add(rank)
            path.append(rank)
            rank = waits_for[rank]
        if rank in path:
            circles.update(path[path.index(rank) :])
    return circles
