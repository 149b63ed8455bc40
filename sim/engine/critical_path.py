"""The critical path: walks back from the last op to the start through what released each op.

A communication is released by its last member, so the path crosses ranks there. The sum of the
path's parts is the step time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..program.program import Compute, Op, RepeatedBlocks
from ..result.step import PEERS
from .accounting import repeated_parts
from .record import Record

NAMES = {
    "gemm": "GEMM",
    "attention": "attention",
    "memory-bound": "memory-bound kernels",
    "fixed": "step overhead",
    **{peers: f"waiting for {peers}" for peers in PEERS if peers.endswith("peers")},
}


Named = tuple[float, list[tuple[str, float]]]
"""The seconds of a run of repeated blocks, in all and by the name of what the path was doing."""


def critical_path(record: Record, between: tuple[float, float] | None = None) -> dict[str, float]:
    """Seconds of the step, or ``between`` two times of it, by what the critical path was doing, largest
    first.
    """
    since, until = between or (0.0, math.inf)

    def inside(first: float, last: float) -> float:
        if since <= first <= last <= until:
            return last - first
        return max(0.0, min(last, until) - max(first, since))

    parts, known = dict[str, float](), dict[int, Named]()
    lasts = [max(ends, default=0.0) for ends in record.end]
    now = max(lasts)
    at = lasts.index(now), record.end[lasts.index(now)].index(now)
    predecessors = [record.predecessors(r) for r in range(len(record.programs.classes))]
    while now > since:  # what lies before is not asked for
        r, i = at
        start, begin = record.start[r][i], record.begin[r][i]
        _attribute(record, at, record.programs.classes[r].ops[i], inside(begin, now), parts, known)
        source = record.released(r, i)
        if source is not None and source != at and record.start[source[0]][source[1]] > start:
            at, begin = source, record.start[source[0]][source[1]]
        now = begin
        before = _released_by(record, at, predecessors)
        if before < 0:
            _add(parts, "host", inside(0.0, now))
            break
        ended = record.end[at[0]][before]
        if ended < now:
            _add(parts, "host", inside(ended, now))
            now = ended
        at = at[0], before
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def _add(parts: dict[str, float], name: str, seconds: float) -> None:
    if seconds > 0:
        parts[name] = parts.get(name, 0.0) + seconds


def _attribute(
    record: Record,
    at: tuple[int, int],
    op: Op,
    seconds: float,
    parts: dict[str, float],
    known: dict[int, Named],
) -> None:
    """Add so many seconds of an op to the ``parts``; ``known`` are those of runs of repeated blocks."""
    if seconds <= 0:
        return
    if isinstance(op.work, RepeatedBlocks):
        run = record.whole(*at)
        named = known.get(id(run)) if run is not None else None
        if named is None:
            found = repeated_parts(record, *at)
            named = sum(found.values()), [(NAMES.get(name, name), part) for name, part in found.items()]
            if run is not None:
                known[id(run)] = named
        whole_s, shares = named
        for name, part in shares:  # all of it, but where its stream was awaited and not its end
            if (share := part * seconds / whole_s) > 0:
                parts[name] = parts.get(name, 0.0) + share
    elif isinstance(op.work, Compute):
        kind = NAMES.get(op.work.kind, op.work.kind)
        _add(parts, "optimizer" if op.category == "optimizer" and op.work.kind != "fixed" else kind, seconds)
    else:
        _add(parts, op.category, seconds)


def _released_by(record: Record, at: tuple[int, int], predecessors: Sequence[Sequence[int]]) -> int:
    """The op of the same class whose end came last among those that this one waited for; -1 for none."""
    r, i = at
    ends, last = record.end[r], predecessors[r][i]
    for one in record.programs.classes[r].ops[i].after:
        if last < 0 or ends[one] > ends[last] or (ends[one] == ends[last] and one > last):
            last = one
    return last
