"""Makes a V-shaped schedule that limits memory (V-Half, V-Min) from a building block: its orders in four
passes.

Knows what these schedules have in common: two chunks a rank, backwards split, and how the repeated block is
compacted. Does not know any schedule's block, nor costs.

Source: sail-sg/zero-bubble-pipeline-parallelism 39f2c18 ``zbv_greedy.py`` ``schedule_from_pattern``. It
ends by timing the order with costs (``runtime.py`` gives it 1000 for F, B and W, and a latency of 1): that
tells a bubble rate, and leaves the order as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from ..orders.action import ActionKind, Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, v_placement
from .building_block import (
    B_A,
    B_Z,
    F_A,
    F_Z,
    QUEUE_PER_CHUNK,
    W_A,
    W_Z,
    Block,
    orders_of,
    repeated,
    with_weight_grads,
    without_weight_grads,
)
from .reorder import START, reorder, squeeze, steady

_KINDS = {
    F_A: ActionKind.FORWARD,
    F_Z: ActionKind.FORWARD,
    B_Z: ActionKind.INPUT_GRAD,
    B_A: ActionKind.INPUT_GRAD,
    W_Z: ActionKind.WEIGHT_GRAD,
    W_A: ActionKind.WEIGHT_GRAD,
}


def compacted_schedule(*, name: str, title: str, block: Callable[[int], Block], place: int) -> Schedule:
    """The schedule ``name`` that runs ``block``, which is given for a number of ranks, once for each
    microbatch, its warm-up and cool-down moved up. ``place`` is where lists of schedules show it."""
    check = fixed_chunks(name, 2)

    def orders(shape: Shape) -> Orders:
        check(shape)
        return compacted(block(shape.ranks), shape.microbatches)

    return Schedule(
        name=name,
        title=title,
        orders=orders,
        check=check,
        rank_of=v_placement,
        chunks=2,
        splits_backward=True,
        ends_meet=True,
        place=place,
    )


def compacted(block: Block, microbatches: int) -> Orders:
    """Orders that hold no more activations than the repeated block does.

    (A) weight gradients take the idle slots; (B) warm-up and cool-down move up, weight gradients with them;
    (C) the cool-down moves up once more, while weight gradients only fill what is left; (D) weight
    gradients are given out anew, those of chunk z first.
    """
    rows = [with_weight_grads(row) for row in repeated(block, microbatches)]  # (A)
    rows = squeeze(reorder(rows, keep=steady(rows)))  # (B)
    rows = [without_weight_grads(row) for row in rows]
    rows = reorder(rows, keep=(START, steady(rows)[1]), postponed=True)  # (C)
    rows = squeeze([with_weight_grads(row) for row in rows])
    rows = [with_weight_grads(without_weight_grads(row), QUEUE_PER_CHUNK) for row in rows]  # (D)
    return orders_of(rows, _KINDS)
