"""Runs repeated blocks: as a whole while nothing else begins or ends on their ranks, else block by block.

Classes whose blocks meet one another run them as a whole together: the last of them to arrive sets the
run in motion, and whatever interferes with one opens it for all. A run that is interrupted goes on in
detail from exactly the state of that moment, and as a whole again from the next block on, beside
whatever others then hold and move. As long as a flow of others is on its links, or somebody waits for one
of its streams, it stays in detail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import simpy

from ..program.program import RepeatedBlocks
from .beside import BlockPlace, BlocksBeside
from .blocks import go_on
from .chain import Chain
from .clock import Clock
from .flows import Flows
from .gathering import Gathering, Here, Host
from .groups import IN_DETAIL, JointGroups
from .rank_state import RankState, Uses
from .record import Record, Stretch
from .rendezvous import RendezvousPoints
from .runs import Runs
from .scope import SLACK_S, Scope
from .signal import Signal

Process = Generator[simpy.Event, Any, None]


@dataclass
class RepeatedBlocksReplay:
    """``stream(process, scope, indices)`` runs ops one after the other."""

    env: Clock
    ranks: Sequence[RankState]
    flows: Flows
    rendezvous_points: RendezvousPoints
    groups: JointGroups
    runs: Runs
    record: Record
    stream: Callable[[simpy.Process, Scope, Sequence[int]], Process]
    _met: dict[int, int] = field(default_factory=dict)
    _gatherings: dict[tuple[int, int], Gathering] = field(default_factory=dict)
    _single: dict[tuple[int, int], Gathering] = field(default_factory=dict)
    beside: BlocksBeside = field(init=False)

    def __post_init__(self) -> None:
        self.beside = BlocksBeside(
            self.env, self.ranks, self.flows, self.rendezvous_points, self.runs, self.record
        )

    def run(self, process: simpy.Process, scope: Scope, i: int, repeated: RepeatedBlocks) -> Process:
        """Op ``i`` of a program, when all but the host is ready; the host's last wait before it is over."""
        rank = self.ranks[scope.r]
        rank.repeated_op = i
        if rank.passed:
            rank.passed = set()
        issued_at = None if scope.issued_at is None else scope.issued(i)
        scope.start[i] = scope.begin[i] = max(self.env.time, issued_at or 0.0)
        together = self._gathering(scope.r)
        alone = None
        number, count = 0, len(repeated.row)
        while number < count:
            lead_s = math.inf if issued_at is None else self.env.time - issued_at - repeated.issued_s[number]
            if together is not None and together.meets(number):
                gathering = together
            else:
                gathering = alone = alone or self._alone(scope.r, repeated)
            whole = gathering.joins(number) and self._beginning(scope, i, repeated, number, lead_s, gathering)
            if lead_s < 0 and not whole:
                yield simpy.Timeout(self.env, -lead_s)
                lead_s = 0.0
                whole = gathering.joins(number) and self._beginning(
                    scope, i, repeated, number, lead_s, gathering
                )
            host = Host(issued_at, lead_s)
            if whole:
                number = yield from self._whole(process, scope, i, repeated, number, host, gathering)
            else:
                yield from self._one(
                    process, self._place(scope, i, repeated, number, host, gathering), gathering
                )
                number += 1
        if rank.awaited:
            for stream in repeated.last_on:
                rank.ended_on(i, stream)

    def behind(self, scope: Scope, i: int, stream: str) -> Signal | None:
        """What to wait for behind op ``i``, repeated blocks, on one of its streams, if anything.

        The blocks run in detail meanwhile, to know when that is.
        """
        rank = self.ranks[scope.r]
        if scope.end[i] >= 0 or (rank.repeated_op == i and stream in rank.passed):
            return None
        signal = rank.awaited.setdefault((i, stream), Signal())
        if rank.repeated_op == i:
            rank.open()
        return signal

    def _gathering(self, r: int) -> Gathering | None:
        """Where class ``r`` runs its next repeated blocks with the others of its group; None if alone."""
        group = self.groups.of(r)
        if len(group.members) == 1:
            return None
        number = self._met[r] = self._met.get(r, -1) + 1
        key = group.members[0], number
        if key not in self._gatherings:
            repeated_blocks = group.rendezvous(number)
            if repeated_blocks is None:
                return None
            self._gatherings[key] = Gathering(
                group, repeated_blocks, self.groups.ways(group, repeated_blocks), number
            )
        gathering = self._gatherings[key]
        gathering.expected -= 1
        if not gathering.expected:
            del self._gatherings[key]
        return gathering

    def _alone(self, r: int, repeated: RepeatedBlocks) -> Gathering:
        """Class ``r`` by itself, in detail where others can be met on the way."""
        gathering = self._single.get((r, id(repeated)))
        if gathering is None:
            ways = (IN_DETAIL,) * len(repeated.row) if self.groups.crosses(r, repeated) else None
            gathering = Gathering(self.groups.alone(r), (repeated,), ways, -1)
            self._single[r, id(repeated)] = gathering
        gathering.detail = -1
        return gathering

    def _beginning(
        self, scope: Scope, i: int, repeated: RepeatedBlocks, number: int, lead_s: float, gathering: Gathering
    ) -> bool:
        """Whether nothing disturbs a run from block ``number`` on, so far as is known as it begins."""
        rank = self.ranks[scope.r]
        plain = i not in scope.before and not rank.awaited and not rank.changing
        if plain and self.flows.idle(scope.r, repeated.links):
            return True

        def uses(link: str, since: float, until: float) -> bool:
            if len(gathering.group.members) > 1:
                return True  # not known before all have come
            rank, zero = self.ranks[scope.r], self.env.time + max(0.0, -lead_s)
            contention = rank.held_sms, rank.moving
            run = self.runs.alone(gathering.group, repeated, number, max(0.0, lead_s), contention)
            return run.uses(link, since - zero, until - zero)

        return self._undisturbed(scope, i, repeated, uses)

    def _undisturbed(self, scope: Scope, i: int, repeated: RepeatedBlocks, uses: Uses) -> bool:
        """Whether nothing but the SMs and movements of its rank, which stay as they are, affects it.

        Communications of others on its links do not, where those hold all together, and as long as it
        ``uses`` none before they end.
        """
        rank = self.ranks[scope.r]
        if rank.changing:
            return False
        if rank.awaited and any(number == i for number, _ in rank.awaited):
            return False
        if i in scope.before and any(scope.end[earlier] < 0 for earlier in scope.before[i]):
            return False
        now = self.env.time
        for name, most in repeated.most.items():
            link = scope.r, name
            until = self.flows.until(link)
            if until >= now and not self.flows.holds(link, most) and uses(name, now, until):
                return False
        return True

    def _whole(
        self,
        process: simpy.Process,
        scope: Scope,
        i: int,
        repeated: RepeatedBlocks,
        number: int,
        host: Host,
        gathering: Gathering,
    ) -> Generator[simpy.Event, Any, int]:
        """Run the blocks from ``number`` on as a whole, until something interferes; the next block to run."""
        rank = self.ranks[scope.r]
        contention = rank.held_sms, rank.moving
        at = self.env.time - host.lead_s if host.lead_s < 0 else self.env.time
        here = Here(process, rank, number, at, host.lead_s, contention)
        gathering.arrive(scope.r, here, self.env, self.runs)
        while True:
            rank.closed, rank.closed_most, rank.closed_uses = process, repeated.most, here.uses
            self.flows.tell(scope.r, repeated.links, self.rendezvous_points.move)
            try:
                yield here.end
            except simpy.Interrupt:
                if here.opened or (rank.held_sms, rank.moving) != contention:
                    break
                if not self._undisturbed(scope, i, repeated, here.uses):
                    break
            else:
                rank.closed = None
                gathering.leave(scope.r)
                assert here.run is not None
                self.record.add_whole(scope.r, i, here.run, here.zero)
                return len(repeated.row)
        if not here.opened:
            gathering.open(self.runs)
        return (yield from self._opened(process, scope, i, repeated, here, host, gathering))

    def _opened(
        self,
        process: simpy.Process,
        scope: Scope,
        i: int,
        repeated: RepeatedBlocks,
        here: Here,
        host: Host,
        gathering: Gathering,
    ) -> Generator[simpy.Event, Any, int]:
        """Go on in detail from the state in which the run of the blocks is; returns the next block."""
        run = here.run
        assert run is not None
        since = self.env.time - here.zero
        ended = run.ended(since)
        number = run.number + ended
        if ended:
            self.record.add_piece(scope.r, i, Stretch(run, here.zero, ended))
        if ended == len(run.runs) or run.bases[ended] + run.runs[ended].first > since + SLACK_S:
            return number  # between two blocks
        place = self._place(scope, i, repeated, number, host, gathering)
        go_on(place.opened(self.record), run.runs[ended], here.zero, run.bases[ended], since)
        yield from self._one(process, place, gathering)
        return number + 1

    def _place(
        self, scope: Scope, i: int, repeated: RepeatedBlocks, number: int, host: Host, gathering: Gathering
    ) -> BlockPlace:
        return BlockPlace(scope, i, repeated, number, host.issued_at, (gathering.number, number))

    def _one(self, process: simpy.Process, place: BlockPlace, gathering: Gathering) -> Process:
        """Run one block by itself: as a whole beside flows of its rank, or else in detail."""
        if gathering.ways is None and (yield from self.beside.run(process, place, gathering.group)):
            return
        gathering.goes_in_detail(place.number, self.runs)
        yield from self._in_detail(process, place)

    def _in_detail(self, process: simpy.Process, place: BlockPlace) -> Process:
        """Run one block op by op. Its other streams wait for what is before them in the program."""
        scope, i, repeated, number = place.scope, place.i, place.repeated, place.number
        block = place.opened(self.record)
        streams = repeated.row[number].streams
        others = [
            self._other_stream(scope, i, repeated, number, block, stream, left)
            for stream, rows in streams.items()
            if stream != "compute"
            for row in rows
            if (left := [k for k in row if block.end[k] < 0])
        ]
        unfinished = {block.ops[k].stream for k, end in enumerate(block.end) if end < 0}
        for stream, last in repeated.last_on.items():
            if last <= number and stream not in unfinished:
                self.ranks[scope.r].ended_on(i, stream)
        for row in streams.get("compute", ()):
            yield from self.stream(process, block, [k for k in row if block.end[k] < 0])
        for done in others:
            if not done.happened:
                yield done.event(self.env)

    def _other_stream(
        self,
        scope: Scope,
        i: int,
        repeated: RepeatedBlocks,
        number: int,
        block: Scope,
        stream: str,
        row: list[int],
    ) -> Signal:
        """Run ops of a block beside its compute stream; what happens when they have ended."""
        chain = Chain(self.env, self.ranks[scope.r], self.rendezvous_points, self.behind, block, row)
        if repeated.last_on[stream] == number:
            chain.ended.then(lambda: self.ranks[scope.r].ended_on(i, stream))
        self._begin_beside(chain, scope, i, stream)
        return chain.ended

    def _begin_beside(self, chain: Chain, scope: Scope, i: int, stream: str) -> None:
        """Run a chain when what comes before op ``i`` on its stream has ended."""
        for earlier in scope.before.get(i, ()):
            if scope.ops[earlier].stream == stream and scope.end[earlier] < 0:
                scope.ended(earlier).then(partial(self._begin_beside, chain, scope, i, stream))
                return
        chain.go()
