"""Plots of a study: what to fix, where the time went, how a run went, how often to checkpoint.

Knows which figures go into a picture and in which colours. Each is an SVG element of the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....hardware.quantities import DAY_S, HOUR_S
from ...figures import lasting
from ...reliability.answers import Answers
from ...reliability.campaign.ledger import MEANING
from ...reliability.study.closed_forms import ettr_async
from ...reliability.study.study import WINDOW_S, Study, sliding_ettr, useful_by
from ...reliability.study.variants import Worth
from ..drawing import chart, palette
from ..drawing.chart import AMBER, BLUE, GREEN, GREY, PALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection

COLOURS = {
    "checkpoint": "#6f9fcd",
    "recompute": AMBER,
    "detection": "#9b3f7f",
    "reschedule": "#3fa9c9",
    "idle": "#9a8a1f",
    "restart": GREEN,
    "load": "#7dbb8a",
    "failed_restart": "#55585c",
    "slow": "#d94f5c",
    "degraded": "#eeb15c",
    "maintenance": GREY,
}
COLOUR_OF = {"mitigation": GREEN, "fault": AMBER, "bound": GREY}
WIDTH, HALF = 1040.0, 500.0
"""Width of a whole picture, and of one of two side by side."""
ROW = 30.0


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A row: ``words`` on its right, an interval if it has one, ``hint`` under the pointer."""

    name: str
    value: float
    words: str
    colour: str
    interval: tuple[float, float] | None = None
    hint: str = ""


def percent(share: float) -> str:
    """A share as a label of an axis."""
    return f"{share * 100:.4g} %"


def worth_rows(worths: Sequence[Worth], about: str) -> list[Bar]:
    """What each variant gains in points of ETTR, best first; bounds come last, with the mitigations."""
    bounds = [one for one in worths if one.about == "bound" and about == "mitigation"]
    shown = [*[one for one in worths if one.about == about][:12], *bounds]
    return [
        Bar(
            name=one.name.removeprefix("no ") if about == "fault" else one.name,
            value=one.gain.mean * 100,
            words=f"{one.gain.mean * 100:+.2f} ({one.hours:+,.0f} h)",
            colour=COLOUR_OF[one.about],
            interval=(one.gain.low * 100, one.gain.high * 100),
        )
        for one in shown
    ]


def worth_plot(worths: Sequence[Worth], about: str) -> str:
    """Bars of gain with their intervals."""
    return bars(worth_rows(worths, about), "points of ETTR gained")


def lost_plot(study: Study) -> str:
    """Lost time by category, longest on top."""
    lost = [(share, name) for name, share in study.waterfall.items() if name != "useful" and share > 0]
    hours = study.wall.mean / HOUR_S
    rows = [
        Bar(
            name=name,
            value=share * 100,
            words=f"{share * 100:.2f} %, {share * hours:,.0f} h",
            colour=COLOURS.get(name, GREY),
            hint=MEANING[name],
        )
        for share, name in sorted(lost, reverse=True)
    ]
    return bars(rows, "% of the wall clock")


def bars(rows: Sequence[Bar], words: str) -> str:
    """Rows of bars from zero, the first on top, with names on the left."""
    with chart.canvas(WIDTH, ROW * max(1, len(rows)) + 56) as figure:
        panel = figure.subplots()
        for place, row in enumerate(rows):
            (bar,) = panel.barh(place, row.value, 0.72, color=row.colour)
            chart.hint(bar, [row.hint or row.name])
            low, high = row.interval or (row.value, row.value)
            if row.interval:
                panel.hlines(place, low, high, color=palette.FAINT_INK, linewidth=1.2)
            end = max(row.value, high, 0.0)
            panel.annotate(row.words, (end, place), (8, 0), textcoords="offset points", va="center")
        panel.axvline(0.0, color=palette.INK, linewidth=1)
        chart.named(panel.yaxis, [row.name for row in rows])
        panel.set(xlabel=words, ylim=(max(1, len(rows)) - 0.5, -0.5))
        panel.tick_params(axis="y", length=0, labelsize=13, labelcolor=palette.INK)
        panel.grid(visible=False, axis="y")
        panel.spines[:].set_visible(False)
        return chart.svg(figure, words, inline=True)


def history_plot(study: Study) -> str:
    """The first replication: cumulative and sliding ETTR, with the faults that occurred."""
    one = study.outcomes[0]
    kinds = list(dict.fromkeys(entry.kind for entry in one.log))
    with chart.canvas(WIDTH, 330 + 18.0 * len(kinds)) as figure:
        heights = [300, max(1.0, 18.0 * len(kinds))]
        panel, events = figure.subplots(2, sharex=True, height_ratios=heights)
        hours = [(n + 0.5) * WINDOW_S / DAY_S for n in range(len(sliding_ettr(one)))]
        (sliding,) = panel.plot(hours, sliding_ettr(one), color=PALE, linewidth=1)
        count = min(600, max(2, int(one.wall_s // WINDOW_S)))
        times = [one.wall_s * (n + 1) / count for n in range(count)]
        total = [(at / DAY_S, done / at) for at, done in zip(times, useful_by(one, times), strict=True) if at]
        (so_far,) = panel.plot(
            [at for at, _ in total], [share for _, share in total], color=BLUE, linewidth=2.5
        )
        panel.set(ylabel="ETTR", ylim=(0, 1.05), xlim=(0, one.wall_s / DAY_S or 1.0))
        chart.written(panel.yaxis, percent)
        chart.above(panel, [(sliding, "of each hour"), (so_far, "so far")])
        for row, kind in enumerate(kinds):
            struck = [entry for entry in one.log if entry.kind == kind]
            back = [entry.resumed_s - entry.at_s for entry in struck if entry.resumed_s == entry.resumed_s]
            marks = _marks(events, [entry.at_s / DAY_S for entry in struck], row)
            marks.set_color(chart.SERIES[row % len(chart.SERIES)])
            longest = f", longest back after {lasting(max(back))}" if back else ""
            chart.hint(marks, [f"{kind}: {len(struck)}{longest}"])
        chart.named(events.yaxis, kinds)
        events.set(xlabel="days", ylim=(max(1, len(kinds)) - 0.5, -0.5))
        events.grid(visible=False, axis="y")
        return chart.svg(figure, "ETTR over the first replication, and its faults", inline=True)


def _marks(panel: Axes, days: Sequence[float], row: int) -> LineCollection:
    """A stroke for each, once: what lies within a pixel of another looks like one."""
    low, high = panel.get_xlim()
    pixels = sorted({round((day - low) / (high - low) * WIDTH) for day in days})
    at = [low + pixel / WIDTH * (high - low) for pixel in pixels]
    return panel.vlines(at, row - 0.3, row + 0.3)


def spread_plot(study: Study) -> str:
    """How replications differ: when the work was done, or their ETTR where only the horizon ends a run."""
    done = study.finished
    if study.plan.goal_steps < math.inf and done:
        values, title = [wall / DAY_S for wall in done], "days until the work is done"
    else:
        values, title = [one.ettr * 100 for one in study.outcomes], "ETTR of a run, %"
    low, high = min(values), max(values)
    pad = (high - low) * 0.05 or abs(high) * 0.01 or 1.0
    with chart.canvas(HALF, 280) as figure:
        panel = figure.subplots()
        panel.hist(values, bins=24, range=(low - pad, high + pad), color=BLUE, rwidth=0.94)
        panel.locator_params(axis="y", integer=True, nbins=4)
        panel.locator_params(axis="x", nbins=5)
        panel.set(xlabel=title, ylabel="replications", xlim=(low - pad, high + pad))
        ordered = sorted(values)
        for share, name, style in ((0.1, "p10", ":"), (0.5, "p50", "-"), (0.9, "p90", "--")):
            at = ordered[round(share * (len(ordered) - 1))]
            panel.axvline(at, color=AMBER, linestyle=style, label=f"{name} {at:.4g}")
        chart.above(panel, [*zip(*panel.get_legend_handles_labels(), strict=True)])
        return chart.svg(figure, title, inline=True)


def optimum_plot(answers: Answers) -> str:
    """ETTR over the interval: simulated, and by the exact formula of one kind of failure with the same
    mean.
    """
    found, storage = answers.optimum, answers.study.plan.storage
    assert found
    minutes = [every / 60 for every, _ in found.points]
    marks = [(found.formula_s / 60, "optimum by formula", GREEN)]
    if storage:
        marks.append((storage.every * answers.study.plan.step_s / 60, "now", AMBER))
    ends = [*minutes, *(at for at, _, _ in marks)]
    with chart.canvas(WIDTH, 320) as figure:
        panel = figure.subplots()
        exact = _exact_curve(answers, minutes)
        panel.plot([m for m, _ in exact], [share for _, share in exact], "--", color=GREY)
        panel.plot(minutes, [value.mean for _, value in found.points], color=BLUE)
        bounds = [value.low for _, value in found.points], [value.high for _, value in found.points]
        panel.vlines(minutes, *bounds, color=BLUE, linewidth=1.2)
        for at, _, colour in marks:
            panel.axvline(at, color=colour, linestyle=":")
        chart.logarithmic(
            panel, "x", (min(ends) * 0.85, max(ends) * 1.18), "{:g}".format, subs=(1.0, 2.0, 5.0)
        )
        chart.written(panel.yaxis, percent)
        panel.set(xlabel="minutes between checkpoints", ylabel="ETTR")
        curves = [
            (chart.key(BLUE), "simulated"),
            (chart.key(GREY, "--"), "exact formula, crashes alone"),
        ]
        lines = [(chart.key(colour, ":"), f"{words}: {at:.3g} min") for at, words, colour in marks]
        chart.above(panel, [*curves, *lines], columns=4)
        return chart.svg(figure, "ETTR over the interval between checkpoints", inline=True)


def _exact_curve(answers: Answers, minutes: Sequence[float]) -> list[tuple[float, float]]:
    """The exact formula over the intervals that were tried; empty where it says nothing."""
    found, storage, down = answers.optimum, answers.study.plan.storage, _mean_down(answers)
    if not (found and storage and down is not None) or storage.overlap:
        return []
    grid = [minutes[0] * (minutes[-1] / minutes[0]) ** (i / 60) for i in range(61)]
    lag, stall, mtbf = storage.lag_s, found.stall_s, found.mtbf_s
    return [(m, ettr_async(tau=m * 60, s=stall, p=lag, m=mtbf, d=down, r=0.0)) for m in grid]


def _mean_down(answers: Answers) -> float | None:
    """Seconds of downtime per interruption."""
    study = answers.study
    stops = sum(one.interruptions for one in study.outcomes)
    down = sum(
        one.seconds[name]
        for one in study.outcomes
        for name in ("detection", "reschedule", "idle", "restart", "load", "failed_restart")
    )
    return down / stops if stops else None


def repairs_plot(study: Study) -> str | None:
    """Hosts in repair over the first replication, against the spares."""
    series = study.outcomes[0].repairs
    rules = study.plan.recovering
    if not series or rules.warm is None:
        return None
    most = max(out for _, out in series)
    levels = [(rules.warm, f"{rules.warm} warm spares", GREEN)]
    if rules.cold and rules.warm + rules.cold <= 1.6 * max(most, rules.warm):
        levels.append((rules.warm + rules.cold, "all spares", AMBER))
    with chart.canvas(HALF, 280) as figure:
        panel = figure.subplots()
        points = [(0.0, 0.0), *((at / DAY_S, out) for at, out in series)]
        panel.plot([at for at, _ in points], [out for _, out in points], color=BLUE, drawstyle="steps-post")
        for level, _, colour in levels:
            panel.axhline(level, color=colour, linestyle=":")
        top = 1.2 * max(most, 1, *(level for level, _, _ in levels))
        panel.locator_params(axis="y", integer=True, nbins=4)
        panel.set(
            xlabel="days", ylabel="hosts in repair", ylim=(0, top), xlim=(0, series[-1][0] / DAY_S or 1.0)
        )
        chart.above(panel, [(chart.key(colour, ":"), words) for _, words, colour in levels])
        return chart.svg(figure, "Hosts in repair", inline=True)
