"""How long a block takes alone, without replaying it: the costs that a schedule that searches works with.

Streams in order, waits, the latency and the ceiling of each collective, and of SMs those that its own
collectives hold, or that its caller says; no sharing of links, which only the engine knows (sim/engine).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from ...kernels.gemm import IN_TWO_PASSES, LEAST_SMS
from .program import Block, Collective, Compute


def solo_seconds(blocks: Iterable[tuple[Block, int]]) -> float:
    """Seconds of blocks in a row, each so many times."""
    return sum(count * solo_ends(block)[0] for block, count in blocks)


def solo_ends(
    block: Block,
    *,
    sms: int = 0,
    stretch: float = 1.0,
    stretch_memory: float = 1.0,
    taken: float = 0.0,
    until_s: float = math.inf,
) -> tuple[float, float]:
    """When all of a block has ended, and when its last kernel has.

    ``sms``: of the GPU, where collectives that are issued before a kernel take theirs from it while they
    run, as the engine has it; 0: they take none. Math-bound kernels take ``stretch`` times as long, all
    others ``stretch_memory`` times, and the former do without a part of the SMs that others have ``taken``
    for its first ``until_s`` seconds. What collectives take of HBM's bandwidth is left out.
    """
    ends: list[float] = []
    streams: dict[str, float] = {}
    held: list[tuple[float, float, float]] = []  # by collective that takes SMs: when, until when, which part
    if until_s < math.inf:
        held, taken = [(0.0, until_s, taken)], 0.0
    for op in block.ops:
        work, start = op.work, streams.get(op.stream, 0.0)
        for before in op.after:
            start = max(start, ends[before])
        if isinstance(work, Compute):
            if work.kind == "memory-bound":
                end = start + work.seconds * stretch_memory
            else:
                end = start + _beside(
                    start, work.seconds * stretch, held, taken, static_schedule=work.static_schedule
                )
        else:
            assert isinstance(work, Collective), "a layer's block holds kernels and collectives"
            end = start + work.transfer.solo_s
            if sms and work.transfer.sms:
                held.append((start, end, work.transfer.sms / sms))
        streams[op.stream] = end
        ends.append(end)
    return max(ends, default=0.0), streams.get("compute", 0.0)


def _beside(
    start: float,
    seconds: float,
    held: list[tuple[float, float, float]],
    taken: float,
    *,
    static_schedule: bool,
) -> float:
    """What a kernel takes beside collectives that hold parts of the SMs; a ``static_schedule`` needs all."""
    beside = [one for one in held if one[1] > start] if held else held
    if not beside:
        return seconds / _speed(taken, static_schedule=static_schedule)
    moments = sorted({start, *(moment for one in beside for moment in one[:2] if moment > start)})
    left = seconds
    for moment, until in pairwise([*moments, math.inf]):
        parts = sum(part for since, end, part in beside if since <= moment < end)
        rate = _speed(taken + parts, static_schedule=static_schedule)
        if left <= rate * (until - moment):
            return moment + left / rate - start
        left -= rate * (until - moment)
    raise AssertionError("the last stretch has no end")


def _speed(taken: float, *, static_schedule: bool) -> float:
    speed = max(LEAST_SMS, 1.0 - taken)
    return min(speed, IN_TWO_PASSES) if static_schedule and taken else speed
