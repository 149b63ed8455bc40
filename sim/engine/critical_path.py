"""The critical path: walks back from the last op to the start through what released each op.

A communication is released by its last member, so the path crosses ranks there. What the host was late to
issue is released by the host, which has been issuing since it last waited for the GPU: what the GPU did
meanwhile was not on the path, since the step would have been no shorter without it. The sum of the path's
parts is the step time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from ..program.program import Compute, Op, RepeatedBlocks
from ..result.step import PEERS
from .accounting import repeated_parts
from .blocks import Moments, block_parts, since_host, sum_up
from .record import Record, Stretch
from .scope import SLACK_S

NAMES = {
    "gemm": "GEMM",
    "attention": "attention",
    "memory-bound": "memory-bound kernels",
    "fixed": "step overhead",
    **{peers: f"waiting for {peers}" for peers in PEERS if peers.endswith("peers")},
}

_ALIKE = 1e-9
"""Relative difference of times that are the same but for the order in which they were summed up."""


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
    at, now = _last_op(record)
    predecessors = [record.predecessors(r) for r in range(len(record.programs.classes))]
    while now > since and at[1] >= 0:  # until the step begins, or nothing before is asked for
        r, i = at
        start, begin = record.start[r][i], record.begin[r][i]
        late = _late_blocks(record, at, now)
        if late is not None:
            share = inside(late.until, now) / (sum(late.since.values()) or 1.0)
            sum_up(parts, {NAMES.get(name, name): share * s for name, s in late.since.items() if share})
            at, now = _behind_host(record, at, late.until, parts, inside)
            continue
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
        if ended < now and _issued_late(record, at, now):
            at, now = _behind_host(record, at, now, parts, inside)
            continue
        if ended < now:
            _add(parts, "host", inside(ended, now))
            now = ended
        at = at[0], before
    for part in known.values():  # all of it, but where its stream was awaited and not its end
        for name, seconds in part.named.items():
            _add(parts, NAMES.get(name, name), seconds * part.on_path / part.whole_s)
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def _last_op(record: Record) -> tuple[tuple[int, int], float]:
    """The op that ends last, by its class and index, and when that is."""
    lasts = [max(ends, default=0.0) for ends in record.end]
    now = max(lasts)
    r = lasts.index(now)
    return (r, record.end[r].index(now)), now


@dataclass(frozen=True, slots=True)
class _Late:
    """Repeated blocks waited for their host ``until`` then; what they did ``since``, by its name."""

    until: float
    since: Mapping[str, float]


def _late_blocks(record: Record, at: tuple[int, int], now: float) -> _Late | None:
    """When the repeated blocks of an op waited for their host last; None where none did."""
    whole = record.whole(*at)
    if whole is not None and "host" not in whole.parts:
        return None
    since: dict[str, float] = {}
    for piece in reversed(record.pieces(*at)):
        if isinstance(piece, Stretch):
            until = _late_in(piece, since)
        else:
            times = piece.start, piece.begin, piece.end
            until = _late_at(piece.ops, times, min(piece.start, default=0.0), since)
        if until is not None:
            return _Late(min(now, until), since)
    return None


def _late_in(piece: Stretch, since: dict[str, float]) -> float | None:
    """When blocks that ran as a whole waited for their host last, within a block or before its first op. What
    they did after it is added to ``since``."""
    runs, bases = piece.run.runs, piece.run.bases
    for k in range(piece.count - 1, -1, -1):
        one = runs[k]
        sum_up(since, one.late[1] if one.late else one.parts)
        if one.late:
            return piece.at + bases[k] + one.late[0]
        if k and bases[k] + runs[k].first > bases[k - 1] + runs[k - 1].last + SLACK_S:
            return piece.at + bases[k] + runs[k].first
    return None


def _late_at(ops: Sequence[Op], times: Moments, at: float, since: dict[str, float]) -> float | None:
    """When a block that was reached at ``at`` waited for its host last; what it did after it, or all of it,
    is added to ``since``."""
    found = since_host(ops, times, at)
    sum_up(since, found[1] if found else block_parts(ops, times, at))
    return found[0] if found else None


def _issued_late(record: Record, at: tuple[int, int], now: float) -> bool:
    """Whether an op that began ``now`` did so as soon as its host had issued it."""
    awaited, host_s = record.issues(at[0])[at[1]]
    since = record.end[at[0]][awaited] if awaited >= 0 else 0.0
    return since + host_s >= now * (1 - _ALIKE)


def _behind_host(
    record: Record,
    at: tuple[int, int],
    now: float,
    parts: dict[str, float],
    inside: Callable[[float, float], float],
) -> tuple[tuple[int, int], float]:
    """The op that the host waited for before it issued the op ``at``, which began ``now``, and when that
    ended; the host's time since then is added to the ``parts``. An index of -1: it waited for none."""
    awaited = record.issues(at[0])[at[1]][0]
    since = record.end[at[0]][awaited] if awaited >= 0 else 0.0
    _add(parts, "host", inside(min(since, now), now))
    return (at[0], awaited), min(since, now)


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
    """Add ``seconds`` of an op to the ``parts``, or to what is ``known`` of its repeated blocks: by their
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
