"""Repeated blocks of one class in progress: as a whole while nothing interferes, else block by block.

A run that is interrupted goes on from exactly the state of that moment, and as a whole again from the next
block on, beside whatever others then hold and move. By callbacks: most blocks begin, and end as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from .block_in_detail import BlockInDetail
from .blocks import go_on
from .gathering import Gathering, Here
from .record import Stretch
from .scope import SLACK_S
from .single_block import BlockPlace

if TYPE_CHECKING:
    from ..program.program import RepeatedBlocks
    from .clock import Clock
    from .flows import Flows
    from .rank_state import FirstUse, RankState
    from .record import Record
    from .rendezvous import RendezvousPoints
    from .runs import Runs
    from .scope import Scope
    from .signal import Callback, Signal
    from .single_block import SingleBlocks, SingleRun


class RankBlocks(Protocol):
    """Op ``i``, repeated blocks, of a rank."""

    rank: RankState
    repeated: RepeatedBlocks
    i: int


class Surroundings(Protocol):
    """What all repeated blocks of a replay share (repeated_blocks.py)."""

    env: Clock
    flows: Flows
    rendezvous_points: RendezvousPoints
    runs: Runs
    record: Record
    single_blocks: SingleBlocks

    def by_itself(self, r: int, repeated: RepeatedBlocks) -> Gathering:
        """A class by itself."""

    def beginning(self, blocks: BlocksInProgress) -> bool:
        """Whether nothing disturbs a run that begins, where its links are not idle."""

    def undisturbed(self, scope: Scope, i: int, repeated: RepeatedBlocks, first_use: FirstUse) -> bool:
        """Whether nothing disturbs a run that goes on."""

    def behind(self, scope: Scope, i: int, stream: str) -> Signal | None:
        """What to wait for behind repeated blocks on one of their streams."""

    def begin(self, scope: Scope, i: int, repeated: RepeatedBlocks, over: Callback) -> bool:
        """Run repeated blocks."""

    def has_run(self, blocks: RankBlocks) -> None:
        """All blocks have run."""


@dataclass(slots=True, eq=False)
class BlocksInProgress:
    """Op ``i`` of ``scope``, which runs block ``number``; ``over`` is called when all have run.

    The host issues the first op at ``issued_at`` (None: nothing waits for it), and is ``lead_s`` ahead of
    the block in progress. That runs as a whole (``here``), beside flows of its rank (``lent``), or in
    ``detail``; ``together`` is where its class meets others, if it does. ``idle``: nothing is on
    its links, or known to come.
    """

    replay: Surroundings
    rank: RankState
    scope: Scope
    i: int
    repeated: RepeatedBlocks
    over: Callback
    issued_at: float | None
    together: Gathering | None
    number: int = 0
    lead_s: float = math.inf
    gathering: Gathering = field(init=False)
    idle: bool = False
    here: Here | None = None
    lent: SingleRun | None = None
    detail: BlockInDetail | None = None
    place: BlockPlace = field(init=False)

    def go_on(self) -> bool:
        """Run the block whose turn it is; whether all have run."""
        number, issued_at, together = self.number, self.issued_at, self.together
        if number == len(self.repeated.row):
            return True
        if issued_at is not None:
            self.lead_s = self.replay.env.time - issued_at - self.repeated.issued_s[number]
        if together is not None and together.meets(number):
            self.gathering = together
        else:
            self.gathering = self.replay.by_itself(self.scope.r, self.repeated)
        if self._begins_whole():
            self._begin_whole()
        elif self.lead_s < 0:
            self.replay.env.call(-self.lead_s, self._is_issued)
        else:
            self._begin_one()
        return False

    def _is_issued(self, _: object) -> None:
        """The host, which was behind, has issued the block."""
        self.lead_s = 0.0
        if self._begins_whole():
            self._begin_whole()
        else:
            self._begin_one()

    def _next(self, number: int) -> None:
        """Go on with block ``number``, all before it having run."""
        self.number = number
        if self.go_on():
            self.replay.has_run(self)
            self.over()

    # As a whole ------------------------------------------------------------------------------

    def _begins_whole(self) -> bool:
        """Whether nothing disturbs a run from here on, so far as is known as it begins."""
        gathering = self.gathering
        if gathering.ways is not None and not gathering.joins(self.number):
            return False
        replay = self.replay
        self.idle = self._is_plain() and replay.flows.idle(self.scope.r, self.repeated.links)
        return self.idle or replay.beginning(self)

    def _is_plain(self) -> bool:
        """Whether nobody waits for a stream of the blocks, nor these for one, and the rank stays as it is."""
        return not self.rank.awaited and not self.rank.changing and self.i not in self.scope.before

    def _begin_whole(self) -> None:
        """Run all blocks that are left as a whole, until something interferes."""
        replay, rank = self.replay, self.rank
        now, lead_s, contention = replay.env.time, self.lead_s, rank.contention
        at = now - lead_s if lead_s < 0 else now
        here = self.here = Here(self, rank, self.number, at, lead_s, contention)
        self.gathering.arrive(self.scope.r, here, replay.env, replay.runs)
        self._close(here)

    def _close(self, here: Here) -> None:
        """Have them interrupted by whatever may interfere."""
        rank, replay, repeated = self.rank, self.replay, self.repeated
        rank.closed, rank.closed_most, rank.closed_uses = self, repeated.most, here.first_use
        if not self.idle:
            replay.flows.tell(self.scope.r, repeated.most, replay.rendezvous_points.move, here.first_use)
        self.idle = False

    def whole_over(self, here: Here) -> None:
        """The run has ended, unless it was interrupted before."""
        if here is not self.here:
            return
        self.here = self.rank.closed = None
        if self.together is not None:
            self.gathering.leave(self.scope.r)
        assert here.run is not None
        self.replay.record.add_whole(self.scope.r, self.i, here.run, here.zero)
        if self.rank.awaited:
            self.replay.has_run(self)
        self.over()

    def interrupt(self) -> None:
        """Go on in detail, since something happens now that may interfere with the run."""
        self.replay.env.call_first(self._interrupted, self.here or self.lent)

    def _interrupted(self, what: Here | SingleRun) -> None:
        if what is self.lent:
            self._end_single(self.replay.env.time - self.lent.zero)
            return
        here, rank = self.here, self.rank
        assert here is not None
        if not here.opened and rank.contention == here.contention and self._undisturbed(here):
            self._close(here)
            return
        self.here = None
        if not here.opened:
            self.gathering.open(self.replay.runs)
        self._opened(here)

    def _undisturbed(self, here: Here) -> bool:
        return self.replay.undisturbed(self.scope, self.i, self.repeated, here.first_use)

    def _opened(self, here: Here) -> None:
        """Go on in detail from the state that the run of the blocks has reached by now."""
        run, record = here.run, self.replay.record
        assert run is not None
        since = self.replay.env.time - here.zero
        ended = run.ended(since)
        self.number = run.number + ended
        if ended:
            record.add_piece(self.scope.r, self.i, Stretch(run, here.zero, ended))
        if ended == len(run.runs) or run.bases[ended] + run.runs[ended].first > since + SLACK_S:
            self._next(self.number)  # between two blocks
            return
        self._begin_one(here, since, ended)

    # One by one ------------------------------------------------------------------------------

    def _begin_one(self, here: Here | None = None, since: float = 0.0, ended: int = 0) -> None:
        """Run one block by itself, from the state in which its run is if it has begun."""
        tag = self.gathering.number, self.number
        self.place = BlockPlace(self.scope, self.i, self.repeated, self.number, self.issued_at, tag)
        if here is not None:
            run = here.run
            assert run is not None
            times = self.place.opened(self.replay.record)
            go_on(times, run.runs[ended], here.zero, run.bases[ended], since)
        if self.gathering.ways is None:
            self._begin_single()
        else:
            self._in_detail()

    def _begin_single(self) -> None:
        """Run the block as a whole together with the flows of its rank, or else op by op."""
        lent = self.lent = self.replay.single_blocks.begin(self, self.place, self.gathering.group)
        if lent is None:
            self._in_detail()
        else:
            self.replay.env.call(lent.seconds, self._single_over, lent)

    def _single_over(self, lent: SingleRun) -> None:
        if lent is self.lent:
            self.rank.closed = None
            self._end_single(lent.seconds)

    def _end_single(self, since: float) -> None:
        lent, self.lent = self.lent, None
        assert lent is not None
        if self.replay.single_blocks.end(self.place, lent, since):
            self._next(self.number + 1)
        else:
            self._begin_single()

    def _in_detail(self) -> None:
        self.gathering.goes_in_detail(self.number, self.replay.runs)
        replay, place = self.replay, self.place
        self.detail = BlockInDetail(
            replay.env,
            self.rank,
            replay.rendezvous_points,
            replay,
            place,
            place.opened(replay.record),
            self._one_over,
            self._closes,
        )
        self.detail.begin()

    def _closes(self, k: int) -> bool:
        """Whether the block goes on as its whole run does from op ``k`` on: all its streams join there, and
        nothing is beside it."""
        place, replay, detail = self.place, self.replay, self.detail
        if k not in place.block.joins or self.gathering.ways is not None:
            return False
        assert detail is not None
        if not (self._is_plain() and detail.is_idle() and place.is_issued(replay.env.time)):
            return False
        if not replay.flows.idle(self.scope.r, place.block.most):
            return False
        lent = replay.single_blocks.rest(self, place, self.gathering.group, k)
        if lent is None:
            return False
        detail.give_up()
        self.detail, self.lent = None, lent
        replay.env.call(lent.seconds - lent.run.start[k], self._single_over, lent)
        return True

    def _one_over(self) -> None:
        """Go on behind the block that ran in detail, which has ended. Its record is let go of, since it
        refers to this one."""
        self.detail = None
        self._next(self.number + 1)
