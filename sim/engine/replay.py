"""Replays programs: one SimPy process per class of ranks and stream.

An op starts when its stream is free, what it waits for is done, and the host has issued it.
Kernels slow down while communication holds SMs of their rank; communications share links.
A segment runs as a whole while nothing else begins or ends on its rank, and in detail otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

import simpy

from ..network.sharing import Link
from ..program.program import UNORDERED, Collective, Compute, Exchange, Programs, Segment
from .blocks import Beside, Rates, Runs
from .collection import collection_paused
from .flows import Flows
from .meetings import Meetings
from .ranks import Rank
from .record import Record
from .scope import Left, Scope, program_scope
from .segments import Segments
from .unordered import Unordered

Process = Generator[simpy.Event, Any, None]


def replay(programs: Programs, *, host: bool = True) -> Record:
    """Run all programs to the end. ``host=False`` issues every op at once (no launch costs).

    Raises RuntimeError naming the ops that wait for ever when the programs deadlock.
    """
    return _Replay(programs, 0.0 if host else None).run()


def _solo(programs: Programs, lead_s: float, beside: Beside) -> tuple[list[float], list[float], list[Rates]]:
    """Start, end and rates of the ops of one block (blocks.py, ``Solo``)."""
    ops = programs.classes[0].ops
    ahead = math.isinf(lead_s)
    alone = _Replay(programs, None if ahead or not ops else -lead_s - ops[0].host_s)
    alone.ranks[0].held_sms, alone.ranks[0].moving = beside
    rates: list[list[tuple[float, float]]] = [[] for _ in ops]
    alone.rates = rates
    alone.flows.watch = lambda place, now, rate: rates[place[1]].append((now, rate))
    record = alone.run()
    return record.start[0], record.end[0], list(rates)  # type: ignore[return-value]  # all have ended


class _Replay:
    def __init__(self, programs: Programs, issued_at: float | None) -> None:
        self.env = simpy.Environment()
        self.programs = programs
        self.issued_at = issued_at
        capacity: dict[Link, float] = {
            (r, name): rate for r, links in enumerate(programs.links) for name, rate in links.items()
        }
        capacity.update(programs.paths.capacity.items())
        self.flows = Flows(self.env, capacity)
        self.ranks = [Rank(programs.sms, programs.corun_slowdown) for _ in programs.classes]
        self.record = Record.empty(programs)
        self.meetings = Meetings(self.env, programs, self.ranks, self.flows)
        runs = Runs(programs, _solo)
        self.segments = Segments(self.env, self.ranks, self.flows, runs, self.record, self._stream)
        self.rates: list[list[tuple[float, float]]] | None = None  # of kernels, by op, where they are wanted

    def run(self) -> Record:
        for r, program in enumerate(self.programs.classes):
            scope = program_scope(program, r, self.record.of_class(r), issued_at=self.issued_at)
            streams: dict[str, list[int]] = {}
            for i, op in enumerate(program.ops):
                if op.stream == UNORDERED and isinstance(op.work, Exchange):
                    Unordered(self.env, scope, i, self._post).start()
                elif op.stream == UNORDERED:
                    self.env.process(self._stream(scope, [i]))
                else:
                    streams.setdefault(op.stream, []).append(i)
            for indices in streams.values():
                self.env.process(self._stream(scope, indices))
        self.record.close(self._all_events())
        self.record.slowed = self.meetings.slowed()
        return self.record

    def _all_events(self) -> int:
        events, step = 0, self.env.step
        with collection_paused():
            try:
                while True:
                    step()
                    events += 1
            except simpy.core.EmptySchedule:
                return events

    # One stream ------------------------------------------------------------------------------

    def _stream(self, scope: Scope, indices: Sequence[int]) -> Process:
        env, ops, start, end = self.env, scope.ops, scope.start, scope.end
        for i in indices:
            op, left = ops[i], None
            if scope.left and i in scope.left:
                left = scope.left.pop(i)
            else:
                for dependency in op.after:
                    if end[dependency] is None:
                        yield scope.ended(dependency, env)
                if scope.issued_at is not None:
                    sync = scope.issue[i][0]
                    if sync >= 0 and end[sync] is None:
                        yield scope.ended(sync, env)
                    if not isinstance(op.work, Segment) and scope.issued(i) > env.now:
                        yield env.timeout(scope.issued(i) - env.now)
                if i in scope.behind:
                    yield from self.segments.behind(scope, scope.behind[i], op.stream)
                start[i] = scope.begin[i] = env.now
            work = op.work
            if isinstance(work, Segment):
                yield from self.segments.run(scope, i, work)
            elif isinstance(work, Compute):
                yield from self._compute(scope, i, work, left)
            elif isinstance(work, Collective):
                yield from self._collective(scope, i, work, left)
            else:
                yield from self._exchange(scope, i, work)
            scope.ends(i, env.now)

    # Kinds of work ---------------------------------------------------------------------------

    def _compute(self, scope: Scope, i: int, work: Compute, begun: Left | None) -> Process:
        env, rank = self.env, self.ranks[scope.r]
        left = work.seconds if begun is None else max(0.0, begun[1])
        process = env.active_process
        assert process is not None
        while True:
            rate, since = rank.speed(work), env.now
            if self.rates is not None:
                self.rates[i].append((since, rate))
            rank.running[process] = None
            try:
                yield env.timeout(left / rate)
                del rank.running[process]
                return
            except simpy.Interrupt:
                left = max(0.0, left - rate * (env.now - since))

    def _collective(self, scope: Scope, i: int, work: Collective, left: Left | None) -> Process:
        rank, r, transfer = self.ranks[scope.r], scope.r, work.transfer
        rank.hold(transfer.sms, 1)
        if work.communicator in self.programs.communicators:
            done = self.meetings.call(work.communicator, transfer, (r, i))
        else:  # of the class's own ranks, which are equal and so never wait for one another
            done = self.env.event()
            self.meetings.launch(done, transfer, ((r, r),), (r, i), work.communicator, left)
        yield done
        rank.hold(-transfer.sms, -1)
        if left is None:
            value: Any = done.value
            scope.begin[i], scope.source[i] = value

    def _exchange(self, scope: Scope, i: int, work: Exchange) -> Process:
        posted = self._post(scope, i, work)
        for done in posted:
            if not done.processed:
                yield done
        scope.begun(i, posted)

    def _post(self, scope: Scope, i: int, work: Exchange) -> list[simpy.Event]:
        return [self.meetings.post(part, (scope.r, i)) for part in work.parts]
