"""Runs segments: as a whole while nothing else begins or ends on their rank, else block by block in detail.

A segment that is interrupted goes on in detail from exactly the state of that moment, and as a whole
again from the next block on, beside whatever others then hold and move. As long as a flow of others is
on its links, or somebody waits for one of its streams, it stays in detail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from ..program.program import Segment
from .blocks import Runs
from .flows import Flows
from .ranks import Rank
from .record import Record, Stretch
from .scope import Scope, block_scope, go_on

Process = Generator[simpy.Event, Any, None]


@dataclass
class Segments:
    """``stream(scope, indices)`` runs ops one after the other."""

    env: simpy.Environment
    ranks: Sequence[Rank]
    flows: Flows
    runs: Runs
    record: Record
    stream: Callable[[Scope, Sequence[int]], Process]

    def run(self, scope: Scope, i: int, segment: Segment) -> Process:
        """Op ``i`` of a program, when all but the host is ready; the host's last wait before it is over."""
        rank = self.ranks[scope.r]
        rank.segment, rank.passed = i, set()
        issued_at = None if scope.issued_at is None else scope.issued(i)
        scope.start[i] = scope.begin[i] = max(self.env.now, issued_at or 0.0)
        number = 0
        while number < len(segment.row):
            lead_s = math.inf if issued_at is None else self.env.now - issued_at - segment.issued_s[number]
            if lead_s < 0 and not self._alone(scope, i, segment):
                yield self.env.timeout(-lead_s)
                lead_s = 0.0
            if self._alone(scope, i, segment):
                number = yield from self._whole(scope, i, segment, number, lead_s, issued_at)
            else:
                yield from self._in_detail(
                    scope, i, segment, number, self._block(scope, segment, number, issued_at)
                )
                number += 1
        for stream in segment.last_on:
            rank.ended_on(i, stream)

    def behind(self, scope: Scope, i: int, stream: str) -> Process:
        """Wait for segment ``i`` on one of its streams; it runs in detail meanwhile, to know when that is."""
        rank = self.ranks[scope.r]
        if scope.end[i] is None and not (rank.segment == i and stream in rank.passed):
            event = rank.awaited[i, stream] = self.env.event()
            if rank.segment == i:
                rank.open()
            yield event

    def _alone(self, scope: Scope, i: int, segment: Segment) -> bool:
        """Whether nothing but the SMs and movements of its rank, which stay as they are, affects it."""
        rank = self.ranks[scope.r]
        if rank.awaited and any(number == i for number, _ in rank.awaited):
            return False
        if any(scope.end[earlier] is None for earlier in scope.before.get(i, ())):
            return False
        return not any(self.flows.on((scope.r, link)) for link in segment.links)

    def _whole(
        self, scope: Scope, i: int, segment: Segment, first: int, lead_s: float, issued_at: float | None
    ) -> Generator[simpy.Event, Any, int]:
        """Run the blocks from ``first`` on as a whole, until something interferes; the next block to run."""
        rank, at = self.ranks[scope.r], self.env.now + max(0.0, -lead_s)
        beside = rank.held_sms, rank.moving
        run = self.runs.segment(segment, first, scope.r, max(0.0, lead_s), beside)
        process, end = self.env.active_process, self.env.timeout(at - self.env.now + run.seconds)
        while True:
            rank.closed, rank.closed_links = process, segment.links
            try:
                yield end
            except simpy.Interrupt:
                if (rank.held_sms, rank.moving) != beside or not self._alone(scope, i, segment):
                    break
            else:
                rank.closed = None
                self.record.add_piece(scope.r, i, Stretch(run, at, len(run.runs)))
                return len(segment.row)
        since = self.env.now - at
        if since < 0:
            return first
        number = run.at(since)
        begun, one = run.offsets[number], run.runs[number]
        goes_on = since < begun + one.seconds
        if number or not goes_on:
            self.record.add_piece(scope.r, i, Stretch(run, at, number if goes_on else number + 1))
        if goes_on:
            opened = self._block(scope, segment, first + number, issued_at)
            go_on(opened, one, at + begun, self.env.now)
            yield from self._in_detail(scope, i, segment, first + number, opened)
        return first + number + 1

    def _block(self, scope: Scope, segment: Segment, number: int, issued_at: float | None) -> Scope:
        at = None if issued_at is None else issued_at + segment.issued_s[number]
        return block_scope(segment.row[number], scope.r, issued_at=at)

    def _in_detail(self, scope: Scope, i: int, segment: Segment, number: int, block: Scope) -> Process:
        """Run one block op by op. Its other streams wait for what is before them in the program."""
        self.record.add_piece(scope.r, i, block)
        streams = segment.row[number].streams
        others = [
            self.env.process(self._other(scope, i, segment, number, block, stream, left))
            for stream, rows in streams.items()
            if stream != "compute"
            for row in rows
            if (left := [k for k in row if block.end[k] is None])
        ]
        unfinished = {block.ops[k].stream for k, end in enumerate(block.end) if end is None}
        for stream, last in segment.last_on.items():
            if last <= number and stream not in unfinished:
                self.ranks[scope.r].ended_on(i, stream)
        for row in streams.get("compute", ()):
            yield from self.stream(block, [k for k in row if block.end[k] is None])
        for process in others:
            if process.is_alive:
                yield process

    def _other(
        self, scope: Scope, i: int, segment: Segment, number: int, block: Scope, stream: str, ops: list[int]
    ) -> Process:
        for earlier in scope.before.get(i, ()):
            if scope.ops[earlier].stream == stream and scope.end[earlier] is None:
                yield scope.ended(earlier, self.env)
        yield from self.stream(block, ops)
        if segment.last_on[stream] == number:
            self.ranks[scope.r].ended_on(i, stream)
