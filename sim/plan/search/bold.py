"""The bold choice of a plan: faster than the best that is sure to fit, perhaps too large, worth a try.

Knows a search and its best choice; which try is worth it is in sim/plan/boldness.py. What is found is the
best by the bounds of the step: a few replays are enough, since a bound is near its replay.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..boldness import is_bold, tried_first, worth_a_try
from .best_first import best_first, in_turn

if TYPE_CHECKING:
    from .searching import LayoutSearch

REPLAYED = 4
"""At most: bounds are about as far below their replays as one another, so that few change places."""


def promising(search: LayoutSearch, behind: float, most: int = REPLAYED) -> dict[int, float]:
    """The ``most`` layouts that promise most by their bounds before one whose objective is ``behind`` (inf:
    there is none), those first whose bounds by actions do; and what a job costs by these that tries them.

    Goodput is no multiple of the step, and what a framework's files cannot say is found by replays alone: of
    these there is none.
    """
    if search.final is not None or search.wishes.emission is not None:
        return {}
    fits, value_of_bound = search.among.fit_probability, search.open_bound

    def tried(i: int) -> float:
        found = tried_first(float(value_of_bound[i]), float(fits[i]), behind)
        return found if value_of_bound[i] < behind and worth_a_try(found, behind) else math.inf

    bounds = np.full(len(fits), np.inf)
    may = np.isfinite(value_of_bound) & (value_of_bound < behind) & is_bold(fits, search.wishes.fits)
    for i in np.flatnonzero(may).tolist():
        bounds[i] = tried(i)
    few = in_turn(bounds)[:most]
    search.tighten(few)
    found = {i: bound for i in few if (bound := tried(i)) < math.inf}
    return dict(sorted(found.items(), key=lambda one: (one[1], one[0])))


def tried_next(search: LayoutSearch, behind: float, among: Mapping[int, float]) -> list[int]:
    """Of layouts that are promising the one that is replayed next; none where those at hand are enough."""
    least = math.inf
    for i, bound in among.items():
        if bound >= least:
            return []
        if (judged := search.judging.at_hand(i)) is None:
            return [i]
        least = min(least, _tried(search, i, search.value_of(i, judged), behind))
    return []


def _tried(search: LayoutSearch, i: int, value: float, behind: float) -> float:
    """What a job costs that tries a layout of this ``value``; inf where that is no better."""
    fits = float(search.among.fit_probability[i])
    return tried_first(value, fits, behind) if value < behind else math.inf


def bold_of(
    search: LayoutSearch, behind: float, most: int = REPLAYED, among: Mapping[int, float] | None = None
) -> int | None:
    """The layout that is best tried before one whose objective is ``behind``, of those that are
    ``promising``, or were ``among`` these; None where no try is worth it."""
    bounds = np.full(len(search.among.layouts), np.inf)
    for i, bound in (promising(search, behind, most) if among is None else among).items():
        bounds[i] = bound

    def values(numbers: Iterable[int]) -> Generator[float, None, None]:
        wanted = list(numbers)
        for i, value in zip(wanted, search.values(wanted), strict=True):
            yield _tried(search, i, value, behind)

    ranked = best_first(bounds, values, top=1, limit=most)
    if ranked.interrupted:
        raise KeyboardInterrupt
    best = ranked.best[0] if ranked.best else None
    return best if best is not None and worth_a_try(ranked.value[best], behind) else None
