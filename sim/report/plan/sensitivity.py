"""What faster parts gain, as a table and as a tornado of bars. The same input gives the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...figures import TIMES, gigabytes, seconds
from ...plan.questions.sensitivity import Sensitivity
from ...plan.search.layout_in_words import short
from ...result.result import fit_words
from .. import captions
from ..drawing import chart

if TYPE_CHECKING:
    from rich.console import Console

WIDTH, HEIGHT = 860.0, 440.0


def print_sensitivity(found: Sensitivity, console: Console) -> None:
    """A line for each part, what gains most first."""
    from rich.table import Table
    from rich.text import Text

    console.print(Text(captions.subject(found.scenario), style="bold"))
    console.print(captions.layout(found.scenario))
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("part")
    for name in ("step", "speedup", *(("planned anew", "speedup") if found.planned_s else ())):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("layout, planned anew" if found.planned_s else "", overflow="fold")
    best = [seconds(found.planned_s), ""] if found.planned_s else []
    table.add_row("as it is", _seconds(found.step_time_s), "", *best, "")
    for one in found.parts:
        gain = found.gain_replanned(one)
        anew = [seconds(one.replanned_s), _times(gain)] if one.replanned_s and gain else []
        cells = anew or (["-", "-"] if found.planned_s else [])
        own = _seconds(one.step_time_s), _times(found.gain(one))
        table.add_row(one.name, *own, *cells, short(one.settings))
    console.print(table)
    if found.refused:
        console.print(f"\nthe layout as it is cannot be predicted: {found.refused}", soft_wrap=True)
    if doubt := _own_fit(found):
        console.print(f"\nthe layout as it is {doubt}", soft_wrap=True)


def _own_fit(found: Sensitivity) -> str:
    """A line on the memory of the scenario's own layout; empty where it is sure to fit."""
    own = found.own
    if own is None:
        return ""
    takes = f": it takes {gigabytes(own.peak_memory_bytes)} of {gigabytes(own.capacity_bytes)}"
    told = fit_words(own.fit_probability) if found.fits else "does not fit"
    return "" if told == fit_words(None) else told + takes


def _seconds(step_s: float | None) -> str:
    return "-" if step_s is None else seconds(step_s)


def _times(speedup: float | None) -> str:
    return "-" if speedup is None else f"{speedup:.3f} {TIMES}"


def sensitivity_svg(found: Sensitivity) -> str:
    """An SVG document: for each part a bar with the layout as it is, and one below it with a new plan."""
    title = f"What faster parts gain: {captions.subject(found.scenario)}"
    series = [] if found.refused else [(chart.key(chart.BLUE, marker="s"), "the layout as it is")]
    if found.planned_s:
        series.append((chart.key(chart.AMBER, marker="s"), "planned anew, over the best layout as it is"))
    with chart.canvas(WIDTH, HEIGHT) as figure:
        panel = figure.subplots()
        high = 0.38 if found.planned_s and found.step_time_s else 0.7
        for row, one in enumerate(found.parts):
            gain, anew = found.gain(one), found.gain_replanned(one)
            gains = [(gain, chart.BLUE, row - high / 2 if anew else row)] if gain else []
            gains += [(anew, chart.AMBER, row + high / 2 if gain else row)] if anew else []
            for times, colour, y in gains:
                (bar,) = panel.barh(y, times - 1, high, color=colour)
                chart.hint(bar, [f"{one.name}: {_times(times)}"])
                panel.text(times - 1, y, f" {(times - 1) * 100:.1f} %", size=11, va="center")
        chart.named(panel.yaxis, [one.name for one in found.parts])
        chart.written(panel.xaxis, lambda share: f"{share * 100:+.0f} %")
        panel.set_ylim(len(found.parts) - 0.5, -0.5)
        panel.set(xlabel="faster by")
        panel.margins(x=0.12)
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", length=0)
        now = found.step_time_s or found.planned_s or 0.0
        chart.head(figure, title, f"step {seconds(now)} {'planned' if found.refused else 'as it is'}", series)
        return chart.svg(figure, title)
