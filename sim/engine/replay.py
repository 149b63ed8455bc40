"""Replays programs on SimPy's clock: by calls, and by a process for a stream that mixes kernels and others.

An op starts when its stream is free, what it waits for is done, and the host has issued it.
Kernels slow down while communication holds SMs of their rank; communications share links.
Repeated blocks run as a whole while nothing else begins or ends on their rank, and in detail otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import simpy

from ..network.sharing import Link
from ..program.program import Collective, Compute, Exchange, Programs, RepeatedBlocks
from .chain import Chain
from .changes import begin_changes
from .clock import Call, Clock
from .collection import collection_paused
from .flows import Flows
from .groups import JointGroups
from .kernel_stream import KernelStream
from .kernels import Kernel
from .p2p_queue import P2PQueue
from .period import step_seconds
from .rank_state import rank_states
from .record import Record
from .rendezvous import RendezvousPoints
from .repeated_blocks import RepeatedBlocksReplay
from .runs import Arrivals, Runs, Times
from .scope import UNKNOWN, WAITS, Began, Layout, Left, Scope, layout_of, program_scope
from .signal import Signal

Process = Generator[simpy.Event, Any, None]


def replay(
    programs: Programs,
    *,
    host: bool = True,
    begins_s: Sequence[float] | None = None,
    tick: Callable[[int], object] | None = None,
) -> Record:
    """Run all programs to the end. ``host=False`` issues every op at once (no launch costs). Classes begin at
    0, or by class at ``begins_s``. ``tick`` is told now and then how many events that has taken so far.

    Raises RuntimeError naming the ops that wait for ever when the programs deadlock; where a class stops
    (``Programs.changes``), the record is left as far as it got.
    """
    one = _Replay(programs)
    one.env.tick = tick
    begins_s = begins_s or [0.0] * len(programs.classes)
    one.start([at if host else None for at in begins_s], begins_s)
    events, stopped = one.events(), any(rank.stopped for rank in one.ranks)
    if stopped:  # blocks wait for a class that never comes: each goes as far as it gets
        for rank in one.ranks:
            rank.changing = True
            rank.open()
        events += one.events()
        for r, p2p_queue in one.rendezvous_points.p2p_queue.items():
            p2p_queue.leave(
                min((c.at_s for c in programs.changes if c.slow[r] == math.inf), default=math.inf)
            )
    one.record.close(events, stopped=stopped)
    one.record.step_s = step_seconds(one.record)
    one.record.slowed = one.rendezvous_points.slowed()
    one.forget()
    return one.record


def _together(programs: Programs, arrivals: Arrivals) -> list[Times]:
    """Start, begin, end and rates of the ops of blocks (runs.py, ``Together``)."""
    one = _Replay(programs)
    rates: list[list[list[tuple[float, float]]]] = [[[] for _ in p.ops] for p in programs.classes]
    one.rates = rates
    one.flows.watch = lambda place, now, rate: rates[place[0]][place[1]].append((now, rate))
    issued: list[float | None] = []
    for program, rank, (at, lead_s, contention) in zip(programs.classes, one.ranks, arrivals, strict=True):
        rank.held_sms, rank.held_hbm, rank.moving = contention
        ahead = math.isinf(lead_s) or not program.ops
        issued.append(None if ahead else at - lead_s - program.ops[0].host_s)
    one.start(issued, [at for at, _, _ in arrivals], tag=())
    one.events()
    found: list[Times] = []
    for r, own in enumerate(rates):
        for i in range(len(own)):
            source = one.record.released(r, i)
            if source is not None:  # of a collective of several classes, kept by whoever came last
                own[i] = rates[source[0]][source[1]]
        start, begin, end, _ = one.record.of_class(r)
        begun = [b if e >= 0 else UNKNOWN for b, e in zip(begin, end, strict=True)]  # all that has ended
        found.append((_known(start), _known(begun), _known(end), list(own)))
    one.forget()
    return found


def _known(times: Iterable[float]) -> list[float]:
    return [math.inf if t < 0 else t for t in times]


class _Replay:
    def __init__(self, programs: Programs) -> None:
        self.env = Clock()
        self.programs = programs
        capacity: dict[Link, float] = {
            (r, name): rate for r, links in enumerate(programs.links) for name, rate in links.items()
        }
        capacity.update(programs.paths.capacity.items())
        self.flows = Flows(self.env, capacity)
        self.ranks = rank_states(programs)
        self.record = Record.empty(programs)
        self.rendezvous_points = RendezvousPoints(self.env, programs, self.ranks, self.flows)
        self.flows.begins, self.flows.disturbs = self.rendezvous_points.move, self.rendezvous_points.disturbs
        runs, groups = Runs(programs, _together), JointGroups(programs)
        self.repeated_blocks = RepeatedBlocksReplay(
            self.env, self.ranks, self.flows, self.rendezvous_points, groups, runs, self.record
        )
        begin_changes(self.env, programs, self.ranks, self.flows, groups)
        self.rates: list[list[list[tuple[float, float]]]] | None = None  # of kernels, where they are wanted

    def start(
        self,
        issued_at: Sequence[float | None],
        at: Sequence[float] | None = None,
        tag: tuple[int, ...] | None = None,
    ) -> None:
        """Start all streams of classes, ``at`` given times (infinite: not at all)."""
        layouts: dict[tuple[int, bool], Layout] = {}
        begins: list[tuple[float, Call]] = []
        for r, program in enumerate(self.programs.classes):
            late_s = at[r] if at is not None else 0.0
            if late_s == math.inf:
                continue
            key = id(program), issued_at[r] is not None
            layout = layouts.get(key)
            if layout is None:
                layout = layouts[key] = layout_of(program, host=key[1])
                self.record.knows(program, layout)
            scope = program_scope(program, layout, r, self.record.of_class(r), issued_at=issued_at[r])
            scope.tag = tag
            begins += ((late_s, begin) for begin in self._begins(r, scope, layout, late_s))
        for late_s, begin in begins:  # when all are there
            if late_s > 0:
                self.env.call(late_s, begin)
            else:
                begin(None)

    def _begins(self, r: int, scope: Scope, layout: Layout, late_s: float) -> Iterator[Call]:
        """What begins the streams of class ``r``, and its messages that no stream orders. A stream of SimPy's
        own is put into the queue here, and waits there."""
        rank, meeting = self.ranks[r], self.rendezvous_points
        for row, kind in zip(layout.rows, layout.kinds, strict=True):
            if kind == "communications":
                yield Chain(self.env, rank, meeting, self.repeated_blocks.behind, scope, row).start
            elif self.rates is None and kind == "kernels":
                yield KernelStream(self.env, rank, self.repeated_blocks, scope, row).start
            else:
                self.env.process(self._stream(scope, row, late_s))
        if layout.lacks:
            p2p_queue = P2PQueue(self.env, rank, meeting, scope, layout, late_s)
            scope.lose, meeting.p2p_queue[r] = p2p_queue.lose, p2p_queue
            yield p2p_queue.begin

    def forget(self) -> None:
        """Let go of what refers to one another, so that the garbage collector has no work."""
        for p2p_queue in self.rendezvous_points.p2p_queue.values():
            p2p_queue.forget()
        for rank in self.ranks:
            rank.closed_uses = None
        self.rendezvous_points.p2p_queue.clear()
        self.flows.begins = self.flows.disturbs = None  # type: ignore[assignment]

    def events(self) -> int:
        """Run to the end; how many events that took."""
        with collection_paused():
            return self.env.run_to_end()

    # One stream ------------------------------------------------------------------------------

    def _stream(self, scope: Scope, indices: Sequence[int], late_s: float = 0.0) -> Process:
        """Ops one after the other, in a process."""
        env, ops, start, end = self.env, scope.ops, scope.start, scope.end
        rank = self.ranks[scope.r]
        if late_s > 0:
            yield simpy.Timeout(env, late_s)
        for i in indices:
            op, left = ops[i], None
            if scope.left and i in scope.left:
                left = scope.left.pop(i)
            else:
                for dependency in op.after:
                    if end[dependency] < 0:
                        yield scope.ended(dependency).event(env)
                if scope.issued_at is not None:
                    sync = scope.issue[i][0]
                    if sync >= 0 and end[sync] < 0:
                        yield scope.ended(sync).event(env)
                    if not isinstance(op.work, RepeatedBlocks) and scope.issued(i) > env.time:
                        yield simpy.Timeout(env, scope.issued(i) - env.time)
                if i in scope.behind:
                    passed = self.repeated_blocks.behind(scope, scope.behind[i], op.stream)
                    if passed is not None:
                        yield passed.event(env)
                if rank.stopped:
                    yield env.event()  # for ever
                start[i] = scope.begin[i] = env.time
            work, last = op.work, None
            if isinstance(work, RepeatedBlocks):
                over = Signal()
                if not self.repeated_blocks.begin(scope, i, work, over.happen):
                    yield over.event(env)
            elif isinstance(work, Compute):
                yield self._compute(scope, i, work, left)
            elif isinstance(work, Collective):
                yield from self._collective(scope, i, work, left)
            else:
                last = yield from self._exchange(scope, i, work)
            scope.ends(i, env.time, last)

    # Kinds of work ---------------------------------------------------------------------------

    def _compute(self, scope: Scope, i: int, work: Compute, begun: Left | None) -> simpy.Event:
        rank = self.ranks[scope.r]
        left = work.seconds * rank.slow if begun is None else max(0.0, begun[1])
        rates = self.rates[scope.r][i] if self.rates is not None else None
        return Kernel(self.env, rank, work, left, rates).ended.event(self.env)

    def _collective(self, scope: Scope, i: int, work: Collective, left: Left | None) -> Process:
        rank, r, transfer = self.ranks[scope.r], scope.r, work.transfer
        rank.hold(transfer)
        if left is WAITS:
            left = None
        issued = scope.all_issued(i) if work.calls > 1 else -math.inf
        done = self.rendezvous_points.arrive(work, (r, i), scope.tag, left, issued)
        if not done.happened:
            yield done.event(self.env)
        rank.release(transfer)
        if left is None:
            scope.meets(i, done.value)

    def _exchange(self, scope: Scope, i: int, work: Exchange) -> Generator[simpy.Event, Any, Began]:
        posted = [self.rendezvous_points.post(part, (scope.r, i), self.env.time) for part in work.parts]
        for done in posted:
            if not done.happened:
                yield done.event(self.env)
        last: Began = max([done.value for done in posted])
        return last
