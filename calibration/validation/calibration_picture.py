"""A profile beside the measurements that it was fitted on, as a picture in SVG.

Left: kernels, predicted over measured time, against the measured time; the band is 10 %. Right:
collectives, time over size, the curve as a line through its points. Knows numbers only; the same
input gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

from ...sim.figures import seconds
from ...sim.report.drawing import chart, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

WIDTH, HEIGHT = 1000.0, 500.0
BAND = 0.10
WIDE = 3.0
"""A factor to either side from which on labels at both edges of the band would lie on one another."""

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
    sides: list[Callable[[Axes], None]] = []
    if any(kernels.values()):
        sides.append(lambda panel: _kernels(panel, kernels))
    if any(curve.points for curve in curves):
        sides.append(lambda panel: _curves(panel, [curve for curve in curves if curve.points]))
    if not sides:
        raise ValueError("a picture of a fit needs measured points; give their files with --points")
    with chart.canvas(WIDTH, HEIGHT) as figure:
        for panel, draw in zip(figure.subplots(1, len(sides), squeeze=False).flat, sides, strict=True):
            draw(panel)
        chart.head(figure, title)
        return chart.svg(figure, title)


def _ratios(most: float) -> list[float]:
    """Where an axis of ratios, from 1 / ``most`` to ``most``, has its labels.

    >>> _ratios(2.0), _ratios(12.0)
    ([0.5, 0.9, 1.0, 1.1, 2.0], [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0])
    """
    if most < WIDE:
        return [1 / most, 1 - BAND, 1.0, 1 + BAND, most]
    above = [digit * 10.0**power for power in range(1 + int(math.log10(most))) for digit in (1.0, 2.0, 5.0)]
    shown = [ratio for ratio in above if ratio <= most]
    return [1 / ratio for ratio in reversed(shown[1:])] + shown


def _kernels(panel: Axes, kernels: KernelPoints) -> None:
    """Ratios against time, with the line of equality and its band."""
    every = [point for points in kernels.values() for point in points]
    most = max([max(p / m, m / p) for m, p in every] + [1.0 + 2 * BAND]) * 1.05
    panel.axhspan(1 - BAND, 1 + BAND, color=palette.IDLE)
    panel.axhline(1.0, color=palette.FAINT_INK, linewidth=1)
    for colour, points in zip(cycle(chart.SERIES), kernels.values(), strict=False):
        chart.dots(panel, [m for m, _ in points], [p / m for m, p in points], colour, alpha=0.75)
    chart.logarithmic(panel, "x", chart.decades([measured for measured, _ in every]), seconds)
    chart.logarithmic(panel, "y", (1 / most, most), "{:.2f}".format)
    panel.set_yticks(_ratios(most))
    panel.set(xlabel="measured time", ylabel="predicted over measured")
    chart.above(panel, _legend(kernels), columns=2)


def _curves(panel: Axes, curves: Sequence[CurvePoints]) -> None:
    sizes = [size for curve in curves for size, _ in curve.points]
    times = [value for curve in curves for _, value in curve.points]
    for colour, curve in zip(cycle(chart.SERIES), curves, strict=False):
        low, high = min(s for s, _ in curve.points), max(s for s, _ in curve.points)
        steps = [low * (high / low) ** (i / 60) for i in range(61)]
        panel.plot(steps, [curve.seconds(size) for size in steps], color=colour, linewidth=1.6)
        chart.dots(panel, [s for s, _ in curve.points], [t for _, t in curve.points], colour)
        times += map(curve.seconds, (low, high))
    chart.logarithmic(panel, "x", chart.decades(sizes), chart.binary_bytes, base=16)
    chart.logarithmic(panel, "y", chart.decades(times), seconds)
    panel.set(xlabel="size", ylabel="time")
    chart.above(panel, _legend(curve.name for curve in curves), columns=2)


def _legend(names: Iterable[str]) -> list[tuple[Line2D, str]]:
    return [
        (chart.key(colour, marker="o"), name)
        for colour, name in zip(cycle(chart.SERIES), names, strict=False)
    ]
