"""One greedy pass over a V of two chunks per rank: every rank takes what can begin next.

A microbatch travels in four legs: forward down the ranks (leg 0) and back up (1), then its input gradient
down (2) and up (3). Weight gradients (4) are owed until they fill a gap or give memory back. The steps of
a rank are noted as one byte each, the leg: on every leg the microbatches come in order, and the weight
gradients in the order of the input gradients. Knows costs and memory, and neither which stage a leg is on
nor why one pass is better than another (zb_v_greedy.py).

Times are held where they are awaited, so that a step costs no look-up by name: 64 ranks with 512
microbatches are 200,000 steps, and a search makes eight passes or more.

Sources: sail-sg zero-bubble-pipeline-parallelism 39f2c18, ``scheduler/zbv.py`` ``try_v_schedule``, whose
orders these are; Qi et al. 2024, "Zero Bubble Pipeline Parallelism" (arXiv version), section on ZB-V.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..orders.schedule import Shape

DOWN, UP, GRAD_DOWN, GRAD_UP, WEIGHT = range(5)
"""The legs of a microbatch, and the weight gradients."""

_NEVER = 2**62
"""Longer than any step takes; and so long ago arrived what no other rank sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyRules:
    """What a pass may do.

    ``squeezes``, by leg: whether a weight gradient may go first where it is longer than the gap before the
    step, and so delays it. ``allowances``, by rank: up to so much idle time in all, a rank waits instead.
    ``limit`` is the memory of a rank, at least two forwards for each rank. The pass is given up as soon as
    some rank idles for ``give_up_at``.
    """

    squeezes: tuple[bool, bool, bool, bool]
    allowances: tuple[int, ...]
    limit: int
    give_up_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOutcome:
    """What each rank did.

    ``legs`` are its steps, ``idle`` is how long it waits after its first. ``asked`` holds the legs before
    which the rules on squeezing decided something. ``hurries`` is, for each rank, the least allowance with
    which it would have waited somewhere instead. ``complete`` is False if the pass was given up.
    """

    legs: tuple[bytes, ...]
    idle: tuple[int, ...]
    asked: frozenset[int]
    hurries: tuple[int, ...]
    complete: bool


@dataclass(slots=True, kw_only=True, eq=False)
class _Rank:
    """A rank at work. ``inbox[leg][k]`` is when microbatch k is there; an outbox is another rank's inbox."""

    inbox: tuple[list[int], ...]
    outbox: tuple[list[int], ...]
    allowance: int
    done: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    owed: int = 0
    legs: bytearray = field(default_factory=bytearray)
    clock: int = 0
    idle: int = 0
    held: int = 0
    hurry: int = _NEVER


@dataclass(slots=True, kw_only=True, eq=False)
class _Pipeline:
    """All ranks at work. ``lasts`` and ``keeps``: time and memory of a step, by leg."""

    ranks: tuple[_Rank, ...]
    lasts: tuple[int, ...]
    keeps: tuple[int, ...]
    latency: int
    microbatches: int
    rules: GreedyRules
    asked: set[int] = field(default_factory=set)
    worst: int = 0  # the longest that a rank has idled


def greedy_pass(shape: Shape, rules: GreedyRules) -> PassOutcome:
    """Forwards to warm up, then 2m rounds, then the weight gradients that are left."""
    pipeline = _pipeline(shape, rules)
    _first_microbatch(pipeline)
    _more_forwards(pipeline)
    complete = True
    for _ in range(2 * shape.microbatches):
        _one_gradient_each(pipeline)
        _one_forward_each(pipeline)
        if rules.give_up_at is not None and pipeline.worst >= rules.give_up_at:
            complete = False
            break
    for rank in pipeline.ranks:
        while rank.owed:
            _weight_gradient(pipeline, rank)
    return PassOutcome(
        legs=tuple(bytes(rank.legs) for rank in pipeline.ranks),
        idle=tuple(rank.idle for rank in pipeline.ranks),
        asked=frozenset(pipeline.asked),
        hurries=tuple(rank.hurry for rank in pipeline.ranks),
        complete=complete,
    )


def _pipeline(shape: Shape, rules: GreedyRules) -> _Pipeline:
    costs, memory, p = shape.costs, shape.memory, shape.ranks
    always = [-_NEVER] * shape.microbatches
    nobody: list[int] = []
    # Box r of a leg down is the inbox of rank r; of a leg up, of rank r - 1.
    boxes: dict[int, list[list[int]]] = {
        leg: [always, *([] for _ in range(p - 1)), nobody] for leg in (DOWN, GRAD_DOWN)
    } | {leg: [nobody, *([] for _ in range(p - 1)), always] for leg in (UP, GRAD_UP)}
    legs = ((DOWN, 0, 1), (UP, 1, 0), (GRAD_DOWN, 0, 1), (GRAD_UP, 1, 0))
    return _Pipeline(
        ranks=tuple(
            _Rank(
                inbox=tuple(boxes[leg][rank + take] for leg, take, _ in legs),
                outbox=tuple(boxes[leg][rank + give] for leg, _, give in legs),
                allowance=rules.allowances[rank],
            )
            for rank in range(p)
        ),
        lasts=(costs.forward, costs.forward, costs.input_grad, costs.input_grad, costs.weight_grad),
        keeps=(memory.forward, memory.forward, memory.input_grad, memory.input_grad, memory.weight_grad),
        latency=costs.latency,
        microbatches=shape.microbatches,
        rules=rules,
    )


# Warm-up: forwards alone --------------------------------------------------------------------------------


def _first_microbatch(pipeline: _Pipeline) -> None:
    """Down the ranks and back up; ranks that wait for it take more forwards, if all above them can hold them.

    While held + (2+2r)·forward stays within the limit, and the forward ends before the first comes back.
    """
    ranks, forward, held_more = pipeline.ranks, pipeline.lasts[DOWN], pipeline.keeps[DOWN]
    for rank in ranks:
        _step(pipeline, rank, DOWN)
    for r in reversed(range(len(ranks))):
        rank = ranks[r]
        while (
            rank.done[DOWN] < pipeline.microbatches
            and rank.clock + forward <= rank.inbox[UP][0]
            and rank.held + (2 + 2 * r) * held_more <= pipeline.rules.limit
        ):
            for above in ranks[: r + 1]:
                _step(pipeline, above, DOWN)
        _step(pipeline, rank, UP)


def _more_forwards(pipeline: _Pipeline) -> None:
    """Forwards on ranks p-1..r, down and up in turn, until rank r has had as many as the one above it.

    Until nF(r) >= nF(r-1), and nF_up(r) > nF_up(r-1) unless that is m.
    """
    ranks, m = pipeline.ranks, pipeline.microbatches
    leg = DOWN
    for r in range(1, len(ranks)):
        mine, theirs = ranks[r].done, ranks[r - 1].done
        while sum(mine[:GRAD_DOWN]) < sum(theirs[:GRAD_DOWN]) or mine[UP] <= theirs[UP] < m:
            for rank in reversed(ranks[r:]):
                if rank.done[leg] < m:
                    _step(pipeline, rank, leg)
            leg = UP - leg


# Rounds: one input gradient and at most one forward on every rank ---------------------------------------


def _one_gradient_each(pipeline: _Pipeline) -> None:
    """A rank takes one on its way up if it can, else one on its way down: first those, last rank first."""
    m = pipeline.microbatches
    ups: list[_Rank] = []
    downs: list[_Rank] = []
    for rank in pipeline.ranks:
        *_, down, up = rank.done
        # Once all are down, the rank below sends the next one up in this same round.
        can = up < down and (down == m or len(rank.inbox[GRAD_UP]) > up)
        (ups if can else downs).append(rank)
    for rank in reversed(ups):
        if rank.owed:
            _fill_gap(pipeline, rank, GRAD_UP)
        _step(pipeline, rank, GRAD_UP)
    for rank in downs:
        if rank.owed:
            _fill_gap(pipeline, rank, GRAD_DOWN)
        _step(pipeline, rank, GRAD_DOWN)


def _one_forward_each(pipeline: _Pipeline) -> None:
    """Up if one has arrived, else down, from the first rank on."""
    m, limit, forward = pipeline.microbatches, pipeline.rules.limit, pipeline.keeps[DOWN]
    for rank in pipeline.ranks:
        down, up, *_ = rank.done
        if up < down and len(rank.inbox[UP]) > up:
            leg = UP
        elif down < m and len(rank.inbox[DOWN]) > down:
            leg = DOWN
        else:
            continue
        while rank.held + forward > limit:
            _weight_gradient(pipeline, rank)
        if rank.owed:
            _fill_gap(pipeline, rank, leg)
        _step(pipeline, rank, leg)


# Steps ----------------------------------------------------------------------------------------------------


def _step(pipeline: _Pipeline, rank: _Rank, leg: int) -> None:
    """The next microbatch of a leg, as soon as it is there."""
    done = rank.done
    microbatch, begin = done[leg], rank.clock
    arrival = rank.inbox[leg][microbatch]
    if arrival > begin:
        if done[DOWN]:
            rank.idle += arrival - begin
            if rank.idle > pipeline.worst:
                pipeline.worst = rank.idle
        begin = arrival
    rank.clock = end = begin + pipeline.lasts[leg]
    rank.outbox[leg].append(end + pipeline.latency)
    rank.held += pipeline.keeps[leg]
    if leg >= GRAD_DOWN:
        rank.owed += 1
    rank.legs.append(leg)
    done[leg] = microbatch + 1


def _weight_gradient(pipeline: _Pipeline, rank: _Rank) -> None:
    """The oldest of those owed."""
    assert rank.owed, "the memory limit holds two forwards for each rank"
    rank.owed -= 1
    rank.clock += pipeline.lasts[WEIGHT]
    rank.held += pipeline.keeps[WEIGHT]
    rank.legs.append(WEIGHT)


def _fill_gap(pipeline: _Pipeline, rank: _Rank, leg: int) -> None:
    """Weight gradients first: all that fit, and one more rather than idle longer than any rank has yet."""
    arrival, lasts = rank.inbox[leg][rank.done[leg]], pipeline.lasts[WEIGHT]
    while rank.owed and arrival - rank.clock >= lasts:
        _weight_gradient(pipeline, rank)
    would_idle = rank.idle + arrival - rank.clock
    if rank.owed and would_idle > pipeline.worst and would_idle > rank.allowance:
        pipeline.asked.add(leg)
        if pipeline.rules.squeezes[leg]:
            rank.hurry = min(rank.hurry, would_idle)
            _weight_gradient(pipeline, rank)
