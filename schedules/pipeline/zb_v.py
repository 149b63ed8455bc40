"""ZB-V, handcrafted: two chunks per rank in a V, no bubble between equal actions, as much held as 1F1B.

The greedy search of the same name, for unequal actions, is another schedule (zb-v-greedy).

Sources: Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241), section 6;
torch.distributed.pipelining 2.13 ``ScheduleZBVZeroBubble``, which lists the same orders as the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..orders.action import ActionKind, Orders
from ..orders.counted import counted
from ..orders.schedule import Schedule, Shape, fixed_chunks, v_placement

F, I, W = ActionKind.FORWARD, ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD  # noqa: E741 - the letters of the notation

check = fixed_chunks("zb-v", 2)


def orders(shape: Shape) -> Orders:
    """The order for max(2p-1, m) microbatches, without those that there are not."""
    check(shape)
    return tuple(tuple(counted(_work(rank, shape), shape.microbatches)) for rank in range(shape.ranks))


def in_flight(rank: int, shape: Shape) -> int:
    """2p on every rank; fewer microbatches than 2p - 1 fill rank r with min(2m, m + 1 + r) at most."""
    p, m = shape.ranks, shape.microbatches
    return min(2 * p, 2 * m, m + 1 + rank)


def _work(rank: int, shape: Shape) -> Iterator[tuple[int, ActionKind]]:
    """Stage r is ``a``, stage 2p-1-r is ``z``."""
    r, p = rank, shape.ranks
    n = max(2 * p - 1, shape.microbatches)
    a, z = r, 2 * p - 1 - r
    yield from [(a, F)] * (2 * (p - r) - 1)
    yield from [(z, F), (a, F)] * r
    yield from [(z, F), (z, I), (z, W)] * (p - r)
    # F_a was run 2p-1-r times by now, F_z p times, and each round below runs F_z once.
    ahead = 2 * p - 1 - r
    for turn in range(n - p):
        if ahead + turn < n:
            yield a, F
        yield from [(a, I), (a, W), (z, F), (z, I), (z, W)]
    yield from [(a, I), (z, I)] * r
    yield from [(a, I), (a, W)] * (p - r)
    yield from [(z, W)] * r
    yield from [(a, W)] * r


SCHEDULE = Schedule(
    name="zb-v",
    title="ZB-V (zero bubble in a V, handcrafted)",
    orders=orders,
    check=check,
    rank_of=v_placement,
    in_flight=in_flight,
    chunks=2,
)
