"""How blocks and segments run while nothing begins or ends beside them: each replayed once, and remembered.

What a run depends on besides its block: the rank's links, the SMs that others hold all the while and
the communications of others that move (``Beside``), and how far the host is ahead when it starts
(``lead_s``). A host that is far enough ahead for no op to wait for it is as good as any other. Times of
a run count from its start.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..program.program import Block, Compute, Op, Program, Programs, Segment
from .scope import Left

Beside = tuple[int, int]
"""SMs that others hold on the rank, and communications of others that move there."""

Rates = Sequence[tuple[float, float]]
"""(since, rate) of an op in progress: seconds of work, or bytes, per second."""

LEAD_S = 2.0**-45
"""Leads of the host are told apart to 3e-14 s: below what a clock of 100 s resolves."""


@dataclass(frozen=True, slots=True)
class BlockRun:
    """One run of a block: ``start`` and ``end`` by op, ``rates`` of each while it makes progress.

    ``parts`` splits ``seconds`` by what the compute stream did: kernel kinds, the axis awaited, or the host.
    """

    block: Block
    seconds: float
    start: Sequence[float]
    end: Sequence[float]
    rates: Sequence[Rates]
    parts: Mapping[str, float]

    @property
    def lead_s(self) -> float:
        """How far ahead a host must be that no op waits for it, if none does in this run."""
        return max(
            (at - start for at, start in zip(self.block.issued_s, self.start, strict=True)), default=0.0
        )

    def left(self, i: int, at: float) -> Left:
        """What op ``i``, in progress at ``at``, has before it."""
        work = self.block.ops[i].work
        if isinstance(work, Compute):
            return 0.0, work.seconds - _done(self.rates[i], at)
        transfer = work.transfer  # type: ignore[union-attr]  # blocks hold kernels and collectives
        latency_s = max(0.0, self.start[i] + transfer.latency_s - at)
        return latency_s, transfer.bytes if latency_s else max(0.0, transfer.bytes - _done(self.rates[i], at))


def _done(rates: Rates, at: float) -> float:
    ends = [*(since for since, _ in rates[1:]), math.inf]
    return sum(max(0.0, min(at, end) - since) * rate for (since, rate), end in zip(rates, ends, strict=True))


@dataclass(frozen=True)
class SegmentRun:
    """A segment from one of its blocks on: the runs of these, and when each begins."""

    first: int
    runs: Sequence[BlockRun]
    offsets: Sequence[float]
    seconds: float

    def at(self, since: float) -> int:
        """Which of the runs is in progress, or was last."""
        return max(0, bisect_right(self.offsets, since) - 1)

    @cached_property
    def parts(self) -> dict[str, float]:
        """All its seconds by what the compute stream did (BlockRun); between blocks it awaits the host."""
        parts = total(run.parts for run in self.runs)
        host_s = self.seconds - sum(run.seconds for run in self.runs)
        return total((parts, {"host": host_s})) if host_s > 1e-12 * self.seconds else parts


def total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sums by name."""
    found: dict[str, float] = {}
    for one in parts:
        for name, seconds in one.items():
            found[name] = found.get(name, 0.0) + seconds
    return found


Solo = Callable[[Programs, float, Beside], tuple[list[float], list[float], list[Rates]]]
"""Replays one class: its programs, the host's lead, what is beside -> start, end and rates by op."""


@dataclass
class Runs:
    """Runs of the blocks and segments of one set of programs; ``solo`` replays a block."""

    programs: Programs
    solo: Solo
    _blocks: dict[tuple[Block, int, float, Beside], BlockRun] = field(default_factory=dict)
    _segments: dict[tuple[int, int, int, float, Beside], SegmentRun] = field(default_factory=dict)
    _leads: dict[tuple[int, int, int, Beside], float] = field(default_factory=dict)

    def segment(self, segment: Segment, first: int, r: int, lead_s: float, beside: Beside) -> SegmentRun:
        """``segment`` from its ``first`` block on, on a rank of class ``r``."""
        links = id(self.programs.links[r])
        known = id(segment), first, links, beside
        if known not in self._leads:
            free = self._segment(segment, first, r, math.inf, beside)
            self._segments[id(segment), first, links, math.inf, beside] = free
            base = segment.issued_s[first]
            self._leads[known] = max(
                segment.issued_s[k] - base - at + run.lead_s
                for k, (at, run) in enumerate(zip(free.offsets, free.runs, strict=True), first)
            )
        lead_s = math.inf if lead_s >= self._leads[known] else round(lead_s / LEAD_S) * LEAD_S
        key = id(segment), first, links, lead_s, beside
        if key not in self._segments:
            self._segments[key] = self._segment(segment, first, r, lead_s, beside)
        return self._segments[key]

    def _segment(self, segment: Segment, first: int, r: int, lead_s: float, beside: Beside) -> SegmentRun:
        offsets, runs, at = [], [], 0.0
        base = segment.issued_s[first]
        for block, issued in zip(segment.row[first:], segment.issued_s[first:], strict=True):
            at = max(at, issued - base - lead_s)
            run = self._block(block, r, at - (issued - base - lead_s), beside)
            offsets.append(at)
            runs.append(run)
            at += run.seconds
        return SegmentRun(first, runs, offsets, at)

    def _block(self, block: Block, r: int, lead_s: float, beside: Beside) -> BlockRun:
        links = id(self.programs.links[r])
        ahead = (block, links, math.inf, beside)
        if ahead not in self._blocks:
            self._blocks[ahead] = self._replayed(block, r, math.inf, beside)
        if lead_s >= self._blocks[ahead].lead_s:
            return self._blocks[ahead]
        lead_s = round(lead_s / LEAD_S) * LEAD_S
        key = (block, links, lead_s, beside)
        if key not in self._blocks:
            self._blocks[key] = self._replayed(block, r, lead_s, beside)
        return self._blocks[key]

    def _replayed(self, block: Block, r: int, lead_s: float, beside: Beside) -> BlockRun:
        alone = Programs(
            classes=(Program(ops=block.ops),),
            communicators={},
            links=(self.programs.links[r],),
            sms=self.programs.sms,
            corun_slowdown=self.programs.corun_slowdown,
        )
        start, end, rates = self.solo(alone, lead_s, beside)
        return BlockRun(
            block, max(end, default=0.0), start, end, rates, block_parts(block.ops, start, end, 0.0)
        )


def block_parts(
    ops: Sequence[Op], start: Sequence[float], end: Sequence[float], at: float
) -> dict[str, float]:
    """Seconds of a block, begun at ``at``, by kernel kind; where the compute stream stands still, by the
    axis that it awaits, or host."""
    parts: dict[str, float] = {}
    free = at
    for i, op in enumerate(ops):
        if op.stream != "compute":
            continue
        assert isinstance(op.work, Compute)
        if start[i] > free:
            _awaited(ops, op.after, start, end, (free, start[i]), parts)
        parts[op.work.kind] = parts.get(op.work.kind, 0.0) + end[i] - start[i]
        free = end[i]
    last = max(end, default=at)
    if last > free:
        _awaited(ops, range(len(ops)), start, end, (free, last), parts)
    return parts


def _awaited(
    ops: Sequence[Op],
    awaited: Sequence[int],
    start: Sequence[float],
    end: Sequence[float],
    gap: tuple[float, float],
    parts: dict[str, float],
) -> None:
    """Split a gap: its axis until the last of what is awaited has ended, and the host until it starts.

    A collective starts late by what lies between the end of what comes before it in its block and its start.
    """
    cursor, until = gap
    for i in sorted((d for d in awaited if ops[d].stream != "compute"), key=lambda d: end[d]):
        if end[i] <= cursor:
            continue
        earlier = max(
            (end[d] for d in range(i) if d in ops[i].after or ops[d].stream == ops[i].stream), default=cursor
        )
        late = min(max(0.0, start[i] - max(cursor, earlier)), until - cursor)
        if late:
            parts["host"] = parts.get("host", 0.0) + late
        upto = min(end[i], until)
        axis = ops[i].category
        parts[axis] = parts.get(axis, 0.0) + upto - cursor - late
        cursor = upto
    if until > cursor:
        parts["host"] = parts.get("host", 0.0) + until - cursor
