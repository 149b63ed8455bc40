"""A lower bound of a step in seconds, action by action: a replay of actions in which nobody shares a link.

Each pipeline rank runs the actions of its order one after the other. Each starts when its rank is free and
what it waits for has arrived, and takes what its blocks take by themselves. Reductions of gradients and
gathers of parameters run beside them on streams of their own, from where the software issues them, and hold
SMs until they end. ``sim/lowering/pipeline.py`` is asked what a rank writes only for actions that are more
than their blocks; most are not. The engine also shares links, so that no step is shorter than this bound,
which tests hold (docs/decisions/0063-replays-are-bounded-twice.md).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...schedules.orders.action import Action, Overlap, parts
from ..lowering.common_to_layouts import SearchCache, ordered_by
from ..lowering.layers.routing import distinct_loads
from ..lowering.lower import joined_communicators
from ..lowering.slowest_groups import ways_exchange_s
from ..lowering.without_messages import ranks_without_messages
from ..program.program import Collective, Compute, RepeatedBlocks
from ..scenario.sharding import sharding_rule
from .action_turns import FORWARD, turns_of_actions
from .arrivals import ActionArrivals, Coming
from .timed_blocks import TimedBlocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...schedules.orders.action import Orders, Step
    from ..lowering.plan import StepPlan
    from ..lowering.without_messages import RankWithoutMessages
    from ..program.program import Op
    from .action_turns import ActionTurns


def step_floor(plan: StepPlan, cache: SearchCache | None) -> float:
    """A lower bound of the step in seconds; 0 where none is known.

    None is known with microbatches in both directions, steps that overlap, unequal expert loads, activations
    that are offloaded, and sharded gradients that are reduced at the end.
    Where ranks are placed in several ways, it is the bound of the pipeline whose groups take the longest.
    """
    if not _tells(plan):
        return 0.0
    known = SearchCache() if cache is None else cache
    turns = known.get(
        ("actions in turn", *ordered_by(plan.scenario, plan.shape)),
        lambda: turns_of_actions(plan.orders, plan.shape),
    )
    timed = TimedBlocks(sms=plan.cluster.gpu.sms)
    # Beside other exchanges than its own, kernels of a pair may have more SMs than by itself.
    paired = TimedBlocks(sms=0)
    pipeline = _slowest_pipeline(plan)
    arrivals = ActionArrivals(plan=plan.of_groups(pipeline[0]) if pipeline else plan)
    joined = _Joined(members=joined_communicators(plan))
    sharded = sharding_rule(plan.scenario) is not None
    ranks = [
        _Rank(
            index=index,
            written=written,
            timed=timed,
            paired=paired,
            arrivals=arrivals,
            joined=joined,
            sharded=sharded,
        )
        for index, written in enumerate(ranks_without_messages(plan, known, pipeline))
    ]
    if turns is None:
        _run_steps(plan.orders, ranks)
    else:
        _Pass(turns=turns, ranks=ranks).run()
    for rank in ranks:
        rank.written.end()
    left = ranks
    while left:
        stuck = [rank for rank in left if not rank.ops_end()]
        assert len(stuck) < len(left) or any(rank.moved for rank in left), "orders that deadlock are refused"
        left = stuck
    return max(rank.last_s for rank in ranks)


def _tells(plan: StepPlan) -> bool:
    whole = not plan.two_way and plan.ends == "together" and not plan.scenario.training.activation_offload
    rule = sharding_rule(plan.scenario)
    beside = rule is None or rule.reduces_each or rule.beside_last
    return whole and beside and len(distinct_loads(plan.scenario)) == 1


def _slowest_pipeline(plan: StepPlan) -> tuple[int, ...]:
    """The ranks of the pipeline whose groups take the longest; empty where all are placed alike."""
    if len(plan.placements.first) == 1:
        return ()
    known_s = ways_exchange_s(plan.placements, plan.placed, plan.communication)
    way_s = np.array([known_s.get(rank, 0.0) for rank in plan.placements.first])
    pipelines = plan.process_groups.of("pp")
    slowness = way_s[plan.placements.of_rank[pipelines]]
    slowest = np.lexsort((-slowness.sum(axis=1), -slowness.max(axis=1)))[0]
    return tuple(pipelines[slowest].tolist())


@dataclass(kw_only=True)
class _Joined:
    """Collectives that join pipeline ranks: which ranks have arrived at each call, and when."""

    members: Mapping[str, tuple[int, ...]]
    came_s: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)

    def begins_s(self, name: str, call: int, index: int, at_s: float) -> float | None:
        """When a call begins at which rank ``index`` arrives ``at_s``; None until all its members have
        arrived."""
        came = self.came_s.setdefault((name, call), {})
        came[index] = at_s
        return max(came.values()) if len(came) == len(set(self.members[name])) else None


class _Plain(NamedTuple):
    """Actions that are just their blocks: the rank, their ``pieces`` between the host's waits, the seconds of
    each by itself, and what they wait for."""

    rank: int
    pieces: tuple[RepeatedBlocks, ...]
    alone_s: tuple[float, ...]
    first: int
    awaited: int
    message_s: float


@dataclass(kw_only=True)
class _Pass:
    """One pass over all actions in the order of ActionTurns.

    Actions that are more than their blocks are ``apart``: a heap of their places in that order. One is added
    where the next action of its rank waits for ops of other streams. By rank, ``free_s`` is when its compute
    stream is free, and ``taken_until_s`` until when a share of its SMs is held.
    """

    turns: ActionTurns
    ranks: Sequence[_Rank]
    apart: list[int] = field(init=False)
    coming: list[Coming] = field(init=False)
    plain: list[_Plain | None] = field(init=False)
    free_s: list[float] = field(init=False)
    taken_until_s: list[float] = field(init=False)

    def __post_init__(self) -> None:
        turns, ranks = self.turns, [self.ranks[rank] for rank in self.turns.ranks]
        both = [*zip(turns.kinds, ranks, strict=True)]
        self.coming = [rank.arrivals.coming(action, rank.index) for action, rank in both]
        self.plain = [
            self._plain(action, rank, coming)
            for (action, rank), coming in zip(both, self.coming, strict=True)
        ]
        of_ranks = chain.from_iterable(rank.written.apart() for rank in self.ranks)
        apart = {turns.place_of(one) for one in of_ranks if isinstance(one, Action)}
        # The first backward of a stage is as all others; its first forward may wait for parameters.
        apart.update(
            place for one, place in zip(turns.kinds, turns.first, strict=True) if one.kind is FORWARD
        )
        if None in self.plain:
            apart.update(place for place, (kind, _) in enumerate(turns.rows) if self.plain[kind] is None)
        self.apart = sorted(apart)

    def _plain(self, action: Action, rank: _Rank, coming: Coming) -> _Plain | None:
        pieces = rank.written.pieces_of(action)
        alone_s = tuple(rank.timed.of(piece, 0.0) for piece in pieces)
        return _Plain(rank.index, pieces, alone_s, *coming) if pieces else None

    def run(self) -> None:
        """Run all actions."""
        for rank in self.ranks:
            rank.begin()
        self.free_s = [rank.free_s.get("compute", 0.0) for rank in self.ranks]
        self.taken_until_s = [rank.taken_until_s for rank in self.ranks]
        begun = 0
        while self.apart:
            place = heappop(self.apart)
            if place >= begun:
                self._run_plain(begun, place)
                self._run_apart(place)
                begun = place + 1
        self._run_plain(begun, len(self.turns.rows))
        for rank, free_s in zip(self.ranks, self.free_s, strict=True):
            rank.comes_to(free_s)

    def _run_plain(self, begun: int, upto: int) -> None:
        """Run the actions of these places, which are just their blocks."""
        plain, free_s, taken_until_s, ranks = self.plain, self.free_s, self.taken_until_s, self.ranks
        done_s = ranks[0].arrivals.done_s
        for kind, microbatch in self.turns.rows[begun:upto]:
            rank, pieces, alone_s, first, awaited, message_s = plain[kind]  # type: ignore[misc]  # none is apart
            at_s = free_s[rank]
            if awaited >= 0:
                arrived_s = done_s[awaited + microbatch] + message_s
                if arrived_s > at_s:
                    at_s = arrived_s
            if at_s < taken_until_s[rank]:
                for piece in pieces:
                    at_s += ranks[rank].blocks_s(piece, at_s)
            else:
                for seconds in alone_s:
                    at_s += seconds
            free_s[rank] = done_s[first + microbatch] = at_s

    def _run_apart(self, place: int) -> None:
        """Run the action at that place, which is more than its blocks."""
        kind, microbatch = self.turns.rows[place]
        number, rank = self.turns.ranks[kind], self.ranks[self.turns.ranks[kind]]
        rank.comes_to(self.free_s[number])
        rank.writes(self.turns.kinds[kind]._replace(microbatch=microbatch), self.coming[kind])
        self.free_s[number], self.taken_until_s[number] = rank.free_s.get("compute", 0.0), rank.taken_until_s
        after = self.turns.following[place]
        if after < len(self.turns.rows) and (rank.written.last_compute < 0 or rank.written.awaits):
            heappush(self.apart, after)


def _run_steps(orders: Orders, ranks: Sequence[_Rank]) -> None:
    """Run orders in which forwards run beside backwards, step by step: each rank goes on until it waits for
    another."""
    for rank in ranks:
        rank.begin()
    done = bytearray(len(ranks[0].arrivals.done_s))
    left = [deque(order) for order in orders]
    while any(left):
        for rank, order in zip(ranks, left, strict=True):
            while order:
                inputs = rank.inputs_of(order[0])
                if not all(one.awaited < 0 or done[one.awaited] for one in inputs.values()):
                    break
                rank.writes_step(order.popleft(), inputs)
                for one in inputs.values():
                    done[one.first] = 1


@dataclass(kw_only=True)
class _Rank:
    """One rank during the pass.

    ``ends_s`` has the ends of the ops that were ``written`` for its actions and have run. The last of these
    actions has the ``number``, begins no earlier than its inputs have ``arrived_s``, and ``ran`` if one of
    its ops was its blocks. A share ``taken`` of its SMs is held until ``taken_until_s``, without a gap since
    the last op that ran. Collectives behind one that holds no SMs (on ``unheld`` streams) may leave a gap,
    and are not counted. If the layout is ``sharded``, blocks may contain collectives that are queued behind
    others on their stream, so that nothing that runs beside blocks is counted.

    Of a ``step`` that was written whole, each action, and a pair of two, has its times of blocks, its numbers
    and when its inputs arrive. The blocks of a pair have ``paired`` times.
    """

    index: int
    written: RankWithoutMessages
    timed: TimedBlocks
    paired: TimedBlocks
    arrivals: ActionArrivals
    joined: _Joined
    sharded: bool = False
    ends_s: list[float] = field(default_factory=list)
    free_s: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    arrived_s: float = 0.0
    number: int = 0
    ran: bool = False
    last_s: float = 0.0
    taken: float = 0.0
    taken_until_s: float = 0.0
    unheld: set[str] = field(default_factory=set)
    moved: bool = False
    step: dict[str, tuple[TimedBlocks, tuple[int, ...], float]] = field(default_factory=dict)

    def begin(self) -> None:
        """Run what comes before all actions."""
        self.written.begin()
        self._run_written()

    def comes_to(self, free_s: float) -> None:
        """Set the time from which its compute stream is free, after actions that were not written."""
        if self.written.last_compute >= 0:
            self.ends_s[self.written.last_compute] = self.free_s["compute"] = free_s
            self.last_s = max(self.last_s, free_s)

    def writes(self, action: Action, coming: Coming) -> None:
        """Write and run an action with everything around it. On a stage without blocks it has ended as
        soon as it may begin."""
        done_s, microbatch = self.arrivals.done_s, action.microbatch
        arrived_s = 0.0 if coming.awaited < 0 else done_s[coming.awaited + microbatch] + coming.message_s
        self.number, self.arrived_s, self.ran = coming.first + microbatch, arrived_s, False
        self.written.write(action)
        self._run_written()
        if not self.ran:
            done_s[self.number] = max(self.arrived_s, self.free_s.get("compute", 0.0))

    def inputs_of(self, step: Step) -> dict[Action, Coming]:
        """What each action of a step waits for."""
        found = {}
        for action in parts(step):
            first, awaited, message_s = self.arrivals.coming(action, self.index)
            here = action.microbatch
            found[action] = Coming(first + here, awaited + here if awaited >= 0 else -1, message_s)
        return found

    def writes_step(self, step: Step, inputs: Mapping[Action, Coming]) -> None:
        """Write and run a step of the order with everything around it. A forward and a backward that do not
        run as one are written one after the other."""
        done_s = self.arrivals.done_s
        arrived_s = {
            action: 0.0 if one.awaited < 0 else done_s[one.awaited] + one.message_s
            for action, one in inputs.items()
        }
        self.step = {
            str(action): (self.timed, (one.first,), arrived_s[action]) for action, one in inputs.items()
        }
        if isinstance(step, Overlap):
            both = tuple(one.first for one in inputs.values())
            self.step[str(step)] = self.paired, both, max(arrived_s.values())
        self.written.write(step)
        self._run_written()
        for action, one in inputs.items():
            if not done_s[one.first]:
                done_s[one.first] = max(arrived_s[action], self.free_s.get("compute", 0.0))

    def _step_end_s(self, op: Op, work: RepeatedBlocks, start_s: float) -> float:
        """The end of blocks of a step that was written whole."""
        timed, numbers, arrived_s = self.step.get(op.action, (self.timed, (), 0.0))
        start_s = max(start_s, arrived_s)
        end_s = start_s + timed.beside(work, self.taken, self.taken_until_s - start_s)
        for number in numbers:
            self.arrivals.done_s[number] = end_s
        return end_s

    def _run_written(self) -> None:
        whole = self.ops_end()
        assert whole, "what joins pipeline ranks comes behind all their actions"

    def ops_end(self) -> bool:
        """Run the ops that were written. Returns whether all of them ran."""
        ops, ends_s, free_s = self.written.ops, self.ends_s, self.free_s
        begun = len(ends_s)
        for place in range(begun, len(ops)):
            op = ops[place]
            start_s = free_s.get(op.stream, 0.0)
            for before in op.after:
                if ends_s[before] > start_s:
                    start_s = ends_s[before]
            end_s = self._end_s(op, start_s)
            if end_s is None:
                self.moved = place > begun
                return False
            ends_s.append(end_s)
            free_s[op.stream] = end_s
            if end_s > self.last_s:
                self.last_s = end_s
        return True

    def _end_s(self, op: Op, start_s: float) -> float | None:
        """The end of an op that may start at ``start_s``; None while it waits for another rank."""
        work = op.work
        if isinstance(work, RepeatedBlocks):
            if self.step:
                return self._step_end_s(op, work, start_s)
            start_s = max(start_s, self.arrived_s)
            end_s = start_s + self.blocks_s(work, start_s)
            self.arrivals.done_s[self.number], self.ran = end_s, True
            return end_s
        if isinstance(work, Compute):
            return start_s + work.seconds
        assert isinstance(work, Collective), "messages are not written"
        return self._collective_end_s(work, op.stream, start_s)

    def blocks_s(self, work: RepeatedBlocks, start_s: float) -> float:
        """Seconds of blocks that start then."""
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
