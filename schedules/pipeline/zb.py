"""ZB-1p, ZB-2p and between: the automatic zero-bubble schedule within a memory limit.

Backwards are split, and each weight gradient runs where its rank would idle or must make room. The limit is
``shape.memory.limit``: p activations (ZB-1p) unless it says otherwise; 2p are ZB-2p. Weighs the times of
``shape.costs``; which order is best for them is found in zb_search.py.

Sources: Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 3; the authors' implementation,
sail-sg/zero-bubble-pipeline-parallelism ``scheduler/zb.py``.
"""

from __future__ import annotations

from itertools import count

from ..orders.action import Action, ActionKind, Order, Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, loop_placement
from .zb_search import search

_KINDS = (ActionKind.FORWARD, ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD)

check = fixed_chunks("zb", 1, limited=True)


def _limit(shape: Shape) -> int:
    """What a rank may hold, in the unit of ``shape.memory``."""
    limit = shape.memory.limit
    return shape.ranks * shape.memory.forward if limit is None else limit


def orders(shape: Shape) -> Orders:
    """The order with the shortest longest span that the search finds."""
    check(shape)
    found = search(shape, _limit(shape))
    return tuple(_order(rank, steps) for rank, steps in enumerate(found))


def _order(rank: int, steps: bytearray) -> Order:
    done = tuple(count() for _ in _KINDS)
    return tuple(Action(rank, _KINDS[step], next(done[step])) for step in steps)


SCHEDULE = Schedule(
    name="zb",
    title="ZB-1p / ZB-2p (automatic zero-bubble within a memory limit)",
    orders=orders,
    check=check,
    rank_of=loop_placement,
    uses_costs=True,
    splits_backward=True,
    limited={"zb-1p": 1, "zb-2p": 2},
    place=90,
)
