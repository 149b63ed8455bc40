"""How sure a plan is of its choice: the best layouts beside each other, under constants drawn anew.

Knows a search; what is drawn is in sim/plan/certainty.py. Layouts are those of the least
value among the first CONTENDERS by bound and all that was judged: the best is among them for certain, and
what is not, is slower by more than errors make up for, or has as many before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..certainty import Certainty, Contender, certainty_of
from .shown import LayoutFigures

if TYPE_CHECKING:
    from .searching import LayoutSearch

CONTENDERS = 20
"""Layouts that are held against each other."""


def contenders(search: LayoutSearch, chosen: Iterable[int]) -> list[int]:
    """The ``chosen`` layouts, then the best others, CONTENDERS of them where there are as many."""
    first = list(chosen)
    search.best(top=CONTENDERS, limit=CONTENDERS)
    others = [
        number
        for number, value in search.value.items()
        if value < math.inf and search.open[number] and number not in set(first)
    ]
    others.sort(key=lambda number: (search.value[number], number))
    return first + others[: max(0, CONTENDERS - len(first))]


def sure_of(search: LayoutSearch, figures: dict[int, LayoutFigures]) -> Certainty:
    """How sure it is which of the layouts is the best, in the order of ``figures``."""
    layouts = search.among.layouts
    return certainty_of(
        [
            Contender(value=search.value[number], parts=one.parts, settings=layouts.settings(number))
            for number, one in figures.items()
        ]
    )
