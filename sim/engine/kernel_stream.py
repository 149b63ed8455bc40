"""Kernels and repeated blocks of one stream, one after the other, by callbacks.

Each waits for its own ops and the host. A step has thousands of them that wait for a message, begin and end
as a whole, and tens of thousands of kernels of blocks that run op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..program.program import Compute, RepeatedBlocks
from .clock import Clock
from .kernels import Kernel
from .rank_state import RankState
from .scope import Scope
from .signal import Callback, Signal

HandsOver = Callable[[int], bool]
"""Asked before an op of a block begins: whether somebody else runs it, and all that follows it."""


class BlocksReplay(Protocol):
    """Runs repeated blocks (repeated_blocks.py)."""

    def begin(self, scope: Scope, i: int, repeated: RepeatedBlocks, over: Callback) -> bool:
        """Run them; whether they have ended already. Else ``over`` is called when they have."""

    def behind(self, scope: Scope, i: int, stream: str) -> Signal | None:
        """What to wait for behind repeated blocks on one of their streams."""


@dataclass(slots=True)
class KernelStream:
    """The ops ``row`` of a program or of a block, from the one at ``place`` on; ``ended`` happens when the
    last one has, unless it ``hands_over`` before."""

    env: Clock
    rank: RankState
    repeated_blocks: BlocksReplay
    scope: Scope
    row: Sequence[int]
    hands_over: HandsOver | None = None
    ended: Signal = field(default_factory=Signal)
    place: int = 0
    issued: bool = False

    def start(self, _: object = None) -> None:
        """Call ``go`` from an event, whose value is not wanted."""
        self.go()

    def go(self) -> None:
        """Run ops until one has to wait or is under way, which calls this again."""
        scope, row, env, rank = self.scope, self.row, self.env, self.rank
        while self.place < len(row):
            i = row[self.place]
            work = scope.ops[i].work
            if scope.left and i in scope.left:
                assert isinstance(work, Compute)
                left_s = max(0.0, scope.left.pop(i)[1])
                Kernel(env, rank, work, left_s, None).ended.then(self.over)
                return
            if not self._is_ready(i) or rank.stopped:
                return
            if self.hands_over is not None and self.hands_over(i):
                return
            self.issued = False
            if isinstance(work, RepeatedBlocks):
                if not self.repeated_blocks.begin(scope, i, work, self.over):
                    return
            else:
                assert isinstance(work, Compute)
                scope.start[i] = scope.begin[i] = env.time
                Kernel(env, rank, work, work.seconds * rank.slow, None).ended.then(self.over)
                return
            scope.ends(i, env.time)
            self.place += 1
        self.ended.happen()

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
        if scope.behind and i in scope.behind:
            passed = self.repeated_blocks.behind(scope, scope.behind[i], op.stream)
            if passed is not None:
                passed.then(self.go)
                return False
        return True
