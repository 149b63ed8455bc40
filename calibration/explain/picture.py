"""A measured step beside its prediction as a waterfall in SVG: from what was predicted, part by part, to what
was measured. Without a prediction, the parts from zero to the step. The same input gives the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...sim.figures import seconds
from ...sim.report.drawing import chart, palette
from .explained import Explained

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW, FRAME = 900.0, 30.0, 150.0
_BAR = 0.62
_SMALL = 1e-3
"""Share of the step below which the difference of a part is drawn together with others, in one bar."""
REST = "all others"
Bar = tuple[str, float, float, str]
"""Name, from, to, colour."""


def waterfall_svg(found: Explained, title: str) -> str:
    """An SVG document, 900 pixels wide, a bar for each part that matters."""
    bars = waterfall(found)
    with chart.canvas(WIDTH, FRAME + ROW * len(bars)) as figure:
        panel = figure.subplots()
        _draw(panel, bars)
        series = (
            [(chart.key(chart.AMBER, marker="s"), "slower"), (chart.key(chart.GREEN, marker="s"), "quicker")]
            if found.predicted_step_s is not None
            else []
        )
        chart.head(figure, title, "", series)
        return chart.svg(figure, title)


def waterfall(found: Explained) -> list[Bar]:
    """The bars from the top down; each of a part begins where the one above ended."""
    compared = found.predicted_step_s is not None
    at = found.predicted_step_s or 0.0
    bars: list[Bar] = [("predicted", 0.0, at, chart.GREY)] if compared else []
    least = _SMALL * max(found.step_s, at)
    steps = [(part.name, part.difference_s) for part in found.parts]
    steps.sort(key=lambda one: -abs(one[1]))
    shown = [one for one in steps if abs(one[1]) >= least]
    rest = sum(seconds_ for _, seconds_ in steps) - sum(seconds_ for _, seconds_ in shown)
    if abs(rest) >= least / 10:
        shown.append((REST, rest))
    for name, change in shown:
        colour = chart.BLUE if not compared else chart.AMBER if change > 0 else chart.GREEN
        bars.append((name, at, at + change, colour))
        at += change
    bars.append(("measured", 0.0, found.step_s, chart.BLUE if compared else chart.GREY))
    return bars


def _draw(panel: Axes, bars: list[Bar]) -> None:
    for row, (name, begin, end, colour) in enumerate(bars):
        drawn = panel.barh(row, end - begin, left=begin, height=_BAR, color=colour)
        chart.hint(drawn[0], [f"{name}: {seconds(end - begin)}"])
        whole = name in ("predicted", "measured")
        text = seconds(end) if whole else f"{'+' if end >= begin else '-'}{seconds(abs(end - begin))}"
        panel.annotate(
            text,
            (max(begin, end), row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=palette.INK,
        )
    chart.named(panel.yaxis, [name for name, _, _, _ in bars])
    panel.set_ylim(len(bars) - 0.4, -0.6)
    panel.grid(visible=False, axis="y")
    panel.set_xlim(0.0, 1.12 * max(max(begin, end) for _, begin, end, _ in bars))
    chart.written(panel.xaxis, seconds)
