"""Kernels and repeated blocks of one stream, one after the other, by callbacks.

Each waits for its own ops and the host. A step has thousands of them that wait for a message, begin and end
as a whole: the SimPy process of a stream wakes up for blocks that run op by op, and at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import simpy

from ..program.program import Compute, RepeatedBlocks
from .clock import Clock
from .kernels import Kernel
from .rank_state import RankState
from .scope import Scope
from .signal import Callback, Signal

Process = Generator[simpy.Event, Any, None]

InProcess = Callable[[Process], object]
"""Has the process of a stream run something."""


class BlocksReplay(Protocol):
    """Runs repeated blocks (repeated_blocks.py)."""

    def begin(
        self, scope: Scope, i: int, repeated: RepeatedBlocks, over: Callback, in_process: InProcess
    ) -> bool:
        """Run them; whether they have ended already. Else ``over`` is called when they have."""

    def behind(self, scope: Scope, i: int, stream: str) -> Signal | None:
        """What to wait for behind repeated blocks on one of their streams."""


@dataclass(slots=True)
class KernelStream:
    """The ops ``row`` of a program, from the one at ``place`` on."""

    env: Clock
    rank: RankState
    repeated_blocks: BlocksReplay
    scope: Scope
    row: Sequence[int]
    place: int = 0
    issued: bool = False
    detail: Process | None = None
    waits: Signal | None = None

    def process(self, late_s: float) -> Process:
        """The whole row, from that time on."""
        if late_s > 0:
            yield simpy.Timeout(self.env, late_s)
        self.go()
        while True:
            while self.detail is not None:
                work, self.detail = self.detail, None
                yield from work
            if self.place == len(self.row):
                return
            self.waits = Signal()
            yield self.waits.event(self.env)

    def in_process(self, work: Process) -> None:
        """Have the process run something."""
        self.detail = work
        self._wake()

    def _wake(self) -> None:
        """Have the process go on, if it does nothing."""
        if self.waits is not None:
            waits, self.waits = self.waits, None
            waits.happen()

    def start(self, _: object = None) -> None:
        """Call ``go`` from an event, whose value is not wanted."""
        self.go()

    def go(self) -> None:
        """Run ops until one has to wait or is under way, which calls this again."""
        scope, row, env = self.scope, self.row, self.env
        while self.place < len(row):
            i = row[self.place]
            if not self._is_ready(i) or self.rank.stopped:
                return
            self.issued = False
            work = scope.ops[i].work
            if isinstance(work, RepeatedBlocks):
                if not self.repeated_blocks.begin(scope, i, work, self.over, self.in_process):
                    return
            else:
                assert isinstance(work, Compute)
                scope.start[i] = scope.begin[i] = env.time
                Kernel(env, self.rank, work, work.seconds * self.rank.slow, None).ended.then(self.over)
                return
            scope.ends(i, env.time)
            self.place += 1
        self._wake()

    def over(self) -> None:
        """The op under way has ended."""
        self.scope.ends(self.row[self.place], self.env.time)
        self.place += 1
        self.go()

    def _is_ready(self, i: int) -> bool:
        """Whether nothing is left to wait for; else wait for the first thing that is."""
        scope = self.scope
        end, op = scope.end, scope.ops[i]
        for dependency in op.after:
            if end[dependency] < 0:
                scope.then(dependency, self.go)
                return False
        if scope.issued_at is not None:
            sync = scope.issue[i][0]
            if sync >= 0 and end[sync] < 0:
                scope.then(sync, self.go)
                return False
            if not self.issued and not isinstance(op.work, RepeatedBlocks):
                self.issued = True
                wait_s = scope.issued(i) - self.env.time
                if wait_s > 0:
                    self.env.call(wait_s, self.start)
                    return False
        if i in scope.behind:
            passed = self.repeated_blocks.behind(scope, scope.behind[i], op.stream)
            if passed is not None:
                passed.then(self.go)
                return False
        return True
