"""How far ranks get that work strictly in order, each action waiting for what it needs.

An activation is needed by the next stage and by its own backward, a gradient by the stage below and by
its own weight gradient (reference: section 0 of the schedule definitions of torch.distributed.pipelining).
Linear in the number of actions: a rank that waits is woken once, by what it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass

from .action import Action, Kind, Orders
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
        for position, action in enumerate(order)
        if (made := _makes(action, shape)) is not None
    }
    found = {}
    for rank in stuck:
        action = orders[rank][heads[rank]]
        # Done is what lies before the head of the rank that makes it.
        unmet = (makers[need] for need in _needs(action, shape))
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
            action = order[heads[rank]]
            unmet = next((need for need in _needs(action, shape) if need not in done), None)
            if unmet is not None:
                asleep.setdefault(unmet, []).append(rank)
                break
            heads[rank] += 1
            made = _makes(action, shape)
            if made is not None:
                done.add(made)
                awake += asleep.pop(made, ())
    return heads


def _activation(stage: int, microbatch: int, shape: Shape) -> int:
    return stage * shape.microbatches + microbatch


def _gradient(stage: int, microbatch: int, shape: Shape) -> int:
    return (shape.stages + stage) * shape.microbatches + microbatch


def _makes(action: Action, shape: Shape) -> int | None:
    """The result of an action, as a number; nothing awaits a weight gradient."""
    if action.kind is Kind.WEIGHT_GRAD:
        return None
    number = _activation if action.kind is Kind.FORWARD else _gradient
    return number(action.stage, action.microbatch, shape)


def _needs(action: Action, shape: Shape) -> tuple[int, ...]:
    stage, k = action.stage, action.microbatch
    if action.kind is Kind.FORWARD:
        return (_activation(stage - 1, k, shape),) if stage > 0 else ()
    if action.kind is Kind.WEIGHT_GRAD:
        return (_gradient(stage, k, shape),)
    own = _activation(stage, k, shape)
    return (own, _gradient(stage + 1, k, shape)) if stage < shape.stages - 1 else (own,)


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
