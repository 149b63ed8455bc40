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
from dataclasses import dataclass
from itertools import product, repeat
from operator import lt
from typing import TypeAlias

from ..orders.action import Action, ActionKind, Order, Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, v_placement
from .zb_v_greedy_pass import DOWN, GRAD_DOWN, GRAD_UP, UP, WEIGHT, GreedyRules, greedy_pass

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
    tried: list[_Found] = []
    for before_grad, before_forward in product((True, False), repeat=2):
        squeezes = (before_forward, before_forward, before_grad, True)
        if not any(_alike(found, squeezes) for found in tried):
            tried.append(_improved(shape, squeezes))
        if tried[-1].idle == 0:
            break
    best = min(tried, key=lambda found: found.idle)
    return tuple(_order(rank, legs, shape) for rank, legs in enumerate(best.legs))


Squeezes: TypeAlias = tuple[bool, bool, bool, bool]
"""By leg, whether a weight gradient may delay the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The legs found under some rules, the longest idle time, and the legs for which the rules mattered."""

    squeezes: Squeezes
    legs: tuple[bytes, ...]
    idle: int
    asked: frozenset[int]


def _alike(found: _Found, squeezes: Squeezes) -> bool:
    """Whether these rules would find the same: they differ only where nothing was asked."""
    return all(found.squeezes[leg] == squeezes[leg] for leg in found.asked)


def _improved(shape: Shape, squeezes: Squeezes) -> _Found:
    """A pass without allowances; then, while that helps, each rank may idle as long as the worst one did.

    Its allowance is what it idled less than the worst.
    """
    # A limit under 2p forwards is accepted only if it holds all 2m: then nothing can exceed it.
    enough = 2 * shape.ranks * shape.memory.forward
    limit = max(shape.memory.limit or enough, enough)
    best = greedy_pass(shape, GreedyRules(squeezes=squeezes, allowances=(0,) * shape.ranks, limit=limit))
    asked, first = best.asked, best
    while worst := max(best.idle):
        allowances = tuple(worst - idle for idle in best.idle)
        if best is first and all(map(lt, allowances, best.hurries)):
            break  # they would change nothing
        rules = GreedyRules(squeezes=squeezes, allowances=allowances, limit=limit, give_up_at=worst)
        better = greedy_pass(shape, rules)
        asked |= better.asked
        if not better.complete:
            break
        best = better
    return _Found(squeezes=squeezes, legs=best.legs, idle=worst, asked=asked)


def _order(rank: int, legs: bytes, shape: Shape) -> Order:
    """The actions behind the legs; the rank's second stage is the first on the way back down."""
    first, second = rank, shape.stages - 1 - rank
    forwards = {DOWN: first, UP: second}
    gradients = {GRAD_DOWN: second, GRAD_UP: first}
    take = {leg: _actions(stage, ActionKind.FORWARD, shape) for leg, stage in forwards.items()}
    take |= {leg: _actions(stage, ActionKind.INPUT_GRAD, shape) for leg, stage in gradients.items()}
    weights = {leg: _actions(stage, ActionKind.WEIGHT_GRAD, shape) for leg, stage in gradients.items()}
    take[WEIGHT] = (next(weights[leg]) for leg in legs if leg in weights)
    return tuple([next(take[leg]) for leg in legs])


def _actions(stage: int, kind: ActionKind, shape: Shape) -> Iterator[Action]:
    return map(Action, repeat(stage), repeat(kind), range(shape.microbatches))


SCHEDULE = Schedule(
    name="zb-v-greedy",
    title="ZB-V (greedy search)",
    orders=orders,
    check=check,
    rank_of=v_placement,
    chunks=2,
    uses_costs=True,
    splits_backward=True,
    ends_meet=True,
    place=110,
)
