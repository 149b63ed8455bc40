"""GPipe (all forward, all backward): every forward before the first backward.

Sources: Huang et al. 2019, "GPipe", section 2.3; backwards ascend as in torch.distributed.pipelining
2.13 ``ScheduleGPipe`` (the paper's figure draws them descending, which takes equally long).
"""

from __future__ import annotations

from ..orders.action import Action, ActionKind, Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, loop_placement

check = fixed_chunks("gpipe", 1)


def orders(shape: Shape) -> Orders:
    """F0..F(m-1), then B0..B(m-1), on every rank."""
    check(shape)
    return tuple(_order(rank, shape) for rank in range(shape.ranks))


def in_flight(rank: int, shape: Shape) -> int:
    """m: nothing is released before the turn."""
    del rank  # every rank holds as many
    return shape.microbatches


def _order(rank: int, shape: Shape) -> tuple[Action, ...]:
    kinds = (ActionKind.FORWARD, ActionKind.BACKWARD)
    return tuple(Action(rank, kind, k) for kind in kinds for k in range(shape.microbatches))


SCHEDULE = Schedule(
    name="gpipe",
    title="GPipe (all forward, all backward)",
    orders=orders,
    check=check,
    rank_of=loop_placement,
    in_flight=in_flight,
)
