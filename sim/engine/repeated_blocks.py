"""Replays repeated blocks: as a whole while nothing else begins or ends on their ranks, else block by block.

Classes whose blocks meet one another run them as a whole together: the last of them to arrive sets the
run in motion, and whatever interferes with one opens it for all. As long as a flow of others is on its
links, or somebody waits for one of its streams, a block stays in detail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..program.program import RepeatedBlocks
from .blocks_in_progress import BlocksInProgress, RankBlocks
from .clock import Clock
from .flow import Flow
from .flows import Flows
from .gathering import Gathering
from .groups import IN_DETAIL, JointGroup, JointGroups
from .rank_state import FirstUse, RankState
from .record import Record
from .rendezvous import RendezvousPoints
from .runs import Runs
from .scope import Scope
from .signal import Callback, Signal
from .single_block import SingleBlocks
from .whole_run import WholeRun


@dataclass
class RepeatedBlocksReplay:
    """All repeated blocks of one replay."""

    env: Clock
    ranks: Sequence[RankState]
    flows: Flows
    rendezvous_points: RendezvousPoints
    groups: JointGroups
    runs: Runs
    record: Record
    _met: dict[int, int] = field(default_factory=dict)
    _gatherings: dict[tuple[int, int], Gathering] = field(default_factory=dict)
    _single: dict[tuple[int, int], Gathering] = field(default_factory=dict)
    _whole: dict[tuple[int, int], Gathering] = field(default_factory=dict)
    single_blocks: SingleBlocks = field(init=False)

    def __post_init__(self) -> None:
        self.single_blocks = SingleBlocks(
            self.env, self.ranks, self.flows, self.rendezvous_points, self.runs, self.record
        )

    def begin(self, scope: Scope, i: int, repeated: RepeatedBlocks, over: Callback) -> bool:
        """Run op ``i`` of a program, when all but the host is ready; the host's last wait before it is over.
        Whether it has run already; else ``over`` is called when it has.
        """
        rank = self.ranks[scope.r]
        rank.repeated_op = i
        if rank.passed:
            rank.passed = set()
        start_s, issued_at = self.env.time, None
        if scope.issued_at is not None:
            issued_at = scope.issued(i)
            if issued_at > start_s:
                start_s = issued_at
        scope.start[i] = scope.begin[i] = start_s
        together, whole = None, self._whole.get((scope.r, id(repeated)))
        if whole is None:
            together, whole = self._gathered(scope.r, repeated)
        if (
            whole is not None
            and not (rank.awaited or rank.changing or i in scope.before)
            and self.flows.idle(scope.r, repeated.links)
        ):
            WholeRun(self, rank, scope, i, repeated, over, issued_at, whole).begin()
            return False
        blocks = BlocksInProgress(self, rank, scope, i, repeated, over, issued_at, together)
        if not blocks.go_on():
            return False
        self.has_run(blocks)
        return True

    def _gathered(self, r: int, repeated: RepeatedBlocks) -> tuple[Gathering | None, Gathering | None]:
        """Where class ``r`` runs these blocks: with others, or else by itself, if none of them runs in detail
        from the start. The latter is remembered of classes that never meet others.
        """
        group = self.groups.of(r)
        together = self._gathering(r, group) if len(group.members) > 1 else None
        if together is not None or not repeated.row:
            return together, None
        gathering = self.by_itself(r, repeated)
        if gathering.ways is not None:
            return None, None
        if len(group.members) == 1:
            self._whole[r, id(repeated)] = gathering
        return None, gathering

    def has_run(self, blocks: RankBlocks) -> None:
        """Note that all of these blocks have run, and notify what awaits one of their streams."""
        if blocks.rank.awaited:
            for stream in blocks.repeated.last_on:
                blocks.rank.ended_on(blocks.i, stream)

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

    def _gathering(self, r: int, group: JointGroup) -> Gathering | None:
        """Where class ``r`` runs its next repeated blocks with the others of its group; None if by itself."""
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

    def by_itself(self, r: int, repeated: RepeatedBlocks) -> Gathering:
        """Class ``r`` by itself, in detail where others can be met on the way."""
        key = r, id(repeated)
        gathering = self._single.get(key)
        if gathering is None:
            ways = (IN_DETAIL,) * len(repeated.row) if self.groups.crosses(r, repeated) else None
            gathering = self._single[key] = Gathering(self.groups.alone(r), (repeated,), ways, -1)
        gathering.detail = -1
        return gathering

    def beginning(self, blocks: BlocksInProgress) -> bool:
        """Whether nothing disturbs a run from the block in progress on, where its links are not idle."""
        scope, i, rank = blocks.scope, blocks.i, blocks.rank

        def first_use(link: str, since: float, until: float) -> float:
            group, lead_s = blocks.gathering.group, blocks.lead_s
            if len(group.members) > 1:
                return since  # not known before all have come
            zero, contention = self.env.time + max(0.0, -lead_s), rank.contention
            run = self.runs.alone(group, blocks.repeated, blocks.number, max(0.0, lead_s), contention)
            return zero + run.first_use(link, since - zero, until - zero)

        return self.undisturbed(scope, i, blocks.repeated, first_use) and not self._is_to_open(blocks)

    def _is_to_open(self, blocks: BlocksInProgress) -> bool:
        """Whether a flow is known to begin beside the first block, which then would not go on as a whole."""
        gathering, repeated, number = blocks.gathering, blocks.repeated, blocks.number
        if gathering.ways is not None:
            return False
        coming = self.flows.coming(blocks.scope.r, repeated.most)
        if not coming:
            return False
        now, lead_s = self.env.time, max(0.0, blocks.lead_s)
        run = self.runs.alone(gathering.group, repeated, number, lead_s, blocks.rank.contention)
        first_s = run.bases[0] + run.runs[0].last
        return any(
            flow.since - now < first_s
            and any(run.first_use(name, flow.since - now, flow.ends - now) < math.inf for name in _own(flow))
            for flow in coming.values()
        )

    def undisturbed(self, scope: Scope, i: int, repeated: RepeatedBlocks, first_use: FirstUse) -> bool:
        """Whether nothing but the SMs and movements of its rank, which stay as they are, affects it.

        Communications of others on its links do not, where those hold all together, and as long as it
        uses none before they end (``first_use``).
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
            if until >= now and not self.flows.holds(link, most) and first_use(name, now, until) < math.inf:
                return False
        return True


def _own(flow: Flow) -> list[str]:
    """The links of its rank that a flow uses, by their names there."""
    return [link[1] for link in flow.demand.links if isinstance(link, tuple)]
