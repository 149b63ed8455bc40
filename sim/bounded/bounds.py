"""Bounds of a step with many slow parts, from few replicas of the pipeline.

A step without shared resources is max-plus: an op starts when the last of what it waits for has ended, and
takes a time of its own, which grows with how slow its rank is. So the step can only grow when any of these
times grows. Replicas meet only where their ranks take part in the same collectives, and each of these begins
when the last rank has come. Two bounds follow.

- The lower bound: a replay of some replicas that wait for nobody else ends no later than the step. Within a
  replica a whole tensor-parallel group runs at the pace of its slowest member; member_slack.py says how much
  sooner it may be.
- The upper bound: replicas are merged into groups, each stage of a group as slow as the slowest rank there. A
  replay of the groups ends no earlier than the step.

Both hold under these conditions (``why_exact`` in conditions.py):
- ranks are slow for the whole step, and none stops; weak links would change who shares with whom;
- ranks share links only with others of their own kind: no link of the fabric can be full;
- ranks of one stage run one program, and replicas meet between layers, not within them;
- the step ends for all ranks together.

Contention needs more care. SMs that collectives hold keep a step monotone where ranks arrive at these
collectives by kernels of their own (sm_holding.py). Shares of links do not: a message that comes later may
find more room. If every communication takes the least, or the most, that it may take beside others
(extremes.py), the bounds are proven (docs/decisions/0067-bounds-that-are-proven.md), and where least and most
are the same they cost nothing. If these bounds are further apart than wanted, all ranks are replayed where
that is a matter of seconds.

Otherwise the replays share links as it comes, and the bounds are wider by a margin, which is no proof. Of 660
drawn jobs of 2 to 8 replicas four lay outside of bounds without a margin, by 0.36 to 0.43 of what the longest
communication may take from kernels; Llama 3.1 405B with 128 replicas by 0.05 of it. So both bounds are wider
by ``MOVES`` of that time, less with many replicas, and by ``LEAST`` of the step at least.

The messages of few replicas slow the collectives of all replicas at fewer moments than the messages of all
do. The difference is computed by two passes (max_plus.py): in one these collectives are as slow as the
messages of all make them (traffic.py), in the other as slow as those of the few do.

Where every GPU differs a little, no few groups are close enough. Then a pass over all replicas says how much
the others add to the kept ones, which are replayed as they are. Both bounds are as good as that pass: they
are wider by ``BY_PASS`` of what it adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.gemm import LEAST_SMS
from ..children import in_children
from ..engine.replay import replay
from ..estimate import programs_work
from ..fold.fold import Folded, of_classes
from ..fold.ranks import ranks_of
from ..network.transfer import MOST_HBM
from ..program.program import Programs
from ..result.step_bounds import StepBounds
from .choose_replicas import fewer, grouped_barely, groups_of_rows, in_groups, kept_rows
from .conditions import awaiting, crossing
from .extremes import Extremes, apart, held, least
from .gains import gains
from .graph import graph_of
from .member_slack import member_slack_s
from .op_costs import each_transfer, least_speed
from .passes import Passes
from .programs import class_of_ranks, from_above, from_below, paces, whole
from .replicas import replicas_of
from .sm_holding import holds_follow_kernels

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
"""Estimated events up to which all ranks are replayed where no proven bounds are as near as wanted; a replay
of so many takes about three seconds."""

MOST_AHEAD = 1e-4
"""Share of a step by which members of tensor-parallel groups may be ahead of the slowest. Where it is more,
all ranks of the kept replicas are replayed."""

MOST_EVENTS_KEPT = 100_000
"""Estimated events up to which that replay of all ranks of the kept replicas is made."""

WIDE = 0.01
"""Tolerance from which on proven bounds are looked for first, whatever the number of ranks."""

MOVES = 1.0
FEW = 8
"""Bounds without a proof are wider by ``MOVES`` times the seconds that the longest communication may take
from kernels; with more than ``FEW`` replicas by less, in inverse proportion to the root of their number."""

ROUNDING = 1e-10
"""Relative difference that rounding may make between replays of few and of all replicas which agree exactly.
"""

LEAST = 2e-4
"""Share of the step by which bounds without a proof are wider at least, if anything in the step contends."""

MOST_KEPT = 16
MOST_GROUPS, MORE_GROUPS = 8, 2
FEW_KINDS = 24
"""At most ``MOST_KEPT`` replicas are kept as they are. Kept ones and groups together are at most
``MORE_GROUPS`` more than the kept ones, and at most ``MOST_GROUPS``; in a job of at most ``FEW_KINDS``
different replicas they may be as many as these."""

KEPT_SHARE, GROUP_SHARE = 0.5, 0.1
"""Shares of the tolerance which contention leaves: for what the kept replicas may lack of the whole step, and
for what merging the others into groups may add to it."""

LEAST_ROOM = 0.05
"""Share of the tolerance that these choices have at least, where contention takes more than the rest."""

BY_PASS = 0.15
"""Error of a pass over all replicas, as a share of what it adds to the step of the kept ones, since it knows
only the mean of a block's kernels: 0.05 to 0.1 for Llama 3.1 405B with a spread of 2 % and 2 to 5 kept
replicas."""

UNSURE = 0.003
"""Relative difference up to which a pass and the replay of the same replicas agree. Bounds are wider by what
they differ beyond that."""


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """A step between ``bounds``. ``folded`` and ``record`` are the replay of some replicas, whose end is set
    to the expected end of the whole step. ``gains`` has, for each part that was asked for, the share of the
    step that mending it saves (gains.py)."""

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
    """Bounds of a step for which ``why_exact`` finds no obstacle; None where replaying all ranks is better.

    The bounds are at most ``tolerance`` apart, a share of the step, if few replicas decide it. ``classes`` is
    the most classes that a replay of all ranks would have: the result is None if that replay is short and no
    proven bounds are near enough. ``parts`` has, for each part that may be mended, the factor of every rank
    that it makes slow. ``say`` is told what goes on.
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
    """Which replicas to replay. Each group in ``members`` runs as one replica, and the ``kept`` kinds are the
    first groups. If ``passed``, the last group stands for itself alone, and passes account for all other
    replicas."""

    kept: list[int]
    members: list[Ids]
    passed: bool


class _Search:
    """The search for bounds of one job. ``kinds`` are groups of equal replicas."""

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
        self.slowed = (1 + self.programs.corun_slowdown) / (1 - max(sms, hbm))

    def proven(
        self, tolerance: float, parts: Sequence[Mapping[int, float]], say: Callable[[str], None]
    ) -> Bounded | None:
        """Proven bounds that are no further apart than ``tolerance``; None where no groups of replicas have
        such."""
        if not self.apart and not holds_follow_kernels(self.programs):
            return None
        few = self._covering(tolerance)
        say(f"replaying {len(few.members):,} of {self.replicas.count:,} replicas")
        extremes = Extremes(self.programs, min(1.0, float(self.replicas.slow.min())))
        above = from_above(self.programs, self.ranks, self.replicas, few.members)
        below, slack_s, _ = self._below(self._chosen(few))
        tasks = [partial(_step_s, least(below)), partial(_step_s, extremes.most(above))]
        with in_children(tasks) as steps:
            record = replay(above)
            lower_s, upper_s = steps()
        lower_s = (lower_s - slack_s) * (1 - ROUNDING)
        upper_s *= 1 + ROUNDING
        if upper_s > lower_s * (1 + tolerance):
            return None
        table = self.replicas.worst(few.members)
        step_s = record.step_s * max(1.0, self.passes.step_s / self.passes.alone_s(table))
        step_s = min(max(step_s, lower_s), upper_s)
        return self._result(few, record, (lower_s, step_s, upper_s), parts, proven=True)

    def bounds(
        self, tolerance: float, parts: Sequence[Mapping[int, float]], say: Callable[[str], None]
    ) -> Bounded:
        """The bounds, as near to each other as the limits on replicas allow."""
        say(f"choosing among {self.replicas.count:,} replicas")
        few = self._few(tolerance)
        say(f"replaying {len(few.members):,} of {self.replicas.count:,} replicas")
        record, lower_s, slack_s = self._replayed(few)
        wider_s = self._moves_s(record)
        lower_s, step_s, upper_s = self._between(few, record.step_s, lower_s, slack_s)
        lower_s, upper_s = (lower_s - wider_s) * (1 - ROUNDING), (upper_s + wider_s) * (1 + ROUNDING)
        found = min(lower_s, step_s), step_s, upper_s
        return self._result(few, record, found, parts, proven=self.apart and not few.passed)

    def _result(
        self,
        few: _Few,
        record: Record,
        found: tuple[float, float, float],
        parts: Sequence[Mapping[int, float]],
        *,
        proven: bool,
    ) -> Bounded:
        """The result, from a replay of few and ``found``: the lower bound, the likely step and the upper
        bound."""
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
        """Groups for a replay: the kept replicas as they are, and the others in as many groups as allowed,
        or in fewer if these suffice."""
        passes, kinds = self.passes, self.kinds
        kept = kept_rows(passes, tolerance * KEPT_SHARE, MOST_KEPT).rows
        most = FEW_KINDS if len(kinds) <= FEW_KINDS else min(MOST_GROUPS, len(kept) + MORE_GROUPS)
        rows = groups_of_rows(passes, kept, tolerance * GROUP_SHARE, most)
        rows = rows or in_groups(passes, kept, most)
        members = [np.concatenate([kinds[u] for u in row]) for row in rows]
        return _Few(kept=kept, members=members, passed=False)

    def _few(self, tolerance: float) -> _Few:
        """The replicas to replay: all of them in groups if few are enough, else some as they are."""
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
        """What the kept replicas may lack of the step, as a share, where a pass accounts for the others. So
        chosen that the error of the pass and its traffic fit into what contention leaves of the tolerance."""
        _, spread = paces(self.ranks, self.replicas, np.arange(self.replicas.count))
        ahead = self._ahead_s(spread) / self.passes.step_s
        left = (tolerance - ahead) / 2 - self.moves
        return max(LEAST_ROOM * tolerance, left / BY_PASS - self.passes.traffic)

    def _replayed(self, few: _Few) -> tuple[Record, float, float]:
        """The replay of the groups, the least that the step takes, and how far tensor-parallel members may be
        ahead.

        The last is infinite, so that the replay is no lower bound, where members of other groups differ too
        (context parallelism). Where a pass accounts for the others, the groups are single replicas, and one
        replay serves as both.
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
        """Programs of the chosen replicas alone, the seconds to subtract from their step, and how far
        members of their tensor-parallel groups may be ahead. If that is far, and ranks are few, all ranks
        run, and nothing is subtracted."""
        ahead = self._ahead_s(paces(self.ranks, self.replicas, chosen)[1])
        events = programs_work(self.programs).events * self.replicas.rank[chosen].size / self.replicas.stages
        if ahead > MOST_AHEAD * self.passes.step_s and events <= MOST_EVENTS_KEPT:
            return whole(self.programs, self.ranks, self.replicas, chosen), 0.0, ahead
        return from_below(self.programs, self.ranks, self.replicas, chosen), ahead, ahead

    def _chosen(self, few: _Few) -> Ids:
        """One replica of each kept kind."""
        return np.array([self.kinds[u][0] for u in few.kept])

    def _ahead_s(self, spread: Factors) -> float:
        """How many seconds shorter a step may be whose group members differ by ``spread``, even if all
        collectives that hold SMs slow their kernels."""
        return member_slack_s(self.passes.graph, (self.slowed * spread.max(axis=0)).tolist())

    def _between(
        self, few: _Few, record_s: float, lower_s: float, ahead: float
    ) -> tuple[float, float, float]:
        """The least, most likely and largest seconds of the step, before margins for contention.

        ``record_s`` is the replay of few, ``lower_s`` that from below, ``ahead`` how far members may be
        ahead.
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
        """How many seconds the step may change by when communication takes SMs or links from others at
        another time; 0 where it takes no links, and holds SMs only from when ranks arrive by themselves."""
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
        """The largest share of a kernel's speed that holding so many SMs takes."""
        return max(min(sms / self.programs.sms, 1 - LEAST_SMS), 1 - self.least) if sms else 0.0

    def _middle(self, rows: list[int]) -> int:
        """The one of ``rows`` that is neither slow nor fast, which stands for the others."""
        order = sorted(rows, key=lambda u: float(self.passes.slow[u].sum()))
        return order[len(order) // 2]


def _step_s(programs: Programs) -> float:
    return replay(programs).step_s
