"""V-shaped schedules as rows of equal slots: one building block, repeated every six slots.

A rank holds chunk a (stage r, on the way down the ranks) and chunk z (stage 2p-1-r, on the way back up).
Of every microbatch it runs F_a, F_z, B_z, B_a and both weight gradients, W, each in a slot of its row:
six slots, so a block that repeats every six fills them all. A row tells the microbatch by order alone:
the k-th F_a is of microbatch k.

Knows rows, what awaits what in them, and how they become orders; does not know any schedule's block, nor
how rows are shortened (reorder.py).

Source: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count, repeat, zip_longest

from ..orders.action import Action, ActionKind, Order, Orders

PERIOD = 6

IDLE, F_A, F_Z, B_Z, B_A, W_Z, W_A = range(7)
"""What a slot holds. A microbatch passes F_a, F_z, B_z, B_a in this order, B_z and F_a from rank 0 to p-1."""

CODES = range(7)

GAIN = (0, 1, 1, 0, 0, -1, -1)
"""Chunk activations that each of these adds to what its rank holds."""

ONE_QUEUE = {B_Z: W_Z, B_A: W_Z}
"""Weight gradients wait in one queue, whichever chunk they are of; their slots are all marked W_z."""

QUEUE_PER_CHUNK = {B_Z: W_Z, B_A: W_A}
"""Weight gradients of chunk z go before those of chunk a."""

Block = Sequence[Sequence[int]]
"""For each rank, the slots of F_a, F_z, B_z, B_a of microbatch 0, and of W_z and W_a if they are given."""

Rows = list[bytearray]
"""For each rank, what each slot holds; rows may differ in length."""


def repeated(block: Block, microbatches: int) -> Rows:
    """The rows of the block, once for every microbatch; weight gradients only where the block has them."""
    rows = []
    for slots in block:
        row = bytearray(max(slots) + PERIOD * (microbatches - 1) + 1)
        for code, first in enumerate(slots, F_A):
            row[first : first + PERIOD * microbatches : PERIOD] = bytes([code]) * microbatches
        rows.append(row)
    return rows


def columns(rows: Iterable[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Slot by slot, what every rank does: all that an action awaits comes in an earlier column."""
    return zip_longest(*rows, fillvalue=IDLE)


def awaited(code: int, rank: int, ranks: int) -> tuple[int, int] | None:
    """Code and rank of what F_a, F_z, B_z or B_a awaits: the rank before, or at a turn, the one before."""
    down = code in (F_A, B_Z)
    if rank != (0 if down else ranks - 1):
        return code, rank - 1 if down else rank + 1
    return (code - 1, rank) if code > F_A else None


def peak(row: Sequence[int]) -> int:
    """The most chunk activations that a row with weight gradients holds."""
    return max(accumulate(map(GAIN.__getitem__, row)))


def with_weight_grads(row: Sequence[int], queues: Mapping[int, int] = ONE_QUEUE) -> bytearray:
    """Give idle slots to weight gradients that wait; those that find none follow at the end."""
    filled = bytearray(row)
    waiting = [0] * len(CODES)
    for slot, code in enumerate(row):
        if code in queues:
            waiting[queues[code]] += 1
        elif code == IDLE:
            for weight_grad in (W_Z, W_A):
                if waiting[weight_grad]:
                    waiting[weight_grad] -= 1
                    filled[slot] = weight_grad
                    break
    rest = bytes([W_Z]) * waiting[W_Z] + bytes([W_A]) * waiting[W_A]
    return filled.rstrip(bytes([IDLE])) + rest


def without_weight_grads(row: bytearray) -> bytearray:
    """The row with the slots of weight gradients idle."""
    return row.translate(bytes(IDLE if code in (W_Z, W_A) else code for code in range(256)))


def orders_of(rows: Rows, kinds: Mapping[int, ActionKind]) -> Orders:
    """Each rank's actions; ``kinds`` says what the codes are, and leaves out what is no action of its own."""
    return tuple(_order(rank, row, len(rows), kinds) for rank, row in enumerate(rows))


def _order(rank: int, row: bytearray, ranks: int, kinds: Mapping[int, ActionKind]) -> Order:
    stages = {code: rank if code in (F_A, B_A, W_A) else 2 * ranks - 1 - rank for code in kinds}
    actions = {code: map(Action, repeat(stages[code]), repeat(kind), count()) for code, kind in kinds.items()}
    return tuple(next(actions[code]) for code in row if code in kinds)
