"""Best-first search by lower bounds: exact, and the same however many workers are at it.

Knows numbers alone. Candidates are judged in the order of their bounds, and the search ends when the next
bound cannot beat the last of the best: what is left is then proven to be no better. Bounds may be tightened
before candidates are judged in their order, several at once where that costs less. Workers run ahead on
candidates that are not ruled out yet, but results are taken in the order of bounds, so that the judged
candidates do not depend on the number of workers.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Judge = Callable[[Iterable[int]], Generator[float, None, None]]
"""Values of candidates in the order in which they are asked for; inf of one that cannot be judged."""

Tighten = Callable[[Sequence[int]], Sequence[float]]
"""Better bounds of some candidates, in the order in which they are asked for; one may be no better."""

AT_ONCE = 8
"""Bounds that are tightened together, and candidates that are begun in another order than that of their
bounds: enough for all workers, and few that nobody asks for, or that an interrupt comes before."""

Final = Callable[[int, float, float], float]
"""The true value of a candidate, from its number, its value and the worst value that is still among the best.
Once the true value is known to exceed that, any lower bound above it will do."""

Lesser = Callable[[int], int]
"""A candidate whose bound is never above the value of that one; by default itself."""

FEW = 64
"""Bounds that are tightened together once as many are judged as are asked for: some may lie between the worst
of them and a better one that is still to be found, and are then tightened for nothing."""

Begin = Callable[[Sequence[int]], None]
"""Told candidates that are about to be judged, so that they may be begun in another order; or others whose
bounds may be asked for next."""

CLOSE = 1.002
"""Times a bound that was tightened, what a value is above it by most likely."""

BESIDE = 2
"""Candidates that are begun together, though one alone is sure to be judged."""

Told = Callable[[int, int, int | None, float], None]
"""Called with how many were judged, how many may be left, the best so far and its value."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """``best`` candidates, best first, and the ``value`` of each that was judged, in order.

    ``proven``: no other candidate can be better than the last of the best, where there are as many as were
    asked for. ``interrupted``: by the user. ``least`` is no more than the value of anyone who is left.
    """

    best: tuple[int, ...]
    value: dict[int, float]
    proven: bool
    interrupted: bool = False
    least: float = math.inf


def nothing_told(_judged: int, _left: int, _best: int | None, _value: float) -> None:
    """Tells nobody."""


def nobody_begins(_numbers: Sequence[int]) -> None:
    """Begins with nobody before it is asked for."""


def in_turn(bounds: NDArray[np.float64], first: Sequence[int] = ()) -> list[int]:
    """Candidates in the order in which they are judged: ``first``, then by their bounds.

    >>> in_turn(np.array([2.0, math.inf, 1.0, 3.0]), [3])
    [3, 2, 0]
    """
    there = np.flatnonzero(np.isfinite(bounds))
    order = there[np.argsort(bounds[there], kind="stable")]
    return [*dict.fromkeys([*first, *order.tolist()])] if len(first) else order.tolist()


def best_first(
    bounds: Sequence[float] | NDArray[np.float64],
    judge: Judge,
    *,
    top: int,
    first: Sequence[int] = (),
    final: Final | None = None,
    tighten: Tighten | None = None,
    lesser: Lesser = int,
    limit: int | None = None,
    begin: Begin = nobody_begins,
    expect: Begin = nobody_begins,
    foresee: Begin = nobody_begins,
    tell: Told = nothing_told,
) -> Ranked:
    """The ``top`` candidates of the least value, where no value is below its bound.

    Candidates of ``first`` are judged before all others. One whose bound is inf is never judged. At most
    ``limit`` are judged. Equal values rank by their number.

    ``final`` turns the value of a candidate that may be among the best into its true one, which is no
    smaller. It is called for few candidates, and may stop once one cannot be among the best, so it may be
    expensive. ``tighten`` gives better bounds of the next candidates. The tightened bound of a candidate's
    ``lesser`` one is a bound of the candidate too, which then may not need one of its own.

    Three callbacks let workers run ahead: ``begin`` gets the candidates that will be judged next, for sure
    or most likely; ``expect`` those whose bounds may be tightened after the present ones; ``foresee`` all
    that will most likely have been judged in the end.
    """
    search = _Search(
        bounds=np.array(bounds, dtype=np.float64),
        judge=judge,
        top=top,
        final=final,
        tighten=tighten,
        lesser=lesser,
        limit=limit,
        begin=begin,
        expect=expect,
        foresee=foresee,
        tell=tell,
        first=tuple(dict.fromkeys(first)),
    )
    interrupted = False
    try:
        while not search.done:
            search.next_round()
    except KeyboardInterrupt:
        interrupted = True
    return Ranked(
        best=tuple(i for _, i in search.best[:top]),
        value=search.value,
        proven=search.proven and not interrupted,
        interrupted=interrupted,
        least=search.least,
    )


@dataclass(kw_only=True)
class _Search:
    """The state of a search. ``best`` are the best values so far with their candidates, in order. ``bounds``
    are those of the remaining candidates, inf of all others; bounds of ``tightened`` candidates are as tight
    as they get, and those of the ``first`` need not be. ``tightened`` keeps bounds as they were when they
    were tightened, ``loose`` as they were at first."""

    bounds: NDArray[np.float64]
    judge: Judge
    top: int
    final: Final | None
    tighten: Tighten | None
    lesser: Lesser
    limit: int | None
    begin: Begin
    expect: Begin
    foresee: Begin
    tell: Told
    first: tuple[int, ...]
    loose: NDArray[np.float64] = field(init=False)
    best: list[tuple[float, int]] = field(default_factory=list)
    value: dict[int, float] = field(default_factory=dict)
    tightened: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loose = self.bounds.copy()

    @property
    def worst(self) -> float:
        """The value that a candidate must beat."""
        return self.best[self.top - 1][0] if len(self.best) >= self.top else math.inf

    @property
    def least(self) -> float:
        """The least bound of the remaining candidates; inf if there are none."""
        return float(self.bounds.min(initial=math.inf))

    @property
    def proven(self) -> bool:
        """Whether no remaining candidate can beat the worst of the best."""
        return math.isinf(self.least) or self.least >= self.worst

    @property
    def spent(self) -> bool:
        """Whether as many candidates were judged as may be."""
        return self.limit is not None and len(self.value) >= self.limit

    @property
    def done(self) -> bool:
        """Whether no remaining candidate has to be judged, or may be."""
        return self.spent or (self.proven and all(i in self.value for i in self.first))

    def next_round(self) -> None:
        """Judge the next candidates with tight bounds, if these are as many as will be judged for sure; else
        tighten some bounds. Where few remain that may be better than the best most likely will be, all their
        bounds are tightened first, so that candidates are judged several at a time."""
        left = in_turn(np.where(self.bounds < self.worst, self.bounds, np.inf))
        tight = [*itertools.takewhile(self._is_tight, left)]
        likely = [*itertools.islice(self._tight_of(left), AT_ONCE)]
        reach = self._reach(likely)
        near = itertools.takewhile(lambda i: self.bounds[i] <= reach, left)
        loose = [*itertools.islice(itertools.filterfalse(self._is_tight, near), FEW + 1)]
        few = self.worst < math.inf and len(loose) <= FEW
        foreseen = self._foreseen()
        asked = loose if few else self._asked_first(loose, len(tight), foreseen)
        if asked:
            self.begin(likely[: self._up_to(foreseen, likely)] if few else [])
            self.expect([] if few else self._asked_next(loose))
            self._tighten(asked)
            return
        queue = [*dict.fromkeys([*(i for i in self.first if i not in self.value), *tight])]
        self.begin([i for place, i in enumerate(queue[:AT_ONCE]) if self._is_sure(i, place)])
        self.judge_all(queue, left)

    def _asked_first(self, loose: Sequence[int], tight: int, foreseen: float) -> Sequence[int]:
        """Candidates whose bounds are tightened before any is judged: the first ones, if fewer than ``top``
        with ``tight`` bounds come before them; else those that most likely have to be judged in the end.
        So the candidates to judge are known together, and none of them waits for the replay of another."""
        first = loose[:AT_ONCE]
        if first and tight + self._better_than(self.bounds[first[0]]) < self.top:
            return first
        return [i for i in first if self.bounds[i] <= foreseen < math.inf]

    def _reach(self, likely: Sequence[int]) -> float:
        """The value that the last of the best will have, if the ``likely`` candidates are as good as their
        bounds; inf while fewer are known than are asked for."""
        if self.worst == math.inf:
            return math.inf
        values = [value for value, _ in self.best[: self.top]]
        return sorted([*values, *(float(self.bounds[i]) for i in likely)])[self.top - 1]

    def _asked_next(self, loose: Sequence[int]) -> list[int]:
        """Layouts behind the first whose bounds are tightened now: those that are next if no bound
        changes."""
        before = set(loose)
        lesser = ((i, self.lesser(i)) for i in loose[AT_ONCE:])
        return [
            i
            for i, j in lesser
            if j == i or (j not in before and self.tightened.get(j, -math.inf) <= self.bounds[i])
        ]

    def _foreseen(self) -> float:
        """The value that the last of the best most likely will have; inf where too few of the remaining
        candidates have a bound that tightening improved."""
        bounds = ((float(self.bounds[i]), tight > self.loose[i]) for i, tight in self.tightened.items())
        values = [value for value, _ in self.best[: self.top]]
        values += [CLOSE * bound for bound, told in bounds if told and bound < self.worst]
        return sorted(values)[self.top - 1] if len(values) >= self.top else math.inf

    def _tighten(self, asked: Sequence[int]) -> None:
        """Tighten the bounds of the ``asked`` candidates, or raise them to what is known of lesser ones,
        which come first: a candidate whose bound was raised is tightened when its turn comes, if ever."""
        assert self.tighten is not None, "without it all bounds are as tight as can be"
        lesser = {i: self.lesser(i) for i in asked}
        now = [i for i, j in lesser.items() if j == i or (j not in lesser and not self._raised(i, j))]
        for i, bound in zip(now, self.tighten(now), strict=True):
            self.bounds[i] = self.tightened[i] = max(self.bounds[i], bound)
        for i, j in lesser.items():
            self._raised(i, j)

    def _raised(self, i: int, lesser: int) -> bool:
        """Whether the bound of ``i`` was below what is known of its lesser, and is no longer."""
        known = self.tightened.get(lesser, -math.inf) if i not in self.tightened else -math.inf
        if known <= self.bounds[i]:
            return False
        self.bounds[i] = known
        return True

    def _better_than(self, bound: float) -> int:
        """How many candidates were judged to be better. They, and as many of those with lower bounds as there
        are places left, come before ``bound`` for sure, so that all of these have to be judged."""
        return bisect.bisect_left(self.best, (bound, -1))

    def _is_sure(self, i: int, place: int) -> bool:
        """Whether candidate ``i``, so far behind others in the queue, will be judged whatever these are."""
        no_worse = bisect.bisect_right(self.best, (float(self.bounds[i]), math.inf))
        before = i in self.first or place + no_worse < self.top
        return before and (self.limit is None or place < self.limit - len(self.value))

    def _is_tight(self, i: int) -> bool:
        return self.tighten is None or i in self.tightened or i in self.first

    def _tight_of(self, left: Sequence[int]) -> Iterator[int]:
        """The remaining candidates (``left``) whose bounds are tight, which are few of many."""
        if self.tighten is None:
            return iter(left)
        return filter({*self.tightened, *self.first}.__contains__, left)

    def _is_hopeless(self, i: int) -> bool:
        return bool(self.bounds[i] >= self.worst) and i not in self.first

    def judge_all(self, queue: Sequence[int], left: Sequence[int]) -> None:
        """Judge candidates in the order of ``queue``, until one is hopeless. An idle worker may run ahead on
        those that most likely will be judged, and on the first remaining candidate with a tight bound where
        no such candidate is known."""
        place = 0
        while place < len(queue):
            foreseen = self._foreseen()
            until = place + max(BESIDE, self._up_to(foreseen, queue[place:]))
            likely = self._likely(left, set(queue), foreseen) if until >= len(queue) else []
            if not self._judge_in_turn(queue[place:until], likely, left):
                return
            place = until

    def _foretell(self, sure: Sequence[int], left: Sequence[int]) -> None:
        """Pass to ``foresee`` the candidates that will have been judged in the end, the ``sure`` ones
        among them; nothing while that is not known. Bounds that are not tight yet are taken to rise as
        others have."""
        last = self._last_value() if self.foresee is not nobody_begins else math.inf
        if last == math.inf:
            return
        rises = [bound / self.loose[i] for i, bound in self.tightened.items() if self.loose[i] > 0.0]
        rise = statistics.median(rises) if rises else 1.0
        judged = {*self.value, *sure}
        near = itertools.takewhile(lambda i: self.bounds[i] <= last or i in judged or i in self.first, left)
        likely = (i for i in near if self._is_tight(i) or rise * self.bounds[i] <= last)
        self.foresee([*dict.fromkeys([*self.value, *sure, *likely])])

    def _last_value(self) -> float:
        """The value that the last of the best most likely will have, as ``_foreseen``: by how far values were
        above their bounds, where that is known of a candidate whose bound tightening improved, or of as many
        others as are asked for. Inf while it is not known and some bound is hardly above that value."""
        told = {i: bound for i, bound in self.tightened.items() if bound > self.loose[i]}
        judged = {i: value for i, value in self.value.items() if value < math.inf and i in self.tightened}
        above = [value / told[i] for i, value in judged.items() if i in told]
        others = {v: v / self.loose[i] for i, v in judged.items() if i not in told and self.loose[i] > 0.0}
        close = statistics.median(above) if above else CLOSE
        loose = statistics.median(others.values()) if len(others) >= self.top else 1.0
        values = [value for value, _ in self.best[: self.top]]
        left = (i for i, bound in told.items() if i not in self.value and bound < self.worst)
        values += [max(close * told[i], loose * float(self.loose[i])) for i in left]
        last = sorted(values)[self.top - 1] if len(values) >= self.top else math.inf
        unsure = not above and any(last < bound <= CLOSE * last for bound in told.values())
        return math.inf if unsure else last

    def _up_to(self, value: float, queue: Sequence[int]) -> int:
        """How many of a queue come before the first whose bound is above a value."""
        return sum(1 for _ in itertools.takewhile(lambda i: self.bounds[i] <= value, queue))

    def _likely(self, left: Sequence[int], queue: set[int], foreseen: float) -> list[int]:
        """The remaining candidates outside of ``queue`` that will be judged, if none is better than
        ``foreseen``."""
        others = (i for i in self._tight_of(left) if i not in queue and i not in self.value)
        if foreseen == math.inf:
            return [*itertools.islice(others, 1)]
        return [*itertools.takewhile(lambda i: self.bounds[i] <= foreseen, others)]

    def _judge_in_turn(self, queue: Sequence[int], likely: Sequence[int], left: Sequence[int]) -> bool:
        """Judge candidates in the order of ``queue``; whether none was hopeless. Each result shows more
        clearly which of the remaining ones (``left``) will be judged."""

        def hopeful() -> Iterator[int]:
            """Candidates that may still have to be judged, as known when idle workers ask for the next."""
            most = None if self.limit is None else self.limit - len(self.value)
            for i in [*queue, *likely][:most]:
                if i not in self.value and self._is_hopeless(i):
                    return
                yield i

        results = self.judge(hopeful())
        try:
            for i in queue:
                if self.spent or self._is_hopeless(i):
                    return False
                self._foretell([i], left)
                self._has_judged(i, next(results))
        finally:
            results.close()
        return True

    def _has_judged(self, i: int, value: float) -> None:
        if self.final is not None and value < math.inf and value <= self.worst:  # of equals the first ranks
            value = self.final(i, value, self.worst)
        self.value[i], self.bounds[i] = value, math.inf
        if value < math.inf:
            bisect.insort(self.best, (value, i))
        left = int((self.bounds < self.worst).sum())
        self.tell(len(self.value), left, self.best[0][1] if self.best else None, self.worst)
