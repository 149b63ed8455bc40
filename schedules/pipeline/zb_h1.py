"""ZB-H1: handcrafted zero bubble that holds as much as 1F1B's first rank.

Every rank holds p activations (1F1B: p - r), because rank r puts its first weight gradient off by r.
Sources: as in zb_h.py; section 2.1 of the paper.
"""

from __future__ import annotations

from ..orders.action import Orders
from ..orders.schedule import Schedule, Shape, loop_placement
from .zb_h import handcrafted_check, handcrafted_orders, held

check = handcrafted_check("zb-h1", 1)


def orders(shape: Shape) -> Orders:
    """p-1-r forwards, then F, I and W in turn; on rank r every W comes r input gradients late."""
    check(shape)
    return handcrafted_orders(shape, 1)


def in_flight(rank: int, shape: Shape) -> int:
    """p on every rank."""
    del rank
    return held(shape, 1)


SCHEDULE = Schedule(
    name="zb-h1",
    title="ZB-H1 (zero bubble, handcrafted)",
    orders=orders,
    check=check,
    rank_of=loop_placement,
    in_flight=in_flight,
    splits_backward=True,
    place=70,
)
