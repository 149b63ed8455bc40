"""Interleaved 1F1B: each rank holds v chunks of the model and visits them in groups of microbatches.

Sources: Narayanan et al. 2021 (SC21), section 2.2.2; Megatron-LM ``schedules.py``
``forward_backward_pipelining_with_interleaving`` and ``get_schedule_table``, whose group size N is
``shape.group``. torch.distributed.pipelining 2.13 ``ScheduleInterleaved1F1B`` lists the same orders for
N = m // max(1, m // p), also with fewer microbatches than ranks. Megatron refuses every last group that is
smaller than p; here only those are refused whose orders cannot be run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ..orders.action import Action, ActionKind, Order, Orders
from ..orders.schedule import Schedule, Shape, loop_placement, no_limit
from ..orders.turns import one_forward_one_backward


def check(shape: Shape) -> None:
    """Refuse a single chunk, a single rank, and groups with which ranks would wait for each other."""
    if shape.chunks < 2:
        raise ValueError("interleaved needs 2 or more chunks per rank, not 1; with one chunk, use 1f1b")
    if shape.ranks < 2:
        raise ValueError("interleaved needs 2 or more ranks, not 1; one rank needs no pipeline")
    no_limit("interleaved", shape)
    if not _runs(group_size(shape), shape):
        raise ValueError(f"{_what_is_wrong(shape)}; {_what_would_do(shape)}")


def group_size(shape: Shape) -> int:
    """Microbatches that a rank runs on one chunk before it turns to the next (N)."""
    return shape.group or shape.ranks


def warm_up_forwards(rank: int, shape: Shape) -> int:
    """Forwards of a rank before it takes F and B in turn: min(2(p-1-r) + (v-1)N, m·v)."""
    rounds = 2 * (shape.ranks - 1 - rank) + (shape.chunks - 1) * group_size(shape)
    return min(rounds, shape.microbatches * shape.chunks)


@lru_cache(maxsize=4)  # whoever writes out the messages of an order looks whether it is this one
def orders(shape: Shape) -> Orders:
    """Warm-up, F and B in turn, cool-down, over the same list of (microbatch, chunk) on every rank."""
    check(shape)
    return tuple(_order(rank, shape) for rank in range(shape.ranks))


def in_flight(rank: int, shape: Shape) -> int:
    """min(2(p-1-r) + (v-1)N + 1, m·v): the warm-up and the forward that ends it."""
    return min(warm_up_forwards(rank, shape) + 1, shape.microbatches * shape.chunks)


def _order(rank: int, shape: Shape) -> Order:
    turns, p, v = tuple(table(shape, group_size(shape))), shape.ranks, shape.chunks
    forwards = [Action(chunk * p + rank, ActionKind.FORWARD, k) for k, chunk in turns]
    backwards = [Action((v - 1 - chunk) * p + rank, ActionKind.BACKWARD, k) for k, chunk in turns]
    return one_forward_one_backward(forwards, backwards, warm_up=warm_up_forwards(rank, shape))


def table(shape: Shape, group: int) -> Iterator[tuple[int, int]]:
    """(microbatch, chunk) in the order of the forwards: chunk by chunk within each group."""
    for first in range(0, shape.microbatches, group):
        for chunk in range(shape.chunks):
            for k in range(first, min(first + group, shape.microbatches)):
                yield k, chunk


def _runs(group: int, shape: Shape) -> bool:
    p, m = shape.ranks, shape.microbatches
    return min(p, m) <= group <= m and not _deadlocks(group, shape)


def _deadlocks(group: int, shape: Shape) -> bool:
    """Whether a last group of m mod N is too small for what a rank runs ahead: N + m mod N <= 2p - 3.

    With two chunks a last group of one is harmless. Found by running the orders: the rule is right for all of
    6,936 shapes (up to 20 ranks, 8 chunks, 90 microbatches); the tests hold it to the validator.
    """
    last = shape.microbatches % group
    return (2 if shape.chunks == 2 else 1) <= last <= 2 * shape.ranks - 3 - group


def _what_is_wrong(shape: Shape) -> str:
    p, m, group = shape.ranks, shape.microbatches, group_size(shape)
    if group > m:
        return f"interleaved cannot take {m} microbatches in groups of {group}"
    if group < p:
        return f"groups of {group} microbatches are smaller than the {p} ranks"
    return (
        f"{m} microbatches in groups of {group} leave a last group of {m % group}, "
        f"with which the {p} ranks would wait for each other"
    )


def _what_would_do(shape: Shape) -> str:
    p, m = shape.ranks, shape.microbatches
    groups = [group for group in range(min(p, m), m + 1) if _runs(group, shape)]
    shown = ", ".join(map(str, groups[:6])) + (f", ... up to {groups[-1]}" if len(groups) > 6 else "")
    below, above = m // p * p, -(-m // p) * p
    counts = " or ".join(str(count) for count in dict.fromkeys((below, above)) if count)
    return f"use group={shown}, or {counts} microbatches in groups of {p}"


SCHEDULE = Schedule(
    name="interleaved",
    title="Interleaved 1F1B (Megatron)",
    orders=orders,
    check=check,
    rank_of=loop_placement,
    in_flight=in_flight,
    overlaps=True,
    grouped=True,
    filling=2,  # the first rank runs up to p (v + 1) - 2 chunks ahead: more than a group's
    place=40,
)
