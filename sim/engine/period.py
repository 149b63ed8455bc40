"""The time from one step to the next, which is not always the time until everything has ended.

Where all ranks meet at the end of a step, it is the makespan. Where each goes on by itself, the ranks
fall into a skew in which nobody waits for a late first microbatch again: then it is the longest span of
a rank. Where microbatches stream without an end, it is what as many of them take in the steady state, and
what a step costs once besides.
"""

from __future__ import annotations

import math

from ..program.program import Compute
from .record import Record


def step_seconds(record: Record) -> float:
    """Seconds from the start of this step to that of the next, by how the programs end.

    Infinite where this one has no end.
    """
    if record.makespan_s == math.inf:
        return math.inf
    if record.programs.ends == "skewed":
        return max((end - start for start, end in map(_span, _classes(record))), default=0.0)
    if record.programs.ends == "streaming":
        return _stream_seconds(record)
    return record.makespan_s


def _classes(record: Record) -> list[list[tuple[float, float]]]:
    """(start, end) of the ops on each class's compute stream."""
    return [
        [record.times(r, i)[::2] for i, op in enumerate(program.ops) if op.stream == "compute"]
        for r, program in enumerate(record.programs.classes)
    ]


def _span(times: list[tuple[float, float]]) -> tuple[float, float]:
    return (times[0][0], times[-1][1]) if times else (0.0, 0.0)


def _stream_seconds(record: Record) -> float:
    """The pace at which the last class to end brings its microbatches to an end, times their number."""
    r = max(range(len(record.end)), key=lambda r: max(record.end[r]))
    ends: dict[str, float] = {}
    once = [op.work for op in record.programs.classes[r].ops if isinstance(op.work, Compute)]
    fixed_s = sum(work.seconds for work in once if work.kind == "fixed")
    for i, op in enumerate(record.programs.classes[r].ops):
        if op.stream == "compute" and "B" in op.action:
            ends[op.action] = record.times(r, i)[2]
    times = sorted(ends.values())
    if len(times) < 2:
        return record.makespan_s
    return (times[-1] - times[0]) * len(times) / (len(times) - 1) + fixed_s
