"""ZB-V by search: two chunks per rank in a V, split backwards, no more memory than 1F1B unless allowed.

Greedy passes (zb_v_greedy_pass.py) under four sets of rules, each made again with what it learned for as
long as that helps; the best is the one whose ranks idle least. A rank idles where it waits after its first
step and before its last, so what is made small is the longest span of a rank, not the makespan.

Sources: sail-sg zero-bubble-pipeline-parallelism 39f2c18, ``scheduler/zbv.py``; Qi et al. 2024, "Zero
Bubble Pipeline Parallelism" (arXiv version), whose bubble rates are 1 - work / longest span. For equal
costs, no latency and m >= 2p - 1 no rank idles.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..orders.action import Action, Kind, Order, Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, v_placement
from .zb_v_greedy_pass import DOWN, GRAD_DOWN, GRAD_UP, UP, WEIGHT, Outcome, Rules, greedy_pass

_two_chunks = fixed_chunks("zb-v-greedy", 2, limited=True)


def check(shape: Shape) -> None:
    """Refuse other than two chunks, groups, and a memory limit under 2·min(p, m) forwards."""
    _two_chunks(shape)
    limit, least = shape.memory.limit, least_limit(shape)
    if limit is not None and limit < least:
        raise ValueError(
            f"zb-v-greedy needs a memory limit of at least {least}, 2·min(ranks, microbatches) times the "
            f"{shape.memory.forward} of a forward, not {limit}; raise it, or use fewer ranks, or a schedule "
            "that holds less, such as v-half"
        )


def least_limit(shape: Shape) -> int:
    """Memory under which the search finds its way: 2p forwards, or all that there are (2m)."""
    return 2 * min(shape.ranks, shape.microbatches) * shape.memory.forward


def orders(shape: Shape) -> Orders:
    """The orders whose longest span is the shortest found; of equals, the first."""
    check(shape)
    best: Outcome | None = None
    for before_grad, before_forward in product((True, False), repeat=2):
        found = _improved(shape, (before_forward, before_forward, before_grad, True))
        if best is None or max(found.idle) < max(best.idle):
            best = found
        if not any(best.idle):
            break
    assert best is not None
    return tuple(_order(rank, legs, shape) for rank, legs in enumerate(best.legs))


def _improved(shape: Shape, squeezes: tuple[bool, bool, bool, bool]) -> Outcome:
    """A pass that nobody may wait in, then passes in which a rank may wait as long as the worst before.

    Each rank's allowance is what it idled less than the worst rank.
    """
    # A limit that holds everything is no limit; one of 2p forwards does not stop the warm-up either.
    held = 2 * shape.ranks * shape.memory.forward
    limit = max(held, shape.memory.limit or held)
    found = greedy_pass(
        shape, Rules(squeezes=squeezes, allowances=(0,) * shape.ranks, limit=limit, give_up_at=None)
    )
    assert found is not None
    while True:
        worst = max(found.idle)
        allowances = tuple(worst - idle for idle in found.idle)
        better = greedy_pass(
            shape, Rules(squeezes=squeezes, allowances=allowances, limit=limit, give_up_at=worst)
        )
        if better is None:
            return found
        found = better


def _order(rank: int, legs: bytes, shape: Shape) -> Order:
    """The actions behind the legs; the rank's later stage is the first on the way back down."""
    near, far = rank, shape.stages - 1 - rank
    steps = {
        DOWN: _actions(near, Kind.FORWARD, shape),
        UP: _actions(far, Kind.FORWARD, shape),
        GRAD_DOWN: _actions(far, Kind.INPUT_GRAD, shape),
        GRAD_UP: _actions(near, Kind.INPUT_GRAD, shape),
    }
    weights = {
        GRAD_DOWN: _actions(far, Kind.WEIGHT_GRAD, shape),
        GRAD_UP: _actions(near, Kind.WEIGHT_GRAD, shape),
    }
    steps[WEIGHT] = (next(weights[leg]) for leg in legs if leg in weights)
    return tuple(next(steps[leg]) for leg in legs)


def _actions(stage: int, kind: Kind, shape: Shape) -> Iterator[Action]:
    return (Action(stage, kind, k) for k in range(shape.microbatches))


SCHEDULE = Schedule(
    name="zb-v-greedy",
    title="ZB-V (greedy search)",
    orders=orders,
    check=check,
    rank_of=v_placement,
    chunks=2,
)
