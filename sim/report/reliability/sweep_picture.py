"""A sweep as a picture in SVG: ETTR over one field with its interval, or a map of two.

The same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...reliability.study.sweep import Axis, Ranking, SweepPoint, rank
from ..drawing import chart, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 900.0, 460.0


def sweep_svg(axes: Sequence[Axis], points: Sequence[SweepPoint], title: str) -> str:
    """An SVG document. ValueError for more than two fields."""
    if len(axes) > 2:
        raise ValueError(f"--svg draws sweeps over one field or two, not {len(axes)}")
    ranking = rank(points)
    what = "ETTR of the GPUs held" if ranking.by == "ettr_held" else "ETTR"
    note = f"{len(points[0].study.outcomes)} replications of each point, the same chance"
    with chart.canvas(WIDTH, HEIGHT) as figure:
        panel = figure.subplots()
        if len(axes) == 1:
            _curve(panel, axes[0], ranking, what)
        else:
            _map(panel, axes[0], axes[1], ranking)
        best = [] if ranking.no_difference else [(chart.key(chart.AMBER, marker="o"), "best")]
        chart.head(figure, f"{what}: {title}", note, best)
        return chart.svg(figure, f"{what}: {title}")


def _curve(panel: Axes, axis: Axis, ranking: Ranking, what: str) -> None:
    """A dot with its interval for each value of the field."""
    points, value = ranking.points, ranking.value
    top = None if ranking.no_difference else ranking.best
    at = range(len(points))
    means = [value(point).mean for point in points]
    panel.plot(at, means, color=chart.BLUE)
    panel.vlines(at, [value(p).low for p in points], [value(p).high for p in points], color=chart.BLUE)
    for n, point in enumerate(points):
        drawn = chart.dots(panel, [n], [means[n]], chart.AMBER if point is top else chart.BLUE)
        drawn.set_markersize(10)
        chart.hint(drawn, [f"{axis.field} {point.values[0]}: {means[n]:.4f}"])
    _values(panel, [point.values[0] for point in points])
    chart.written(panel.yaxis, lambda share: f"{share * 100:.4g} %")
    panel.set(xlabel=axis.field, ylabel=what)
    panel.grid(visible=False, axis="x")


def _map(panel: Axes, first: Axis, second: Axis, ranking: Ranking) -> None:
    """A cell for each pair of values, with its mean in percent; the best has a border."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex

    means = {point.values: ranking.value(point).mean for point in ranking.points}
    low, high = min(means.values()), max(means.values())
    shade = LinearSegmentedColormap.from_list("ettr", ["#f0f6fb", chart.BLUE])
    span = Normalize(low, high) if high > low else Normalize(low - 1, low)
    size = min(13.0, 700 / len(second.values) / 3.4, 290 / len(first.values) / 1.3)
    for row, a in enumerate(first.values):
        for column, b in enumerate(second.values):
            fill = to_hex(shade(span(means[a, b])))
            (cell,) = panel.bar(column, 0.96, 0.97, bottom=row - 0.48, color=fill)
            chart.hint(cell, [f"{first.field} {a}, {second.field} {b}: {means[a, b]:.4f}"])
            words, ink = f"{means[a, b] * 100:.1f}", palette.ink_on(fill)
            panel.text(column, row, words, size=size, ha="center", va="center", color=ink)
    if not ranking.no_difference:
        a, b = ranking.best.values
        column, row = second.values.index(b), first.values.index(a)
        panel.bar(column, 0.96, 0.97, bottom=row - 0.48, fill=False, edgecolor=chart.AMBER, linewidth=3)
    _values(panel, second.values)
    chart.named(panel.yaxis, first.values)
    panel.set(xlabel=second.field, ylabel=first.field, title="ETTR, %")
    panel.set_ylim(len(first.values) - 0.5, -0.5)
    panel.set_xlim(-0.5, len(second.values) - 0.5)
    panel.grid(visible=False)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


def _values(panel: Axes, names: Sequence[str]) -> None:
    """The values of the field across, aslant where side by side they would touch."""
    chart.named(panel.xaxis, names)
    if sum(map(len, names)) > 100:
        panel.tick_params(axis="x", rotation=40)
