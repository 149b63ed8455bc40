"""Reads a record: where each rank's time went, the pipeline actions, and every span.

The compute stream of a rank is either at work or stands still; standing still is attributed to
the communication that was in progress on one of the streams it waited for (exposed), to the host,
to ranks of other pipeline stages that were late (bubble), or to such of its own stage (late).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate
from typing import overload

from ...schedules.orders.action import parse_step, parts
from ..program.program import Collective, Compute, Exchange, Op, RepeatedBlocks
from ..result.step import AXES, IN_LAYER, PEERS, ActionSpan, Span
from .blocks import block_parts, parts_of, peers_of, total
from .record import Piece, Record, Stretch
from .scope import SLACK_S, issue_times


@dataclass(slots=True)
class RankTime:
    """Seconds of one class's compute stream by what it did or awaited; ``busy_s`` is inside actions.

    ``late`` is by what it waited for in its own pipeline stage (PEERS).
    """

    parts: dict[str, float] = field(default_factory=dict)
    exposed: dict[str, float] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    bubble_s: float = 0.0
    busy_s: float = 0.0

    def add(self, name: str, seconds: float) -> None:
        self.parts[name] = self.parts.get(name, 0.0) + seconds

    def expose(self, axis: str, seconds: float) -> None:
        self.exposed[axis] = self.exposed.get(axis, 0.0) + seconds

    def wait(self, peers: str | None, seconds: float) -> None:
        """Add seconds of waiting for ``peers`` of its own stage or, where they are None, for other stages."""
        if peers is None:
            self.bubble_s += seconds
        elif seconds:
            self.late[peers] = self.late.get(peers, 0.0) + seconds


def rank_time(record: Record, r: int, stages: Sequence[int] | None = None) -> RankTime:
    """Account for all of class ``r``'s time from one step to the next.

    ``stages`` is the pipeline stage of each class; None: each is one.
    """
    time, free = RankTime(), 0.0
    stages = stages or range(len(record.programs.classes))
    ops, starts, ends = record.programs.classes[r].ops, record.start[r], record.end[r]
    alike: dict[tuple[int, bool], list[int]] = {}  # repeated blocks that ran alike, as a whole
    for i, op in enumerate(ops):
        if op.stream != "compute":
            continue
        start, end = starts[i], ends[i]
        if start > free:
            _idle(record, r, i, (free, start), time, stages)
        if op.action:
            time.busy_s += end - start
        whole = record.whole(r, i) if isinstance(op.work, RepeatedBlocks) else None
        if whole is not None:
            alike.setdefault((id(whole), bool(op.action)), []).append(i)
        else:
            _work(record, r, i, end - start, time, stages)
        free = end
    for (_, busy), which in alike.items():
        _parts(_staged(record, r, which[0], stages), busy, len(which), time)
    if record.programs.ends == "together":
        _end(record, r, free, time, stages)
    else:  # the class is in step with the others, so whatever it did not do or await is bubble
        _in_step(time, record.step_s)
    return time


def _in_step(time: RankTime, step_s: float) -> None:
    """Scale down the waits of a rank whose steps follow one another without a common end.

    While the pipeline fills, a rank may wait longer than a step of the steady state has room for. So its
    waits, those for its host among them, are scaled to what ``step_s`` leaves beside its work."""
    work_s = sum(seconds for name, seconds in time.parts.items() if name != "host")
    idle = {"host": time.parts.pop("host")} if "host" in time.parts else {}
    waits_s = sum(sum(waits.values()) for waits in (time.exposed, time.late, idle))
    most_s = max(0.0, step_s - work_s)
    if waits_s > most_s:
        for waits in (time.exposed, time.late, idle):
            waits.update({name: seconds * most_s / waits_s for name, seconds in waits.items()})
    time.parts.update(idle)
    time.bubble_s = max(0.0, most_s - waits_s)


def _end(record: Record, r: int, free: float, time: RankTime, stages: Sequence[int]) -> None:
    """Attribute what lies between the last kernel of class ``r`` and the end of the step: to its own
    communication as far as that goes on, then to its own stage until all of that has done, then to others.
    """
    ops, done = record.programs.classes[r].ops, free
    if record.last_s[r] > free:
        after = [i for i, end in enumerate(record.end[r]) if end > free and ops[i].stream != "compute"]
        done = _awaited(record, r, after, free, time, stages)
    stage_s = max(last for last, stage in zip(record.last_s, stages, strict=True) if stage == stages[r])
    time.wait("step end", max(0.0, stage_s - done))
    time.wait(None, max(0.0, record.makespan_s - max(stage_s, done)))


def _work(record: Record, r: int, i: int, seconds: float, time: RankTime, stages: Sequence[int]) -> None:
    op = record.programs.classes[r].ops[i]
    if isinstance(op.work, RepeatedBlocks):
        _parts(_staged(record, r, i, stages), bool(op.action), 1, time)
    elif isinstance(op.work, Compute):
        time.add(op.work.kind if op.category == "compute" else op.category, seconds)


def _parts(parts: Mapping[str, float], busy: bool, times: int, time: RankTime) -> None:
    """Add the parts of repeated blocks to ``time``, so many times; ``busy`` where they are of an action."""
    for name, part in parts.items():
        if name in PEERS or name == STAGES:
            time.wait(name if name in PEERS else None, times * part)
            time.busy_s -= times * part if busy else 0.0
        elif name in AXES:
            time.expose(name, times * part)
        else:
            time.add(name, times * part)


STAGES = "other stages"


def _staged(record: Record, r: int, i: int, stages: Sequence[int]) -> Mapping[str, float]:
    """Seconds of repeated blocks by part; where their groups join several pipeline stages (copies of a
    stage), late peers are those stages.
    """
    parts, programs = repeated_parts(record, r, i), record.programs
    if parts.keys().isdisjoint(PEERS):
        return parts
    work = programs.classes[r].ops[i].work
    assert isinstance(work, RepeatedBlocks)
    joined = filter(None, (programs.joins(r, name) for name in work.communicators))
    if all(stages[member] == stages[r] for name in joined for member in programs.communicators[name]):
        return parts
    return total({STAGES if name in PEERS else name: seconds} for name, seconds in parts.items())


def repeated_parts(record: Record, r: int, i: int) -> dict[str, float]:
    """Seconds of op ``i``, repeated blocks, by kernel kind, exposed axis, late peers (PEERS) and, between
    the blocks, host.
    """
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
    """Seconds of a part of repeated blocks by what the compute stream did."""
    if isinstance(piece, Stretch):
        return parts_of(piece.run.runs[: piece.count])
    at = min(piece.start) if piece.start else 0.0
    return block_parts(piece.ops, (piece.start, piece.begin, piece.end), at)


def _idle(
    record: Record, r: int, i: int, gap: tuple[float, float], time: RankTime, stages: Sequence[int]
) -> None:
    """Attribute a gap during which the compute stream waited for the dependencies of op ``i``."""
    op, (free, start) = record.programs.classes[r].ops[i], gap
    cursor = _awaited(record, r, op.after, free, time, stages, busy=op.action != "")
    if start > cursor:
        time.add("host", start - cursor)


def _awaited(
    record: Record,
    r: int,
    waited: Sequence[int],
    cursor: float,
    time: RankTime,
    stages: Sequence[int],
    *,
    busy: bool = False,
) -> float:
    """Attribute the time from ``cursor`` on until all ops of ``waited`` have ended, which is returned.

    ``busy``: a pipeline action waits for them. What ends at the same time counts in the order of the program,
    and collectives of an action before all else, as in its blocks.
    """
    ops, ends = record.programs.classes[r].ops, record.end[r]
    if len(waited) > 1:
        waited = sorted(waited, key=lambda d: (not _of_action(ops[d]), round(ends[d] / SLACK_S), d))
    for i in waited:
        reached, begin, end = record.times(r, i)
        if end <= cursor:
            continue
        parts = [(cursor, end)]
        if begin > cursor:  # it had not begun: a peer was late, or it queued behind others of its own stream
            queued = reached if isinstance(ops[i].work, Collective) else cursor
            late = max(cursor, min(queued, begin)), min(begin, end)
            if isinstance(ops[i].work, Collective):
                _late(record, r, i, late, time, stages)
            else:  # messages go to other stages
                time.wait(None, late[1] - late[0])
            parts = [(cursor, late[0]), (late[1], end)]
        exposed = sum(last - first for first, last in parts)
        axis = ops[i].category
        time.expose(axis if axis != "optimizer" else "dp", exposed)
        if _of_action(ops[i]) or (busy and axis in IN_LAYER):
            time.busy_s += exposed
        cursor = end
    return cursor


def _of_action(op: Op) -> bool:
    """Whether it is a collective out of a pipeline action's blocks."""
    return op.action != "" and isinstance(op.work, Collective)


def _late(
    record: Record, r: int, i: int, gap: tuple[float, float], time: RankTime, stages: Sequence[int]
) -> None:
    """Attribute a gap in which collective ``i`` waited for its members: for those of its own stage until the
    last of these had come, then for other stages. Who came last of those that came at once decides nothing.
    """
    since, until = gap
    own = min(max(since, _own_stage_s(record, r, i, stages)), until)
    time.wait(peers_of(record.programs.classes[r].ops[i]), own - since)
    time.wait(None, until - own)


def _own_stage_s(record: Record, r: int, i: int, stages: Sequence[int]) -> float:
    """When the last member of collective ``i`` that is of class ``r``'s own stage came to it; infinite where
    all are.
    """
    work = record.programs.classes[r].ops[i].work
    assert isinstance(work, Collective)
    joined = record.programs.joins(r, work.communicator)
    if joined is None:
        return math.inf
    members = record.programs.communicators[joined]
    own = [m for m in members if stages[m] == stages[r]]
    if len(own) == len(members):
        return math.inf
    number = record.calls(r, joined).index(i)
    return max(record.start[m][record.calls(m, joined)[number]] for m in own)


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
    """Spans of the pipeline actions of all classes, read off the record when somebody asks for them."""

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
    """Every op of every class as a span; repeated blocks op by op."""
    for r, program in enumerate(record.programs.classes):
        for i, (op, issue) in enumerate(zip(program.ops, issue_times(program.ops), strict=True)):
            start, begin, end = record.times(r, i)
            sync, offset = issue
            issued = (record.end[r][sync] if sync >= 0 else 0.0) + offset
            if isinstance(op.work, RepeatedBlocks):
                number = 0
                for piece in record.pieces(r, i):
                    times = [issued + at for at in op.work.issued_s[number:]]
                    yield from _piece_spans(r, op.action, piece, times)
                    number += piece.count if isinstance(piece, Stretch) else 1
            else:
                yield _span(r, op, (start if op.stream == "compute" else begin, end), op.action, issued)


def _piece_spans(r: int, action: str, piece: Piece, issued: Sequence[float]) -> Iterator[Span]:
    """The ops of a part of repeated blocks; ``issued`` are the times at which the host had issued the first
    of each of its blocks."""
    if not isinstance(piece, Stretch):
        offsets = accumulate((op.host_s for op in piece.ops[1:]), initial=0.0)
        for op, begin, end, offset in zip(piece.ops, piece.begin, piece.end, offsets, strict=True):
            yield _span(r, op, (begin, end), action, issued[0] + offset)
        return
    for run, base, first in zip(piece.run.runs[: piece.count], piece.run.bases, issued, strict=False):
        at, block = piece.at + base, run.block
        for op, begin, end, offset in zip(block.ops, run.begin, run.end, block.issued_s, strict=True):
            yield _span(r, op, (at + begin, at + end), action, first + offset)


def _span(r: int, op: Op, when: tuple[float, float], action: str, issued: float) -> Span:
    work, (start, end) = op.work, when
    moved, flops, group, kind = 0.0, 0.0, "", ""
    if isinstance(work, Compute):
        moved, flops, kind = work.bytes, work.flops, work.kind
    elif isinstance(work, Collective):
        moved, group = work.transfer.bytes, work.communicator
    else:
        assert isinstance(work, Exchange)
        moved = sum(part.transfer.bytes for part in work.parts)
    told = min(issued, start)
    return Span(r, op.stream, op.name, op.category, action, start, end, moved, flops, told, group, kind)
