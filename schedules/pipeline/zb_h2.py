"""ZB-H2: handcrafted zero bubble that holds twice as much as 1F1B, with no bubble between equal actions.

Rank 0 runs 2p - 1 forwards before its first input gradient, which arrives just then.
Sources: as in zb_h.py; section 2.2 of the paper.
"""

from __future__ import annotations

from ..orders.action import Orders
from ..orders.schedule import Schedule, Shape, loop_placement
from .zb_h import handcrafted_check, handcrafted_orders, held

check = handcrafted_check("zb-h2", 2)


def orders(shape: Shape) -> Orders:
    """2(p-1-r) forwards, then F, I and W in turn; on rank r every W comes 2r input gradients late."""
    check(shape)
    return handcrafted_orders(shape, 2)


def in_flight(rank: int, shape: Shape) -> int:
    """2p-1 on every rank."""
    del rank
    return held(shape, 2)


SCHEDULE = Schedule(
    name="zb-h2",
    title="ZB-H2 (zero bubble, handcrafted)",
    orders=orders,
    check=check,
    rank_of=loop_placement,
    in_flight=in_flight,
    splits_backward=True,
    place=80,
)
