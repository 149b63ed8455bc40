"""A plan as a picture in SVG: memory over step time with the front, and all that was replayed as lines.

Left of the lines stand the fields that the step time hangs on most, right the step itself. The same input
gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...figures import GB, gigabytes, seconds
from ...plan.search.layout_in_words import short, told
from ...plan.search.layout_plan import LayoutPlan, ReplayedLayout
from .. import captions
from ..drawing import chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 960.0, 820.0
MOST_AXES = 8
ROOM = 145
"""Letters beside one another over the whole width: values between two axes are cut to their share of it in
the middle, and stand whole in the hints."""

SLOWEST = 2.0
"""Times the best step: slower layouts would press all others together."""


def plan_svg(plan: LayoutPlan) -> str:
    """An SVG document. ValueError where nothing fits, so that nothing was replayed."""
    shown = [one for one in plan.replays if math.isfinite(one.judged.step_time_s)]
    if not plan.choices or not shown:
        raise ValueError("--picture draws what was replayed, and nothing fits")
    best = min(one.judged.step_time_s for one in shown)
    near = [one for one in shown if one.judged.step_time_s <= SLOWEST * best]
    title = f"Layouts of {captions.subject(plan.scenario, plan.stated)}"
    series = [
        (chart.key(chart.AMBER, marker="o"), "proposed"),
        (chart.key(chart.BLUE), "front"),
        (chart.key(chart.GREY, marker="o"), "replayed"),
    ]
    with chart.canvas(WIDTH, HEIGHT) as figure:
        above, below = figure.subplots(2, 1, height_ratios=(1, 1))
        _scatter(above, plan, near)
        _lines(below, plan, near)
        chart.head(figure, title, plan.certificate.sentence(), series)
        return chart.svg(figure, title)


def _scatter(panel: Axes, plan: LayoutPlan, shown: Sequence[ReplayedLayout]) -> None:
    """A dot for each layout: its peak memory over its step."""
    chosen = {choice.number for choice in plan.choices}
    others = [one for one in shown if one.number not in chosen]
    for group, colour in ((others, chart.GREY), ([o for o in shown if o.number in chosen], chart.AMBER)):
        if group:
            x = [one.judged.step_time_s for one in group]
            drawn = chart.dots(panel, x, [one.judged.peak_memory_bytes / GB for one in group], colour)
            drawn.set_markersize(8 if colour == chart.AMBER else 5)
            drawn.set_zorder(3 if colour == chart.AMBER else 2)
            chart.hint(drawn, [_hint(one) for one in group])
    points = sorted((p.step_time_s, p.peak_memory_bytes / GB) for p in plan.front)
    panel.plot([x for x, _ in points], [y for _, y in points], color=chart.BLUE, drawstyle="steps-post")
    capacity = plan.choices[0].figures.capacity_bytes / GB
    panel.axhline(capacity, color=chart.GREY, linestyle="--", linewidth=1)
    panel.annotate(
        "memory of a GPU", (1.0, capacity), xycoords=("axes fraction", "data"), xytext=(0, 3),
        textcoords="offset points", ha="right", size=11,
    )  # fmt: skip
    chart.written(panel.xaxis, lambda value: f"{value:.4g} s")
    chart.written(panel.yaxis, lambda value: f"{value:.4g} GB")
    panel.set(xlabel="step time", ylabel="peak memory", ylim=(0, None))


def _hint(one: ReplayedLayout) -> str:
    judged = one.judged
    return f"{short(one.settings)}: {seconds(judged.step_time_s)}, {gigabytes(judged.peak_memory_bytes)}"


def _lines(panel: Axes, plan: LayoutPlan, shown: Sequence[ReplayedLayout]) -> None:
    """A line for each layout over the fields that differ, the slowest first so that the best lie on top."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    fields = fields_by_weight(shown)[:MOST_AXES]
    places = [_places(shown, field) for field in fields]
    steps = [one.judged.step_time_s for one in shown]
    low, high = min(steps), max(steps)
    shade = LinearSegmentedColormap.from_list("step", [chart.BLUE, chart.PALE, "#eceff2"])
    chosen = {choice.number for choice in plan.choices}
    for one in sorted(shown, key=lambda one: -one.judged.step_time_s):
        step_s = one.judged.step_time_s
        y = [place[_key(one, field)] for field, place in zip(fields, places, strict=True)]
        slow = math.log(step_s / low) / math.log(high / low) if high > low else 0.5
        proposed = one.number in chosen
        colour = chart.AMBER if proposed else to_hex(shade(slow))
        (line,) = panel.plot(range(len(y) + 1), [*y, slow], color=colour, linewidth=2.5 if proposed else 1.0)
        line.set_zorder(3 if proposed else 2)
        chart.hint(line, [_hint(one)])
    room = max(8, int(ROOM / (len(fields) + 1)))
    for x, place in enumerate(places):
        for name, y_at in place.items():
            half = room // 2
            told_in = name if len(name) <= room else f"{name[: half - 1]}…{name[-half:]}"
            panel.text(x, y_at, f" {told_in}", size=10, va="center", bbox=_BEHIND)
    for y_at, step_s in ((0.0, low), (1.0, high)):
        panel.text(len(fields), y_at, f" {seconds(step_s)}", size=10, va="center", bbox=_BEHIND)
    names = [field.rpartition(".")[2].replace("_", " ") for field in fields]
    chart.named(panel.xaxis, [*names, "step time"])
    panel.set(xlim=(-0.2, len(fields) + 0.6), ylim=(1.08, -0.08))
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)


_BEHIND: Any = {"facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.75, "pad": 0.5}


def _key(one: ReplayedLayout, field: str) -> str:
    value = one.settings.get(field)
    if value is None or isinstance(value, bool):
        return {True: "on", False: "off", None: "-"}[value]
    if isinstance(value, list | dict) and field != "training.recompute":
        return "own"
    return told(field, value)


def _places(shown: Sequence[ReplayedLayout], field: str) -> dict[str, float]:
    """Where each value stands on its axis, from 0 at the top to 1: numbers by size, words by name."""
    values = sorted(
        {_key(one, field) for one in shown}, key=lambda text: (not text.isdigit(), len(text), text)
    )
    if len(values) == 1:
        return {values[0]: 0.5}
    return {value: place / (len(values) - 1) for place, value in enumerate(values)}


def fields_by_weight(shown: Sequence[ReplayedLayout]) -> list[str]:
    """Fields that differ among layouts, first those whose values tell most of the step: by the share of the
    variance of its logarithm that lies between the values of a field, with a value's freedom taken off
    (adjusted R squared).
    """
    steps = [math.log(one.judged.step_time_s) for one in shown]
    mean = math.fsum(steps) / len(steps)
    total = math.fsum((step - mean) ** 2 for step in steps)
    weight: dict[str, float] = {}
    for field in dict.fromkeys(name for one in shown for name in one.settings):
        groups: dict[str, list[float]] = {}
        for one, step in zip(shown, steps, strict=True):
            groups.setdefault(_key(one, field), []).append(step)
        if len(groups) > 1 and field != "parallelism.dp":  # which follows from others
            inside = math.fsum(
                math.fsum((step - math.fsum(group) / len(group)) ** 2 for step in group)
                for group in groups.values()
            )
            free = max(1, len(steps) - len(groups))
            weight[field] = 1 - inside / free / (total / max(1, len(steps) - 1)) if total else 0.0
    return sorted(weight, key=lambda field: (-weight[field], field))
