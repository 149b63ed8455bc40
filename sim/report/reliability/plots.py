"""Plots of a study: what to fix, where the time went, how a run went, how often to checkpoint.

Knows which figures go into a picture and in which colours; charts.py draws them. Colours are those of the
timelines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...figures import lasting
from ...reliability.answers import Answers
from ...reliability.campaign.ledger import MEANING
from ...reliability.study.closed_forms import ettr_async
from ...reliability.study.study import WINDOW_S, Study, sliding_ettr, useful_by
from ...reliability.study.variants import Worth
from ..timeline import palette
from .charts import WIDTH, Bar, Frame, bars, dots, legend, picture, ticks

DAY_S = 86400.0
BLUE, AMBER, GREEN, GREY = palette.RAMPS["F"][0], palette.RAMPS["B"][0], palette.RAMPS["W"][0], "#8d9096"
PALE = "#b5d3ea"
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
HALF = 500.0
"""Width of a picture that stands beside another."""


def percent(share: float) -> str:
    """Of an axis."""
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
    hours = study.wall.mean / 3600
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


def history_plot(study: Study) -> str:
    """The first replication: cumulative and sliding ETTR, with what struck."""
    one = study.outcomes[0]
    kinds = list(dict.fromkeys(entry.kind for entry in one.log))
    rows = len(kinds)
    frame = Frame(
        low=(0.0, -0.09 * rows), high=(one.wall_s / DAY_S or 1.0, 1.05), height=330 + 14.0 * rows, top=56
    )

    def parts() -> Iterator[str]:
        yield from frame.across(ticks(*frame_x(frame), 10), "days")
        yield from frame.up([0, 0.25, 0.5, 0.75, 1], "ETTR", percent)
        yield from legend([("of each hour", PALE), ("so far", BLUE)], 90, 16)
        sliding = sliding_ettr(one)
        hours = [((n + 0.5) * WINDOW_S / DAY_S, share) for n, share in enumerate(sliding)]
        yield frame.curve(hours, PALE, 1.0)
        count = min(600, max(2, int(one.wall_s // WINDOW_S)))
        times = [one.wall_s * (n + 1) / count for n in range(count)]
        total = [(at / DAY_S, done / at) for done, at in zip(useful_by(one, times), times, strict=True) if at]
        yield frame.curve(total, BLUE, 2.5)
        for row, kind in enumerate(kinds):
            y = frame.y(-0.09 * (row + 0.5))
            colour = list(COLOURS.values())[row % len(COLOURS)]
            struck = [entry for entry in one.log if entry.kind == kind]
            back = [entry.resumed_s - entry.at_s for entry in struck if entry.resumed_s == entry.resumed_s]
            hint = f"{kind}: {len(struck)}" + (f", longest back after {lasting(max(back))}" if back else "")
            yield dots([frame.x(entry.at_s / DAY_S) for entry in struck], y, colour, hint)
            yield from legend([(kind, colour)], 90 + 150.0 * (row % 6), 34 if row < 6 else 50)

    return picture(list(parts()), WIDTH, frame.height)


def frame_x(frame: Frame) -> tuple[float, float]:
    """The ends of its x axis."""
    return frame.low[0], frame.high[0]


def spread_plot(study: Study) -> str:
    """How replications differ: when the work was done, or their ETTR where only the horizon ends a run."""
    done = study.finished
    if study.plan.goal_steps < math.inf and done:
        values, title = [wall / DAY_S for wall in done], "days until the work is done"
    else:
        values, title = [one.ettr * 100 for one in study.outcomes], "ETTR of a run, %"
    low, high = min(values), max(values)
    pad = (high - low) * 0.05 or abs(high) * 0.01 or 1.0
    low, high = low - pad, high + pad
    wide = (high - low) / 24
    counts = [0] * 24
    for value in values:
        counts[min(23, int((value - low) / wide))] += 1
    frame = Frame(low=(low, 0.0), high=(high, max(counts)), width=HALF, height=260, top=60, left=50)

    def parts() -> Iterator[str]:
        yield from frame.up([tick for tick in ticks(0, max(counts), 4) if tick == int(tick)], "replications")
        for n, number in enumerate(counts):
            if number:
                a, b = frame.x(low + n * wide), frame.x(low + (n + 1) * wide)
                base, top = frame.y(0), frame.y(number)
                yield element_rect(a, top, b - a, base - top)
        yield from frame.across(ticks(low, high, 5), title)
        ordered = sorted(values)
        for number, (share, name) in enumerate(((0.1, "p10"), (0.5, "p50"), (0.9, "p90"))):
            at = ordered[round(share * (len(ordered) - 1))]
            yield from frame.upright(at, f"{name} {at:.4g}", AMBER, row=number % 2)

    return picture(list(parts()), HALF, frame.height)


def element_rect(x: float, y: float, width: float, height: float) -> str:
    """A bar of a histogram, with a gap."""
    from ..timeline.svg import rect

    return rect(x + 0.5, y, max(0.5, width - 1), height, fill=BLUE)


def optimum_plot(answers: Answers) -> str:
    """ETTR over the interval: simulated, and by the exact formula of one kind of failure with the same
    mean.
    """
    found, storage = answers.optimum, answers.study.plan.storage
    assert found
    minutes = [every / 60 for every, _ in found.points]
    exact = _exact_curve(answers, minutes)
    values = [*(end for _, value in found.points for end in (value.low, value.high)), *(y for _, y in exact)]
    marks = [(found.formula_s / 60, "optimum by formula", GREEN)]
    if storage:
        marks.append((storage.every * answers.study.plan.step_s / 60, "now", AMBER))
    ends = [*minutes, *(at for at, _, _ in marks)]
    low, high = max(0.0, min(values)), min(1.0, max(values))
    pad = (high - low) * 0.06 or 0.01
    frame = Frame(
        low=(min(ends) * 0.85, low - pad), high=(max(ends) * 1.18, high + pad), top=72, logarithmic=True
    )

    def parts() -> Iterator[str]:
        at = [digit * 10.0**power for power in range(-4, 6) for digit in (1, 2, 5)]
        shown = [tick for tick in at if frame.low[0] <= tick <= frame.high[0]]
        yield from frame.up(ticks(low, high, 5), "ETTR", percent)
        yield from frame.across(shown, "minutes between checkpoints")
        yield from legend([("simulated", BLUE), ("exact formula, crashes alone", GREY)], 90, 16)
        yield frame.curve(exact, GREY, 2.0, stroke_dasharray="6 4")
        yield frame.curve(
            [(m, value.mean) for m, (_, value) in zip(minutes, found.points, strict=True)], BLUE
        )
        for m, (_, value) in zip(minutes, found.points, strict=True):
            yield frame.whisker(m, value.low, value.high, BLUE)
        for row, (x, words, colour) in enumerate(marks):
            yield from frame.upright(x, words, colour, row)

    return picture(list(parts()), WIDTH, frame.height)


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
    top = 1.2 * max(most, 1, *(level for level, _, _ in levels))
    frame = Frame(
        low=(0.0, 0.0), high=(series[-1][0] / DAY_S or 1.0, top), width=HALF, height=260, top=60, left=50
    )

    def parts() -> Iterator[str]:
        yield from frame.up(ticks(0, top, 4), "hosts in repair")
        yield from frame.across(ticks(*frame_x(frame), 5), "days")
        yield frame.curve([(0.0, 0.0), *((at / DAY_S, out) for at, out in series)], BLUE, steps=True)
        for level, _, colour in levels:
            ends = [(x, float(level)) for x in frame_x(frame)]
            yield frame.curve(ends, colour, stroke_dasharray="2 3")
        yield from legend([(words, colour) for _, words, colour in levels], 60, 34, HALF)

    return picture(list(parts()), HALF, frame.height)
