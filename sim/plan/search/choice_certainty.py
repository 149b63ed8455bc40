"""How sure a plan is of its choice: the best layouts beside each other, under constants drawn anew.

Knows a search; the random draws are in sim/plan/certainty.py. The contenders are the layouts of least value
among the first CONTENDERS by bound and all judged ones. The best is certainly among them; a layout that is
not is slower by more than errors can make up for, or has as many layouts before it. Layouts whose step is
bounded action by action (sim/brief/floor.py) are not replayed for this: such a bound is within a hundredth of
the step, and one field in which layouts differ moves them by more. Their step is taken to be as far above the
bound as the steps of replayed layouts are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...evidence.measured_layouts import differing
from ..certainty import Certainty, Contender, certainty_of
from .best_first import in_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .searching import LayoutSearch

CONTENDERS = 20
"""Layouts that are compared with each other."""


def unbounded_contenders(search: LayoutSearch) -> list[int]:
    """Those of the first CONTENDERS by screening that need a replay, since no bound by actions is possible.
    All layouts that come first by either bound are bounded before."""
    first = in_turn(search.screened_bound)[:CONTENDERS]
    search.tighten({search.lighter(i) for i in first} & {*first})
    search.tighten(i for i in first if not search.tells(i))
    while loose := [i for i in search.next_in_turn(CONTENDERS) if i not in search.floor_s]:
        search.expect(i for i in search.next_in_turn(2 * CONTENDERS) if _has_its_turn(search, i))
        search.tighten(loose)
    return [i for i in first if not search.tells(i)]


def _has_its_turn(search: LayoutSearch, i: int) -> bool:
    """Whether no bound of a lighter layout is to come before that of layout ``i``."""
    lighter = search.lighter(i)
    return lighter == i or lighter in search.floor_s


def contenders(search: LayoutSearch, chosen: Iterable[int]) -> dict[int, float]:
    """The ``chosen`` layouts, then the best others, CONTENDERS of them where there are as many, and their
    values as far as they are known or may be expected."""
    first = list(chosen)
    search.best(within=search.only(unbounded_contenders(search)), top=CONTENDERS, limit=CONTENDERS)
    value = {i: value for i, value in search.value.items() if value < math.inf and search.open[i]}
    value |= _expected(search, value)
    others = sorted(value.keys() - set(first), key=lambda number: (value[number], number))
    return {i: value[i] for i in first + others[: max(0, CONTENDERS - len(first))]}


def _expected(search: LayoutSearch, value: Mapping[int, float]) -> dict[int, float]:
    """The values of the first CONTENDERS that were not replayed: as far above their bounds as others are."""
    above = [value[i] / search.bound[i] for i in value if search.floor_s.get(i)]
    ratio = statistics.median(above) if above else 1.0
    return {
        i: ratio * float(search.bound[i])
        for i in search.next_in_turn(CONTENDERS)
        if search.floor_s[i] and i not in search.value and not search.judging.passes_over(i)
    }


def sure_of(search: LayoutSearch, values: Mapping[int, float]) -> Certainty:
    """How sure it is which of the layouts is the best, in the order of ``values``.

    The causes of doubt of one that was not replayed are those of the one that was and has the most fields in
    common with it.
    """
    layouts, known = search.among.layouts, search.judging.known
    settings = {i: layouts.settings(i) for i in values}
    replayed = [i for i in values if i in known]

    def like(number: int) -> int:
        if number in known:
            return number
        return min(replayed, key=lambda one: differing(settings[number], settings[one]))

    return certainty_of(
        [
            Contender(value=value, parts=known[like(i)].parts, settings=settings[i])
            for i, value in values.items()
        ]
    )
