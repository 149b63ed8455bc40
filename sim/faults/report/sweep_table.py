"""A sweep as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..study.sweep import Axis, Point
from .document import estimate
from .tables import interval
from .words import lasting

if TYPE_CHECKING:
    from rich.console import Console


def sweep_document(axes: Sequence[Axis], points: Sequence[Point]) -> dict[str, Any]:
    """Every point with its values."""
    return {
        "axes": [{"field": axis.field, "values": list(axis.values)} for axis in axes],
        "points": [
            {
                "values": dict(zip((axis.field for axis in axes), point.values, strict=True)),
                "replications": len(point.study.outcomes),
                "ettr": estimate(point.ettr),
                "wall_s": estimate(point.study.wall),
                "waterfall": point.study.waterfall,
                "ended": point.study.ended,
            }
            for point in points
        ],
        "best": dict(zip((axis.field for axis in axes), best(points).values, strict=True)),
    }


def best(points: Sequence[Point]) -> Point:
    """The point with the highest ETTR."""
    return max(points, key=lambda point: point.ettr.mean)


LONG = 14
"""Characters of a word of a header that is broken further."""


def _header(axis: Axis) -> str:
    """A field's name, broken where it can be: terminals are narrow, and a name that is cut says nothing."""
    parts = axis.field.split(".")
    return ".\n".join(part if len(part) <= LONG else part.replace("_", "_\n") for part in parts)


def print_sweep(axes: Sequence[Axis], points: Sequence[Point], console: Console) -> None:
    """One field: a line per value. Two: a grid of ETTR. More: a line per point."""
    from rich.table import Table

    top = best(points)
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
                text = f"{point.ettr.mean * 100:.2f} %"
                cells.append(f"[bold]{text}[/bold]" if point is top else text)
            table.add_row(a, *cells)
    else:
        for axis in axes:
            table.add_column(_header(axis), overflow="fold")
        for name in ("ETTR", "checkpoint", "recompute", "waiting", "wall clock"):
            table.add_column(name, justify="right", no_wrap=True)
        for point in points:
            shares = point.study.waterfall
            text = interval(point.ettr)
            table.add_row(
                *point.values,
                f"[bold]{text}[/bold]" if point is top else text,
                *(f"{shares[name] * 100:.2f} %" for name in ("checkpoint", "recompute", "idle")),
                lasting(point.study.wall.mean),
            )
    console.print(table)
    chosen = ", ".join(f"{axis.field} {value}" for axis, value in zip(axes, top.values, strict=True))
    console.print(f"\nbest: {chosen}: ETTR {interval(top.ettr)}")
