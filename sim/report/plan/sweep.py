"""A sweep over layouts as a table, as rows of a file and as a picture.

One field is drawn as curves, two as a map. The same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...figures import chance, count, gigabytes, percent, seconds
from ...plan.questions.sweep import FieldPoint, FieldSweep, point_row
from ...plan.search.layout_in_words import short
from .. import captions
from ..drawing import chart, palette
from ..rows_file import plain_cell, write_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

LINE = 14.0
"""Points from one line of a cell to the next."""

WIDTH, HEIGHT = 900.0, 460.0
FRAME, ROW, COLUMN = 150.0, 34.0, 62.0
"""Points that a map needs besides its rows, and for each row and each column at least."""

SIDES = 90.0
"""Points beside a panel: its ticks and what they are of."""


def print_layout_sweep(sweep: FieldSweep, console: Console) -> None:
    """A line for each point, the fastest bold; then how the job scales."""
    from rich.table import Table
    from rich.text import Text

    console.print(Text(captions.subject(sweep.scenario, sweep.axes), style="bold"))
    fields = [field for field, values in sweep.axes.items() if len(values) > 1] or list(sweep.axes)
    if held := [field for field in sweep.axes if field not in fields]:
        console.print(", ".join(f"{_name(field)} {_text(sweep.axes[field][0])}" for field in held))
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for field in fields:
        table.add_column(_name(field), justify="right", overflow="fold")
    prices = _prices(sweep)
    for name in ("step", "tokens/s per GPU", "MFU", "memory", "fits", *prices):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("layout" if sweep.replanned else "", overflow="fold")
    top = best_point(sweep)
    for point in sweep.points:
        values = [_text(point.values[field]) for field in fields]
        figures = point.figures
        if figures is None:
            table.add_row(*values, "-", "-", "-", "-", "-", *("-" for _ in prices), Text(point.refused))
            continue
        style = "bold" if point is top else ""
        table.add_row(
            *values,
            Text(seconds(figures.step_time_s), style=style),
            Text(f"{figures.tokens_per_second_per_gpu:,.1f}", style=style),
            percent(figures.mfu),
            gigabytes(figures.peak_memory_bytes),
            _fit(point),
            *(_cost(point) for _ in prices),
            _layout(sweep, point),
        )
    console.print(table)
    lines = [line for line in (sweep.scaling.strong, sweep.scaling.weak) if line]
    if lines:
        console.print()
        console.print("; ".join(lines), soft_wrap=True)


def _prices(sweep: FieldSweep) -> tuple[str, ...]:
    """The heading of what a trillion tokens cost, where any point has a price."""
    return ("1T tokens cost",) if any(point.cost for point in sweep.points) else ()


def _cost(point: FieldPoint) -> str:
    """Cost of a point in its own currency, which a sweep may vary."""
    if point.cost is None:
        return "-"
    amount, currency = f"{point.cost.per_trillion_tokens:,.0f}", point.cost.currency
    return f"${amount}" if currency == "USD" else f"{amount} {currency}"


def _fit(point: FieldPoint) -> str:
    """The probability with which a point fits, as a plan tells it, or that it is predicted not to."""
    sure = point.figures.fit_probability if point.figures else None
    return "does not fit" if not point.fits else "" if sure is None else chance(sure)


def best_point(sweep: FieldSweep) -> FieldPoint | None:
    """The point of most tokens per second and GPU among those that fit."""
    fitting = [point for point in sweep.points if point.fits]
    return max(
        fitting, key=lambda one: one.figures.tokens_per_second_per_gpu if one.figures else 0.0, default=None
    )


def _layout(sweep: FieldSweep, point: FieldPoint) -> str:
    """The planned layout of a point, without the fields that the point itself sets."""
    return short({name: value for name, value in point.settings.items() if name not in sweep.axes})


def _name(field: str) -> str:
    return field.rpartition(".")[2]


def _text(value: Any) -> str:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return count(int(value)) if whole and not isinstance(value, bool) else str(value)


def write_layout_sweep(sweep: FieldSweep, path: Path) -> None:
    """A row for each point into ``path``, in the format of its suffix. ValueError as ``write_rows``."""
    rows = [point_row(point) for point in sweep.points]
    columns = tuple(rows[0])
    write_rows("points", columns, [[plain_cell(row[name]) for name in columns] for row in rows], path)


def drawn_fields(axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """The fields with several values, or the first. ValueError for more than a picture shows."""
    fields = [field for field, values in axes.items() if len(values) > 1] or list(axes)[:1]
    if len(fields) > 2:
        raise ValueError(f"--picture draws sweeps over one field or two, not {len(fields)}")
    return fields


def layout_sweep_svg(sweep: FieldSweep) -> str:
    """An SVG document. ValueError for more than two fields with several values, or where all was refused."""
    fields = drawn_fields(sweep.axes)
    if not any(point.figures for point in sweep.points):
        raise ValueError("--picture draws figures, and every point was refused")
    title = f"Sweep of {captions.subject(sweep.scenario, sweep.axes)}"
    note = sweep.scaling.strong or sweep.scaling.weak
    rows, columns = [len(sweep.axes[field]) for field in fields] if len(fields) == 2 else (0, 0)
    wide, high = max(WIDTH, SIDES + COLUMN * columns), max(HEIGHT, FRAME + ROW * rows)
    with chart.canvas(wide, high) as figure:
        if len(fields) == 1:
            left, right = figure.subplots(1, 2)
            _curve(left, sweep, fields[0], "step time", lambda point: _of(point, "step_time_s"), _ticks)
            rate = "tokens/s per GPU"
            _curve(
                right,
                sweep,
                fields[0],
                rate,
                lambda point: _of(point, "tokens_per_second_per_gpu"),
                lambda value: f"{value:,.0f}",
            )
        else:
            _map(figure.subplots(), sweep, fields)
        series = [
            (chart.key(chart.BLUE, marker="o"), "fits"),
            (chart.key(chart.GREY, marker="o"), "does not fit"),
        ]
        chart.head(figure, title, note, series if len(fields) == 1 else [])
        return chart.svg(figure, title)


def _ticks(value_s: float) -> str:
    return f"{value_s:.4g} s"


def _of(point: FieldPoint, name: str) -> float:
    value: float = getattr(point.figures, name)
    return value


def _curve(panel: Axes, sweep: FieldSweep, field: str, what: str, figure: Any, write: Any) -> None:
    """A dot for each value of the field, grey where it does not fit; none where it was refused."""
    values = sweep.axes[field]
    shown = [(x, point) for x, point in enumerate(sweep.points) if point.figures]
    panel.plot([x for x, _ in shown], [figure(point) for _, point in shown], color=chart.PALE, zorder=1)
    for x, point in shown:
        drawn = chart.dots(panel, [x], [figure(point)], chart.BLUE if point.fits else chart.GREY)
        drawn.set_markersize(9)
        chart.hint(drawn, [f"{_named(point.values)}: {write(figure(point))}"])
    chart.slanted(panel, [_text(value) for value in values], (WIDTH / 2 - SIDES) / len(values))
    chart.written(panel.yaxis, write)
    panel.set(xlabel=field, title=what, xlim=(-0.4, len(values) - 0.6))
    panel.set_ylim(0, 1.1 * max(figure(point) for _, point in shown))
    panel.grid(visible=False, axis="x")


def _map(panel: Axes, sweep: FieldSweep, fields: Sequence[str]) -> None:
    """A cell for each pair of values with its step time; the best has a border, what does not fit is grey."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex

    first, second = fields
    done = [point.figures.tokens_per_second_per_gpu for point in sweep.points if point.figures]
    shade = LinearSegmentedColormap.from_list("rate", ["#f0f6fb", chart.BLUE])
    span = Normalize(min(done), max(done)) if max(done) > min(done) else Normalize(0, max(done))
    top = best_point(sweep)
    for point in sweep.points:
        row = sweep.axes[first].index(point.values[first])
        column = sweep.axes[second].index(point.values[second])
        lines, fill = ["refused"], "#ffffff"
        if point.figures:
            rate = point.figures.tokens_per_second_per_gpu
            fill = to_hex(shade(span(rate))) if point.fits else "#e3e3e0"
            lines = [seconds(point.figures.step_time_s), f"{rate:,.0f}"]
        (cell,) = panel.bar(column, 0.96, 0.97, bottom=row - 0.48, color=fill)
        chart.hint(cell, [f"{_named(point.values)}: {point.refused or ', '.join(lines)}"])
        if point is top:
            panel.bar(column, 0.96, 0.97, bottom=row - 0.48, fill=False, edgecolor=chart.AMBER, linewidth=3)
        ink = palette.ink_on(fill)
        for place, line in enumerate(lines):  # a text of its own each: one with a line feed is spelt out
            up = LINE * ((len(lines) - 1) / 2 - place)
            panel.annotate(
                line, (column, row), (0.0, up), textcoords="offset points", size=11, color=ink,
                ha="center", va="center",
            )  # fmt: skip
    columns = [_text(value) for value in sweep.axes[second]]
    chart.slanted(panel, columns, max(COLUMN, (WIDTH - SIDES) / len(columns)))
    chart.named(panel.yaxis, [_text(value) for value in sweep.axes[first]])
    best = "the most that fits is framed, " if top else ""
    panel.set(xlabel=second, ylabel=first, title=f"step time, and tokens/s per GPU: {best}grey does not fit")
    panel.set_ylim(len(sweep.axes[first]) - 0.5, -0.5)
    panel.set_xlim(-0.5, len(sweep.axes[second]) - 0.5)
    panel.grid(visible=False)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{field} {value}" for field, value in values.items())
