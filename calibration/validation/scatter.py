"""Predicted over measured step times as a picture in SVG: a panel a source, both axes logarithmic.

On the diagonal a prediction is right; the band around it is 20 percent to either side. The same report
gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...sim.report.drawing import chart, palette
from .run import Report, ValidatedCase

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 4
PANEL, HEAD, GAP = 290.0, 90.0, 16.0
BAND = 0.2
COLOURS = {"high": chart.BLUE, "medium": chart.AMBER, "low": palette.FAINT_INK}
"""Colour of a dot, by the trust of its case."""


def scatter_svg(report: Report) -> str:
    """An SVG document. ValueError where no row has both a measured and a predicted step time."""
    sources: dict[str, list[ValidatedCase]] = {}
    for row in report.rows:
        if row.error is not None:
            sources.setdefault(row.source, []).append(row)
    if not sources:
        raise ValueError("a picture needs rows with a measured and a predicted step time")
    title = "Predicted over measured step time"
    lines = math.ceil(len(sources) / COLUMNS)
    with chart.canvas(COLUMNS * PANEL, HEAD + lines * (PANEL + GAP)) as figure:
        panels = list(figure.subplots(lines, COLUMNS, squeeze=False).flat)
        for panel, (source, rows) in zip(panels, sorted(sources.items()), strict=False):
            _axes(panel, _span(rows), f"{source}, {len(rows)} row{'s' if len(rows) > 1 else ''}")
            for trust in reversed(COLOURS):  # high trust lies on top
                _dots(panel, [row for row in rows if row.case.trust == trust], COLOURS[trust])
        for panel in panels[len(sources) :]:
            panel.remove()
        legend = [(chart.key(colour, marker="o"), f"{trust} trust") for trust, colour in COLOURS.items()]
        note = "A dot is a case; on the line a prediction is right; band: 20 % to either side"
        chart.head(figure, title, note, legend)
        return chart.svg(figure, f"{title}, by source")


def _axes(panel: Axes, span: tuple[float, float], title: str) -> None:
    """A square with its band and its diagonal."""
    panel.fill_between(
        span, [end * (1 - BAND) for end in span], [end * (1 + BAND) for end in span], color=palette.GRID, lw=0
    )
    panel.plot(span, span, color=palette.FAINT_INK, linewidth=1)
    ticks = (1.0, 2.0, 5.0) if span[1] < 100 * span[0] else (1.0,)
    chart.logarithmic(panel, "x", span, "{:g}".format, subs=ticks)
    chart.logarithmic(panel, "y", span, "{:g}".format, subs=ticks)
    panel.set(title=title, xlabel="measured, s", ylabel="predicted, s", box_aspect=1)


def _dots(panel: Axes, rows: Sequence[ValidatedCase], colour: str) -> None:
    """The dots of the chart; pointing at one shows its case."""
    if rows:
        measured = [row.case.measured.step_time_s or 0.0 for row in rows]
        predicted = [row.prediction.step_time_s or 0.0 for row in rows]
        dots = chart.dots(panel, measured, predicted, colour, alpha=0.6)
        chart.hint(dots, [f"{row.case.id}: {row.error:+.1%}" for row in rows])


def _span(rows: Sequence[ValidatedCase]) -> tuple[float, float]:
    """A range that holds all times of both axes, with some room, and at least a decade."""
    times = [
        value
        for row in rows
        for value in (row.case.measured.step_time_s, row.prediction.step_time_s)
        if value is not None
    ]
    low, high = min(times) / 1.4, max(times) * 1.4
    middle = math.sqrt(low * high)
    return min(low, middle / 10**0.5), max(high, middle * 10**0.5)
