"""Communications of one stream, one after the other, by callbacks.

Each waits for its own ops, the host and its other members or ends. A step has a hundred thousand of them,
and a SimPy process for each stream would wake up for every one of these: two thirds of all events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..program.program import Collective, Exchange
from .clock import Clock
from .rank_state import RankState
from .rendezvous import RendezvousPoints
from .scope import WAITS, Scope
from .signal import Signal

Behind = Callable[[Scope, int, str], Signal | None]
"""What to wait for behind repeated blocks on one of their streams: ``RepeatedBlocksReplay.behind``."""


@dataclass(slots=True)
class Chain:
    """Runs the ops of ``row`` one after the other; ``ended`` happens when the last one has.

    While it ``holds``, the next op takes over the SMs and the HBM bandwidth of the one before it. Once it is
    ``given_up``, somebody else runs the rest, and ``go`` does nothing.
    """

    env: Clock
    rank: RankState
    rendezvous_points: RendezvousPoints
    behind: Behind
    scope: Scope
    row: Sequence[int]
    ended: Signal = field(default_factory=Signal)
    place: int = 0
    issued: bool = False
    goes_on: bool = False
    holds: bool = False
    given_up: bool = False
    awaited: Sequence[Signal] = ()

    def go(self) -> None:
        """Run ops until one has to wait; that one calls ``go`` again."""
        if self.rank.stopped or self.given_up:
            return
        row, left = self.row, self.scope.left
        while self.place < len(row):
            i = row[self.place]
            if not self.awaited:
                if not (left and i in left) and not self._is_ready(i):
                    return
                self._start(i)
            for done in self.awaited:
                if not done.happened:
                    done.then(self.go)
                    return
            if not self._end(i):
                return
            self.place += 1
        self.ended.happen()

    def _is_ready(self, i: int) -> bool:
        """Whether the next op waits for nothing; otherwise register for the first thing that it waits for."""
        scope = self.scope
        end = scope.end
        for dependency in scope.ops[i].after:
            if end[dependency] < 0:
                scope.then(dependency, self.go)
                return False
        if scope.issued_at is not None and not self.issued:
            sync, offset_s = scope.issue[i]
            if sync >= 0 and end[sync] < 0:
                scope.then(sync, self.go)
                return False
            wait_s = (scope.issued_at if sync < 0 else end[sync]) + offset_s - self.env.time
            self.issued = True
            if wait_s > 0:
                self.env.call(wait_s, self.start)
                return False
        if scope.behind and i in scope.behind:
            passed = self.behind(scope, scope.behind[i], scope.ops[i].stream)
            if passed is not None:
                passed.then(self.go)
                return False
        return True

    def start(self, _: object) -> None:
        """Call ``go`` from an event, whose value is not wanted."""
        self.go()

    def _start(self, i: int) -> None:
        scope, now = self.scope, self.env.time
        work, place = scope.ops[i].work, (scope.r, i)
        left = scope.left.pop(i, None) if scope.left else None
        if left is None:
            scope.start[i] = scope.begin[i] = now
        if isinstance(work, Exchange):
            post, parts = self.rendezvous_points.post, work.parts
            if len(parts) == 1:
                self.awaited = (post(parts[0], place, now),)
            else:
                self.awaited = [post(part, place, now) for part in parts]
            return
        assert isinstance(work, Collective)
        if self.holds:
            self.holds = False
        else:
            self.rank.hold(work.transfer)
        left = None if left is WAITS else left
        self.goes_on = left is not None
        issued = scope.all_issued(i) if work.calls > 1 else -math.inf
        self.awaited = (self.rendezvous_points.arrive(work, place, scope.tag, left, issued),)

    def _end(self, i: int) -> bool:
        """End an op. Returns whether to go on: a kernel that waited for the op may have had the chain
        given up."""
        scope = self.scope
        work, awaited = scope.ops[i].work, self.awaited
        self.issued, self.awaited, last = False, (), None
        if isinstance(work, Exchange):
            last = awaited[0].value if len(awaited) == 1 else max([done.value for done in awaited])
        else:
            assert isinstance(work, Collective)
            self.holds = self._takes_over(i, work)
            if not self.holds:
                self.rank.release(work.transfer)
            if not self.goes_on:
                scope.meets(i, awaited[0].value)
        scope.ends(i, self.env.time, last)
        return not self.given_up

    def _takes_over(self, i: int, before: Collective) -> bool:
        """Whether the op behind ``i`` begins as that one ends and holds the same SMs and HBM. Then kernels
        are not told, and blocks that run as a whole go on."""
        if self.place + 1 == len(self.row) or self.rank.stopped:
            return False
        scope, k = self.scope, self.row[self.place + 1]
        work, one = scope.ops[k].work, before.transfer
        if not isinstance(work, Collective) or k in scope.left or k in scope.behind:
            return False
        if work.transfer is not one and (work.transfer.sms, work.transfer.hbm) != (one.sms, one.hbm):
            return False
        end = scope.end
        for dependency in scope.ops[k].after:
            if end[dependency] < 0 and dependency != i:
                return False
        if scope.issued_at is None:
            return True
        sync = scope.issue[k][0]
        return (sync < 0 or end[sync] >= 0) and scope.issued(k) <= self.env.time
