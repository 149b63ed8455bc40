"""Repeated blocks of a class by itself that begin with nothing beside them: most run so to their end.

They are two calls, one that begins and one that ends them. Only when something interferes do they become
blocks in progress (blocks_in_progress.py), which go on from where they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .blocks_in_progress import BlocksInProgress
from .gathering import Here

if TYPE_CHECKING:
    from ..program.program import RepeatedBlocks
    from .blocks import RepeatedRun
    from .blocks_in_progress import Surroundings
    from .gathering import Gathering
    from .rank_state import Contention, RankState
    from .scope import Scope
    from .signal import Callback


@dataclass(slots=True, eq=False)
class WholeRun:
    """Op ``i`` of ``scope`` from its first block on; the fields are those of ``BlocksInProgress``.

    Its ``run`` counts from ``zero``; others hold and move ``contention`` on the rank. Once something has
    interfered, it is ``here``, with ``blocks`` in progress in its place.
    """

    replay: Surroundings
    rank: RankState
    scope: Scope
    i: int
    repeated: RepeatedBlocks
    over: Callback
    issued_at: float | None
    gathering: Gathering
    lead_s: float = math.inf
    contention: Contention = (0, 0, 0)
    run: RepeatedRun = field(init=False)
    zero: float = 0.0
    here: Here | None = None
    blocks: BlocksInProgress | None = None

    def begin(self) -> None:
        """Run all blocks, from now on or from when the host has issued the first."""
        replay, rank, repeated, issued_at = self.replay, self.rank, self.repeated, self.issued_at
        now = self.zero = replay.env.time
        lead_s = math.inf
        if issued_at is not None:
            self.lead_s = lead_s = now - issued_at - repeated.issued_s[0]
            if lead_s < 0:
                self.zero, lead_s = now - lead_s, 0.0
        contention = self.contention = rank.held_sms, rank.held_hbm, rank.moving
        run = self.run = replay.runs.alone(self.gathering.group, repeated, 0, lead_s, contention)
        after_s = self.zero + run.last - now
        replay.env.call(after_s if after_s > 0 else 0.0, self._run_over)
        rank.closed, rank.closed_most, rank.closed_uses = self, repeated.most, self._first_use

    def interrupt(self) -> None:
        """Go on block by block from now on, since something happens on the rank that may interfere with the
        run: ``BlocksInProgress`` takes its place, in the state that the run is in."""
        at, run = self.zero, self.run
        blocks = self.blocks = BlocksInProgress(
            self.replay,
            self.rank,
            self.scope,
            self.i,
            self.repeated,
            self.over,
            self.issued_at,
            together=None,
            lead_s=self.lead_s,
        )
        here = Here(blocks, self.rank, 0, at, self.lead_s, self.contention, run, at)
        blocks.gathering, blocks.here, self.here = self.gathering, here, here
        blocks.interrupt()

    def _first_use(self, link: str, since: float, until: float) -> float:
        """When it first uses ``link`` between two times; infinite where it does not."""
        return self.zero + self.run.first_use(link, since - self.zero, until - self.zero)

    def _run_over(self, _: object) -> None:
        """End the repeated blocks, unless they were interrupted and blocks in progress have taken over."""
        if self.blocks is not None:
            assert self.here is not None
            self.blocks.whole_over(self.here)
            return
        self.rank.closed = None
        self.replay.record.at_once[self.scope.r][self.i] = self.run
        if self.rank.awaited:
            self.replay.has_run(self)
        self.over()
