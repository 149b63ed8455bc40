"""The search of the automatic zero-bubble scheduler: greedy rules, tried in eight variants.

A rank's weight gradients may wait as long as there is memory for them, so they are spent where the rank
would idle. The variants are two warm-ups times four ``SearchRules``; the first with the shortest longest span
wins. Knows one stage per rank, all of the same integer times and memory; does not know what an order is
made of.

A rank's span is m·(F + I + W) plus what it idles after its first forward, so the search compares idle
times, and gives a variant up once a rank has idled as long as in the best so far.

Sources: Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 3.1; the authors' implementation,
sail-sg/zero-bubble-pipeline-parallelism ``scheduler/zb.py``, whose orders these are for positive times.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import inf
from typing import NamedTuple

from ..orders.schedule import Shape

FORWARD, INPUT_GRAD, WEIGHT_GRAD = range(3)
"""Steps of a rank. Each kind runs its microbatches in order."""

_ONE_WEIGHT_GRAD = bytes([WEIGHT_GRAD])


class SearchRules(NamedTuple):
    """What a variant does where either way may turn out better."""

    backward_first: bool
    """A rank two or more forwards ahead of the next leaves one out that could keep a gradient waiting."""
    fill_all: bool
    """A weight gradient that outlasts a gap runs also where the gap would not lengthen the longest span."""


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """What the ranks have done so far under one variant. Lists are by rank."""

    shape: Shape
    rules: SearchRules
    keep: list[int]
    """See ``_pending_that_fit``."""
    clock: list[int]
    forward_ends: list[list[int]]
    pending: list[int]
    """Weight gradients whose input gradients have run."""
    idle: list[int]
    """Time without work since the first forward."""
    longest_idle: int
    steps: list[bytearray]


def search(shape: Shape, limit: int) -> list[bytearray]:
    """The steps of every rank: FORWARD, INPUT_GRAD, WEIGHT_GRAD.

    No rank holds more than ``limit`` (in the unit of ``shape.memory``), which is one activation or more.
    """
    keep = _pending_that_fit(shape, limit)
    best: _Attempt | None = None
    for overfill, *on in product((False, True), (True, False), (True, False)):
        attempt = _started(shape, SearchRules(*on), keep, _warm_up(shape, limit, overfill=overfill))
        _continue(attempt, give_up_at=best.longest_idle if best else inf)
        if best is None or attempt.longest_idle < best.longest_idle:
            best = attempt
    assert best is not None
    for steps, pending in zip(best.steps, best.pending, strict=True):
        steps.extend(_ONE_WEIGHT_GRAD * pending)
    return best.steps


def _pending_that_fit(shape: Shape, limit: int) -> list[int]:
    """How many weight gradients may stay pending while a forward runs that has n others before it in flight.

    By n; in flight from the forward to the input gradient.
    """
    memory, m = shape.memory, shape.microbatches
    freed = -memory.weight_grad
    most = min(m, limit // memory.forward)
    rooms = (limit - count * memory.forward for count in range(1, most + 1))
    return [room // freed if freed else m for room in rooms]


def _warm_up(shape: Shape, limit: int, *, overfill: bool) -> list[int]:
    """Forwards of each rank before its first input gradient: what memory and the wait for it have room for.

    ``overfill``: a last forward may end after the wait. Each rank runs fewer than the rank before it,
    unless it runs all.
    """
    p, m, costs = shape.ranks, shape.microbatches, shape.costs
    most = min(m, limit // shape.memory.forward)
    counts = [1] * p
    gradient_at = p * costs.forward + (p - 1) * costs.latency + costs.input_grad  # of the last rank
    for rank in reversed(range(p - 1)):
        arrival = gradient_at + costs.latency
        end = (rank + 1) * costs.forward + rank * costs.latency
        while counts[rank] < most and (end < arrival if overfill else end + costs.forward <= arrival):
            counts[rank] += 1
            end += costs.forward
        gradient_at = max(end, arrival) + costs.input_grad
    for rank in range(1, p):
        if counts[rank] < m:
            counts[rank] = max(1, min(counts[rank], counts[rank - 1] - 1))
    return counts


def _started(shape: Shape, rules: SearchRules, keep: list[int], warm_up: list[int]) -> _Attempt:
    """The warm-up and the first input gradient of every rank."""
    p, costs = shape.ranks, shape.costs
    forward_ends: list[list[int]] = [[] for _ in range(p)]
    for rank, count in enumerate(warm_up):
        ends = forward_ends[rank]
        for k in range(count):
            free = ends[-1] if ends else 0
            arrival = forward_ends[rank - 1][k] + costs.latency if rank else 0
            ends.append(max(free, arrival) + costs.forward)
    clock, idle = [0] * p, [0] * p
    arrival = 0
    for rank in reversed(range(p)):
        ends = forward_ends[rank]
        begin = max(ends[-1], arrival)
        idle[rank] = begin - ends[0] - (len(ends) - 1) * costs.forward
        clock[rank] = begin + costs.input_grad
        arrival = clock[rank] + costs.latency
    return _Attempt(
        shape=shape,
        rules=rules,
        keep=keep,
        clock=clock,
        forward_ends=forward_ends,
        pending=[1] * p,
        idle=idle,
        longest_idle=max(idle),
        steps=[bytearray([FORWARD] * count + [INPUT_GRAD]) for count in warm_up],
    )


def _continue(attempt: _Attempt, *, give_up_at: float) -> None:
    """A forward, where one is due, and an input gradient of every rank, for each microbatch left.

    Leaves off once a rank has idled for ``give_up_at``.
    """
    for k in range(1, attempt.shape.microbatches):
        if attempt.longest_idle >= give_up_at:
            return
        _run_forwards(attempt, k, first=_first_that_forwards(attempt, k))
        _run_input_grads(attempt)


def _first_that_forwards(attempt: _Attempt, k: int) -> int:
    """The rank from which on all run a forward before input gradient ``k``; those before it run none.

    A rank has run at least as many forwards as the next. One that runs none now, because it has run all or
    leaves one out, so keeps those before it from running one.
    """
    shape, clock, ends = attempt.shape, attempt.clock, attempt.forward_ends
    costs, m = shape.costs, shape.microbatches
    count_of_next = len(ends[-1])
    if count_of_next == m:
        return shape.ranks
    for rank in reversed(range(shape.ranks - 1)):
        count = len(ends[rank])
        if count == m:
            return rank + 1
        if attempt.rules.backward_first and count >= count_of_next + 2:
            wait = clock[rank + 1] + costs.forward + costs.input_grad + costs.latency - clock[rank]
            making_room = max(attempt.pending[rank] - attempt.keep[count - k], 0) * costs.weight_grad
            slack = attempt.longest_idle - attempt.idle[rank]
            if wait < costs.forward + making_room and wait <= slack:
                return rank + 1
        count_of_next = count
    return 0


def _run_forwards(attempt: _Attempt, k: int, *, first: int) -> None:
    """A forward of every rank from ``first`` on, after what makes room for it and what fills the wait for it.

    Room can always be made: since the warm-up, which fitted, no rank has run more forwards than gradients.
    """
    costs, clock, pending = attempt.shape.costs, attempt.clock, attempt.pending
    forward, weight_grad, latency = costs.forward, costs.weight_grad, costs.latency
    for rank in range(first, attempt.shape.ranks):
        ends, ready, now = attempt.forward_ends[rank], pending[rank], clock[rank]
        count = len(ends)
        weight_grads = ready - attempt.keep[count - k]
        if weight_grads > 0:
            now += weight_grads * weight_grad
        else:
            weight_grads = 0
        if rank > 0:
            arrival = attempt.forward_ends[rank - 1][count] + latency
            if arrival >= now:
                filling = _fill(attempt, rank, ready - weight_grads, arrival - now)
                now = max(now + filling * weight_grad, arrival)
                weight_grads += filling
        if weight_grads:
            pending[rank] = ready - weight_grads
            attempt.steps[rank].extend(_ONE_WEIGHT_GRAD * weight_grads)
        attempt.steps[rank].append(FORWARD)
        clock[rank] = now + forward
        ends.append(now + forward)


def _run_input_grads(attempt: _Attempt) -> None:
    """An input gradient of every rank, the last rank first, after what fills the wait for it.

    Rank 0 has nobody to keep waiting: once it has run all forwards, it runs what is pending first.
    """
    costs, clock, pending = attempt.shape.costs, attempt.clock, attempt.pending
    input_grad, weight_grad, latency = costs.input_grad, costs.weight_grad, costs.latency
    arrival = -1  # the last rank awaits nothing
    for rank in reversed(range(attempt.shape.ranks)):
        ready, now = pending[rank], clock[rank]
        weight_grads = 0
        if arrival >= now:
            weight_grads = _fill(attempt, rank, ready, arrival - now)
            now = max(now + weight_grads * weight_grad, arrival)
        if rank == 0 and len(attempt.forward_ends[0]) == attempt.shape.microbatches:
            now += (ready - weight_grads) * weight_grad
            weight_grads = ready
        if weight_grads:
            attempt.steps[rank].extend(_ONE_WEIGHT_GRAD * weight_grads)
        attempt.steps[rank].append(INPUT_GRAD)
        pending[rank] = ready - weight_grads + 1
        clock[rank] = now + input_grad
        arrival = now + input_grad + latency


def _fill(attempt: _Attempt, rank: int, ready: int, gap: int) -> int:
    """How many of the ``ready`` weight gradients run in a gap; the rank idles for what they leave of it."""
    weight_grad = attempt.shape.costs.weight_grad
    count = min(ready, gap // weight_grad) if weight_grad else ready
    rest = gap - count * weight_grad
    if rest:
        idle = attempt.idle[rank]
        if count < ready and (attempt.rules.fill_all or idle + rest > attempt.longest_idle):
            return count + 1
        attempt.idle[rank] = idle = idle + rest
        if idle > attempt.longest_idle:
            attempt.longest_idle = idle
    return count
