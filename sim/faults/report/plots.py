"""Plots of a study by plotly: what to fix, where the time went, how a run went, how often to checkpoint.

plotly is imported inside functions: only the HTML report needs it. Colours are those of the timelines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...report.timeline import palette
from ..campaign.ledger import MEANING
from ..study.closed_forms import ettr_async
from ..study.study import WINDOW_S, Study, sliding_ettr, useful_by
from ..study.variants import Worth
from .answers import Answers
from .words import lasting

DAY_S = 86400.0
BLUE, AMBER, GREEN, GREY = palette.RAMPS["F"][0], palette.RAMPS["B"][0], palette.RAMPS["W"][0], "#8d9096"
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


def _figure(height: int, **layout: Any) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        template="simple_white",
        height=height,
        margin={"l": 10, "r": 20, "t": 10, "b": 45},
        showlegend=False,
        font={"family": "Helvetica, Arial, sans-serif", "size": 13, "color": palette.INK},
        **layout,
    )
    return figure


def _mark(figure: Any, x: float, words: str, colour: str, span: tuple[float, float]) -> None:
    """A dotted upright line with words at its upper end. plotly's own misplaces its words on logarithmic
    axes.
    """
    import plotly.graph_objects as go

    figure.add_trace(
        go.Scatter(
            x=[x, x],
            y=list(span),
            mode="lines+text",
            text=["", words],
            textposition="top center",
            showlegend=False,
            line={"color": colour, "dash": "dot", "width": 2},
            textfont={"color": colour},
            hoverinfo="skip",
            cliponaxis=False,
        )
    )


def worth_plot(worths: Sequence[Worth], about: str) -> Any:
    """Bars of gain in points of ETTR with intervals, best on top."""
    import plotly.graph_objects as go

    bounds = [one for one in worths if one.about == "bound" and about == "mitigation"]
    shown = [*[one for one in worths if one.about == about][:12], *bounds][::-1]
    figure = _figure(70 + 34 * len(shown), xaxis_title="points of ETTR gained")
    figure.add_trace(
        go.Bar(
            x=[one.gain.mean * 100 for one in shown],
            y=[one.name.removeprefix("no ") if about == "fault" else one.name for one in shown],
            orientation="h",
            marker_color=[COLOUR_OF[one.about] for one in shown],
            error_x={
                "type": "data",
                "array": [one.gain.half_width * 100 for one in shown],
                "color": palette.FAINT_INK,
                "thickness": 1.2,
            },
            hovertemplate="%{y}: %{x:.3f} points<extra></extra>",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[max(one.gain.high, 0.0) * 100 for one in shown],
            y=[one.name.removeprefix("no ") if about == "fault" else one.name for one in shown],
            text=[f"  {one.gain.mean * 100:+.2f}  ({one.hours:+,.0f} h)" for one in shown],
            mode="text",
            textposition="middle right",
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    most = max((one.gain.high for one in shown), default=0.01) * 100
    least = min(0.0, min((one.gain.low for one in shown), default=0.0) * 100)
    figure.update_xaxes(range=[least * 1.1, most * 1.35], zeroline=True)
    figure.update_yaxes(automargin=True)
    return figure


def lost_plot(study: Study) -> Any:
    """Lost time by category, longest on top."""
    import plotly.graph_objects as go

    lost = [(share, name) for name, share in study.waterfall.items() if name != "useful" and share > 0]
    lost.sort()
    hours = study.wall.mean / 3600
    figure = _figure(70 + 34 * max(1, len(lost)), xaxis_title="% of the wall clock")
    figure.add_trace(
        go.Bar(
            x=[share * 100 for share, _ in lost],
            y=[name for _, name in lost],
            orientation="h",
            marker_color=[COLOURS.get(name, GREY) for _, name in lost],
            text=[f"  {share * 100:.2f} %, {share * hours:,.0f} h" for share, _ in lost],
            textposition="outside",
            cliponaxis=False,
            customdata=[MEANING[name] for _, name in lost],
            hovertemplate="%{y}: %{customdata}<extra></extra>",
        )
    )
    figure.update_xaxes(range=[0, max((share for share, _ in lost), default=0.01) * 135])
    figure.update_yaxes(automargin=True)
    return figure


def history_plot(study: Study) -> Any:
    """The first replication: cumulative and sliding ETTR, with what struck."""
    import plotly.graph_objects as go

    one = study.outcomes[0]
    figure = _figure(360, xaxis_title="days", yaxis_title="ETTR", hovermode="closest")
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    figure.update_layout(margin={"t": 60})
    count = min(600, max(2, int(one.wall_s // WINDOW_S)))
    times = [one.wall_s * (number + 1) / count for number in range(count)]
    total = useful_by(one, times)
    sliding = sliding_ettr(one)
    hours = [(number + 0.5) * WINDOW_S / DAY_S for number in range(len(sliding))]
    figure.add_trace(
        go.Scatter(
            x=hours, y=sliding, name="of each hour", mode="lines", line={"color": "#b5d3ea", "width": 1}
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[at / DAY_S for at in times],
            y=[u / at for u, at in zip(total, times, strict=True)],
            name="so far",
            mode="lines",
            line={"color": BLUE, "width": 2.5},
        )
    )
    kinds = list(dict.fromkeys(entry.kind for entry in one.log))
    marks = ["circle", "diamond", "square", "triangle-up", "x", "cross", "star", "triangle-down"]
    for number, kind in enumerate(kinds):
        entries = [entry for entry in one.log if entry.kind == kind]
        figure.add_trace(
            go.Scatter(
                x=[entry.at_s / DAY_S for entry in entries],
                y=[-0.05 - 0.045 * (number % 8)] * len(entries),
                name=kind,
                mode="markers",
                marker={"size": 5, "symbol": marks[number % 8], "color": list(COLOURS.values())[number % 11]},
                customdata=[(entry.target, lasting(entry.resumed_s - entry.at_s)) for entry in entries],
                hovertemplate=kind + " %{customdata[0]}, back after %{customdata[1]}<extra></extra>",
            )
        )
    figure.update_yaxes(
        range=[-0.1 - 0.045 * min(8, len(kinds)), 1.05], tickvals=[0, 0.25, 0.5, 0.75, 1], tickformat=".0%"
    )
    return figure


def spread_plot(study: Study) -> Any:
    """How replications differ: when the work was done, or their ETTR where only the horizon ends a run."""
    import plotly.graph_objects as go

    done = study.finished
    if study.plan.goal_steps < math.inf and done:
        values, title = [wall / DAY_S for wall in done], "days until the work is done"
    else:
        values, title = [one.ettr * 100 for one in study.outcomes], "ETTR of a run, %"
    figure = _figure(260, xaxis_title=title, yaxis_title="replications", bargap=0.06)
    figure.add_trace(go.Histogram(x=values, nbinsx=24, marker_color=BLUE))
    ordered = sorted(values)
    top = len(values) / 5
    for number, (share, name) in enumerate(((0.1, "p10"), (0.5, "p50"), (0.9, "p90"))):
        at = ordered[round(share * (len(ordered) - 1))]
        _mark(figure, at, f"{name} {at:.4g}", AMBER, (0, top * (1.12 if number == 1 else 1.0)))
    figure.update_yaxes(rangemode="tozero")
    return figure


def optimum_plot(answers: Answers) -> Any:
    """ETTR over the interval: simulated, and by the exact formula of one kind of failure with the same
    mean.
    """
    import plotly.graph_objects as go

    found = answers.optimum
    assert found
    figure = _figure(300, xaxis_title="minutes between checkpoints", yaxis_title="ETTR")
    minutes = [every / 60 for every, _ in found.points]
    figure.add_trace(
        go.Scatter(
            x=minutes,
            y=[value.mean for _, value in found.points],
            mode="lines+markers",
            name="simulated",
            line={"color": BLUE},
            error_y={
                "type": "data",
                "array": [value.half_width for _, value in found.points],
                "thickness": 1,
            },
        )
    )
    span = (min(value.low for _, value in found.points), max(value.high for _, value in found.points))
    storage = answers.study.plan.storage
    down = _mean_down(answers)
    if storage and down is not None:
        grid = [minutes[0] * (minutes[-1] / minutes[0]) ** (i / 60) for i in range(61)]
        lag = storage.lag_s
        exact = [ettr_async(tau=m * 60, s=found.stall_s, p=lag, m=found.mtbf_s, d=down, r=0.0) for m in grid]
        figure.add_trace(
            go.Scatter(
                x=grid,
                y=exact,
                mode="lines",
                name="exact formula, crashes alone",
                line={"color": GREY, "dash": "dash"},
            )
        )
        now = storage.every * answers.study.plan.step_s / 60
        _mark(figure, now, "now", AMBER, span)
    _mark(figure, found.formula_s / 60, "optimum by formula", GREEN, span)
    ticks = [digit * 10.0**power for power in range(-3, 6) for digit in (1, 2, 5)]
    shown = [tick for tick in ticks if minutes[0] * 0.8 <= tick <= minutes[-1] * 1.25]
    figure.update_xaxes(type="log", tickvals=shown, ticktext=[f"{tick:g}" for tick in shown])
    figure.update_yaxes(tickformat=".1%")
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.12, "x": 0})
    return figure


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


def repairs_plot(study: Study) -> Any | None:
    """Hosts in repair over the first replication, against the spares."""
    import plotly.graph_objects as go

    series = study.outcomes[0].repairs
    rules = study.plan.recovering
    if not series or rules.warm is None:
        return None
    figure = _figure(240, xaxis_title="days", yaxis_title="hosts in repair")
    figure.add_trace(
        go.Scatter(
            x=[at / DAY_S for at, _ in series],
            y=[out for _, out in series],
            mode="lines",
            line={"color": BLUE, "shape": "hv"},
        )
    )
    levels = [(rules.warm, f"{rules.warm} warm spares", GREEN)]
    most = max(out for _, out in series)
    if rules.cold and rules.warm + rules.cold <= 1.6 * max(most, rules.warm):
        levels.append((rules.warm + rules.cold, "all spares", AMBER))
    figure.update_yaxes(range=[0, 1.2 * max(most, *(level for level, _, _ in levels))])
    for level, words, colour in levels:
        figure.add_trace(
            go.Scatter(
                x=[0.0, series[-1][0] / DAY_S],
                y=[level, level],
                mode="lines+text",
                text=[words, ""],
                textposition="top right",
                line={"color": colour, "dash": "dot", "width": 2},
                textfont={"color": colour},
                hoverinfo="skip",
            )
        )
    return figure
