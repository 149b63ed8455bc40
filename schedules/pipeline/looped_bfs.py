"""Looped BFS (breadth-first pipeline): all microbatches of a chunk before the next chunk.

Sources: Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism" (arXiv 2211.05953), section 4;
torch.distributed.pipelining 2.13 ``ScheduleLoopedBFS``, whose backwards descend.
"""

from __future__ import annotations

from ..orders.action import Action, ActionKind, Orders
from ..orders.schedule import Schedule, Shape, loop_placement, no_groups, no_limit


def check(shape: Shape) -> None:
    """Refuse groups and a memory limit; every count of ranks, microbatches and chunks is fine."""
    no_groups("looped-bfs", shape)
    no_limit("looped-bfs", shape)


def orders(shape: Shape) -> Orders:
    """F0..F(m-1) of chunk 0 to v-1, then B(m-1)..B0 of chunk v-1 to 0, on every rank."""
    check(shape)
    return tuple(_order(rank, shape) for rank in range(shape.ranks))


def in_flight(rank: int, shape: Shape) -> int:
    """m·v: nothing is released before the turn."""
    del rank  # every rank holds as many
    return shape.microbatches * shape.chunks


def _order(rank: int, shape: Shape) -> tuple[Action, ...]:
    stages = [chunk * shape.ranks + rank for chunk in range(shape.chunks)]
    forwards = tuple(Action(s, ActionKind.FORWARD, k) for s in stages for k in range(shape.microbatches))
    return forwards + tuple(Action(s, ActionKind.BACKWARD, k) for s, _, k in reversed(forwards))


SCHEDULE = Schedule(
    name="looped-bfs",
    title="Looped BFS (breadth-first)",
    orders=orders,
    check=check,
    rank_of=loop_placement,
    in_flight=in_flight,
)
