"""A sweep of one collective as a picture in SVG: bus bandwidth and time over size, predicted and measured.

Both axes of both panels are logarithmic. The same input gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from ...sim.figures import seconds
from ...sim.network.seat import payload_factor
from ...sim.report.collective import CollectiveCost
from ...sim.report.timeline import palette
from ...sim.report.timeline.svg import document, element, group, line, paper, text
from .panel import ChartPanel

WIDTH, HEIGHT = 1000.0, 460.0
TOP, BOTTOM = 92.0, 58.0
DEPTH = HEIGHT - TOP - BOTTOM
LEFT, GAP, RIGHT = 76.0, 84.0, 24.0
PREDICTED = palette.RAMPS["F"][0]
MEASURED = palette.RAMPS["B"][0]

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def collective_svg(
    costs: Sequence[CollectiveCost], measured_s: Sequence[float] | None = None, log: str | None = None
) -> str:
    """An SVG document, 1000 pixels wide; ``measured_s`` are seconds of the same sizes, from ``log``.

    ValueError with fewer than two sizes.
    """
    if len(costs) < 2:
        raise ValueError("a picture of a sweep needs two sizes or more")
    first = costs[0]
    factor = payload_factor(first.kind, first.ranks)
    sizes = [cost.bytes for cost in costs]
    buses = [[cost.busbw_bytes_per_s / 1e9 for cost in costs]]
    times = [[cost.time_s for cost in costs]]
    if measured_s is not None:
        buses.append([size * factor / s / 1e9 for size, s in zip(sizes, measured_s, strict=True)])
        times.append(list(measured_s))
    width = (WIDTH - LEFT - GAP - RIGHT) / 2
    span = min(sizes), max(sizes)
    parts = [paper(WIDTH, HEIGHT), *_header(first, log)]
    for left, title, series, label in (
        (LEFT, "bus bandwidth, GB/s", buses, _plain),
        (LEFT + width + GAP, "time", times, seconds),
    ):
        panel = ChartPanel(
            top=TOP, height=HEIGHT - TOP - BOTTOM, left=left, width=width, x=span, y=_decades(series)
        )
        parts += [*_axes(panel, title, label), *_series(panel, sizes, series)]
    return document(f"{first.kind} of {first.ranks} GPUs over size", parts, WIDTH, HEIGHT)


def _header(first: CollectiveCost, log: str | None) -> Iterator[str]:
    hosts = f"{first.nodes} node{'s' if first.nodes > 1 else ''}"
    yield text(
        RIGHT,
        32,
        f"{first.kind}, {first.ranks} GPUs, {hosts}",
        font_size=19,
        font_weight="bold",
        fill=palette.INK,
    )
    entries = [
        ("predicted", PREDICTED),
        *([(f"measured: {log or 'log'}", MEASURED)] if log is not None else []),
    ]
    x = RIGHT
    for words, colour in entries:
        yield line(x, 52, x + 22, 52, stroke=colour, stroke_width=2.5)
        yield text(x + 28, 56, words, font_size=13, fill=palette.INK)
        x += 130.0


def _axes(panel: ChartPanel, title: str, label: Callable[[float], str]) -> Iterator[str]:
    """Lines at decades of the value and at every sixteenfold size, with their labels."""
    bottom = HEIGHT - BOTTOM
    lines, words = [], []
    for decade in range(round(math.log10(panel.y[0])), round(math.log10(panel.y[1])) + 1):
        y = panel.at_y(10.0**decade)
        lines.append(line(panel.left, y, panel.left + panel.width, y))
        words.append(text(panel.left - 8, y + 4, label(10.0**decade), text_anchor="end"))
    for power in range(math.ceil(math.log2(panel.x[0])), math.floor(math.log2(panel.x[1])) + 1):
        if power % 4 == 0:
            x = panel.at_x(2.0**power)
            lines.append(line(x, TOP, x, bottom))
            words.append(text(x, bottom + 18, _size(2**power), text_anchor="middle"))
    yield group(lines, stroke=palette.GRID, stroke_width=1)
    yield group(words, font_size=11, fill=palette.FAINT_INK)
    yield text(panel.left, TOP - 10, title, font_size=13, fill=palette.INK)
    yield text(
        panel.left + panel.width / 2,
        bottom + 40,
        "size",
        font_size=12,
        text_anchor="middle",
        fill=palette.INK,
    )


def _series(panel: ChartPanel, sizes: Sequence[float], series: Sequence[Sequence[float]]) -> Iterator[str]:
    """The prediction as a line, measurements as a line with dots."""
    for values, colour in zip(series, (PREDICTED, MEASURED), strict=False):
        points = [(panel.at_x(size), panel.at_y(value)) for size, value in zip(sizes, values, strict=True)]
        path = "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points)
        yield element("path", d=path, fill="none", stroke=colour, stroke_width=2)
        if colour == MEASURED:
            dots = [element("circle", cx=x, cy=y, r=2.6) for x, y in points]
            yield group(dots, fill=colour)


def _decades(series: Sequence[Sequence[float]]) -> tuple[float, float]:
    values = [value for one in series for value in one]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _plain(value: float) -> str:
    return f"{value:g}"


def _size(size: int) -> str:
    unit, name = next((unit, name) for unit, name in _SIZES if size >= unit)
    return f"{size // unit} {name}"
