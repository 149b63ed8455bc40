"""PipeDream: asynchronous 1F1B that does not flush. Every minibatch updates the weights, which are stashed.

A finite stream of m minibatches has the order of 1F1B: what PipeDream-flush does between two flushes,
PipeDream does until training ends. Each backward is followed by the optimizer's step on its rank, so a
minibatch must meet in its backward the weights of its forward: ``weight_versions`` of them are kept.

Knows nothing of the optimizer's step itself, nor of 2BW and macrobatches, which keep two versions at most.

Sources: Narayanan et al. 2019 (SOSP), "PipeDream", sections 3.2 and 3.3; msr-fiddle/pipedream 7db6a1c
``runtime/runtime.py`` and ``runtime/optimizer.py``, for a straight pipeline (no stage on several ranks).
"""

from __future__ import annotations

from ..orders.action import Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, loop_placement
from . import one_f_one_b

check = fixed_chunks("pipedream", 1)


def orders(shape: Shape) -> Orders:
    """p-1-r forwards, then F and B in turn for as long as there are minibatches."""
    check(shape)
    return one_f_one_b.SCHEDULE.orders(shape)


def in_flight(rank: int, shape: Shape) -> int:
    """min(p-r, m), as in 1F1B."""
    return one_f_one_b.in_flight(rank, shape)


def weight_versions(rank: int, shape: Shape) -> int:
    """Weights that the rank keeps, one for each minibatch in flight: p-r, or m if they are fewer.

    A queue: a forward uses the newest, a backward the oldest, and the update after it adds one and drops
    the oldest. So minibatch k meets in both the updates of minibatches 0 to k-w-1, w = p-1-r (before the
    first update: the initial weights), and its gradient is w updates late when it is applied.
    """
    return min(shape.ranks - rank, shape.microbatches)


SCHEDULE = Schedule(
    name="pipedream",
    title="PipeDream (asynchronous 1F1B, does not flush)",
    orders=orders,
    check=check,
    rank_of=loop_placement,
    in_flight=in_flight,
    weight_versions=weight_versions,
    place=30,
)
