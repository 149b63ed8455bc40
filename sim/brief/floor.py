"""A lower bound of a step in seconds, action by action: a replay of actions in which nobody shares a link.

Each pipeline rank runs the actions of its order one after the other. Each starts when its rank is free and
what it waits for has arrived, and takes what its blocks take by themselves. Reductions of gradients and
gathers of parameters run beside them on streams of their own, from where the software issues them, and hold
SMs until they end. ``sim/lowering/pipeline.py`` is asked what a rank writes only for actions that are more
than their blocks; most are not. The engine also shares links, so that no step is shorter than this bound,
which tests hold (docs/decisions/0063-replays-are-bounded-twice.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...schedules.orders.action import Action, ActionKind
from ..lowering.layers.routing import distinct_loads
from ..lowering.lower import joined_communicators
from ..lowering.slowest import ways_exchange_s
from ..lowering.tables import Tables, ordered_by
from ..lowering.without_messages import ranks_without_messages
from ..program.program import Collective, Compute, RepeatedBlocks
from ..program.solo import solo_ends
from ..scenario.sharding import sharding_rule
from .arrivals import ActionArrivals, Coming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...schedules.orders.action import Order, Step
    from ..lowering.plan import StepPlan
    from ..lowering.without_messages import RankWithoutMessages
    from ..program.program import Block, Op


PARTS = 8
"""Equal parts of a layer; it is worked out what the layer takes if SMs are taken up to the end of each."""


def step_floor(plan: StepPlan, tables: Tables | None = None) -> float:
    """A lower bound of the step in seconds; 0 where nothing is known.

    Nothing is known of pairs of actions, of microbatches that travel both ways, of steps that overlap, of
    ranks of unequal loads, of copies around blocks, and of sharded gradients that leave at the end. Where
    ranks are placed in several ways, it is the bound of the pipeline whose groups take the longest.
    """
    if not _tells(plan):
        return 0.0
    known = Tables() if tables is None else tables
    by_order = ordered_by(plan.scenario, plan.shape)
    orders = known.get(("action by action", *by_order), lambda: [*map(_compact, plan.orders)])
    if None in orders:
        return 0.0
    sharded = sharding_rule(plan.scenario) is not None
    timed = _Timed(sms=plan.cluster.gpu.sms)
    pipeline = _slowest_pipeline(plan)
    arrivals = ActionArrivals(plan=plan.of_groups(pipeline[0]) if pipeline else plan)
    joined = _Joined(members=joined_communicators(plan))
    ranks = [
        _Rank(
            index=index,
            written=written,
            order=order,
            timed=timed,
            arrivals=arrivals,
            joined=joined,
            sharded=sharded,
        )
        for index, (written, order) in enumerate(
            zip(ranks_without_messages(plan, known, pipeline), orders, strict=True)
        )
        if order is not None
    ]
    left = ranks
    while left:
        stuck = [rank for rank in left if not rank.goes_on()]
        assert len(stuck) < len(left) or any(rank.moved for rank in left), "orders that deadlock are refused"
        left = stuck[::-1]
    return max(rank.last_s for rank in ranks)


def _tells(plan: StepPlan) -> bool:
    whole = not plan.two_way and plan.ends == "together" and not plan.scenario.training.activation_offload
    rule = sharding_rule(plan.scenario)
    beside = rule is None or rule.reduces_each or rule.beside_last
    return whole and beside and len(distinct_loads(plan.scenario)) == 1


def _slowest_pipeline(plan: StepPlan) -> tuple[int, ...]:
    """The ranks of the pipeline whose groups take the longest; none where all are placed alike."""
    if len(plan.placements.first) == 1:
        return ()
    known_s = ways_exchange_s(plan.placements, plan.placed, plan.communication)
    way_s = np.array([known_s.get(rank, 0.0) for rank in plan.placements.first])
    pipelines = plan.process_groups.of("pp")
    slowness = way_s[plan.placements.of_rank[pipelines]]
    slowest = np.lexsort((-slowness.sum(axis=1), -slowness.max(axis=1)))[0]
    return tuple(pipelines[slowest].tolist())


@dataclass(kw_only=True)
class _Timed:
    """Seconds of blocks on a GPU of so many ``sms``; each distinct thing is timed once."""

    sms: int
    blocks: dict[tuple[Block, float, int], float] = field(default_factory=dict)
    rows: dict[tuple[int, float], float] = field(default_factory=dict)  # by identity: programs hold them

    def of(self, work: RepeatedBlocks, taken: float) -> float:
        """Seconds of repeated blocks if the part ``taken`` of the SMs is taken all the while."""
        found = self.rows.get((id(work), taken))
        if found is None:
            found = sum(count * self._block(block, taken) for block, count in work.blocks)
            self.rows[id(work), taken] = found
        return found

    def beside(self, work: RepeatedBlocks, taken: float, until_s: float) -> float:
        """Seconds of repeated blocks if that part is taken for the first ``until_s`` seconds, or for a little
        less."""
        if until_s <= 0.0:
            return self.of(work, 0.0)
        if until_s >= (all_s := self.of(work, taken)):
            return all_s
        found_s = 0.0
        for block, count in work.blocks:
            slow_s = self._block(block, taken)
            slowed = min(count, int(until_s / slow_s)) if slow_s > 0.0 else count
            found_s, until_s = found_s + slowed * slow_s, until_s - slowed * slow_s
            if slowed < count:
                found_s += self._block(block, taken, int(PARTS * until_s / slow_s))
                found_s += (count - slowed - 1) * self._block(block, 0.0)
                until_s = 0.0
        return found_s

    def _block(self, block: Block, taken: float, parts: int = PARTS) -> float:
        """Seconds of a block if so many of its parts run without those SMs."""
        if not parts:
            taken, parts = 0.0, PARTS
        key = block, taken, parts
        if key not in self.blocks:
            until_s = math.inf if parts >= PARTS else self._block(block, taken) * parts / PARTS
            self.blocks[key] = solo_ends(block, sms=self.sms, taken=taken, until_s=until_s)[0]
        return self.blocks[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The order of a rank: its ``actions``; for each its microbatch and the place of its kind, that is of its
    stage and what is computed, among the distinct ``kinds``; and the place of the ``first`` action of each
    kind."""

    actions: tuple[Action, ...]
    rows: tuple[tuple[int, int], ...]
    kinds: tuple[Action, ...]
    first: tuple[int, ...]
    places: Mapping[Step | None, int]


def _compact(order: Order) -> _Order | None:
    """An order of actions; None of one with pairs of them."""
    actions = tuple(step for step in order if isinstance(step, Action))
    if len(actions) < len(order):
        return None
    first: dict[tuple[int, ActionKind], int] = {}
    for place, (stage, kind, _) in enumerate(actions):
        first.setdefault((stage, kind), place)
    number = {one: count for count, one in enumerate(first)}
    return _Order(
        actions=actions,
        rows=tuple((number[stage, kind], microbatch) for stage, kind, microbatch in actions),
        kinds=tuple(Action(stage, kind, 0) for stage, kind in first),
        first=tuple(first.values()),
        places={action: place for place, action in enumerate(actions)},
    )


@dataclass(kw_only=True)
class _Joined:
    """Collectives that join pipeline ranks: which ranks have arrived at each call, and when."""

    members: Mapping[str, tuple[int, ...]]
    came_s: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)

    def begins_s(self, name: str, call: int, index: int, at_s: float) -> float | None:
        """When the call begins at which rank ``index`` arrives; None while other ranks are missing."""
        came = self.came_s.setdefault((name, call), {})
        came[index] = at_s
        return max(came.values()) if len(came) == len(set(self.members[name])) else None


class _Plain(NamedTuple):
    """Actions that are nothing but their blocks: their ``work``, the seconds that it takes by itself, and
    what they wait for."""

    work: RepeatedBlocks
    alone_s: float
    coming: Coming


@dataclass(kw_only=True)
class _Rank:
    """One rank on its way through its order.

    It has begun so many actions (``begun``), and of the ops ``written`` for these, some have ended;
    ``awaited`` is the number of what it cannot go on without (-1: none). A part of its SMs is ``taken`` until
    ``taken_until_s``, without a gap since the last op that ran. What is queued behind a collective that holds
    no SMs (``unheld`` streams) might leave a gap, and is not counted. If the layout is ``sharded``, blocks
    may hold collectives that others on their stream come before, and nothing beside the blocks is counted.
    """

    index: int
    written: RankWithoutMessages
    order: _Order
    timed: _Timed
    arrivals: ActionArrivals
    joined: _Joined
    sharded: bool = False
    apart: list[int] = field(init=False)
    coming: list[Coming] = field(init=False)
    plain: list[_Plain | None] = field(init=False)
    ends_s: list[float] = field(default_factory=list)
    free_s: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    begun: int = 0
    ended: bool = False
    arrived_s: float | None = 0.0
    number: int = 0
    last_s: float = 0.0
    taken: float = 0.0
    taken_until_s: float = 0.0
    unheld: set[str] = field(default_factory=set)
    awaited: int = -1
    moved: bool = False

    def __post_init__(self) -> None:
        places = self.order.places
        apart = {places[action] for action in self.written.apart() if action in places}
        self.apart = sorted(apart.union(self.order.first), reverse=True)
        self.coming = [self.arrivals.coming(action, self.index) for action in self.order.kinds]
        self.plain = [self._plain(*both) for both in zip(self.order.kinds, self.coming, strict=True)]
        self.written.begin()

    def _plain(self, action: Action, coming: Coming) -> _Plain | None:
        work = self.written.blocks_of(action)
        return None if work is None else _Plain(work, self.timed.of(work, 0.0), coming)

    def goes_on(self) -> bool:
        """Run all that can be run; whether the order is finished."""
        self.moved = False
        if self.awaited >= 0 and self.arrivals.done_s[self.awaited] is None:
            return False
        self.awaited = -1
        begun, ended = self.begun, len(self.ends_s)
        whole = self._goes_on()
        self.moved = self.begun != begun or len(self.ends_s) != ended
        return whole

    def _goes_on(self) -> bool:
        rows, last = self.order.rows, len(self.order.rows)
        while self._ops_end() and self._action_ends():
            if self.begun < last and not self._in_turn():
                return False
            if self.begun < last:
                kind, microbatch = rows[self.begun]
                self.number = self.coming[kind].first + microbatch
                self.written.write(self.order.actions[self.begun])
                self.arrived_s = None
                self.begun += 1
            elif self.ended:
                return True
            else:
                self.written.end()
                self.ended = True
        return False

    def _in_turn(self) -> bool:
        """Run actions that are nothing but their blocks, up to the next one that is more; whether all of them
        ran."""
        rows, done_s, plain, begun = self.order.rows, self.arrivals.done_s, self.plain, self.begun
        while self.apart and self.apart[-1] < begun:
            self.apart.pop()
        upto = self.apart[-1] if self.apart else len(rows)
        if self.written.last_compute < 0 or self.written.awaits:
            return True
        free_s, whole, taken_until_s = self.free_s.get("compute", 0.0), True, self.taken_until_s
        for place in range(begun, upto):
            kind, microbatch = rows[place]
            one = plain[kind]
            if one is None:
                break
            work, alone_s, (first, awaited, message_s) = one
            start_s = free_s
            if awaited >= 0:
                arrived_s = done_s[awaited + microbatch]
                if arrived_s is None:
                    self.awaited, whole = awaited + microbatch, False
                    break
                arrived_s += message_s
                if arrived_s > start_s:
                    start_s = arrived_s
            if start_s < taken_until_s:
                alone_s = self._blocks_s(work, start_s)
            free_s = done_s[first + microbatch] = start_s + alone_s
            begun += 1
        if begun > self.begun:
            self.begun = begun
            self.ends_s[self.written.last_compute] = self.free_s["compute"] = free_s
            self.last_s = max(self.last_s, free_s)
        return whole

    def _ops_end(self) -> bool:
        """Run the ops that were written; whether all of them ran."""
        ops, ends_s, free_s = self.written.ops, self.ends_s, self.free_s
        for place in range(len(ends_s), len(ops)):
            op = ops[place]
            start_s = free_s.get(op.stream, 0.0)
            for before in op.after:
                if ends_s[before] > start_s:
                    start_s = ends_s[before]
            end_s = self._end_s(op, start_s)
            if end_s is None:
                return False
            ends_s.append(end_s)
            free_s[op.stream] = end_s
            if end_s > self.last_s:
                self.last_s = end_s
        return True

    def _end_s(self, op: Op, start_s: float) -> float | None:
        """When an op ends that is free to start; None where it waits for another rank."""
        work = op.work
        if isinstance(work, RepeatedBlocks):
            arrived_s = self._arrival_s()
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

    def _action_ends(self) -> bool:
        """Whether the last action that was written has ended; for a stage without blocks, as soon as it may
        begin."""
        if self.arrived_s is not None:
            return True
        arrived_s = self._arrival_s()
        if arrived_s is not None:
            self.arrivals.done_s[self.number] = max(arrived_s, self.free_s.get("compute", 0.0))
        return arrived_s is not None

    def _arrival_s(self) -> float | None:
        """When the inputs of the last written action have arrived; None while that is not known."""
        if self.arrived_s is None:
            kind, microbatch = self.order.rows[self.begun - 1]
            _, awaited, message_s = self.coming[kind]
            done_s = 0.0 if awaited < 0 else self.arrivals.done_s[awaited + microbatch]
            self.arrived_s = None if done_s is None else done_s + message_s
        return self.arrived_s

    def _blocks_s(self, work: RepeatedBlocks, start_s: float) -> float:
        return self.timed.beside(work, self.taken, self.taken_until_s - start_s)

    def _collective_end_s(self, work: Collective, stream: str, start_s: float) -> float | None:
        name = work.communicator
        if name in self.joined.members:
            begins_s = self.joined.begins_s(name, self.calls.get(name, 0), self.index, start_s)
            if begins_s is None:
                return None
            self.calls[name] = self.calls.get(name, 0) + 1
            return begins_s + work.transfer.solo_s
        end_s = start_s + work.transfer.solo_s
        if not work.transfer.sms or self.sharded:
            self.unheld.add(stream)
        elif stream not in self.unheld:
            part = work.transfer.sms / self.timed.sms
            goes_on = start_s <= self.taken_until_s and self.taken > 0.0
            self.taken = min(self.taken, part) if goes_on else part
            self.taken_until_s = max(self.taken_until_s, end_s) if goes_on else end_s
        return end_s
