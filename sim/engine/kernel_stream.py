"""Kernels and repeated blocks of one stream, one after the other, by callbacks.

Each waits for its own ops and the host. A step has thousands of them that wait for a message, begin and end
as a whole: a SimPy process for each stream would wake up for every one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..program.program import Compute, RepeatedBlocks
from .clock import Clock
from .kernels import Kernel
from .rank_state import RankState
from .scope import Scope
from .signal import Callback, Signal


class BlocksReplay(Protocol):
    """Runs repeated blocks (repeated_blocks.py)."""

    def begin(self, scope: Scope, i: int, repeated: RepeatedBlocks, over: Callback) -> bool:
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
                if not self.repeated_blocks.begin(scope, i, work, self.over):
                    return
            else:
                assert isinstance(work, Compute)
                scope.start[i] = scope.begin[i] = env.time
                Kernel(env, self.rank, work, work.seconds * self.rank.slow, None).ended.then(self.over)
                return
            scope.ends(i, env.time)
            self.place += 1

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
                scope.ended(dependency).then(self.go)
                return False
        if scope.issued_at is not None:
            sync = scope.issue[i][0]
            if sync >= 0 and end[sync] < 0:
                scope.ended(sync).then(self.go)
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
