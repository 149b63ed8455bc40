"""Blocks run one at a time, each together with the flows of its own rank that share its links.

Such flows are, for example, reductions of gradients. While nothing else touches these links, block and flows
depend on one another alone, so their whole course is computed at once (block_alone.py) and remembered for
equal blocks. Meanwhile the event queue does not advance these flows, nor those that are still in their
latency. That ends when the block or the first flow ends, or when something else interferes; block and flows
then go on from their state at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..network.sharing import Demand, Link
from ..program.program import Block, Collective, RepeatedBlocks
from .block_alone import NOTHING, FlowsBeside, state_of
from .blocks import BlockRun, Rates, RepeatedRun, done, go_on
from .clock import Clock
from .flow import Flow
from .flows import Flows
from .groups import JointGroup
from .rank_state import Interruptible, RankState
from .record import Record, Stretch
from .rendezvous import RendezvousPoints
from .runs import Runs
from .scope import SLACK_S, Scope, block_scope
from .ticks import ticks


@dataclass(slots=True)
class BlockPlace:
    """The ``block`` of that ``number`` of op ``i``, repeated blocks, of the class of ``scope``; its times
    where it has begun in detail. The host issues the first op of the repeated blocks at ``issued_at`` (None:
    nothing waits).
    """

    scope: Scope
    i: int
    repeated: RepeatedBlocks
    number: int
    issued_at: float | None
    tag: tuple[int, ...]
    times: Scope | None = None
    block: Block = field(init=False)

    def __post_init__(self) -> None:
        self.block = self.repeated.row[self.number]

    def lead_s(self, now: float) -> float:
        """Seconds since the host has issued the first op of the block; negative where it has not yet,
        infinite where everything is issued at once."""
        at = self.issued_at
        return math.inf if at is None else now - at - self.repeated.issued_s[self.number]

    def is_issued(self, now: float) -> bool:
        """Whether the host has issued all of its ops before now."""
        return self.lead_s(now) > (self.block.issued_s[-1] if self.block.ops else 0.0)

    def opened(self, record: Record) -> Scope:
        """Open the block: its times, which are recorded from now on."""
        if self.times is None:
            at = None if self.issued_at is None else self.issued_at + self.repeated.issued_s[self.number]
            self.times = block_scope(self.block, self.scope.r, issued_at=at, tag=self.tag)
            record.add_piece(self.scope.r, self.i, self.times)
        return self.times


@dataclass(slots=True)
class SingleRun:
    """One block that runs by itself, and the flows of its rank that its ``run`` advances meanwhile.

    The run counts from ``zero``. ``demands`` are the flows by their numbers, and ``left`` the payload bytes
    of each at that time; those that ``delays_s`` names, which come last, begin so many seconds later and put
    at most ``coming`` bytes per second on each link. The flows have ``ended`` so many seconds after ``zero``,
    the first of them after ``ends_s``; it or the block ends after ``seconds``."""

    run: BlockRun
    zero: float
    demands: dict[int, Demand]
    named: tuple[Demand, ...]  # the same by the names that the rank has for its links
    left: list[float]
    delays_s: dict[int, float]
    coming: dict[str, float]
    ended: list[float] = field(init=False)
    ends_s: float = field(init=False)
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        run = self.run
        self.ended = [_done_at(*one) for one in zip(run.beside, self.left, strict=True)] if self.left else []
        self.ends_s = min(self.ended, default=math.inf)
        self.seconds = min(run.last, self.ends_s)

    def links(self) -> dict[str, float]:
        """Bytes per second by link that the flows use: of those that are yet to begin, since the clock knows
        the others."""
        if not self.named:
            return {}
        known: dict[str, float] = dict.fromkeys([str(name) for one in self.named for name in one.links], 0.0)
        return {**known, **self.coming} if self.coming else known


@dataclass
class SingleBlocks:
    """Runs blocks of classes by themselves, one by one."""

    env: Clock
    ranks: Sequence[RankState]
    flows: Flows
    rendezvous_points: RendezvousPoints
    runs: Runs
    record: Record
    _rows: dict[tuple[int, int], RepeatedRun] = field(default_factory=dict)

    def begin(self, blocks: Interruptible, place: BlockPlace, group: JointGroup) -> SingleRun | None:
        """Run a block from where it is, until it or a flow ends, or until ``blocks`` are interrupted; None
        where something else than flows of its rank has a hand in it.
        """
        lent = self._lent(place, group)
        if lent is not None:
            if lent.demands:
                self._lend(blocks, place, lent)
            self._close(blocks, place, lent)
        return lent

    def _lend(self, blocks: Interruptible, place: BlockPlace, lent: SingleRun) -> None:
        """Notify the other ranks of each flow of when it ends, so that ``blocks`` open if a communication
        meets it there."""
        rank = self.ranks[place.scope.r]
        for (number, demand), named, ended in zip(lent.demands.items(), lent.named, lent.ended, strict=True):
            if len(named.links) < len(demand.links):  # it leaves the rank
                self.flows.lend(number, lent.zero + ended, partial(rank.open_if, blocks))

    def rest(self, blocks: Interruptible, place: BlockPlace, group: JointGroup, k: int) -> SingleRun | None:
        """Run the rest of a block, from op ``k`` on, until it ends or ``blocks`` are interrupted.

        All its streams join at op ``k``, its host has issued all of it and nothing is beside it, so that the
        rest is that of its whole run. None where it does not run as a whole.
        """
        run = self.runs.rest(group, place.block, self.ranks[place.scope.r].contention, k)
        if run is None or run.last == math.inf:
            return None
        lent = SingleRun(run, self.env.time - run.start[k], {}, (), [], {}, {})
        self._close(blocks, place, lent)
        return lent

    def end(self, place: BlockPlace, lent: SingleRun, since: float) -> bool:
        """Put block and flows into their state ``since`` seconds after they began; whether the block has
        ended."""
        run = lent.run
        over = run.last <= since + SLACK_S
        if over and place.times is None:
            self.record.add_piece(place.scope.r, place.i, Stretch(self._row(run, place.number), lent.zero, 1))
        else:
            go_on(place.opened(self.record), run, lent.zero, 0.0, since)
        self._give_back(place, lent, since)
        return over

    def _lent(self, place: BlockPlace, group: JointGroup) -> SingleRun | None:
        """A run of the block from where it is, if it can be known beforehand."""
        scope, rank, i, block = place.scope, self.ranks[place.scope.r], place.i, place.block
        if rank.changing or rank.stopped:
            return None
        if rank.awaited and any(number == i for number, _ in rank.awaited):
            return None
        if i in scope.before and any(scope.end[earlier] < 0 for earlier in scope.before[i]):
            return None
        steady = not self.rendezvous_points.programs.changes
        demands = self.flows.beside(scope.r, block.most, steady=steady)
        if demands is None:
            return None
        coming, now, beside = self.flows.coming(scope.r, block.most), self.env.time, NOTHING
        delays_s: dict[int, float] = {}
        for number, flow in coming.items():
            demands[number], delays_s[number] = flow.demand, flow.since - now
        if demands:
            rates = self.runs.own_rates(group)
            beside = FlowsBeside(
                tuple([rates.named(demand, scope.r) for demand in demands.values()]),
                tuple([ticks(delays_s.get(number, 0.0)) for number in demands]) if coming else (),
            )
        state = state_of(place.times) if place.times is not None else None
        run = self.runs.beside(group, block, place.lead_s(now), rank.contention, beside, state)
        if run is None or run.last == math.inf:
            return None
        left = [self.flows.take(number) for number in demands]
        most = _most(coming.values()) if coming else {}
        return SingleRun(run, now, demands, beside.demands, left, delays_s, most)

    def _row(self, run: BlockRun, number: int) -> RepeatedRun:
        """The run of the whole block ``number`` as one of repeated blocks."""
        key = id(run), number
        if key not in self._rows:
            self._rows[key] = RepeatedRun(number, (run,), (0.0,), 0.0, run.last)
        return self._rows[key]

    def _close(self, blocks: Interruptible, place: BlockPlace, lent: SingleRun) -> None:
        """Have the blocks interrupted by whatever else happens on their rank."""
        rank, run, zero, links = self.ranks[place.scope.r], lent.run, lent.zero, lent.links()

        def first_use(link: str, since: float, until: float) -> float:
            return since if link in links else zero + run.first_use(link, since - zero, until - zero)

        most = block_most = place.block.most
        if links:
            coming = {link: rate + block_most.get(link, 0.0) for link, rate in lent.coming.items()}
            most = {**links, **block_most, **coming}
        rank.closed, rank.closed_most, rank.closed_uses = blocks, most, first_use
        self.flows.tell(place.scope.r, most, self.rendezvous_points.move, first_use)

    def _give_back(self, place: BlockPlace, lent: SingleRun, since: float) -> None:
        """The flows go on by themselves, and what slowed them and the block's collectives is noted."""
        r, run, numbers = place.scope.r, lent.run, [*lent.demands]
        held: dict[int, tuple[int, Link]] = {}
        for while_ in run.slowed:
            seconds, link = min(while_.until, since) - while_.since, (r, while_.link)
            if while_.flow < 0:
                number = numbers[-1 - while_.flow]
                demand = lent.demands[number]
                if while_.since <= since <= while_.until:
                    held[number] = link
            else:
                work = place.block.ops[while_.flow].work
                assert isinstance(work, Collective)
                demand = self.rendezvous_points.own_demand(r, work)
            if seconds > 0:
                self.flows.slowed.add(demand, link, seconds, while_.rate)
        ended = []
        for number, rates, left in zip(numbers, run.beside, lent.left, strict=True):
            if not rates or rates[0][0] > since:
                self.flows.put_off(number, lent.delays_s[number] - since, self.rendezvous_points.move)
                continue
            rest = max(0.0, left - done(rates, since))
            rate = next(rate for at, rate in reversed(rates) if at <= since)
            if since >= lent.ends_s and rest <= rate * SLACK_S:
                rest = 0.0
                ended.append(number)
            self.flows.give_back(number, rest, rate, held.get(number))
        for number in ended:  # when all are back, since others hear of it
            self.flows.over(number)


def _most(flows: Iterable[Flow]) -> dict[str, float]:
    """The bytes per second that flows put on each link of their rank when nothing else uses it."""
    found: dict[str, float] = {}
    for flow in flows:
        for link, weight in flow.demand.weights:
            assert isinstance(link, tuple)
            found[link[1]] = found.get(link[1], 0.0) + weight * flow.rate
    return found


def _done_at(rates: Rates, left: float) -> float:
    """When work of ``left`` seconds or bytes has been done at these ``rates``; infinite where it never is."""
    for k, (since, rate) in enumerate(rates):
        until = rates[k + 1][0] if k + 1 < len(rates) else math.inf
        if left <= rate * (until - since):
            return since + left / rate
        left -= rate * (until - since)
    return math.inf
