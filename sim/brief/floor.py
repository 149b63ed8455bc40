"""Seconds that a step takes at least, action by action: a replay of actions in which nobody shares a link.

Each pipeline rank runs the actions of its order one after the other, each when its rank is free and what it
waits for has arrived, and takes what its blocks take by themselves. Reductions of gradients and gathers of
parameters run beside them on streams of their own, from where the software issues them, and hold SMs until
they end. What each rank writes is asked of ``sim/lowering/pipeline.py``; the engine shares links besides, so
that no step is shorter, which tests hold (docs/decisions/0063-replays-are-bounded-twice.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...schedules.orders.action import Action, ActionKind
from ...schedules.p2p.point_to_point import Recv
from ..lowering.layers.routing import distinct_loads
from ..lowering.lower import joined_communicators
from ..lowering.message_sizes import MessageTransfers
from ..lowering.pipeline import write_without_messages
from ..program.program import Collective, Compute, RepeatedBlocks
from ..program.solo import solo_ends
from ..scenario.sharding import sharding_rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..lowering.plan import StepPlan
    from ..lowering.tables import Tables
    from ..program.program import Block, Op

FORWARD, WEIGHT_GRAD = ActionKind.FORWARD, ActionKind.WEIGHT_GRAD


def step_floor(plan: StepPlan, tables: Tables | None = None) -> float:
    """Seconds that the step takes at least; 0 where orders and programs of ranks do not tell: of pairs of
    actions, of microbatches that travel both ways, of steps that overlap, of unequal ranks, of shards or
    copies around blocks.
    """
    if not _tells(plan):
        return 0.0
    timed = _Timed(sms=plan.cluster.gpu.sms)
    arrivals = _Arrivals(plan=plan)
    joined = _Joined(members=joined_communicators(plan))
    ranks = [
        _Rank(
            index=index,
            ops=ops,
            actions=[step for step in plan.orders[index] if isinstance(step, Action)],
            timed=timed,
            arrivals=arrivals,
            joined=joined,
        )
        for index, ops in enumerate(write_without_messages(plan, tables))
    ]
    left = ranks
    while left:
        stuck = [rank for rank in left if not rank.goes_on()]
        assert len(stuck) < len(left) or any(rank.moved for rank in left), "orders that deadlock are refused"
        left = stuck
    return max(rank.last_s for rank in ranks)


def _tells(plan: StepPlan) -> bool:
    whole = not plan.two_way and plan.ends == "together" and not plan.scenario.training.activation_offload
    alike = len(plan.placements.first) == 1 and len(distinct_loads(plan.scenario)) == 1
    plain = all(isinstance(step, Action) for order in plan.orders for step in order)
    return whole and alike and plain and sharding_rule(plan.scenario) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seconds:
    """What repeated blocks take by themselves, and how much longer where a part of the SMs is taken.

    ``lost``: the least share of its time that a layer loses then, of which all lose ``most_s`` together.
    ``edge_s``: what lies at the end of a time that is not known to slow a layer: one of them, and all that
    loses nothing.
    """

    alone_s: float
    lost: float = 0.0
    most_s: float = 0.0
    edge_s: float = 0.0

    def beside(self, seconds: float) -> float:
        """The same where SMs are taken for the first ``seconds``: layers that end within them are slow."""
        return self.alone_s + min(self.most_s, max(0.0, self.lost * (seconds - self.edge_s)))


@dataclass(kw_only=True)
class _Timed:
    """Seconds of blocks on a GPU of so many ``sms``; each distinct thing is timed once."""

    sms: int
    blocks: dict[tuple[Block, float], float] = field(default_factory=dict)
    rows: dict[tuple[int, float], _Seconds] = field(default_factory=dict)  # by identity: programs hold them

    def of(self, work: RepeatedBlocks, taken: float) -> _Seconds:
        """Seconds of repeated blocks beside whoever has ``taken`` a part of the SMs."""
        found = self.rows.get((id(work), taken))
        if found is None:
            found = self.rows[id(work), taken] = self._of(work, taken)
        return found

    def _of(self, work: RepeatedBlocks, taken: float) -> _Seconds:
        each = [(count, self._block(b, 0.0), self._block(b, taken)) for b, count in work.blocks]
        slowed = [one for one in each if one[2] > one[1]]
        same_s = sum(count * alone for count, alone, slow in each if slow <= alone)
        return _Seconds(
            alone_s=sum(count * alone for count, alone, _ in each),
            lost=min((1 - alone / slow for _, alone, slow in slowed), default=0.0),
            most_s=sum(count * (slow - alone) for count, alone, slow in slowed),
            edge_s=same_s + max((slow for *_, slow in each), default=0.0),
        )

    def _block(self, block: Block, taken: float) -> float:
        key = block, taken
        if key not in self.blocks:
            self.blocks[key] = solo_ends(block, sms=self.sms, taken=taken)[0]
        return self.blocks[key]


class _Coming(NamedTuple):
    """Actions of one kind and stage that a rank comes to: how their ``names`` begin; the numbers of the one
    of microbatch 0 and of the one that it waits for (None: none counts), and the seconds of its message.
    """

    names: str
    first: int | None = None
    awaited: int | None = None
    message_s: float = 0.0


@dataclass(kw_only=True)
class _Arrivals:
    """When what actions wait for is there: ``done_s`` of those that have ended, by their numbers. Whole and
    split backwards may follow one another, and count as one."""

    plan: StepPlan
    done_s: dict[int, float] = field(default_factory=dict)

    def coming(self, action: Action, index: int) -> _Coming:
        """What rank ``index`` waits for before actions like that one."""
        stage, kind, microbatch = action
        names, forward = str(action).removesuffix(str(microbatch)), kind is FORWARD
        if kind is WEIGHT_GRAD:
            return _Coming(names)
        first, before = self._first(stage, forward), stage - 1 if forward else stage + 1
        if not 0 <= before < self.plan.shape.stages:
            return _Coming(names, first)
        message_s = self._message_s(action._replace(stage=before), index)
        return _Coming(names, first, self._first(before, forward), message_s)

    def _first(self, stage: int, forward: bool) -> int:
        return (2 * stage + forward) * self.plan.shape.microbatches

    def _message_s(self, sent: Action, index: int) -> float:
        peer = self.plan.schedule.rank_of(sent.stage, sent.microbatch, self.plan.shape)
        if peer == index:
            return 0.0
        return MessageTransfers(plan=self.plan, index=index, alike={})(Recv(sent, peer)).solo_s


@dataclass(kw_only=True)
class _Joined:
    """Collectives that join pipeline ranks: who has come to each call, and when."""

    members: Mapping[str, tuple[int, ...]]
    came_s: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)

    def begins_s(self, name: str, call: int, index: int, at_s: float) -> float | None:
        """When that call begins, to which rank ``index`` comes; None while others are missing."""
        came = self.came_s.setdefault((name, call), {})
        came[index] = at_s
        return max(came.values()) if len(came) == len(set(self.members[name])) else None


@dataclass(kw_only=True)
class _Rank:
    """One rank on its way through its ops: ``next_op`` is the first that has not run.

    Of the SMs a part is ``taken`` until ``taken_until_s``, without a gap since the last op that ran. What is
    queued behind a collective that holds none (``unheld`` streams) might leave a gap, and is not counted.
    """

    index: int
    ops: Sequence[Op]
    actions: Sequence[Action]
    timed: _Timed
    arrivals: _Arrivals
    joined: _Joined
    ends_s: list[float] = field(default_factory=list)
    free_s: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    action: str = ""
    number: int = -1
    begun: int = 0
    coming: dict[tuple[int, str], _Coming] = field(default_factory=dict)
    last_s: float = 0.0
    taken: float = 0.0
    taken_until_s: float = 0.0
    unheld: set[str] = field(default_factory=set)
    moved: bool = False

    def goes_on(self) -> bool:
        """Run all ops that can be; whether these were the last."""
        ops, ends_s, free_s = self.ops, self.ends_s, self.free_s
        first = place = len(ends_s)
        while place < len(ops):
            op = ops[place]
            start_s = free_s.get(op.stream, 0.0)
            for before in op.after:
                if ends_s[before] > start_s:
                    start_s = ends_s[before]
            end_s = self._end_s(op, start_s)
            if end_s is None:
                break
            ends_s.append(end_s)
            free_s[op.stream] = end_s
            if end_s > self.last_s:
                self.last_s = end_s
            place += 1
        self.moved = place > first
        return place == len(ops)

    def _end_s(self, op: Op, start_s: float) -> float | None:
        """When an op ends that may start then; None where it waits for another rank."""
        work = op.work
        if isinstance(work, RepeatedBlocks):
            if op.action != self.action:
                arrived_s = self._begins(op.action)
                if arrived_s is None:
                    return None
                start_s = max(start_s, arrived_s)
            end_s = start_s + self._blocks_s(work, start_s)
            self.arrivals.done_s[self.number] = end_s
            return end_s
        if isinstance(work, Compute):
            return start_s + work.seconds
        assert isinstance(work, Collective), "messages are not written"
        return self._collective_end_s(work, op.stream, start_s)

    def _blocks_s(self, work: RepeatedBlocks, start_s: float) -> float:
        beside_s = self.taken_until_s - start_s
        if beside_s <= 0.0:
            return self.timed.of(work, 0.0).alone_s
        return self.timed.of(work, self.taken).beside(beside_s)

    def _begins(self, tag: str) -> float | None:
        """When the inputs of the action of that name are there; None while nobody knows. The actions before
        it have ended, those of stages without blocks as soon as they may begin."""
        done_s = self.arrivals.done_s
        while True:
            stage, kind, microbatch = action = self.actions[self.begun]
            coming = self.coming.get((stage, kind))
            if coming is None:
                coming = self.coming[stage, kind] = self.arrivals.coming(action, self.index)
            names, first, awaited, message_s = coming
            arrived_s = 0.0 if awaited is None else done_s.get(awaited + microbatch)
            if arrived_s is None:
                return None
            arrived_s += message_s
            self.begun += 1
            self.number = -1 if first is None else first + microbatch
            if tag == names + str(microbatch):
                self.action = tag
                return arrived_s
            done_s[self.number] = max(arrived_s, self.free_s.get("compute", 0.0))

    def _collective_end_s(self, work: Collective, stream: str, start_s: float) -> float | None:
        name = work.communicator
        if name in self.joined.members:
            begins_s = self.joined.begins_s(name, self.calls.get(name, 0), self.index, start_s)
            if begins_s is None:
                return None
            self.calls[name] = self.calls.get(name, 0) + 1
            return begins_s + work.transfer.solo_s
        end_s = start_s + work.transfer.solo_s
        if not work.transfer.sms:
            self.unheld.add(stream)
        elif stream not in self.unheld:
            part = work.transfer.sms / self.timed.sms
            goes_on = start_s <= self.taken_until_s and self.taken > 0.0
            self.taken = min(self.taken, part) if goes_on else part
            self.taken_until_s = max(self.taken_until_s, end_s) if goes_on else end_s
        return end_s
