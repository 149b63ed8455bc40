"""Predicted over measured step times as a picture in SVG: a panel a source, both axes logarithmic.

On the diagonal a prediction is right; the band around it is 20 percent to either side. The same report
gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...sim.report.timeline import palette
from ...sim.report.timeline.svg import document, element, escape, group, line, paper, rect, text
from .panel import part
from .run import Report, ValidatedCase

COLUMNS = 4
PANEL, GAP_X, GAP_Y = 232.0, 52.0, 66.0
LEFT, TOP, RIGHT, BOTTOM = 60.0, 104.0, 24.0, 44.0
BAND = 0.2
COLOURS = {"high": palette.RAMPS["F"][0], "medium": palette.RAMPS["B"][0], "low": palette.FAINT_INK}
"""Of a dot, by the trust of its case."""


@dataclass(frozen=True, kw_only=True)
class _Panel:
    """One source: where its square stands, and the range of both axes."""

    left: float
    top: float
    span: tuple[float, float]

    def at(self, measured_s: float, predicted_s: float) -> tuple[float, float]:
        x, y = part(measured_s, self.span), part(predicted_s, self.span)
        return self.left + PANEL * x, self.top + PANEL * (1 - y)


def scatter_svg(report: Report) -> str:
    """An SVG document. ValueError where no row has both a measured and a predicted step time."""
    sources: dict[str, list[ValidatedCase]] = {}
    for row in report.rows:
        if row.error is not None:
            sources.setdefault(row.source, []).append(row)
    if not sources:
        raise ValueError("a picture needs rows with a measured and a predicted step time")
    lines = math.ceil(len(sources) / COLUMNS)
    width = LEFT + COLUMNS * PANEL + (COLUMNS - 1) * GAP_X + RIGHT
    height = TOP + lines * PANEL + (lines - 1) * GAP_Y + BOTTOM
    parts = [*_header()]
    for number, (source, rows) in enumerate(sorted(sources.items())):
        down, across = divmod(number, COLUMNS)
        panel = _Panel(
            left=LEFT + across * (PANEL + GAP_X), top=TOP + down * (PANEL + GAP_Y), span=_span(rows)
        )
        parts += [*_axes(panel, source, rows), *_dots(panel, rows)]
    title = "Predicted over measured step time, by source"
    return document(title, (paper(width, height), *parts), width, height)


def _header() -> Iterator[str]:
    title = "Predicted over measured step time"
    yield text(RIGHT, 32, title, font_size=19, font_weight="bold", fill=palette.INK)
    for number, (trust, colour) in enumerate(COLOURS.items()):
        x = RIGHT + 5 + number * 130.0
        yield element("circle", cx=x, cy=52, r=4, fill=colour)
        yield text(x + 10, 56, f"{trust} trust", font_size=13, fill=palette.INK)
    yield text(RIGHT + 400, 56, "band: 20 % to either side", font_size=13, fill=palette.FAINT_INK)


def _axes(panel: _Panel, source: str, rows: Sequence[ValidatedCase]) -> Iterator[str]:
    """The square with its band, diagonal and decades."""
    low, high = panel.span
    corners = [
        panel.at(low, max(low, low * (1 + BAND))),
        panel.at(high / (1 + BAND), high),
        panel.at(high, high),
        panel.at(high, high * (1 - BAND)),
        panel.at(low / (1 - BAND), low),
        panel.at(low, low),
    ]
    yield rect(panel.left, panel.top, PANEL, PANEL, fill="none", stroke=palette.GRID)
    yield element("path", d="M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in corners) + "Z", fill=palette.GRID)
    (x1, y1), (x2, y2) = panel.at(low, low), panel.at(high, high)
    yield line(x1, y1, x2, y2, stroke=palette.FAINT_INK, stroke_width=1)
    words = []
    for decade in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        x, y = panel.at(10.0**decade, 10.0**decade)
        words.append(text(x, panel.top + PANEL + 15, f"{10.0**decade:g} s", text_anchor="middle"))
        words.append(text(panel.left - 6, y + 4, f"{10.0**decade:g} s", text_anchor="end"))
    yield group(words, font_size=10, fill=palette.FAINT_INK)
    words = [
        text(panel.left + PANEL / 2, panel.top + PANEL + 28, "measured", text_anchor="middle"),
        text(panel.left + 6, panel.top + 14, "predicted"),
    ]
    yield group(words, font_size=10, fill=palette.FAINT_INK)
    title = f"{source}, {len(rows)} rows"
    yield text(panel.left, panel.top - 8, title, font_size=12, fill=palette.INK)


def _dots(panel: _Panel, rows: Sequence[ValidatedCase]) -> Iterator[str]:
    """Low trust first, so that high trust lies on top; a dot tells its case."""
    for trust in reversed(COLOURS):
        dots = []
        for row in rows:
            measured_s, predicted_s = row.case.measured.step_time_s, row.prediction.step_time_s
            if row.case.trust == trust and measured_s and predicted_s:
                x, y = panel.at(measured_s, predicted_s)
                told = element("title", escape(f"{row.case.id}: {row.error:+.1%}"))
                dots.append(element("circle", told, cx=round(x, 2), cy=round(y, 2), r=2.4))
        if dots:
            yield group(dots, fill=COLOURS[trust], fill_opacity=0.6)


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
