"""The steady state of ranks that run a forward and a backward in turn, from as few microbatches as show it.

Cut the program of each rank before one of its forwards, and again a period later. An op waits for its own
stream and for what other ranks sent a turn or two before, and for nothing further back. So if the last turns
before both cuts end equally far apart on all ranks, everything after the second cut is that much later than
everything after the first, and periods in between may be left out. period.py compares the whole of two
periods instead, which takes a step twice as long, and says what else has to be checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...schedules.orders.action import ActionKind
from ..program.program import Exchange, RepeatedBlocks
from ..scenario.schedules import traits_of
from .period import Period, class_lead_s, ends_alike, issues_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine.record import Record
    from ..program.program import Op
    from ..scenario.models import Scenario

MOST_BACK = 4
"""Turns before a cut for which something behind it may wait, all of which are compared: messages are posted a
turn ahead, travel to the next rank within another, and are awaited before the next but one."""

UNSETTLED = 2
"""Turns until most full pipelines have become steady."""

FORWARD, BACKWARD = (kind.name.lower() for kind in (ActionKind.FORWARD, ActionKind.BACKWARD))
"""Names of the ops that run actions (lowering/pipeline.py)."""

FALLS_BACK = 1e-6
"""Share of its time for a period by which a host loses its lead; less is rounding, or loses none in this
step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The turns of a pipeline.

    ``period`` turns make a period of so many ``microbatches``. The last ``compared`` turns before each cut
    are compared. The first cut is at least ``settled`` turns after the first backward of rank 0, which has a
    ``margin`` of turns left behind the second cut. ``warm_up`` is by how many forwards each rank is ahead of
    the next before its first backward.
    """

    period: int
    microbatches: int
    compared: int
    settled: int
    margin: int
    warm_up: int


def turns_of(scenario: Scenario) -> Turns | None:
    """The turns of a pipeline; None where its ranks do not alternate for most of the step."""
    par, schedule = scenario.parallelism, traits_of(scenario.schedule)
    rest = scenario.num_microbatches % par.pp
    if not schedule.filling or scenario.schedule_options.group is not None or (schedule.grouped and rest):
        return None
    compared = min(MOST_BACK, par.pp + 1)
    return Turns(
        period=par.virtual_stages if schedule.grouped else 1,
        microbatches=par.pp if schedule.grouped else 1,
        compared=compared,
        settled=compared + min(UNSETTLED, par.pp - 1),
        margin=par.pp // 2,
        warm_up=2 if schedule.grouped else 1,
    )


def fewest_microbatches(scenario: Scenario, turns: Turns) -> int:
    """The fewest microbatches of a step that has both cuts on every rank, and a steady stretch of one period
    on all at the same time."""
    pp, vpp = scenario.parallelism.pp, scenario.parallelism.vpp
    warm_up = (vpp + 1) * pp - 2 if turns.microbatches > 1 else pp - 1
    wanted = warm_up + turns.settled + turns.period + turns.margin + 2  # forwards of rank 0
    return -(-wanted // turns.period) * turns.microbatches


def period_of_turns(record: Record, turns: Turns, within: float) -> Period | None:
    """The period of a step whose last turns before both cuts are alike, up to a share ``within`` of it; else
    None.

    The cuts are late, where what goes on beside the first microbatches is over. If hosts that are waited for
    show that some turns differ from others, the cuts are early, where what goes on beside the last
    microbatches has not begun.
    """
    ranks = _ranks(record)
    if not ranks:
        return None
    last = _last_cut(ranks, turns)
    spare = last - turns.margin
    cuts = spare, last - turns.margin // 2, spare - 2 * turns.margin, turns.settled
    for settled in dict.fromkeys(cuts):
        if settled >= turns.settled:
            period = _period_at(record, ranks, turns, settled, within)
            if period is not None:
                return period
    return None


def microbatches_until_hosts_bind(record: Record, turns: Turns) -> int:
    """Roughly how many more microbatches a step needs to be steady, if it is not yet because hosts are still
    ahead of GPUs whose pace they do not keep; 0 where no host falls back.

    Such GPUs wait for their hosts once these have lost their lead, and then keep the hosts' pace.
    """
    ranks, periods = _ranks(record), -1.0
    cuts = _cuts(ranks, turns, _last_cut(ranks, turns) - turns.margin) if ranks else []
    for r, ((forwards, _), cut) in enumerate(zip(ranks, cuts, strict=True)):
        issued, ends = issues_s(record, r), record.end[r]
        first, second = forwards[cut], forwards[cut + turns.period]
        own_s = issued[second] - issued[first]
        falls_s = own_s - (ends[second] - ends[first])
        if falls_s > FALLS_BACK * own_s:
            periods = max(periods, (record.begin[r][second] - issued[second]) / falls_s)
    if periods < 0:
        return 0
    return math.ceil(1 + periods + turns.settled / turns.period) * turns.microbatches


def _ranks(record: Record) -> list[tuple[list[int], int]]:
    """``_forwards`` of all ranks; none if any rank has actions of other kinds."""
    found = [_forwards(program.ops) for program in record.programs.classes]
    ranks = [one for one in found if one is not None]
    return ranks if len(ranks) == len(found) else []


def _last_cut(ranks: Sequence[tuple[list[int], int]], turns: Turns) -> int:
    """Turns after the first backward of the rank that is furthest ahead, after which every rank has a period
    left."""
    return min(len(forwards) - ahead for forwards, ahead in ranks) - turns.period


def _cuts(ranks: Sequence[tuple[list[int], int]], turns: Turns, settled: int) -> list[int]:
    """For each rank, the forward before which it is cut; the turns of later ranks are ahead."""
    most = max(ahead for _, ahead in ranks)
    return [ahead - 1 + settled + (most - ahead) // turns.warm_up for _, ahead in ranks]


def _period_at(
    record: Record, ranks: Sequence[tuple[list[int], int]], turns: Turns, settled: int, within: float
) -> Period | None:
    """The period of a step whose first cut is ``settled`` turns after the first backward of the rank that is
    furthest ahead."""
    cuts = _cuts(ranks, turns, settled)
    begins = [forwards for forwards, _ in ranks]
    return period_between(record, begins, cuts, turns.period, turns.compared, within)


def period_between(
    record: Record,
    begins: Sequence[list[int]],
    cuts: Sequence[int],
    period: int,
    compared: int,
    within: float,
) -> Period | None:
    """The period of a step, if the ``compared`` turns before both cuts are alike, up to a share ``within`` of
    it; else None.

    ``begins`` has for each rank the first op of each turn. The rank is cut before the turn that ``cuts``
    says, and again ``period`` turns later.
    """
    leads_s, seconds, since_s, until_s = dict[int, float](), None, 0.0, math.inf
    for r, (forwards, cut) in enumerate(zip(begins, cuts, strict=True)):
        ops = record.programs.classes[r].ops
        first, second, between = _compared(ops, forwards, cut, period, compared)
        if not first:
            return None
        ends = record.end[r]
        if seconds is None:
            seconds = ends[second[-1]] - ends[first[-1]]
        if not ends_alike(record, r, first, second, seconds, within * seconds):
            return None
        lead_s = class_lead_s(record, r, first, second, between, seconds, within * seconds)
        if lead_s is None:
            return None
        leads_s[r] = lead_s
        since_s = max(since_s, max(ends[i] for i in first))
        until_s = min(until_s, ends[forwards[-1]])
    if seconds is None or since_s + seconds > until_s:
        return None
    return Period(seconds=seconds, since_s=since_s, leads_s=leads_s)


def _forwards(ops: Sequence[Op]) -> tuple[list[int], int] | None:
    """The first op of each forward of a rank, and how many come before its first backward; None if it has
    actions of other kinds."""
    found: list[int] = []
    ahead, last = 0, ""
    for i, op in enumerate(ops):
        if not op.action or op.action == last or not isinstance(op.work, RepeatedBlocks):
            continue
        last = op.action
        if op.name == FORWARD:
            found.append(i)
        elif op.name != BACKWARD:
            return None
        elif not ahead:
            ahead = len(found)
    return (found, ahead) if ahead else None


def _compared(
    ops: Sequence[Op], forwards: Sequence[int], cut: int, period: int, compared: int
) -> tuple[range, range, range]:
    """Ops of the last turns before both cuts, and of the period between them; none where there are too few,
    or where something other than actions and messages goes on in that period."""
    nothing = range(0), range(0), range(0)
    if cut < max(compared, period) or cut + period >= len(forwards):
        return nothing
    here, there = (range(forwards[at - compared], forwards[at]) for at in (cut, cut + period))
    between = range(forwards[cut], forwards[cut + period])
    plain = all(isinstance(ops[i].work, RepeatedBlocks | Exchange) for i in between)
    if not plain or [ops[i].name for i in here] != [ops[i].name for i in there]:
        return nothing
    return here, there, between
