"""Runs of blocks and repeated blocks while nothing begins or ends beside them, each replayed once.

Besides the blocks of the group's members, a run depends on four things: the members' links, their slowness
and whom they meet (``JointGroup.kind``); how far apart they reach it; the SMs that others hold and the
communications of others that move all the while (``Contention``); and how far each host is ahead when it
starts. All leads in which no op waits for its host count as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from ..program.program import Block, Program, Programs, RepeatedBlocks
from .block_alone import NOTHING, FlowsBeside, State, begun, run_alone
from .blocks import BlockRun, Rates, RepeatedRun
from .groups import JointGroup
from .own_rates import OwnRates
from .rank_state import Contention, RankState
from .ticks import ticks

Arrival = tuple[float, float, Contention]
"""How a member reaches a block or repeated blocks: seconds after the first member (infinite: never), seconds
by which its host is ahead (infinite: no op waits for it), and what others hold of its rank all the while.

A plain tuple because it is part of every key.
"""

MOST_REMEMBERED = 4096
"""Runs of blocks from a state or beside flows that are remembered, of some 10 kB each: where many classes are
never in the same state twice, they would only take memory.
"""

NEVER: Arrival = (math.inf, math.inf, (0, 0, 0))

Arrivals = tuple[Arrival, ...]

Times = tuple[list[float], list[float], list[float], list[Rates]]
"""Start, begin and end in seconds, and rates of progress, each by op."""

Together = Callable[[Programs, Arrivals], list[Times]]
"""Replays classes that reach their programs at given times."""


@dataclass
class Runs:
    """Runs of the blocks and repeated blocks of one set of programs; ``together`` replays blocks."""

    programs: Programs
    together: Together
    _blocks: dict[tuple[object, ...], tuple[BlockRun, ...]] = field(default_factory=dict)
    _repeated_blocks: dict[tuple[object, ...], tuple[RepeatedRun, ...]] = field(default_factory=dict)
    _leads: dict[tuple[object, ...], tuple[float, ...]] = field(default_factory=dict)
    _free: dict[tuple[object, ...], tuple[RepeatedRun, list[float], dict[int, RepeatedRun]]] = field(
        default_factory=dict
    )
    _rates: dict[int, OwnRates] = field(default_factory=dict)
    _told: dict[tuple[object, ...], RepeatedRun] = field(default_factory=dict)
    _rests: dict[tuple[object, ...], BlockRun | None] = field(default_factory=dict)
    _beside: dict[tuple[object, ...], BlockRun | None] = field(default_factory=dict)

    def repeated_blocks(
        self, group: JointGroup, repeated_blocks: tuple[RepeatedBlocks, ...], number: int, arrivals: Arrivals
    ) -> tuple[RepeatedRun, ...]:
        """How the repeated blocks of each member run from block ``number`` on; by member."""
        if len(repeated_blocks) == 1:
            ((_, lead_s, contention),) = arrivals
            return (self.alone(group, repeated_blocks[0], number, lead_s, contention),)
        names = tuple(map(id, repeated_blocks))
        free = tuple([(ticks(at), math.inf, contention) for at, _, contention in arrivals])
        known = group.kind, names, number, free
        leads = self._leads.get(known)
        if leads is None:
            runs = self._repeated_blocks[known] = self._row(group, repeated_blocks, number, free)
            leads = tuple(run.lead_s(s) for run, s in zip(runs, repeated_blocks, strict=True))
            self._leads[known] = leads
        if _far_enough(arrivals, leads):
            return self._repeated_blocks[known]
        told = tuple([(ticks(at), ticks(lead_s), contention) for at, lead_s, contention in arrivals])
        key = group.kind, names, number, told
        if key not in self._repeated_blocks:
            self._repeated_blocks[key] = self._row(group, repeated_blocks, number, told)
        return self._repeated_blocks[key]

    def alone(
        self, group: JointGroup, repeated: RepeatedBlocks, number: int, lead_s: float, contention: Contention
    ) -> RepeatedRun:
        """The run of a class by itself; one run of all blocks contains those that begin later."""
        known = group.kind, id(repeated), contention
        free = self._free.get(known)
        if free is None:
            whole = self._undelayed(group, repeated, contention)
            free = self._free[known] = whole, whole.leads_s(repeated), {0: whole}
        whole, leads_s, rests = free
        if lead_s >= leads_s[number]:
            rest = rests.get(number)
            if rest is None:
                rest = rests[number] = whole.rest(number)
            return rest
        key = *known, number, ticks(lead_s)
        if key not in self._told:
            self._told[key] = self._awaiting(group, repeated, number, key[-1], whole, leads_s, contention)
        return self._told[key]

    def _undelayed(self, group: JointGroup, repeated: RepeatedBlocks, contention: Contention) -> RepeatedRun:
        """All blocks, one as soon as the one before has ended."""
        arrivals = ((0.0, math.inf, contention),)
        distinct = {id(block): block for block in repeated.row}
        known = {name: self._block(group, (block,), arrivals)[0] for name, block in distinct.items()}
        runs = [known[id(block)] for block in repeated.row]
        bases = list(accumulate((run.last for run in runs), initial=0.0))
        last = bases.pop()
        return RepeatedRun(0, runs, bases, 0.0, last)

    def _awaiting(
        self,
        group: JointGroup,
        repeated: RepeatedBlocks,
        number: int,
        lead_s: float,
        whole: RepeatedRun,
        leads_s: Sequence[float],
        contention: Contention,
    ) -> RepeatedRun:
        """Blocks that wait for a host so far ahead, until it is far enough."""
        runs: list[BlockRun] = []
        bases: list[float] = []
        issued_s, reached = -lead_s - repeated.issued_s[number], 0.0
        for k in range(number, len(repeated.row)):
            at = issued_s + repeated.issued_s[k]
            reached = max(reached, at)
            if reached - at >= leads_s[k]:
                offset = whole.bases[k] - reached
                bases += [base - offset for base in whole.bases[k:]]
                runs += whole.runs[k:]
                reached = whole.last - offset
                break
            (run,) = self._block(group, (repeated.row[k],), ((0.0, reached - at, contention),))
            bases.append(reached)
            runs.append(run)
            reached += run.last
        return RepeatedRun(number, runs, bases, 0.0, reached)

    def _row(
        self, group: JointGroup, repeated_blocks: tuple[RepeatedBlocks, ...], number: int, arrivals: Arrivals
    ) -> tuple[RepeatedRun, ...]:
        """Block after block; members are apart by as much as they end the one before."""
        members = range(len(repeated_blocks))
        reached = [at for at, _, _ in arrivals]
        issued = [at - lead_s for at, lead_s, _ in arrivals]  # the first op of the first block
        rows: list[list[BlockRun]] = [[] for _ in members]
        bases: list[float] = []
        for k in range(number, len(repeated_blocks[0].row)):
            leads = []
            for m, repeated in enumerate(repeated_blocks):
                at = issued[m] + repeated.issued_s[k] - repeated.issued_s[number]
                reached[m] = max(reached[m], at)
                leads.append(reached[m] - at if reached[m] < math.inf else math.inf)
            base = min(reached)
            if base == math.inf:
                break
            apart = tuple((ticks(reached[m] - base), leads[m], arrivals[m][2]) for m in members)
            runs = self._block(group, tuple(s.row[k] for s in repeated_blocks), apart)
            bases.append(base)
            for m, run in enumerate(runs):
                rows[m].append(run)
                reached[m] = base + run.last
        return tuple(RepeatedRun(number, rows[m], bases, arrivals[m][0], reached[m]) for m in members)

    def _block(
        self, group: JointGroup, blocks: tuple[Block, ...], arrivals: Arrivals
    ) -> tuple[BlockRun, ...]:
        free = tuple((at, math.inf, contention) for at, _, contention in arrivals)
        known = group.kind, blocks, free
        if known not in self._blocks:
            self._blocks[known] = self._replayed(group, blocks, free)
        if _far_enough(arrivals, [run.lead_s for run in self._blocks[known]]):
            return self._blocks[known]
        told = tuple((at, ticks(lead_s), contention) for at, lead_s, contention in arrivals)
        key = group.kind, blocks, told
        if key not in self._blocks:
            self._blocks[key] = self._replayed(group, blocks, told)
        return self._blocks[key]

    def _replayed(
        self, group: JointGroup, blocks: tuple[Block, ...], arrivals: Arrivals
    ) -> tuple[BlockRun, ...]:
        if len(blocks) == 1:
            alone = self._by_itself(group, blocks[0], arrivals[0])
            if alone is not None:
                return (alone,)
        programs = Programs(
            classes=tuple(Program(ops=block.ops) for block in blocks),
            communicators=group.communicators,
            links=group.links,
            sms=self.programs.sms,
            corun_slowdown=self.programs.corun_slowdown,
            bindings=group.bindings,
        )
        found = []
        all_times = self.together(programs, arrivals)
        for block, (at, _, _), times, binding in zip(
            blocks, arrivals, all_times, group.bindings, strict=True
        ):
            start, begin, end, rates = times
            last = max(end, default=at)
            run = BlockRun(block, at, max(last, at), start, begin, end, rates, binding.slow)
            found.append(run)
        return tuple(found)

    def _by_itself(self, group: JointGroup, block: Block, arrival: Arrival) -> BlockRun | None:
        """The run of one block of a class by itself, where that takes no replay; else None."""
        at, lead_s, contention = arrival
        if at or (lead_s == math.inf and not block.ops):
            return None
        if lead_s == math.inf:
            return self._undisturbed(group, block, contention, NOTHING)
        return self._course(group, block, lead_s, contention)

    def _undisturbed(
        self, group: JointGroup, block: Block, contention: Contention, beside: FlowsBeside
    ) -> BlockRun | None:
        """The run of a whole block beside flows, with its host far ahead; None where it does not run as a
        whole."""
        known = group.kind, block, contention, _names(beside), None
        if known not in self._beside:
            self._beside[known] = self._course(group, block, math.inf, contention, beside)
        return self._beside[known]

    def _course(
        self,
        group: JointGroup,
        block: Block,
        lead_s: float,
        contention: Contention,
        beside: FlowsBeside = NOTHING,
        state: State | None = None,
        whole: BlockRun | None = None,
    ) -> BlockRun | None:
        """A run of a class by itself that needs no clock, if it does not. ``whole`` is that of all the block,
        which shows how it goes on from a moment at which all its streams join.
        """
        binding, (held_sms, held_hbm, moving) = group.bindings[0], contention
        rank = RankState(
            binding.sms or self.programs.sms,
            self.programs.corun_slowdown,
            binding.slow,
            held_sms=held_sms,
            held_hbm=held_hbm,
            moving=moving,
        )
        found = run_alone(block, -lead_s, rank, self.own_rates(group), beside, state, whole)
        if found is None:
            return None
        start, end, rates, others, slowed = found
        left, last = begun(state) if state else {}, max(end, default=0.0)
        return BlockRun(block, 0.0, last, start, start, end, rates, binding.slow, left, others, slowed)

    def rest(self, group: JointGroup, block: Block, contention: Contention, k: int) -> BlockRun | None:
        """The run of a whole block that nothing is beside, for who goes on as it does from op ``k`` on: of
        what slowed its ops, only that and later ones. None where it does not run as a whole."""
        known = group.kind, block, contention, k
        if known not in self._rests:
            whole = self._undisturbed(group, block, contention, NOTHING)
            if whole is not None:
                whole = replace(whole, slowed=[one for one in whole.slowed if one.flow >= k])
            self._rests[known] = whole
        return self._rests[known]

    def own_rates(self, group: JointGroup) -> OwnRates:
        """What transfers of a class by itself, and flows beside them, move on the links of its rank."""
        if group.kind not in self._rates:
            self._rates[group.kind] = OwnRates(group.links[0])
        return self._rates[group.kind]

    def beside(
        self,
        group: JointGroup,
        block: Block,
        lead_s: float,
        contention: Contention,
        beside: FlowsBeside,
        state: State | None = None,
    ) -> BlockRun | None:
        """How a block of a class by itself runs, or goes on from a state, beside flows (``own_rates``) and
        with its host so far ahead of its first op. None where only a replay in detail tells.
        """
        if len(self._beside) > MOST_REMEMBERED:
            self._beside.clear()
        known = group.kind, block, contention, _names(beside), state
        free = self._beside.get(known)
        if free is None and known not in self._beside:
            free = self._undisturbed(group, block, contention, beside.moving())
            if state is not None or beside.delays_s:
                free = self._course(group, block, math.inf, contention, beside, state, free)
            self._beside[known] = free
        if free is None or lead_s >= (block.issued_s[-1] if block.ops else 0.0) or lead_s >= free.lead_s:
            return free  # none waits for a host that has issued all by then
        key = *known, ticks(lead_s)
        if key not in self._beside:
            self._beside[key] = self._course(group, block, key[-1], contention, beside, state)
        return self._beside[key]


def _names(beside: FlowsBeside) -> tuple[object, ...]:
    """What tells flows beside a block from others: their demands are kept as long as runs are."""
    demands, delays_s = beside
    return *map(id, demands), *delays_s


def _far_enough(arrivals: Arrivals, leads: Sequence[float]) -> bool:
    """Whether no op of any member waits for its host; ``leads`` are what that takes."""
    return all(one[1] >= lead_s for one, lead_s in zip(arrivals, leads, strict=True))
