"""Reads a record: where each rank's time went, the pipeline actions, and every span.

The compute stream of a rank is either at work or stands still; standing still is attributed to
the communication that was in progress on one of the streams it waited for (exposed), to the host,
or to other ranks that were late (bubble).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import overload

from ...schedules.orders.action import parse_step, parts
from ..program.program import Collective, Compute, Exchange, Op, Segment
from ..report.result import AXES, IN_LAYER, ActionSpan, Span
from .blocks import block_parts, total
from .record import Piece, Record, Stretch


@dataclass(slots=True)
class RankTime:
    """Seconds of one class's compute stream by what it did or awaited; ``busy_s`` is inside actions."""

    parts: dict[str, float] = field(default_factory=dict)
    exposed: dict[str, float] = field(default_factory=dict)
    bubble_s: float = 0.0
    busy_s: float = 0.0

    def add(self, name: str, seconds: float) -> None:
        self.parts[name] = self.parts.get(name, 0.0) + seconds

    def expose(self, axis: str, seconds: float) -> None:
        self.exposed[axis] = self.exposed.get(axis, 0.0) + seconds


def rank_time(record: Record, r: int) -> RankTime:
    """Account for all of class ``r``'s time from one step to the next."""
    time, free = RankTime(), 0.0
    ops, starts, ends = record.programs.classes[r].ops, record.start[r], record.end[r]
    alike: dict[tuple[int, bool], list[int]] = {}  # segments that ran alike, as a whole
    for i, op in enumerate(ops):
        if op.stream != "compute":
            continue
        start, end = starts[i], ends[i]
        if start > free:
            _idle(record, r, op, i, free, start, time)
        if op.action:
            time.busy_s += end - start
        whole = record.whole(r, i) if isinstance(op.work, Segment) else None
        if whole is not None:
            alike.setdefault((id(whole), bool(op.action)), []).append(i)
        else:
            _work(record, r, i, op, end - start, time)
        free = end
    for (_, busy), which in alike.items():
        _parts(segment_parts(record, r, which[0]), busy, len(which), time)
    if record.programs.ends == "together":
        time.bubble_s += max(0.0, record.makespan_s - free)
    else:  # the class is in step with the others, so whatever it did not do or await is bubble
        time.bubble_s = max(0.0, record.step_s - sum(time.parts.values()) - sum(time.exposed.values()))
    return time


def _work(record: Record, r: int, i: int, op: Op, seconds: float, time: RankTime) -> None:
    if isinstance(op.work, Segment):
        _parts(segment_parts(record, r, i), bool(op.action), 1, time)
    elif isinstance(op.work, Compute):
        time.add(op.work.kind if op.category == "compute" else op.category, seconds)


def _parts(parts: Mapping[str, float], busy: bool, times: int, time: RankTime) -> None:
    """The parts of a segment, so many times; ``busy`` where it is of an action."""
    for name, part in parts.items():
        if name == "peers":
            time.bubble_s += times * part
            time.busy_s -= times * part if busy else 0.0
        elif name in AXES:
            time.expose(name, times * part)
        else:
            time.add(name, times * part)


def segment_parts(record: Record, r: int, i: int) -> dict[str, float]:
    """Seconds of op ``i``, a segment, by kernel kind, exposed axis and, between its blocks, host."""
    whole = record.whole(r, i)
    if whole is not None:
        return whole.parts
    pieces = record.pieces(r, i)
    start, _, end = record.times(r, i)
    parts = total(_piece_parts(piece) for piece in pieces)
    rest = end - start - sum(parts.values())
    if rest > 1e-12 * (end - start):
        parts["host"] = parts.get("host", 0.0) + rest
    return parts


def _piece_parts(piece: Piece) -> dict[str, float]:
    if isinstance(piece, Stretch):
        return total(run.parts for run in piece.run.runs[: piece.count])
    at = min(piece.start) if piece.start else 0.0
    return block_parts(piece.ops, (piece.start, piece.begin, piece.end), at)


def _idle(record: Record, r: int, op: Op, i: int, free: float, start: float, time: RankTime) -> None:
    """Attribute [free, start], during which the compute stream waited for ``op``'s dependencies."""
    ops = record.programs.classes[r].ops
    cursor = free
    waited = sorted(op.after, key=lambda d: record.times(r, d)[2])
    for dependency in waited:
        reached, begin, end = record.times(r, dependency)
        if end <= cursor:
            continue
        parts = [(cursor, end)]
        if begin > cursor:  # it had not begun: a peer was late, or it queued behind others of its own stream
            queued = reached if isinstance(ops[dependency].work, Collective) else cursor
            late = max(cursor, min(queued, begin)), min(begin, end)
            time.bubble_s += late[1] - late[0]
            parts = [(cursor, late[0]), (late[1], end)]
        exposed = sum(last - first for first, last in parts)
        axis = ops[dependency].category
        time.expose(axis if axis != "optimizer" else "dp", exposed)
        if op.action and axis in IN_LAYER:
            time.busy_s += exposed
        cursor = end
    if start > cursor:
        time.add("host", start - cursor)


def action_spans(record: Record, shown: Mapping[int, int] | None = None) -> tuple[ActionSpan, ...]:
    """Pipeline actions of classes, in order of their start: of those in ``shown`` with the rank that each is
    to have; None: of all, each with its own number."""
    found = []
    if shown is None:
        shown = {r: r for r in range(len(record.programs.classes))}
    for r in sorted(shown):
        starts, begins, ends = record.start[r], record.begin[r], record.end[r]
        spans: dict[str, tuple[float, float]] = {}
        for i, op in enumerate(record.programs.classes[r].ops):
            if not op.action or isinstance(op.work, Exchange) or op.category == "pp":
                continue
            start, begin, end = starts[i], begins[i], ends[i]
            first = start if op.stream == "compute" else begin
            known = spans.get(op.action)
            spans[op.action] = (min(first, known[0]), max(end, known[1])) if known else (first, end)
        for name, (first, last) in spans.items():
            for kind, stage, microbatch in _actions(name):
                found.append(ActionSpan(shown[r], kind, stage, microbatch, first, last))
    return tuple(sorted(found, key=lambda a: (a.start_s, a.rank, a.stage)))


class Actions(Sequence[ActionSpan]):
    """Those of all classes, which nobody may ask for: read when somebody does."""

    def __init__(self, record: Record) -> None:
        self._record = record

    @cached_property
    def _all(self) -> tuple[ActionSpan, ...]:
        return action_spans(self._record)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> ActionSpan: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ActionSpan, ...]: ...

    def __getitem__(self, index: int | slice) -> ActionSpan | tuple[ActionSpan, ...]:
        return self._all[index]

    def __eq__(self, other: object) -> bool:
        return self._all == (other._all if isinstance(other, Actions) else other)

    def __hash__(self) -> int:
        return hash(self._all)


@cache
def _actions(name: str) -> tuple[tuple[str, int, int], ...]:
    """Kind, stage and microbatch of what an op's action names."""
    return tuple((action.kind.value, action.stage, action.microbatch) for action in parts(parse_step(name)))


def iter_spans(record: Record) -> Iterator[Span]:
    """Every op of every class; segments op by op."""
    for r, program in enumerate(record.programs.classes):
        for i, op in enumerate(program.ops):
            start, begin, end = record.times(r, i)
            if isinstance(op.work, Segment):
                for piece in record.pieces(r, i):
                    yield from _piece_spans(r, op.action, piece)
            else:
                yield _span(r, op, start if op.stream == "compute" else begin, end, op.action)


def _piece_spans(r: int, action: str, piece: Piece) -> Iterator[Span]:
    if not isinstance(piece, Stretch):
        for op, begin, end in zip(piece.ops, piece.begin, piece.end, strict=True):
            yield _span(r, op, begin, end, action)
        return
    for run, base in zip(piece.run.runs[: piece.count], piece.run.bases, strict=False):
        at = piece.at + base
        for op, begin, end in zip(run.block.ops, run.begin, run.end, strict=True):
            yield _span(r, op, at + begin, at + end, action)


def _span(r: int, op: Op, start: float, end: float, action: str) -> Span:
    work = op.work
    if isinstance(work, Compute):
        return Span(r, op.stream, op.name, op.category, action, start, end, work.bytes, work.flops)
    if isinstance(work, Collective):
        return Span(r, op.stream, op.name, op.category, action, start, end, work.transfer.bytes, 0.0)
    assert isinstance(work, Exchange)
    moved = sum(part.transfer.bytes for part in work.parts)
    return Span(r, op.stream, op.name, op.category, action, start, end, moved, 0.0)
