"""The bold choice of a plan: a layout that is faster than the best one sure to fit, may be too large, and is
worth trying.

Knows a search and its best choice; which try is worth it is in sim/plan/boldness.py. The bold choice is the
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
"""Layouts that are replayed at most: all bounds are about equally far below their replays, so that a replay
rarely changes their order."""


def promising(search: LayoutSearch, behind: float, most: int = REPLAYED) -> dict[int, float]:
    """The ``most`` bold layouts that promise most by their bounds, and the expected objective of a job that
    tries each of them first and falls back on a layout whose objective is ``behind`` (inf: there is no such
    layout). The best come first.

    Empty for goodput, which is not a multiple of the step time, and for a plan that is emitted, since only
    replays find which layouts the framework's files cannot express.
    """
    if search.final is not None or search.wishes.emission is not None:
        return {}
    fits, value_of_bound = search.among.fit_probability, search.open_bound

    def tried(i: int) -> float:
        found = tried_first(float(value_of_bound[i]), float(fits[i]), behind)
        return found if value_of_bound[i] < behind and worth_a_try(found, behind) else math.inf

    bounds = np.full(len(fits), np.inf)
    faster = np.isfinite(value_of_bound) & (value_of_bound < behind)
    for i in np.flatnonzero(faster & is_bold(fits, search.wishes.fits)).tolist():
        bounds[i] = tried(i)
    few = in_turn(bounds)[:most]
    search.tighten(few)
    found = {i: bound for i in few if (bound := tried(i)) < math.inf}
    return dict(sorted(found.items(), key=lambda one: (one[1], one[0])))


def bold_of(
    search: LayoutSearch, behind: float, most: int = REPLAYED, among: Mapping[int, float] | None = None
) -> int | None:
    """The layout that is best tried before one whose objective is ``behind``, of those that are
    ``promising``, or were ``among`` these; None where no try is worth it."""
    fits, bounds = search.among.fit_probability, np.full(len(search.among.layouts), np.inf)
    for i, bound in (promising(search, behind, most) if among is None else among).items():
        bounds[i] = bound

    def values(numbers: Iterable[int]) -> Generator[float, None, None]:
        wanted = list(numbers)
        for i, value in zip(wanted, search.values(wanted), strict=True):
            yield tried_first(value, float(fits[i]), behind) if value < behind else math.inf

    ranked = best_first(bounds, values, top=1, limit=most)
    if ranked.interrupted:
        raise KeyboardInterrupt
    best = ranked.best[0] if ranked.best else None
    return best if best is not None and worth_a_try(ranked.value[best], behind) else None
