"""How honest the intervals are: how many measured steps they hold, how wide they are, and what both cost.

Knows rows and arithmetic. The score is Winkler's: the width, and for a miss 2 / (1 - level) times how
far off it lies; in parts of the prediction, so that long steps count no more than short ones. Less is
better, and no interval is helped by being wide or by being narrow.

Sources: Winkler 1972, J. Am. Stat. Assoc. 67; Gneiting and Raftery 2007, J. Am. Stat. Assoc. 102,
section 6.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from ..interval import LEVEL
from ..report.figures import count, percent
from .grids import Grid
from .run import Row

WIDEST = 0.4
"""Median full width, as a part of the prediction, beyond which an interval is of no use."""


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


def interval_figures(rows: Iterable[Row]) -> IntervalFigures | None:
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


def interval_score(low: float, high: float, measured: float, level: float = LEVEL) -> float:
    """Winkler's score of one interval, in the unit of its ends.

    >>> interval_score(9.0, 11.0, 10.0), round(interval_score(9.0, 11.0, 12.0), 6)
    (2.0, 22.0)
    """
    missed = max(low - measured, measured - high, 0.0)
    return high - low + 2 / (1 - level) * missed


def intervals_by_group(rows: Iterable[Row]) -> dict[str, IntervalFigures]:
    """Figures of the rows of high and of medium trust, of each of their sources, and of all rows."""
    rows = tuple(rows)
    groups: dict[str, list[Row]] = {}
    for trust, suffix in (("high", ""), ("medium", ", medium")):
        own = [row for row in rows if row.case.trust == trust]
        groups[f"{trust} trust"] = own
        for source in sorted({row.source for row in own}):
            groups[source + suffix] = [row for row in own if row.source == source]
    groups["all"] = list(rows)
    figures = {name: interval_figures(members) for name, members in groups.items()}
    return {name: one for name, one in figures.items() if one is not None}


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
