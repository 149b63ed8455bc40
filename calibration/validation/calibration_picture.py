"""A profile beside the measurements that it was fitted on, as a picture in SVG.

Left: kernels, predicted over measured time, against the measured time; the band is 10 %. Right:
collectives, time over size, the curve as a line through its points. Knows numbers only; the same
input gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...sim.figures import seconds
from ...sim.report.timeline import palette
from ...sim.report.timeline.svg import document, element, group, line, paper, rect, text
from .panel import ChartPanel

WIDTH, HEIGHT = 1000.0, 460.0
TOP, BOTTOM, LEFT, GAP, RIGHT = 96.0, 58.0, 70.0, 84.0, 24.0
DEPTH = HEIGHT - TOP - BOTTOM
BAND = 0.10
_COLOURS = (palette.RAMPS["F"][0], palette.RAMPS["B"][0], palette.RAMPS["W"][0], *palette.FLAT.values())
_LEGEND_PIXELS = 7.2  # of a letter
_MOST_NAMES = 6

KernelPoints = Mapping[str, Sequence[tuple[float, float]]]
"""(measured, predicted) seconds by operation."""


@dataclass(frozen=True, kw_only=True)
class CurvePoints:
    """A collective's curve over sizes, and what was measured: (bytes, seconds)."""

    name: str
    seconds: Callable[[float], float]
    points: Sequence[tuple[float, float]]


def calibration_svg(title: str, kernels: KernelPoints, curves: Sequence[CurvePoints]) -> str:
    """An SVG document, 1000 pixels wide; a side without points is left out.

    ValueError without any point.
    """
    sides: list[Callable[[float, float], Iterator[str]]] = []
    if any(kernels.values()):
        sides.append(lambda left, width: _kernels(left, width, kernels))
    if any(curve.points for curve in curves):
        sides.append(lambda left, width: _curves(left, width, [c for c in curves if c.points]))
    if not sides:
        raise ValueError("a picture of a fit needs measured points; give their files with --points")
    width = (WIDTH - LEFT - RIGHT - GAP * (len(sides) - 1)) / len(sides)
    parts = [paper(WIDTH, HEIGHT), text(RIGHT, 30, title, font_size=18, font_weight="bold", fill=palette.INK)]
    for place, side in enumerate(sides):
        parts += side(LEFT + place * (width + GAP), width)
    return document(title, parts, WIDTH, HEIGHT)


def _kernels(left: float, width: float, kernels: KernelPoints) -> Iterator[str]:
    """Ratios against time, with the line of equality and its band."""
    every = [point for points in kernels.values() for point in points]
    times = [measured for measured, _ in every]
    most = max([max(p / m, m / p) for m, p in every] + [1.0 + 2 * BAND])
    panel = ChartPanel(
        top=TOP, height=HEIGHT - TOP - BOTTOM, left=left, width=width, x=_span(times), y=(1 / most, most)
    )
    low, high = panel.at_y(1 + BAND), panel.at_y(1 - BAND)
    yield rect(left, low, width, high - low, fill=palette.IDLE)
    yield line(left, panel.at_y(1.0), left + width, panel.at_y(1.0), stroke=palette.FAINT_INK, stroke_width=1)
    marks = [1 / most, 1 - BAND, 1.0, 1 + BAND, most]
    labels = [text(left - 8, panel.at_y(v) + 4, f"{v:.2f}", text_anchor="end") for v in marks]
    yield group(labels, font_size=11, fill=palette.FAINT_INK)
    yield from _times(panel, "x")
    yield from _titles(panel, "predicted over measured", "measured time")
    for colour, points in zip(_COLOURS, kernels.values(), strict=False):
        dots = [element("circle", cx=panel.at_x(m), cy=panel.at_y(p / m), r=2.6) for m, p in points]
        yield group(dots, fill=colour, fill_opacity=0.75)
    yield from _legend(left, list(kernels))


def _curves(left: float, width: float, curves: Sequence[CurvePoints]) -> Iterator[str]:
    sizes = [size for curve in curves for size, _ in curve.points]
    times = [value for curve in curves for _, value in curve.points]
    panel = ChartPanel(
        top=TOP, height=HEIGHT - TOP - BOTTOM, left=left, width=width, x=_span(sizes), y=_span(times)
    )
    yield from _times(panel, "y")
    ticks = [
        10.0**d for d in range(math.ceil(math.log10(panel.x[0])), math.floor(math.log10(panel.x[1])) + 1, 2)
    ]
    labels = [text(panel.at_x(t), HEIGHT - BOTTOM + 18, f"{t:.0e} B", text_anchor="middle") for t in ticks]
    yield group(labels, font_size=11, fill=palette.FAINT_INK)
    yield from _titles(panel, "time", "size")
    for colour, curve in zip(_COLOURS, curves, strict=False):
        low, high = min(s for s, _ in curve.points), max(s for s, _ in curve.points)
        steps = [low * (high / low) ** (i / 60) for i in range(61)]
        path = "M" + "L".join(f"{panel.at_x(s):.2f} {panel.at_y(curve.seconds(s)):.2f}" for s in steps)
        yield element("path", d=path, fill="none", stroke=colour, stroke_width=1.6)
        dots = [element("circle", cx=panel.at_x(s), cy=panel.at_y(t), r=2.4) for s, t in curve.points]
        yield group(dots, fill=colour)
    yield from _legend(left, [curve.name for curve in curves])


def _times(panel: ChartPanel, axis: str) -> Iterator[str]:
    """Lines at decades of seconds along one axis, with their labels."""
    low, high = panel.x if axis == "x" else panel.y
    lines, words = [], []
    for decade in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        value = 10.0**decade
        if axis == "x":
            x = panel.at_x(value)
            lines.append(line(x, TOP, x, HEIGHT - BOTTOM))
            words.append(text(x, HEIGHT - BOTTOM + 18, seconds(value), text_anchor="middle"))
        else:
            y = panel.at_y(value)
            lines.append(line(panel.left, y, panel.left + panel.width, y))
            words.append(text(panel.left - 8, y + 4, seconds(value), text_anchor="end"))
    yield group(lines, stroke=palette.GRID, stroke_width=1)
    yield group(words, font_size=11, fill=palette.FAINT_INK)


def _titles(panel: ChartPanel, y: str, x: str) -> Iterator[str]:
    yield text(panel.left, TOP - 10, y, font_size=12, fill=palette.INK)
    middle = panel.left + panel.width / 2
    yield text(middle, HEIGHT - 14, x, font_size=12, text_anchor="middle", fill=palette.INK)


def _legend(left: float, names: Sequence[str]) -> Iterator[str]:
    x = left
    shown = list(names[:_MOST_NAMES])
    for colour, name in zip(_COLOURS, shown, strict=False):
        yield element("circle", cx=x + 4, cy=58, r=4, fill=colour)
        yield text(x + 13, 62, name, font_size=11, fill=palette.INK)
        x += 26 + _LEGEND_PIXELS * len(name)
    if len(names) > len(shown):
        yield text(x, 62, f"and {len(names) - len(shown)} more", font_size=11, fill=palette.FAINT_INK)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The decades around ``values``."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)
