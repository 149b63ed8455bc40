"""One timed schedule as a picture, in SVG, as a paper would show it; times in units of a forward.

Knows what is written around the rows; boxes, colours and the page are those of all timelines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...figures import count, percent
from ..drawing import palette
from ..drawing.headings import headings
from ..drawing.svg import group, text
from ..timeline import legend, panel
from ..timeline.clock import counted
from ..timeline.page import LEFT, RIGHT, WIDTH, enlarged, page, row_height
from ..timeline.panel import Panel
from .lanes import lanes
from .rows import rows
from .tables import costs_line, shape_line
from .timed import TimedSchedule

NOTES = 52.0  # column at the right: the peak of each rank
HEADER = 94.0
NAMED = 6000  # boxes of a panel with a name: all that a zoom has on 64 ranks


def schedule_svg(schedule: TimedSchedule) -> str:
    """An SVG document, 1200 pixels wide; the same bytes for the same schedule."""
    unit, name = time_unit(schedule.shape.costs.forward)
    tracks, last = rows(schedule, unit), schedule.makespan / unit
    main = Panel(
        left=LEFT,
        top=0.0,
        width=WIDTH - LEFT - RIGHT - NOTES,
        row_height=row_height(len(tracks)),
        window=(0.0, last),
        strip=0.0,
        clock=counted(name),
        most_named=NAMED,
    )
    shares = panel.shows_shares([track.work for track in tracks], main)
    shades = lanes(schedule.rank_of, schedule.shape).words
    found = legend.entries(tracks, shares=shares, shades=shades)
    room = WIDTH - 2 * RIGHT
    main = replace(main, top=HEADER + legend.LINE * len(legend.lines(found, room)) + 22)
    parts = [*_header(schedule), *legend.draw(found, RIGHT, HEADER, room), *panel.draw(main, tracks)]
    parts += _peaks(schedule, main)
    zoom, bottom = enlarged(tracks, main)
    parts += zoom
    return page(f"Timeline of the pipeline schedule {schedule.name}", parts, bottom + 8)


def time_unit(forward: int) -> tuple[int, str]:
    """How many units of the costs make one of the axis, and its name: a forward, if that takes time."""
    return (forward, "tf") if forward else (1, "units")


def _header(schedule: TimedSchedule) -> Iterator[str]:
    unit, name = time_unit(schedule.shape.costs.forward)
    subject = f"{shape_line(schedule)}; {costs_line(schedule)}"
    chunks = schedule.shape.chunks
    peak = f"{count(max(schedule.peaks))} " + ("activations" if chunks == 1 else "chunk activations")
    if chunks > 1:
        peak += f" ({max(schedule.peaks) / chunks:g} of a whole stage)"
    bubbles = [percent(share) for share in (schedule.bubble_rate_makespan, schedule.bubble_rate)]
    outcome = (
        f"makespan {schedule.makespan / unit:,.6g} {name}, bubble {bubbles[0]} of it · "
        f"longest span {schedule.max_span / unit:,.6g} {name}, bubble {bubbles[1]} of it · peak {peak}"
    )
    yield from headings(RIGHT, WIDTH - 2 * RIGHT, schedule.title, subject, outcome)


def _peaks(schedule: TimedSchedule, main: Panel) -> Iterator[str]:
    """What each rank holds at most, in a column at the right."""
    size = min(11.0, max(main.row_height * 0.62, 8.0))
    every = int(-(-size * 1.1 // main.row_height))
    right = WIDTH - RIGHT
    cells = [text(right, main.top - 6, "peak")]
    cells += [
        text(right, main.row_top(rank) + main.box_height / 2 + 0.36 * size, count(schedule.peaks[rank]))
        for rank in range(0, len(schedule.peaks), every)
    ]
    yield group(cells, font_size=size, text_anchor="end", fill=palette.FAINT_INK)
