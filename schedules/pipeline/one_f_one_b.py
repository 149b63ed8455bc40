"""1F1B (PipeDream-flush): after a warm-up, one forward and one backward in turn.

Sources: Narayanan et al. 2021 (SC21), section 2.2.1; Megatron-LM ``schedules.py``
``forward_backward_pipelining_without_interleaving``; torch.distributed.pipelining 2.13
``Schedule1F1B``, which lists the same order but refuses fewer microbatches than ranks.
"""

from __future__ import annotations

from ..orders.action import Action, ActionKind, Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, loop_placement
from ..orders.turns import one_forward_one_backward

check = fixed_chunks("1f1b", 1)


def orders(shape: Shape) -> Orders:
    """min(p-1-r, m) forwards, then F and B in turn, then the backwards that are left."""
    check(shape)
    return tuple(_order(rank, shape) for rank in range(shape.ranks))


def in_flight(rank: int, shape: Shape) -> int:
    """min(p-r, m): the warm-up and the forward that ends it."""
    return min(shape.ranks - rank, shape.microbatches)


def _order(rank: int, shape: Shape) -> tuple[Action, ...]:
    forwards = [Action(rank, ActionKind.FORWARD, k) for k in range(shape.microbatches)]
    backwards = [Action(rank, ActionKind.BACKWARD, k) for k in range(shape.microbatches)]
    return one_forward_one_backward(forwards, backwards, warm_up=shape.ranks - 1 - rank)


SCHEDULE = Schedule(
    name="1f1b",
    title="1F1B (PipeDream-flush)",
    orders=orders,
    check=check,
    rank_of=loop_placement,
    in_flight=in_flight,
)
