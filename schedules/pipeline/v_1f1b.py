"""V-1F1B: 1F1B over two chunks per rank in a V, with about two thirds of its activations.

Backwards are whole. Any number of microbatches, also fewer than ranks.

Source: sail-sg/zero-bubble-pipeline-parallelism 39f2c18 ``v1f1b.py``.
"""

from __future__ import annotations

from ..orders.action import ActionKind, Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, v_placement
from .building_block import B_A, B_Z, F_A, F_Z, Block, orders_of, repeated
from .reorder import reorder

check = fixed_chunks("v-1f1b", 2)

_KINDS = {
    F_A: ActionKind.FORWARD,
    F_Z: ActionKind.FORWARD,
    B_Z: ActionKind.BACKWARD,
    B_A: ActionKind.BACKWARD,
}


def block(ranks: int) -> Block:
    """F_a at r, F_z at 2p-1-r, B_z at b(r), B_a at b(2p-1-r), each backward with its W in the slot after.

    b(n) = 2p + d + 2n + 3⌊(n + (1-p) mod 3) / 3⌋ begins the n-th backward of a microbatch; d = 3 if 3 divides
    p, else 0.
    """
    p, d = ranks, 0 if ranks % 3 else 3
    b = [2 * p + d + 2 * n + 3 * ((n + (1 - p) % 3) // 3) for n in range(2 * p)]
    return [(r, 2 * p - 1 - r, b[r], b[2 * p - 1 - r], b[r] + 1, b[2 * p - 1 - r] + 1) for r in range(p)]


def orders(shape: Shape) -> Orders:
    """The block, once for each microbatch, every action moved up."""
    check(shape)
    rows = repeated(block(shape.ranks), shape.microbatches)
    return orders_of(reorder(rows, whole=True), _KINDS)


def in_flight(rank: int, shape: Shape) -> int:
    """min(2m, m+1+r+⌊r/2⌋, 2⌊(2p+3)/3⌋) chunk activations."""
    m = shape.microbatches
    return min(2 * m, m + 1 + rank + rank // 2, 2 * ((2 * shape.ranks + 3) // 3))


SCHEDULE = Schedule(
    name="v-1f1b",
    title="V-1F1B (two thirds of the activations of 1F1B)",
    orders=orders,
    check=check,
    rank_of=v_placement,
    in_flight=in_flight,
    chunks=2,
)
