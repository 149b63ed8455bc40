"""Interleaved zero bubble: the turns of interleaved 1F1B with split backwards and half its warm-up.

Sources: torch.distributed.pipelining 2.13 ``ScheduleInterleavedZeroBubble``, after ZB-1P of Qi et al.
2023 (arXiv 2401.10241). torch's group size N is m // max(1, m // p); another is ``shape.group``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..orders.action import Action, ActionKind, Orders
from ..orders.schedule import Schedule, Shape, loop_placement, no_limit
from .interleaved import table


def check(shape: Shape) -> None:
    """Refuse groups smaller than the ranks or larger than the step, and what torch cannot divide."""
    no_limit("interleaved-zb", shape)
    p, m, group = shape.ranks, shape.microbatches, shape.group
    smallest = min(p, m)
    if group is None and m % _rounds(shape):
        below, above = m // p * p, -(-m // p) * p
        raise ValueError(
            f"interleaved-zb takes {m} microbatches on {p} ranks in {_rounds(shape)} groups, which do not "
            f"divide them; use {below} or {above} microbatches, or group={smallest} to {m}"
        )
    if group is not None and not smallest <= group <= m:
        raise ValueError(
            f"interleaved-zb cannot take {m} microbatches on {p} ranks in groups of {group}; "
            f"use group={smallest} to {m}, or leave it out"
        )


def group_size(shape: Shape) -> int:
    """Microbatches that a rank runs on one chunk before it turns to the next (N): torch's, if not given."""
    return shape.group or shape.microbatches // _rounds(shape)


def warm_up_forwards(rank: int, shape: Shape) -> int:
    """Forwards of a rank before its first input gradient is due: min((v-1)N + (p-1-r), m·v)."""
    turns = (shape.chunks - 1) * group_size(shape) + shape.ranks - 1 - rank
    return min(turns, shape.microbatches * shape.chunks)


def orders(shape: Shape) -> Orders:
    """Warm-up, F and I in turn, cool-down; on rank r every W comes r input gradients late."""
    check(shape)
    return tuple(tuple(_order(rank, shape)) for rank in range(shape.ranks))


def in_flight(rank: int, shape: Shape) -> int:
    """min((v-1)N + p, m·v) on every rank: what the warm-up leaves out, late weight gradients keep."""
    del rank
    chunks = (shape.chunks - 1) * group_size(shape) + shape.ranks
    return min(chunks, shape.microbatches * shape.chunks)


def _order(rank: int, shape: Shape) -> Iterator[Action]:
    turns, p, v = tuple(table(shape, group_size(shape))), shape.ranks, shape.chunks
    forwards = [Action(chunk * p + rank, ActionKind.FORWARD, k) for k, chunk in turns]
    input_grads = [Action((v - 1 - chunk) * p + rank, ActionKind.INPUT_GRAD, k) for k, chunk in turns]
    weight_grads = [Action(stage, ActionKind.WEIGHT_GRAD, k) for stage, _, k in input_grads]
    warm_up, n = warm_up_forwards(rank, shape), len(turns)
    yield from forwards[:warm_up]
    for j in range(n):
        if warm_up + j < n:
            yield forwards[warm_up + j]
        yield input_grads[j]
        if j >= rank:
            yield weight_grads[j - rank]
    yield from weight_grads[max(0, n - rank) :]


def _rounds(shape: Shape) -> int:
    """Groups that torch makes of the microbatches."""
    return max(1, shape.microbatches // shape.ranks)


SCHEDULE = Schedule(
    name="interleaved-zb",
    title="Interleaved zero bubble (torch)",
    orders=orders,
    check=check,
    rank_of=loop_placement,
    in_flight=in_flight,
)
