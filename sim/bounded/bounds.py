"""Bounds of a step with many slow parts, from few replicas of the pipeline.

A step without shared resources is max-plus: an op starts when the last of what it waits for has ended, and
takes a time of its own, which grows with how slow its rank is. So the step grows with each of these times.
Replicas touch one another where their ranks meet in collectives alone, each of which begins when the last has
come. Two things follow. Replays of some replicas, for which nobody waits, end no later than the step (the
lower bound; ahead.py says by how much members of a tensor-parallel group may be ahead of the slowest).
Replays in which groups of replicas are one that is in each stage as slow as their slowest end no earlier
(the upper).

That holds where (``why_exact``, conditions.py)
- ranks are slow, all step long, and none stops; weak links change who shares with whom;
- ranks share links with others of their own kind alone: no link of the fabric can be full;
- ranks of one stage run one program, and replicas meet between layers, not within them;
- the step ends for all ranks together.

SMs that collectives hold leave a step monotone, where ranks arrive at these by kernels of their own
(holds.py). Shares of links do not: who comes later may find more room. But with the least, or the most, that
each communication may take beside others (extremes.py) bounds are proven (decision 67). Where the two are the
same, that costs nothing. Where they are further apart than is wanted all ranks are replayed, if that is a
matter of seconds. Else bounds are those of replays with shares as they come, wider by a margin, which is no
proof. Of 660 drawn jobs of 2 to 8 replicas four were outside of such bounds, by 0.36 to 0.43 of what the
longest communication may take from kernels; of Llama 3.1 405B with 128 replicas 0.05 of it. So both are wider
by ``MOVES`` of it, less with many replicas, and by ``LEAST`` of the step at least.

Messages of few replicas take links from collectives of all at fewer times than those of all do. What that
makes of the step is computed: by a pass (max_plus.py) in which these collectives are as slow as the messages
of all make them (traffic.py), against one in which they are as slow as those of the few do.

With every GPU a little different no group is small enough. Then a pass over all replicas says how much the
others add to the kept ones, which are replayed as they are, and both bounds are as good as that pass: wider
by ``BY_PASS`` of what it adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..children import in_children
from ..engine.replay import replay
from ..estimate import programs_work
from ..fold.ranks import ranks_of
from ..fold.whole import Folded, of_classes
from ..network.transfer import MOST_HBM
from ..program.program import Programs
from ..result.step_bounds import StepBounds
from .ahead import ahead_s
from .choose import fewer, grouped_barely, groups_of_rows, in_groups, kept_rows
from .conditions import awaiting, crossing
from .extremes import Extremes, apart, held
from .gains import gains
from .graph import graph_of
from .holds import holds_follow_kernels
from .passes import Passes
from .programs import class_of_ranks, from_above, from_below, paces, whole
from .replicas import replicas_of
from .works import each_transfer, least_speed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..engine.record import Record
    from ..fold.ranks import Degradation
    from ..lowering.lower import Lowered

    Factors = NDArray[np.float64]
    Ids = NDArray[np.int64]

TOLERANCE = 1e-3
"""The gap between the bounds, as a share of the step."""

MOST_EVENTS = 30_000
"""Of a replay of all ranks, by its estimate, that is made where no proven bounds are as near as is wanted:
about three seconds.
"""

MOST_AHEAD = 1e-4
"""Of a step, that members of tensor-parallel groups may be ahead: where it is more, all ranks of the kept
replicas are replayed.
"""

MOST_EVENTS_KEPT = 100_000
"""Of that replay, by its estimate."""

WIDE = 0.01
"""A tolerance from which on proven bounds are looked for, however many the ranks."""

MOVES = 1.0
FEW = 8
"""Of the time that the longest communication may take from kernels, by which bounds are wider; with more than
a few replicas less, by the root of their number.
"""

ROUNDING = 1e-10
"""Of a step, by which replays of few and of all may differ where they are the same."""

LEAST_SMS = 0.1
"""Of a GPU's, that its kernels have beside all collectives that may hold some."""

LEAST = 2e-4
"""Of a step in which anything contends, by which bounds are wider at least."""

MOST_KEPT = 16
MOST_GROUPS, MORE_GROUPS = 8, 2
FEW_KINDS = 24
"""Replicas that are kept, and groups of replicas, at most: no more than so many more than are kept where a
pass stands for the others, or as many as there are different replicas, if these are few.
"""

KEPT_SHARE, GROUP_SHARE = 0.5, 0.1
"""Of what contention leaves of the tolerance, that either choice of replicas may take."""

LEAST_ROOM = 0.05
"""Of the tolerance, that choices of replicas have where contention takes more than the rest."""

BY_PASS = 0.15
"""Of what a pass over all replicas adds to the step of the kept ones, by which it may be wrong: it knows a
block's kernels by their mean. Of Llama 3.1 405B on 16,384 GPUs with a spread of 2 % and 2 to 5 kept replicas
the replay of all 128 was 0.05 to 0.1 of it above.
"""

UNSURE = 0.003
"""A pass that is further from the replay of the same replicas widens the bounds by what it is further."""


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """``folded`` and ``record`` are the replay of some replicas, whose step ends when that of all is expected
    to; that does between ``bounds``. ``gains`` is what mending each part that was asked for is worth
    (gains.py).
    """

    folded: Folded
    record: Record
    bounds: StepBounds
    gains: tuple[float | None, ...] = ()


def bounded(
    lowered: Lowered,
    degradation: Degradation,
    healthy: Record,
    *,
    classes: int,
    tolerance: float = TOLERANCE,
    parts: Sequence[Mapping[int, float]] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Bounded | None:
    """Bounds of a step that has them (``why_exact``), whose gap is ``tolerance`` where few replicas decide;
    ``parts`` has, for each part that may be mended, by how much it makes ranks slow. None where all ranks are
    better replayed: they are in no more than so many ``classes``, and no proven bounds are as near.
    """
    search = _Search(lowered, degradation, healthy)
    short = programs_work(lowered.programs).events * classes / len(lowered.programs.classes) <= MOST_EVENTS
    if short or tolerance >= WIDE:
        found = search.proven(tolerance, parts, say)
        if found is not None or short:
            return found
    return search.bounds(tolerance, parts, say)


@dataclass(frozen=True, kw_only=True)
class _Few:
    """Replicas to replay, as ``members`` of groups of which each is one. The kinds of the ``kept`` ones are
    the first groups. ``passed``: the last group stands for no others but for itself, and passes do.
    """

    kept: list[int]
    members: list[Ids]
    passed: bool


class _Search:
    """The replicas of one job with what is wrong in them; ``kinds`` are groups of equal ones."""

    def __init__(self, lowered: Lowered, degradation: Degradation, healthy: Record) -> None:
        self.programs, self.ranks = lowered.programs, ranks_of(lowered)
        found = replicas_of(lowered.plan.process_groups, self.ranks, degradation)
        assert found is not None  # why_exact
        self.replicas = found
        self.kinds = found.kinds()
        graph = graph_of(healthy, crossing(self.ranks, found), awaiting(self.ranks))
        self.passes = Passes(graph, healthy.programs, found.worst(self.kinds))
        self.apart = apart(self.programs) and holds_follow_kernels(self.programs)
        self.least = least_speed(self.programs)
        self.moves = self._moves_s(healthy) / healthy.step_s
        streams = held(self.programs).values()
        sms = self._taken(sum(max(sms for sms, _ in stream) for stream in streams))
        hbm = min(MOST_HBM, sum(max(hbm for _, hbm in stream) for stream in streams)) / 1000
        self.slowed = (1 + self.programs.corun_slowdown) / max(LEAST_SMS, 1 - max(sms, hbm))

    def proven(
        self, tolerance: float, parts: Sequence[Mapping[int, float]], say: Callable[[str], None]
    ) -> Bounded | None:
        """Proven bounds that are no further apart than the tolerance, if groups of replicas have such."""
        if not self.apart and not holds_follow_kernels(self.programs):
            return None
        few = self._covering(tolerance)
        say(f"replaying {len(few.members):,} of {self.replicas.count:,} replicas")
        extremes = Extremes(self.programs, min(1.0, float(self.replicas.slow.min())))
        above = from_above(self.programs, self.ranks, self.replicas, few.members)
        below, ahead_s, _ = self._below(self._chosen(few))
        tasks = [partial(_step_s, extremes.least(below)), partial(_step_s, extremes.most(above))]
        with in_children(tasks) as steps:
            record = replay(above)
            lower_s, upper_s = steps()
        lower_s = (lower_s - ahead_s) * (1 - ROUNDING)
        upper_s *= 1 + ROUNDING
        if upper_s > lower_s * (1 + tolerance):
            return None
        table = self.replicas.worst(few.members)
        step_s = record.step_s * max(1.0, self.passes.step_s / self.passes.alone_s(table))
        step_s = min(max(step_s, lower_s), upper_s)
        return self._told(few, record, (lower_s, step_s, upper_s), parts, proven=True)

    def bounds(
        self, tolerance: float, parts: Sequence[Mapping[int, float]], say: Callable[[str], None]
    ) -> Bounded:
        """The bounds, narrowed as far as the limits of replicas allow."""
        say(f"choosing among {self.replicas.count:,} replicas")
        few = self._few(tolerance)
        say(f"replaying {len(few.members):,} of {self.replicas.count:,} replicas")
        record, lower_s, ahead_s = self._replayed(few)
        wider_s = self._moves_s(record)
        lower_s, step_s, upper_s = self._between(few, record.step_s, lower_s, ahead_s)
        lower_s, upper_s = (lower_s - wider_s) * (1 - ROUNDING), (upper_s + wider_s) * (1 + ROUNDING)
        found = min(lower_s, step_s), step_s, upper_s
        return self._told(few, record, found, parts, proven=self.apart and not few.passed)

    def _told(
        self,
        few: _Few,
        record: Record,
        found: tuple[float, float, float],
        parts: Sequence[Mapping[int, float]],
        *,
        proven: bool,
    ) -> Bounded:
        """What a replay of few and the lower bound, the likely step and the upper bound say."""
        lower_s, step_s, upper_s = found
        record.step_s = record.makespan_s = step_s
        classes = class_of_ranks(self.ranks, self.replicas, few.members)
        rest = classes < 0
        classes[rest] = self.ranks.stage[rest] + (len(few.members) - 1) * self.replicas.stages
        return Bounded(
            folded=of_classes(self.ranks, classes, record.programs),
            record=record,
            bounds=StepBounds(
                lower_s=lower_s,
                upper_s=upper_s,
                replicas=len(few.members),
                of=self.replicas.count,
                passed=few.passed,
                proven=proven,
            ),
            gains=gains(self.passes, self.replicas, self.kinds, parts) if parts else (),
        )

    def _covering(self, tolerance: float) -> _Few:
        """Replicas as they are, and the others in as many groups as may be, if not fewer are enough."""
        passes, kinds = self.passes, self.kinds
        kept = kept_rows(passes, tolerance * KEPT_SHARE, MOST_KEPT).rows
        most = FEW_KINDS if len(kinds) <= FEW_KINDS else min(MOST_GROUPS, len(kept) + MORE_GROUPS)
        rows = groups_of_rows(passes, kept, tolerance * GROUP_SHARE, most)
        rows = rows or in_groups(passes, kept, most)
        members = [np.concatenate([kinds[u] for u in row]) for row in rows]
        return _Few(kept=kept, members=members, passed=False)

    def _few(self, tolerance: float) -> _Few:
        """The replicas to replay: groups of all, if few are enough, else some as they are."""
        passes, kinds = self.passes, self.kinds
        loose = self._loose(tolerance)
        kept, most = None, FEW_KINDS
        if len(kinds) > FEW_KINDS:
            kept = kept_rows(passes, loose, MOST_KEPT)
            most = min(MOST_GROUPS, len(kept.rows) + MORE_GROUPS)
        if kept is None or grouped_barely(passes, kept.rows, most):
            room = max(LEAST_ROOM * tolerance, tolerance - 2 * self.moves - passes.traffic)
            tight = kept_rows(passes, room * KEPT_SHARE, MOST_KEPT)
            rows = groups_of_rows(passes, tight.rows, room * GROUP_SHARE, most)
            if rows is not None:
                members = [np.concatenate([kinds[u] for u in row]) for row in rows]
                return _Few(kept=tight.rows, members=members, passed=False)
            kept = kept or fewer(passes, tight, loose)
        others = [u for u in range(len(kinds)) if u not in set(kept.rows)]
        members = [kinds[u] for u in (*kept.rows, self._middle(others))]
        return _Few(kept=kept.rows, members=members, passed=True)

    def _loose(self, tolerance: float) -> float:
        """What the kept replicas may lack where a pass stands for the others, so that this and its traffic
        take no more of the tolerance than is left.
        """
        _, spread = paces(self.ranks, self.replicas, np.arange(self.replicas.count))
        ahead = self._ahead_s(spread) / self.passes.step_s
        left = (tolerance - ahead) / 2 - self.moves
        return max(LEAST_ROOM * tolerance, left / BY_PASS - self.passes.traffic)

    def _replayed(self, few: _Few) -> tuple[Record, float, float]:
        """The replay of groups of replicas, what the step takes at least, and by how much members of
        tensor-parallel groups may be ahead in the former: no bound where others than these differ (those of
        context parallelism). Where a pass stands for the others, groups are replicas as they are, and one
        replay says both.
        """
        chosen = self._chosen(few)
        programs = from_above(self.programs, self.ranks, self.replicas, few.members)
        below, off_s, ahead = self._below(chosen)
        pace, _ = paces(self.ranks, self.replicas, chosen)
        as_they_are = few.passed and np.array_equal(pace, self.passes.slow[few.kept])
        if as_they_are and off_s == ahead:
            record = replay(programs)
            lower_s = record.step_s
        else:
            with in_children([partial(_step_s, below)]) as lower:
                record = replay(programs)
                (lower_s,) = lower()
        return record, lower_s - off_s, ahead if as_they_are else math.inf

    def _below(self, chosen: Ids) -> tuple[Programs, float, float]:
        """Programs of the chosen replicas and nobody else; what is to be taken off their step; and by how
        much members of their tensor-parallel groups may be ahead. All of their ranks run where that is much,
        and these are few enough.
        """
        ahead = self._ahead_s(paces(self.ranks, self.replicas, chosen)[1])
        events = programs_work(self.programs).events * self.replicas.rank[chosen].size / self.replicas.stages
        if ahead > MOST_AHEAD * self.passes.step_s and events <= MOST_EVENTS_KEPT:
            return whole(self.programs, self.ranks, self.replicas, chosen), 0.0, ahead
        return from_below(self.programs, self.ranks, self.replicas, chosen), ahead, ahead

    def _chosen(self, few: _Few) -> Ids:
        """A replica of each kind that is kept."""
        return np.array([self.kinds[u][0] for u in few.kept])

    def _ahead_s(self, spread: Factors) -> float:
        """By how much a step may be sooner whose groups differ so, beside all collectives that hold SMs."""
        return ahead_s(self.passes.graph, (self.slowed * spread.max(axis=0)).tolist())

    def _between(
        self, few: _Few, record_s: float, lower_s: float, ahead: float
    ) -> tuple[float, float, float]:
        """What the step takes at least, most likely, and at most, from the replay of few (``record_s``, and
        ``lower_s`` from below), where contention of these does not move.
        """
        table = self.replicas.worst(few.members)
        alone_s = self.passes.alone_s(table)
        step_s = record_s * max(1.0, self.passes.step_s / alone_s)
        if not few.passed:
            upper_s = record_s * max(1.0, float(self.passes.of(table).step_s) / alone_s)
            return lower_s, min(step_s, upper_s), upper_s
        wrong_s = BY_PASS * (step_s - record_s) + step_s * max(0.0, abs(record_s / alone_s - 1) - UNSURE)
        return max(lower_s, step_s - ahead - wrong_s), step_s, step_s + wrong_s

    def _moves_s(self, record: Record) -> float:
        """By how much communication that takes SMs or links from others may make a step shorter or longer
        when it comes at another time; 0 where it takes no links, and no SMs but as ranks arrive.
        """
        if self.apart:
            return 0.0
        programs = record.programs
        slowed = programs.corun_slowdown / (1 + programs.corun_slowdown)
        taken_s = max(
            (
                one.solo_s * max(self._taken(one.sms), one.hbm / 1000, slowed)
                for one in each_transfer(programs)
            ),
            default=0.0,
        )
        share = MOVES * min(1.0, math.sqrt(FEW / self.replicas.count))
        return max(share * taken_s, LEAST * record.step_s) if taken_s or record.slowed else 0.0

    def _taken(self, sms: int) -> float:
        """The most of a kernel's speed that whatever holds so many SMs takes."""
        return max(sms / self.programs.sms, 1 - self.least) if sms else 0.0

    def _middle(self, rows: list[int]) -> int:
        """Of ``rows`` the one that is neither slow nor fast, which stands for the others."""
        order = sorted(rows, key=lambda u: float(self.passes.slow[u].sum()))
        return order[len(order) // 2]


def _step_s(programs: Programs) -> float:
    return replay(programs).step_s
