"""The time from one step to the next, which is not always the time until everything has ended.

Where all ranks meet at the end of a step, it is the makespan. Where each goes on by itself, the ranks
fall into a skew in which nobody waits for a late first microbatch again: then it is the longest span of
a rank, or what issuing a step takes a host, where that is longer, since a host that was ahead while the
pipeline filled cannot gain that again in each step. Where microbatches stream without an end, it is what as
many of them take in the steady state, and what a step costs once besides.
"""

from __future__ import annotations

import math

from ..program.program import Compute
from .record import Record

ROUNDING = 1e-9  # ends of two classes nearer than this share of the makespan are one end


def step_seconds(record: Record) -> float:
    """Seconds from the start of this step to that of the next, by how the programs end.

    Infinite where this one has no end.
    """
    if record.makespan_s == math.inf:
        return math.inf
    if record.programs.ends == "skewed":
        spans_s = (end - start for start, end in map(_span, _classes(record)))
        hosts_s = (sum(op.host_s for op in program.ops) for program in record.programs.classes)
        return max(*spans_s, *hosts_s, 0.0)
    if record.programs.ends == "streaming":
        return _stream_seconds(record)
    return record.makespan_s


def _classes(record: Record) -> list[list[tuple[float, float]]]:
    """The starts and ends, in seconds, of the ops on the compute stream of each class."""
    return [
        [record.times(r, i)[::2] for i, op in enumerate(program.ops) if op.stream == "compute"]
        for r, program in enumerate(record.programs.classes)
    ]


def _span(times: list[tuple[float, float]]) -> tuple[float, float]:
    return (times[0][0], times[-1][1]) if times else (0.0, 0.0)


def _stream_seconds(record: Record) -> float:
    """What microbatches take in the steady state, and what a step costs once besides.

    Told by the classes that are the last to end. Members of a tensor-parallel group end together, to
    rounding, and keep different paces where some of them are slow: the slowest holds the others. A slow
    early stage ends its last backwards faster than it goes on, since no forwards are left between them: its
    own work is what the step takes at least.
    """
    last = [max(times, default=0.0) for times in record.end]
    until_s = max(last) * (1 - ROUNDING)
    pace_s = max(_class_seconds(record, r) for r, end_s in enumerate(last) if end_s >= until_s)
    return max(pace_s, *(_own_seconds(record, r) for r in range(len(record.programs.classes))))


def _own_seconds(record: Record, r: int) -> float:
    """What the actions of class r take, each from its first kernel's start to its last one's end, as a block
    of layers does that is one op.
    """
    spans: dict[str | int, tuple[float, float]] = {}
    for i, op in enumerate(record.programs.classes[r].ops):
        if op.stream == "compute":
            start_s, _, end_s = record.times(r, i)
            begun_s, _ = spans.get(op.action or i, (start_s, end_s))
            spans[op.action or i] = begun_s, end_s
    return sum(end_s - start_s for start_s, end_s in spans.values())


def _class_seconds(record: Record, r: int) -> float:
    """Seconds of a step by class ``r``: its microbatches at the pace at which it ends them, and what comes
    once a step."""
    program = record.programs.classes[r]
    fixed_s = 0.0  # as it went: a slow class takes longer than its program says
    ends: dict[str, float] = {}
    for i, op in enumerate(program.ops):
        _, begin_s, end_s = record.times(r, i)
        if isinstance(op.work, Compute) and op.work.kind == "fixed":
            fixed_s += end_s - begin_s
        if op.stream == "compute" and "B" in op.action:
            ends[op.action] = end_s
    times = sorted(ends.values())
    if len(times) < 2:
        return record.makespan_s
    return (times[-1] - times[0]) * len(times) / (len(times) - 1) + fixed_s
