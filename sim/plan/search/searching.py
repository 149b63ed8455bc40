"""The search proper: the best layouts, of all or of some, and an audit of what was ruled out.

Knows candidates, an objective and who judges. Does not know how a space is made, nor any view.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...result.result import SURE_TO_FIT
from ..axes import Axes
from .best_first import Final, Ranked, Told, best_first, in_turn, nobody_begins, nothing_told
from .certificate import Certificate
from .goodput import GoodputShares
from .objective import Objective, PlanLimits, most_s, weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .candidates import Candidates
    from .emission import Emission
    from .judged import JudgedLayout
    from .judging import Judging

AUDIT_SEED = 18
"""Which of the layouts that were ruled out are replayed is the same every time."""


WORTH_TIGHTENING = 5_000
"""Actions of a replay from which on its bound is tightened before, whatever that takes."""

QUICKLY_TIGHTENED = 150
"""The same where a bound by actions goes through few more actions than the replay does (QUICK times), and
many such layouts may have to be replayed (MANY_NEAR)."""

QUICK = 2.0
"""Times the actions of a replay, up to which a bound by actions takes much less than that: an action of a
bound takes a fifth of one of a replay or less, and a replay is of a shortened step."""

NEAR = 0.97
"""Bounds of screening over replayed steps, in the median (docs/decisions/0024-layouts-as-arrays.md): a layout
whose bound is within this factor of the least one is likely to be replayed."""

MANY_NEAR = 20
"""Layouts so near, of short replays, from which on bounds by actions take less than the replays they save."""


LOSES = 1.02
"""Times the best objective: a layout whose bound is above that loses without a LONG replay. Its factor is
then reported as a lower bound."""

LONG = 10_000
"""Actions from which on a replay is long: it takes some seconds where messages share the network with
blocks, and a tenth of that without shared links."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is asked of a plan: the ``top`` best layouts by ``objective`` that fit with a probability of
    ``fits`` and meet the ``limits``; with an ``emission``, only layouts that its framework can express.
    ``audit`` layouts that bounds rule out are replayed all the same. At most ``replays`` are spent on the
    proof. ``axes`` are the fields that take several values where they are neither fixed nor varied.
    """

    top: int = 5
    objective: Objective = Objective.STEP_TIME
    limits: PlanLimits = field(default_factory=PlanLimits)
    fits: float = SURE_TO_FIT
    audit: int = 20
    replays: int | None = None
    emission: Emission | None = None
    axes: Axes = Axes.LAYOUT


@dataclass
class LayoutSearch:
    """One search. Where the objective is not a multiple of the step time, ``final`` turns a layout's value
    into its true one, and ``wall_s`` are the seconds of a step including the cost of faults. ``value`` holds
    the objective of each judged layout. ``floor_s`` holds lower bounds of steps by their actions, for the
    layouts for which one was computed; 0 where none can be. The ``beaten`` are known to be off the front
    without a replay.
    """

    among: Candidates
    wishes: Wishes
    judging: Judging
    final: Final | None = None
    wall_s: dict[int, float] = field(default_factory=dict)
    tell: Told = nothing_told
    value: dict[int, float] = field(default_factory=dict)
    floor_s: dict[int, float] = field(default_factory=dict)
    beaten: set[int] = field(default_factory=set)
    _drawn: dict[frozenset[int], list[int]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.shares = GoodputShares(self.judging.replications)
        """Shares of time that count under faults, by the same workers."""
        self._weights = weights(self.wishes.objective, self.among)
        self.most_s = most_s(self.wishes.limits, self.among)
        self.fits = np.asarray(self.among.fit_probability >= self.wishes.fits, dtype=bool)
        within = self.among.bounds.bound_s <= self.most_s
        self.open = self.fits & within
        """Layouts that fit, and may meet the limits."""
        self.open_bound = np.where(within, self.among.bounds.bound_s * self._weights, np.inf)
        """Bounds of all layouts that may meet the limits, whether they fit or not."""
        self.bound = np.where(self.fits, self.open_bound, np.inf)
        self.screened_bound = self.bound.copy()
        self.bound_s = self.among.bounds.bound_s.copy()
        """Seconds of a step at least, as tight as is known so far."""
        self._worth_tightening = self._long_or_many()

    def _long_or_many(self) -> NDArray[np.bool_]:
        """The layouts of which a bound by actions takes less than the replays that it saves."""
        replayed, bounded = self.among.replayed_actions, self.among.bounded_actions
        long = np.asarray(replayed >= WORTH_TIGHTENING, dtype=bool)
        quick = (replayed >= QUICKLY_TIGHTENED) & (bounded <= QUICK * replayed)
        near = np.isfinite(self.bound) & (NEAR * self.bound <= self.bound.min(initial=np.inf))
        return long | quick if int((quick & near & ~long).sum()) >= MANY_NEAR else long

    def best(self, within: NDArray[np.bool_] | None = None, *, top: int, limit: int | None = None) -> Ranked:
        """The best layouts, of all or of some; of these as many are judged as ``limit`` says.

        Of all, bounds are tightened before anyone is judged by them, and stay so for whoever asks.
        """
        ranked = best_first(
            self.bound if within is None else np.where(within, self.bound, np.inf),
            self.values,
            top=top,
            first=self._first if within is None else [],
            final=self.final,
            tighten=self._tightened if within is None else None,
            lesser=self.lighter,
            limit=limit,
            begin=self._begin,
            expect=self.expect,
            foresee=self._foresee if within is None and limit is None else nobody_begins,
            tell=self.tell,
        )
        if ranked.interrupted and within is None and self.final is None:
            ranked = self._with_arrived(ranked, top)
        self.value |= ranked.value
        return ranked

    def _with_arrived(self, ranked: Ranked, top: int) -> Ranked:
        """The best so far, with what workers did ahead of the one that was awaited."""
        value = dict(ranked.value)
        for i, judged in self.judging.arrived().items():
            if np.isfinite(self.bound[i]):
                self.judging.known[i] = judged
                value[i] = self.value_of(i, judged)
        best = sorted((found, i) for i, found in value.items() if np.isfinite(found))
        return replace(ranked, best=tuple(i for _, i in best[:top]), value=value)

    def expect(self, numbers: Iterable[int]) -> None:
        """Let idle workers compute bounds by actions that may be asked for next."""
        new = (i for i in numbers if i not in self.floor_s)
        self.judging.soon_bounded = [i for i in new if self._worth_tightening[i]]

    def tighten(self, numbers: Iterable[int], *, beside: Iterable[int] = ()) -> None:
        """Bound the steps of layouts action by action, where a replay takes much longer than that. Bounds of
        those ``beside`` these are worked out meanwhile, though they are told only when they are asked for."""
        new = [i for i in dict.fromkeys(numbers) if i not in self.floor_s]
        self.floor_s |= dict.fromkeys(new, 0.0)
        asked = [i for i in new if self._worth_tightening[i]]
        for i, floor_s in zip(asked, self.judging.floors_s([*asked, *beside]), strict=False):
            self.floor_s[i] = floor_s
            for j in (i, *self._heavier(i)):
                self._raise(j, floor_s)

    def _raise(self, i: int, floor_s: float) -> None:
        self.bound_s[i] = max(self.bound_s[i], floor_s)
        for bound in (self.bound, self.open_bound):
            if np.isfinite(bound[i]):
                bound[i] = self.bound_s[i] * self._weights[i]

    def _heavier(self, i: int) -> list[int]:
        """The layouts of which layout ``i`` is the lighter one: the same without recomputation."""
        heavier, lighter = self._by_lighter
        begin, end = np.searchsorted(lighter, [i, i + 1])
        found: list[int] = heavier[begin:end].tolist()
        return found

    @cached_property
    def _by_lighter(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Two arrays in one order, that of lighter layouts: layouts which may be proposed and have a lighter
        one, and the lighter ones."""
        lighter = self.among.layouts.lighter
        heavier = np.flatnonzero(self.open & (lighter != np.arange(len(lighter))))
        heavier = heavier[np.argsort(lighter[heavier], kind="stable")]
        return heavier, lighter[heavier]

    def loses(self, i: int, best: float) -> bool:
        """Whether a layout is known to lose by much to one whose objective is ``best``, and whether a step
        that is no longer than its own (brief/least.py) tells by how much at least, in less time than a
        replay."""
        exactly = self.final is not None or self.wishes.emission is not None or self.most_s[i] < np.inf
        asked = map(self.judging.one_of, {*self.judging.known, *self.beaten})
        if exactly or self.judging.one_of(i) in asked:
            return False
        long = self.among.crossed[i] and self.among.replayed_actions[i] >= LONG
        return bool(long and self.floor_s.get(i) and self.bound[i] >= LOSES * best)

    def least_s(self, numbers: Sequence[int]) -> NDArray[np.float64]:
        """By layout the seconds that a step takes at least, of these ``numbers`` action by action where a
        replay takes much longer than that. No bound that others go by is raised: who is asked next is the
        same as if these had been replayed."""
        found = self.bound_s.copy()
        asked = [i for i in numbers if self._worth_tightening[i]]
        found[asked] = np.maximum(found[asked], self.judging.floors_s(asked))
        return found

    def tells(self, i: int) -> bool:
        """Whether actions tell a bound of a layout, as far as anyone asked of it or of the lighter one."""
        return any(self.floor_s.get(j) for j in (i, self.lighter(i)))

    def lighter(self, i: int) -> int:
        """The layout without recomputation whose bound by actions holds for layout ``i``, too; ``i`` itself
        where there is none."""
        return int(self.among.layouts.lighter[i])

    def _tightened(self, numbers: Sequence[int]) -> list[float]:
        self.tighten(numbers)
        return [float(self.bound[i]) for i in numbers]

    def only(self, numbers: Sequence[int]) -> NDArray[np.bool_]:
        """A mask over all layouts that holds for the given ones."""
        found = np.zeros(len(self.bound), dtype=bool)
        found[list(numbers)] = True
        return found

    def next_in_turn(self, limit: int) -> list[int]:
        """Numbers of the first ``limit`` layouts in the order of a search of all: the scenario's own first,
        then those with the least bounds."""
        return in_turn(self.bound, self._first)[:limit]

    def first_of(self, within: NDArray[np.bool_], count: int) -> list[int]:
        """The first in turn of some layouts, ``count`` of them that are not the same to the simulator."""
        found: dict[int, int] = {}
        for i in in_turn(np.where(within, self.screened_bound, np.inf)):
            if len(found) == count:
                break
            found.setdefault(self.judging.one_of(i), i)
        return [*found.values()]

    @property
    def _first(self) -> list[int]:
        """The scenario's own layout, which is judged first, where it is among those that may be proposed."""
        own = self.among.layouts.own
        return [own] if own is not None and bool(self.open[own]) else []

    def values(self, numbers: Iterable[int]) -> Generator[float, None, None]:
        """Of layouts, in order; inf where a limit is missed or the simulator refuses."""
        wanted, ahead = itertools.tee(numbers)
        results = self.judging(ahead)
        try:
            for number, judged in zip(wanted, results, strict=True):
                yield self.value_of(number, judged)
        finally:
            results.close()

    def weight_of(self, number: int) -> float:
        """What a second of a layout's step weighs in the objective."""
        return float(self._weights[number])

    def value_of(self, number: int, judged: JudgedLayout) -> float:
        """The objective by the step time alone."""
        in_time = judged.step_time_s <= self.most_s[number]
        return float(judged.step_time_s * self._weights[number]) if in_time else np.inf

    def drawn(self, ranked: Ranked) -> list[int]:
        """Layouts that the bounds ruled out and that are replayed all the same: the same ones every time.

        Any of them may be drawn, one that takes half as long to replay with four times the chance (Efraimidis
        & Spirakis 2006: of so many exponential times, each at its own rate, the first).
        """
        if ranked.interrupted or not ranked.proven or not ranked.best:
            return []
        return self._drawn_beside(frozenset(ranked.value))

    def _foresee(self, judged: Sequence[int]) -> None:
        """Let idle workers begin with the layouts that are audited, should these be all that are judged."""
        self.later(self._drawn_beside(frozenset(judged)))

    def _drawn_beside(self, judged: frozenset[int]) -> list[int]:
        if judged not in self._drawn:
            self._drawn[judged] = self._draw(judged)
        return self._drawn[judged]

    def _draw(self, judged: frozenset[int]) -> list[int]:
        open_ones = self.open.copy()
        open_ones[list(judged)] = False
        pruned = np.flatnonzero(open_ones)
        drawn = np.random.RandomState([AUDIT_SEED])  # what random.Random(AUDIT_SEED) draws one by one
        waits = -np.log(1.0 - drawn.random_sample(len(pruned)))
        waits *= self.among.replayed_actions[pruned] ** 2
        turns = pruned[np.argsort(waits, kind="stable")].tolist()
        sayable = (number for number in turns if not self.judging.passes_over(number))
        return sorted(itertools.islice(sayable, self.wishes.audit))

    def ahead(self, numbers: Iterable[int]) -> None:
        """Replay layouts that will be asked for."""
        self.judging.ahead(self._longest_first(numbers))

    def later(self, numbers: Iterable[int]) -> None:
        """Let idle workers begin from now on with layouts that are asked for in the end."""
        self.judging.later = self._longest_first(numbers)

    def later_least(self, numbers: Iterable[int]) -> None:
        """Lower bounds of the layouts ``numbers`` by steps that are known to be no longer than theirs."""
        self.judging.later_least = [*numbers]

    def _begin(self, sure: Sequence[int]) -> None:
        """Begin with the first layout although others may be judged at once, so that there is a best one for
        a user who interrupts."""
        self.judging.soon = [*sure[:1], *self._longest_first(sure[1:])]

    def _longest_first(self, numbers: Iterable[int]) -> list[int]:
        """Layouts in the order in which workers begin with them, so that none of them waits for the last."""
        work = self.among.replayed_actions * self.among.passes
        return sorted(dict.fromkeys(numbers), key=lambda i: (-work[i], i))

    def audited(self, ranked: Ranked) -> Certificate:
        """The certificate of ``ranked``, with some of what the bounds ruled out replayed."""
        found = Certificate(
            legal=len(self.among.layouts),
            fit=int(self.fits.sum()),
            replayed=len(ranked.value.keys() - self.judging.passed_over.keys()),
            proven=ranked.proven,
            interrupted=ranked.interrupted,
        )
        if not ranked.proven and ranked.best:
            better = 1.0 - ranked.least / ranked.value[ranked.best[0]]
            return replace(found, tolerance=max(found.tolerance, better))
        chosen = self.drawn(ranked)
        if not chosen:
            return found
        worst = ranked.value[ranked.best[-1]] * (1 - found.tolerance)
        better = below = done = 0
        try:
            floors_s = dict(zip(chosen, self.judging.floors_s(chosen), strict=True))
            for number, value in zip(chosen, self.values(chosen), strict=True):
                done += 1
                true = value if self.final is None or value >= worst else self.final(number, value, worst)
                better += true < worst and len(ranked.best) >= self.wishes.top
                step_s = self.judging.known[number].step_time_s
                bound_s = max(float(self.bound_s[number]), floors_s[number])
                below += bool(step_s < bound_s * (1 - found.tolerance))
        except KeyboardInterrupt:
            found = replace(found, interrupted=True)
        return replace(found, audited=done, better=better, below=below)
