"""A sweep as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...figures import lasting
from ...reliability.study.sweep import Axis, Ranking, SweepPoint, held_fixed, rank
from .document import estimate
from .tables import interval

if TYPE_CHECKING:
    from rich.console import Console


def sweep_document(axes: Sequence[Axis], points: Sequence[SweepPoint]) -> dict[str, Any]:
    """Every point with its values. ``best_by`` is what the best one is best by, ``equal`` are all that do not
    differ from it.
    """
    ranking = rank(points)
    return {
        "axes": [{"field": axis.field, "values": list(axis.values)} for axis in axes],
        "points": [
            {
                "values": dict(zip((axis.field for axis in axes), point.values, strict=True)),
                "replications": len(point.study.outcomes),
                "ettr": estimate(point.ettr),
                "gpus_held": point.study.gpus_held,
                "ettr_held": estimate(point.study.ettr_held) if point.study.ettr_held else None,
                "wall_s": estimate(point.study.wall),
                "waterfall": point.study.waterfall,
                "ended": point.study.ended,
            }
            for point in points
        ],
        "best": _values(axes, ranking.best),
        "best_by": ranking.by,
        "equal": [_values(axes, point) for point in ranking.equal],
        "no_difference": ranking.no_difference,
        "held_fixed": held_fixed(axes, points),
    }


def _values(axes: Sequence[Axis], point: SweepPoint) -> dict[str, str]:
    return dict(zip((axis.field for axis in axes), point.values, strict=True))


LONG = 14
"""Characters of a word of a header that is broken further."""


def _header(axis: Axis) -> str:
    """A field's name, broken where it can be: terminals are narrow, and a name that is cut says nothing."""
    parts = axis.field.split(".")
    return ".\n".join(part if len(part) <= LONG else part.replace("_", "_\n") for part in parts)


def print_sweep(axes: Sequence[Axis], points: Sequence[SweepPoint], console: Console) -> None:
    """One field: a line per value. Two: a grid of ETTR. More: a line per point."""
    from rich.table import Table
    from rich.text import Text

    ranking = rank(points)
    top = None if ranking.no_difference else ranking.best
    held = ranking.by == "ettr_held"
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    if len(axes) == 2:
        first, second = axes
        table.add_column(f"{_header(first)} \\\n{_header(second)}", overflow="fold")
        for value in second.values:
            table.add_column(value, justify="right", no_wrap=True)
        found = {point.values: point for point in points}
        for a in first.values:
            cells = []
            for b in second.values:
                point = found[a, b]
                text = f"{ranking.value(point).mean * 100:.2f} %"
                cells.append(Text(text, style="bold" if point is top else ""))
            table.add_row(a, *cells)
    else:
        for axis in axes:
            table.add_column(_header(axis), overflow="fold")
        for name in ("ETTR", *HELD[held], "checkpoint", "recompute", "waiting", "wall clock"):
            table.add_column(name, justify="right", no_wrap=True)
        for point in points:
            shares = point.study.waterfall
            text = interval(point.ettr)
            table.add_row(
                *point.values,
                Text(text, style="bold" if point is top else ""),
                *([f"{point.study.gpus_held:,}", f"{point.value.mean * 100:.2f} %"] if held else []),
                *(f"{shares[name] * 100:.2f} %" for name in ("checkpoint", "recompute", "idle")),
                lasting(point.study.wall.mean),
            )
    console.print(table)
    console.print()
    for line in verdict_lines(axes, ranking):
        console.print(line, markup=False)


HELD = {True: ("GPUs held", "of these"), False: ()}


def verdict_lines(axes: Sequence[Axis], ranking: Ranking) -> Iterator[str]:
    """Which values are best, or that there is no difference; by what, and what is held fixed."""
    what = "ETTR of the GPUs held" if ranking.by == "ettr_held" else "ETTR"
    figure = interval(ranking.value(ranking.best))
    if ranking.no_difference:
        yield f"no difference: {what} {figure} at every point, within the standard error"
    else:
        yield f"best: {_named(axes, ranking.best)}: {what} {figure}"
        others = [_named(axes, point) for point in ranking.equal if point is not ranking.best]
        if others:
            yield f"no difference from it within the standard error: {'; '.join(others)}"
    fixed = held_fixed(axes, ranking.points)
    if fixed:
        yield f"held fixed: {fixed}"


def _named(axes: Sequence[Axis], point: SweepPoint) -> str:
    return ", ".join(f"{axis.field} {value}" for axis, value in zip(axes, point.values, strict=True))
