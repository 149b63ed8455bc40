"""Replays programs: one SimPy process per class of ranks and stream.

An op starts when its stream is free, what it waits for is done, and the host has issued it.
Kernels slow down while communication holds SMs of their rank; communications share links.
A segment (blocks that nothing interferes with) takes its measured time at once.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from ..network.sharing import Demand, Link
from ..network.transfer import Transfer
from ..step.program import Collective, Compute, Exchange, Part, Programs, Segment
from .blocks import Timings
from .flows import Flows, call_at_end
from .record import Record

UNORDERED = "free"
"""Ops on this stream do not wait for one another (point-to-point messages without a rule of order)."""

Ends = tuple[tuple[int, int], ...]
"""(sending, receiving) classes of a communication."""

Process = Generator[simpy.Event, Any, None]


@dataclass(slots=True)
class _Meeting:
    """A collective or message that gathers its members."""

    done: simpy.Event
    arrived: int = 0


@dataclass(slots=True)
class _Rank:
    """What is going on on one class of ranks."""

    held_sms: int = 0
    moving: int = 0
    running: dict[simpy.Process, None] = field(default_factory=dict)


def replay(programs: Programs, *, host: bool = True) -> Record:
    """Run all programs to the end. ``host=False`` issues every op at once (no launch costs).

    Raises RuntimeError naming the ops that wait for ever when the programs deadlock.
    """
    run = _Replay(programs, host)
    return run.run()


class _Replay:
    def __init__(self, programs: Programs, host: bool) -> None:
        self.env = simpy.Environment()
        self.programs = programs
        self.host = host
        capacity: dict[Link, float] = {
            (r, name): rate for r, links in enumerate(programs.links) for name, rate in links.items()
        }
        self.flows = Flows(self.env, capacity)
        self.ranks = [_Rank() for _ in programs.classes]
        self.timings = Timings(programs, lambda p, h: replay(p, host=h))
        self.record = Record.empty(programs, self.timings)
        self.waiting: dict[tuple[int, int], simpy.Event] = {}
        self.meetings: dict[tuple[Any, ...], _Meeting] = {}
        self.demands: dict[tuple[int, Ends], Demand] = {}
        self.calls: dict[tuple[int, str], int] = {}
        self.issue = [_issue_times(program.ops) for program in programs.classes]

    def run(self) -> Record:
        for r, program in enumerate(self.programs.classes):
            streams: dict[str, list[int]] = {}
            for i, op in enumerate(program.ops):
                if op.stream == UNORDERED:
                    self.env.process(self._stream(r, [i]))
                else:
                    streams.setdefault(op.stream, []).append(i)
            for indices in streams.values():
                self.env.process(self._stream(r, indices))
        events = 0
        collecting = gc.isenabled()
        gc.disable()  # nothing here forms garbage cycles; scanning a million live events costs a third more
        try:
            while True:
                self.env.step()
                events += 1
        except simpy.core.EmptySchedule:
            pass
        finally:
            if collecting:
                gc.enable()
        self.record.close(events)
        return self.record

    # One stream ------------------------------------------------------------------------------

    def _stream(self, r: int, indices: list[int]) -> Process:
        ops, record = self.programs.classes[r].ops, self.record
        end = record.end[r]
        for i in indices:
            op = ops[i]
            for dependency in op.after:
                if end[dependency] is None:
                    yield self._finished(r, dependency)
            if self.host:
                yield from self._issued(r, i)
            record.start[r][i] = record.begin[r][i] = self.env.now
            work = op.work
            if isinstance(work, Segment):
                yield from self._segment(r, i, work)
            elif isinstance(work, Compute):
                yield from self._compute(r, work)
            elif isinstance(work, Collective):
                yield from self._collective(r, i, work)
            else:
                yield from self._exchange(r, i, work)
            end[i] = self.env.now
            event = self.waiting.pop((r, i), None)
            if event is not None:
                event.succeed()

    def _finished(self, r: int, i: int) -> simpy.Event:
        if (r, i) not in self.waiting:
            self.waiting[r, i] = self.env.event()
        return self.waiting[r, i]

    def _issued(self, r: int, i: int) -> Process:
        """Wait until the host has issued the op: after the last call it waited for, at its pace."""
        sync, offset = self.issue[r][i]
        base = 0.0
        if sync >= 0:
            if self.record.end[r][sync] is None:
                yield self._finished(r, sync)
            base = self.record.end[r][sync] or 0.0
        if base + offset > self.env.now:
            yield self.env.timeout(base + offset - self.env.now)

    # Kinds of work ---------------------------------------------------------------------------

    def _segment(self, r: int, i: int, segment: Segment) -> Process:
        timing = self.timings.segment(segment, r)
        finish = self.env.now + timing.device_s
        if self.host:
            sync, offset = self.issue[r][i]
            base = (self.record.end[r][sync] or 0.0) if sync >= 0 else 0.0
            finish = max(finish, base + offset + timing.host_bound_s)
        yield self.env.timeout(finish - self.env.now)

    def _compute(self, r: int, work: Compute) -> Process:
        rank, left = self.ranks[r], work.seconds
        process = self.env.active_process
        assert process is not None
        while True:
            rate, since = self._speed(rank, work), self.env.now
            rank.running[process] = None
            try:
                yield self.env.timeout(left / rate)
                del rank.running[process]
                return
            except simpy.Interrupt:
                left = max(0.0, left - rate * (self.env.now - since))

    def _speed(self, rank: _Rank, work: Compute) -> float:
        """Fraction of its solo speed at which a kernel runs beside the communication of its rank."""
        speed = 1.0
        if rank.held_sms and work.kind != "memory-bound":
            speed -= rank.held_sms / self.programs.sms
        if rank.moving:
            speed /= 1.0 + self.programs.corun_slowdown
        return speed

    def _hold(self, r: int, sms: int, moving: int) -> None:
        """Change the SMs held and communications moving on a rank; its kernels change speed."""
        rank = self.ranks[r]
        if not sms and not (moving and self.programs.corun_slowdown):
            return
        rank.held_sms += sms
        rank.moving += moving
        for process in list(rank.running):
            del rank.running[process]
            process.interrupt()

    def _collective(self, r: int, i: int, work: Collective) -> Process:
        name = work.communicator
        shared = name in self.programs.communicators
        members = self.programs.communicators[name] if shared else (r,)
        call = self.calls[r, name] = self.calls.get((r, name), -1) + 1
        meeting = self._meeting(("collective", name, call, -1 if shared else r))
        meeting.arrived += 1
        self._hold(r, work.transfer.sms, 1)
        if meeting.arrived == len(members):
            self._launch(meeting, work.transfer, tuple((m, m) for m in members), (r, i))
        yield meeting.done
        self._hold(r, -work.transfer.sms, -1)
        value: Any = meeting.done.value
        self.record.begin[r][i], self.record.source[r][i] = value

    def _exchange(self, r: int, i: int, work: Exchange) -> Process:
        meetings = [self._post(r, i, part) for part in work.parts]
        last: tuple[float, tuple[int, int]] | None = None
        for meeting in meetings:
            if not meeting.done.processed:
                yield meeting.done
                last = meeting.done.value
            elif last is None:
                last = meeting.done.value
        if last is not None:
            self.record.begin[r][i], self.record.source[r][i] = (
                max(last[0], self.record.start[r][i] or 0.0),
                last[1],
            )

    def _post(self, r: int, i: int, part: Part) -> _Meeting:
        ends = (r, part.peer) if part.send else (part.peer, r)
        key = ("message", *ends, part.tag)
        meeting = self._meeting(key)
        meeting.arrived += 1
        if meeting.arrived == 2:
            self._launch(meeting, part.transfer, (ends,), (r, i))
        return meeting

    def _meeting(self, key: tuple[Any, ...]) -> _Meeting:
        if key not in self.meetings:
            self.meetings[key] = _Meeting(self.env.event())
        return self.meetings[key]

    def _launch(self, meeting: _Meeting, transfer: Transfer, ends: Ends, source: tuple[int, int]) -> None:
        """Latency, then the payload, then the meeting is done. ``ends`` are (sending, receiving) classes."""
        value = (self.env.now, source)
        if not transfer.latency_s:
            self._move(meeting, transfer, ends, value)
            return
        latency = self.env.timeout(transfer.latency_s)
        call_at_end(latency, lambda _: self._move(meeting, transfer, ends, value))

    def _move(self, meeting: _Meeting, transfer: Transfer, ends: Ends, value: Any) -> None:
        if transfer.bytes:
            self.flows.start(transfer.bytes, self._demand(transfer, ends), meeting.done, value)
        else:
            meeting.done.succeed(value)

    def _demand(self, transfer: Transfer, ends: Ends) -> Demand:
        key = (id(transfer), ends)
        if key not in self.demands:
            weights: dict[Link, float] = {}
            for sender, receiver in ends:
                for name, weight in transfer.weights:
                    for link in _links(name, sender, receiver):
                        weights[link] = weights.get(link, 0.0) + weight
            self.demands[key] = Demand(transfer.ceiling_bytes_per_s, tuple(weights.items()))
        return self.demands[key]


def _links(name: str, sender: int, receiver: int) -> list[Link]:
    """Qualify a local link name; a bare tier is a message: out of the sender, into the receiver."""
    if name.endswith(".out"):
        return [(sender, name)]
    if name.endswith(".in"):
        return [(receiver, name)]
    return [(sender, f"{name}.out"), (receiver, f"{name}.in")]


def _issue_times(ops: tuple[Any, ...]) -> list[tuple[int, float]]:
    """For each op, the last op before it that the host waits for (-1: none) and the host time since then."""
    times, sync, offset = [], -1, 0.0
    for i, op in enumerate(ops):
        times.append((sync, offset + (op.host_s if not isinstance(op.work, Segment) else 0.0)))
        offset += op.host_s
        if op.host_sync:
            sync, offset = i, 0.0
    return times
