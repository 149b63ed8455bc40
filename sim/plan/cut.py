"""Rows of an enumeration that a rule of legality leaves, asked once for all rows that are alike to it.

Knows how rows are numbered by the fields that a rule reads. What is legal is ``legality.py``'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from .row_numbers import numbered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..scenario.models import Scenario
    from .crossed import Crossed
    from .draft import Drafts
    from .same_twice import LayoutRule

    Codes = NDArray[np.int64]


def cut(rows: Crossed, drafts: Drafts, rule: LayoutRule, kept: set[int]) -> tuple[Crossed, Counter[str]]:
    """The rows that a rule leaves, with all ``kept`` codes of its field; and how many it cuts why. One that
    reads nothing in which layouts differ is asked once, and cuts all rows or none.
    """
    if rule.concerns is not None:
        few = _first_of_each(rows, drafts, rule.concerned_by)[1]
        if not any(map(rule.concerns, _drafts_of(rows, drafts, rule.concerned_by, few.values()))):
            return rows, Counter()
    key, places = _first_of_each(rows, drafts, rule.reads)
    reasons, of_key = [""], np.zeros(key.max(initial=0) + 1, dtype=np.int64)
    if rule.about:
        about = rows.of(rule.about)
        places = {number: row for number, row in places.items() if int(about[row]) not in kept}
    asked = _drafts_of(rows, drafts, rule.reads, places.values())
    for number, draft in zip(places, asked, strict=True):
        reason = rule.breaks(draft)
        if reason not in reasons:
            reasons.append(reason)
        of_key[number] = reasons.index(reason)
    found = of_key[key]
    if not found.any():
        return rows, Counter()
    counts = np.bincount(found, minlength=len(reasons)).tolist()
    return rows.only(found == 0), Counter(dict(zip(reasons[1:], counts[1:], strict=True)))


def _first_of_each(rows: Crossed, drafts: Drafts, names: tuple[str, ...]) -> tuple[Codes, dict[int, int]]:
    """A number for each row, equal where these fields are; and of each number the first row."""
    several = [name for name in names if name in rows.codes]
    if not several:
        return np.zeros(rows.rows, dtype=np.int64), {0: 0} if rows.rows else {}
    return numbered([rows.codes[name] for name in several], [len(drafts.values[name]) for name in several])


def _drafts_of(
    rows: Crossed, drafts: Drafts, names: tuple[str, ...], numbers: Iterable[int]
) -> Iterator[Scenario]:
    """Rows of these numbers as scenarios, with these fields."""
    wanted = [*numbers]
    read = [rows.of(name)[wanted].tolist() for name in names]
    return (drafts.of(names, [codes[place] for codes in read]) for place in range(len(wanted)))
