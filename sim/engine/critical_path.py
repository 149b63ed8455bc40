"""The critical path: walks back from the last op to the start through what released each op.

A communication is released by its last member, so the path crosses ranks there. The sum of the
path's parts is the step time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(slots=True)
class PathPart:
    """Seconds of the path, ``on_path``, in repeated blocks that run in one way: such blocks take ``whole_s``,
    of which ``named`` says what is done in them."""

    whole_s: float
    named: Mapping[str, float]
    on_path: float = 0.0


def critical_path(record: Record, between: tuple[float, float] | None = None) -> dict[str, float]:
    """Seconds of the step, or ``between`` two times of it, by what the critical path was doing, largest
    first.
    """
    since, until = between or (0.0, math.inf)

    def inside(first: float, last: float) -> float:
        if since <= first <= last <= until:
            return last - first
        return max(0.0, min(last, until) - max(first, since))

    parts, known = dict[str, float](), dict[Hashable, PathPart]()
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
    for part in known.values():  # all of it, but where its stream was awaited and not its end
        for name, seconds in part.named.items():
            _add(parts, NAMES.get(name, name), seconds * part.on_path / part.whole_s)
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
    known: dict[Hashable, PathPart],
) -> None:
    """Add so many seconds of an op to the ``parts``, or to what is ``known`` of its repeated blocks: by their
    run, or by class and op where these ran in pieces."""
    if seconds <= 0:
        return
    if isinstance(op.work, RepeatedBlocks):
        run = record.whole(*at)
        key = at if run is None else id(run)
        part = known.get(key)
        if part is None:
            found = repeated_parts(record, *at)
            part = known[key] = PathPart(sum(found.values()), found)
        part.on_path += seconds
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
