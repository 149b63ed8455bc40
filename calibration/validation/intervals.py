"""How honest the intervals are: how many measured steps they hold, how wide they are, and what both cost.

Knows rows and arithmetic. The score is Winkler's: the width, and for a miss 2 / (1 - level) times how
far off it lies; in parts of the prediction, so that long steps count no more than short ones. Less is
better, and no interval is helped by being wide or by being narrow.

Sources: Winkler 1972, J. Am. Stat. Assoc. 67; Gneiting and Raftery 2007, J. Am. Stat. Assoc. 102,
section 6.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from ...sim.evidence.interval import LEVEL
from ...sim.evidence.measured_steps import is_outside, measured_steps, unlike
from ...sim.figures import count, percent
from .grids import Grid
from .run import ValidatedCase


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalFigures:
    """Intervals of ``cases``: the share that holds the measured time, the median full width and the mean
    score in parts of the prediction; ``below`` and ``above`` are shares measured outside on either side."""

    cases: int
    coverage: float
    median_width: float
    score: float
    below: float
    above: float


def interval_figures(rows: Iterable[ValidatedCase]) -> IntervalFigures | None:
    """Figures of all rows that have both an interval and a measured time; None without any."""
    found = [
        (row.prediction.step_time_s, row.prediction.interval_s, row.case.measured.step_time_s) for row in rows
    ]
    whole = [(p, i, m) for p, i, m in found if p is not None and i is not None and m is not None]
    if not whole:
        return None
    below = [measured < low for _, (low, _), measured in whole]
    above = [measured > high for _, (_, high), measured in whole]
    return IntervalFigures(
        cases=len(whole),
        coverage=1 - fmean(below) - fmean(above),
        median_width=median((high - low) / predicted for predicted, (low, high), _ in whole),
        score=fmean(
            interval_score(low, high, measured) / predicted for predicted, (low, high), measured in whole
        ),
        below=fmean(below),
        above=fmean(above),
    )


def interval_score(low: float, high: float, measured: float) -> float:
    """Winkler's score of one interval, in the unit of its ends.

    >>> interval_score(9.0, 11.0, 10.0), round(interval_score(9.0, 11.0, 12.0), 6)
    (2.0, 22.0)
    """
    missed = max(low - measured, measured - high, 0.0)
    return high - low + 2 / (1 - LEVEL) * missed


def intervals_by_group(rows: Iterable[ValidatedCase]) -> dict[str, IntervalFigures]:
    """Figures of the rows of high and of medium trust, of each of their sources, and of all rows."""
    rows = tuple(rows)
    groups: dict[str, list[ValidatedCase]] = {}
    for trust, suffix in (("high", ""), ("medium", ", medium")):
        own = [row for row in rows if row.case.trust == trust]
        groups[f"{trust} trust"] = own
        for source in sorted({row.source for row in own}):
            groups[source + suffix] = [row for row in own if row.source == source]
    groups["all"] = list(rows)
    figures = {name: interval_figures(members) for name, members in groups.items()}
    return {name: one for name, one in figures.items() if one is not None}


DISTANCES = ((0.0, 0.0), (0.0, 1.0), (1.0, 2.0), (2.0, math.inf))
"""Differences and doublings to the measured step that is least unlike: above the first, up to the second."""


def intervals_by_range(rows: Iterable[ValidatedCase]) -> dict[str, IntervalFigures]:
    """Figures of rows with experts, and of those outside a measured range; high and medium trust, then low.

    And of high and medium trust by how far a step is from all that shaped constants.
    """
    found: dict[str, list[ValidatedCase]] = {}
    families = measured_steps().families
    for row in rows:
        doubt = row.prediction.doubt
        if doubt is None:
            continue
        low = row.case.trust == "low"
        suffix = ", low trust" if low else ""
        if low:
            found.setdefault("low trust", []).append(row)
        if doubt.experts.share > 0:
            found.setdefault(EXPERTS + suffix, []).append(row)
        where = OUTSIDE if is_outside(doubt, families) else INSIDE
        found.setdefault(where + suffix, []).append(row)
        if not low:
            found.setdefault(_distance(unlike(doubt, families)), []).append(row)
    figures = {name: interval_figures(members) for name, members in sorted(found.items(), key=_place)}
    return {name: one for name, one in figures.items() if one is not None}


RANGES = "Intervals by distance from what was measured"
EXPERTS, INSIDE, OUTSIDE = "experts", "inside all measured ranges", "outside a measured range"


def _distance(far: float) -> str:
    for low, high in DISTANCES:
        if low < far <= high or far == low == high:
            break
    if high == 0:
        return "no difference to a measured step"
    return (
        f"more than {low:g} to {high:g} differences" if high < math.inf else f"more than {low:g} differences"
    )


def _place(item: tuple[str, list[ValidatedCase]]) -> tuple[int, str]:
    """Groups in the order of the page."""
    order = (INSIDE, OUTSIDE, EXPERTS, *(_distance(high) for _, high in DISTANCES))
    return (order.index(item[0]) if item[0] in order else len(order), item[0])


def range_grid(groups: Mapping[str, IntervalFigures], title: str) -> Grid:
    """The figures as text, beside what intervals hold of sources that shaped none of their residuals."""
    left_out = measured_steps().left_out
    names = {"outside": OUTSIDE}
    unseen = {names.get(name, name): share for name, share in left_out.items()}
    shown = tuple(
        (
            name,
            count(one.cases),
            percent(one.coverage),
            percent(unseen[name]) if name in unseen else "-",
            percent(one.median_width),
            f"{one.score:.3f}",
        )
        for name, one in groups.items()
    )
    return Grid(
        title=title,
        columns=("set", "cases", "measured inside", "source left out", "median width", "score"),
        rows=shown,
    )


def interval_grid(groups: Mapping[str, IntervalFigures]) -> Grid:
    """The figures as text."""
    shown = tuple(
        (
            name,
            count(one.cases),
            percent(one.coverage),
            percent(one.below),
            percent(one.above),
            percent(one.median_width),
            f"{one.score:.3f}",
        )
        for name, one in groups.items()
    )
    return Grid(
        title=f"Intervals of {percent(LEVEL, 0)}",
        columns=("set", "cases", "measured inside", "below", "above", "median width", "score"),
        rows=shown,
    )
