"""The pipeline schedule of one step as a picture, in SVG, as a paper would show it.

One row a rank class, and without a pipeline rows of communication. Boxes are actions, pale ground is
idle time, a strip under the boxes is communication in the open, and hatches are what comes after the
pipeline. Where boxes are too thin for their microbatch numbers a second panel shows a stretch of the step
enlarged. Knows how the page is laid out; rows, colours and shapes are in the files beside this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...figures import gigabytes, percent, seconds
from ...result.result import Result
from ...result.step import AXES
from .. import captions
from ..drawing import palette
from ..drawing.headings import headings
from ..drawing.svg import element, group, rect, text
from . import legend, panel
from .boxes import Track, within
from .page import RIGHT, WIDTH, enlarged, left_of, page, row_height
from .panel import Panel
from .streams import stream_rows
from .tracks import order_of, tracks

NOTES = 118.0  # columns at the right: bubble and peak memory of the stage


def timeline_svg(result: Result, *, window: tuple[float, float] | None = None) -> str:
    """An SVG document, 1200 pixels wide; the same bytes for the same result.

    ``window`` (first and last second) shows that stretch alone. Raises ValueError when it is empty
    or lies outside the step.
    """
    shown = _checked(window, result.makespan_s)
    classes = tracks(result)
    rows = (*classes, *stream_rows(result))
    notes = window is None and len(result.bubble_per_stage) == len(classes)
    left = left_of(rows)
    width = WIDTH - left - RIGHT - (NOTES if notes else 0.0)
    main = Panel(left=left, top=0.0, width=width, row_height=row_height(len(rows)), window=shown)
    shares = panel.shows_shares([within(row.work, shown) for row in rows], main)
    found = legend.entries(rows, shares=shares)
    main = replace(main, top=94 + legend.LINE * len(legend.lines(found, WIDTH - 2 * RIGHT)) + 22)
    parts = [*_header(result), *legend.draw(found, RIGHT, 94, WIDTH - 2 * RIGHT), *panel.draw(main, rows)]
    if notes:
        parts += _notes(result, classes, main)
    bottom = main.top + main.height(len(rows))
    if window is None:
        zoom, bottom = enlarged(rows, main)
        parts += zoom
    name = result.scenario.name if result.scenario else "a program"
    hatches = "".join(_hatch(axis) for axis in AXES)
    return page(f"Schedule timeline of {name}", parts, bottom + 8, hatches)


def _checked(window: tuple[float, float] | None, makespan_s: float) -> tuple[float, float]:
    if window is None:
        return 0.0, makespan_s
    first, last = window
    if not 0 <= first < last or first >= makespan_s:
        raise ValueError(
            f"no such window: {first:g} to {last:g} s (first must be under last, and both within "
            f"the step of {makespan_s:g} s)"
        )
    return first, min(last, makespan_s)


def _header(result: Result) -> Iterator[str]:
    title, *lines = captions.headings(result.scenario)
    outcome = f"step {seconds(result.step_time_s)}"
    if result.actions and result.pipelined:
        outcome += f" · bubble {percent(result.bubble_fraction)} of busy time"
    if result.scenario:
        counts = [f"{percent(result.mfu)} (full attention scores)", f"{percent(result.mfu_causal)} (causal)"]
        outcome += " · MFU " + ", ".join(counts if result.headline_mfu == "mfu" else reversed(counts))
    if not result.fits:
        outcome += " · does not fit in memory"
    yield from headings(RIGHT, WIDTH - 2 * RIGHT, title, " · ".join(lines), outcome)


def _notes(result: Result, rows: Sequence[Track], main: Panel) -> Iterator[str]:
    """Bubble of each row and peak memory of its stage, in two columns at the right."""
    size = min(11.0, max(main.row_height * 0.62, 8.0))
    middle, right = WIDTH - RIGHT - 62, WIDTH - RIGHT
    peaks = {stage.pp: stage.peak_bytes for stage in result.memory}
    cells = [text(middle, main.top - 6, "bubble")] if result.pipelined else []
    if peaks:
        cells.append(text(right, main.top - 6, "peak"))
    every = -(-size * 1.1 // main.row_height)
    order = order_of(result)
    for index, row in enumerate(rows):
        if index % every == 0:
            y = main.row_top(index) + main.box_height / 2 + 0.36 * size
            bubble = result.bubble_per_stage[order[index]]
            if result.pipelined and not math.isnan(bubble):
                cells.append(text(middle, y, percent(bubble)))
            if row.pp in peaks:
                cells.append(text(right, y, gigabytes(peaks[row.pp])))
    yield group(cells, font_size=size, text_anchor="end", fill=palette.FAINT_INK)


def _hatch(axis: str) -> str:
    ground = rect(0, 0, 6, 6, fill=palette.FLAT[axis], fill_opacity="0.35")
    stripe = element("path", d="M0 0V6", stroke=palette.FLAT[axis], stroke_width=4)
    return element(
        "pattern",
        ground + stripe,
        id=f"hatch-{axis}",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
