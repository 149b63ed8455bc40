"""One panel of the timeline: rows of boxes over a time axis.

Knows tracks, a window of time and pixels; the page around it is picture.py's.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from . import palette
from .boxes import Box, Track, gathered, within
from .clock import SECONDS, TimeScale
from .svg import boxes_path, element, group, line, number, rect, text

NAMED_BOXES = 3000  # up to here every box is an element with a name; beyond, one path a colour
DRAWN_BOXES = 40_000  # a panel has no more, so that a file stays under about a megabyte
THIN_BOX = 1.2  # pixels: where a typical box is thinner, columns show shares
STRIP = 0.2  # share of a row's height that shows exposed communication
BORDERED = 5.0  # pixels: where a typical box is wider, a white line parts it from the next
BORDERED_NAMELESS = 3.0  # the same on panels that name no box, where lines are thinner
PAIR_WIDTH = 5.0  # pixels: narrower pairs get no outline, which would hide them


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Where a panel lies and which stretch of time it shows; lengths in pixels.

    ``strip`` is the share of a row that is kept for exposed communication, ``end`` where idle ground
    ends if before the window does; ``labelled`` panels have numbers on their axis. ``most_boxes`` are
    drawn at most, and up to ``most_named`` of them each has a name to point at.
    """

    left: float
    top: float
    width: float
    row_height: float
    window: tuple[float, float]
    strip: float = STRIP
    end: float | None = None
    labelled: bool = True
    clock: TimeScale = SECONDS
    most_boxes: int = DRAWN_BOXES
    most_named: int = NAMED_BOXES

    @property
    def pixels_per_unit(self) -> float:
        return self.width / (self.window[1] - self.window[0])

    def x(self, time: float) -> float:
        return self.left + (time - self.window[0]) * self.pixels_per_unit

    def height(self, rows: int) -> float:
        """Rows and the axis under them."""
        return rows * self.row_height + (30 if self.labelled else 6)

    def row_top(self, row: int) -> float:
        return self.top + row * self.row_height

    @property
    def box_height(self) -> float:
        return self.row_height * (1 - self.strip) - 2

    @property
    def strip_height(self) -> float:
        return self.row_height * self.strip - 1


def draw(panel: Panel, rows: Sequence[Track]) -> list[str]:
    """Background, boxes, exposed communication, numbers, names and axis, in that order."""
    work = _simplified([within(row.work, panel.window) for row in rows], panel)
    exposed = _simplified([within(row.exposed, panel.window) for row in rows], panel)
    tail = [within(row.tail, panel.window) for row in rows]
    named = sum(map(len, work)) <= panel.most_named
    return [
        _background(panel, len(rows)),
        *_axis(panel, len(rows)),
        *_work(panel, rows, work, named=named),
        *_tail(panel, tail),
        *_strips(panel, exposed),
        *_pairs(panel, rows),
        *_numbers(panel, rows, work),
        *_names(panel, rows),
    ]


def shows_shares(boxes: Sequence[Sequence[Box]], panel: Panel) -> bool:
    """Whether boxes are too thin to tell apart, so that columns show shares instead."""
    widths = sorted(box.duration * panel.pixels_per_unit for row in boxes for box in row)
    if len(widths) <= NAMED_BOXES:
        return False
    return widths[len(widths) // 2] < THIN_BOX or len(widths) > panel.most_boxes


def _simplified(boxes: list[tuple[Box, ...]], panel: Panel) -> list[tuple[Box, ...]]:
    if not shows_shares(boxes, panel):
        return boxes
    columns = min(int(panel.width), panel.most_boxes // (2 * len(boxes)))
    return [gathered(row, panel.window, columns) for row in boxes]


def _background(panel: Panel, rows: int) -> str:
    last = panel.window[1] if panel.end is None else min(panel.end, panel.window[1])
    width = panel.x(last) - panel.left
    return group(
        (rect(panel.left, panel.row_top(r), width, panel.box_height) for r in range(rows)),
        fill=palette.IDLE,
    )


def _work(panel: Panel, rows: Sequence[Track], boxes: list[tuple[Box, ...]], *, named: bool) -> Iterator[str]:
    by_colour: dict[tuple[str, str], list[tuple[int, Box]]] = defaultdict(list)
    for row, (track, row_boxes) in enumerate(zip(rows, boxes, strict=True)):
        for box in row_boxes:
            by_colour[box.kind, palette.fill(box.kind, box.chunk, track.chunks)].append((row, box))
    for (_, colour), members in sorted(by_colour.items()):
        placed = [(*_place(panel, row, box), box) for row, box in members]
        if named:
            stroke_width = 0.6 if _typical_width(placed) > BORDERED else 0.0
            boxes_here = (rect(x, y, w, h, _title(panel, box)) for x, y, w, h, box in placed)
            yield group(boxes_here, fill=colour, stroke="#ffffff", stroke_width=stroke_width)
        else:
            border: dict[str, float | str] = {}
            if panel.most_named == 0 and _typical_width(placed) > BORDERED_NAMELESS:
                border = {"stroke": "#ffffff", "stroke_width": 0.4}
            yield boxes_path(((x, y, w, h) for x, y, w, h, _ in placed), fill=colour, **border)


def _place(panel: Panel, row: int, box: Box) -> tuple[float, float, float, float]:
    x, height = panel.x(max(box.start, panel.window[0])), panel.box_height
    width = panel.x(min(box.end, panel.window[1])) - x
    return x, panel.row_top(row) + box.low * height, width, (box.high - box.low) * height


def _typical_width(placed: list[tuple[float, float, float, float, Box]]) -> float:
    return sorted(width for _, _, width, _, _ in placed)[len(placed) // 2]


def _title(panel: Panel, box: Box) -> str:
    say = panel.clock.say
    return f"{box.name}: {say(box.start)} to {say(box.end)}, {say(box.duration)}"


def _tail(panel: Panel, tail: list[tuple[Box, ...]]) -> Iterator[str]:
    """Communication in the open outside the pipeline's actions: hatched in its axis's colour."""
    for row, boxes in enumerate(tail):
        for box in boxes:
            x, y, width, height = _place(panel, row, box)
            if width >= 0.2:
                yield rect(x, y, width, height, _title(panel, box), fill=f"url(#hatch-{box.kind})")


def _strips(panel: Panel, exposed: list[tuple[Box, ...]]) -> Iterator[str]:
    by_axis: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for row, boxes in enumerate(exposed):
        top, height = panel.row_top(row) + panel.box_height, panel.strip_height
        for box in boxes:
            x, _, width, _ = _place(panel, row, box)
            by_axis[box.kind].append((x, top + box.low * height, width, (box.high - box.low) * height))
    for axis, places in sorted(by_axis.items()):
        yield boxes_path(places, fill=palette.FLAT[axis])


def _pairs(panel: Panel, rows: Sequence[Track]) -> Iterator[str]:
    """An outline around what runs as one piece, as figure 5 of DeepSeek-AI 2024 (arXiv 2412.19437) has it."""
    first, last = panel.window
    outlines = [
        (panel.x(max(begin, first)), panel.row_top(row), panel.x(min(end, last)), panel.box_height)
        for row, track in enumerate(rows)
        for begin, end in track.pairs
        if begin < last and end > first
    ]
    if outlines and min(right - left for left, _, right, _ in outlines) >= PAIR_WIDTH:
        boxes = ((left, top, right - left, height) for left, top, right, height in outlines)
        yield boxes_path(boxes, fill="none", stroke=palette.INK, stroke_width=min(1.2, panel.row_height / 16))


def _numbers(panel: Panel, rows: Sequence[Track], boxes: list[tuple[Box, ...]]) -> Iterator[str]:
    """Microbatch numbers, in every box that has room for them."""
    size = min(11.0, panel.box_height * 0.62)
    if size < 6:
        return
    by_ink: dict[str, list[str]] = defaultdict(list)
    for row, (track, row_boxes) in enumerate(zip(rows, boxes, strict=True)):
        for box in row_boxes:
            x, y, width, height = _place(panel, row, box)
            if box.label and width >= 0.58 * size * len(box.label) + 2:
                ink = palette.ink_on(palette.fill(box.kind, box.chunk, track.chunks))
                by_ink[ink].append(text(x + width / 2, y + height / 2 + 0.36 * size, box.label))
    for ink, parts in sorted(by_ink.items()):
        yield group(parts, fill=ink, font_size=size, text_anchor="middle")


def _names(panel: Panel, rows: Sequence[Track]) -> Iterator[str]:
    """Every row's name, or every second, third, ... where rows that all have one are too thin."""
    size = min(12.0, max(panel.row_height * 0.62, 8.0))
    every = max(1, math.ceil(size * 1.1 / panel.row_height)) if all(row.name for row in rows) else 1
    yield group(
        (
            text(panel.left - 8, panel.row_top(r) + panel.box_height / 2 + 0.36 * size, rows[r].name)
            for r in range(0, len(rows), every)
            if rows[r].name
        ),
        fill=palette.INK,
        font_size=size,
        text_anchor="end",
    )


def tick_step(span: float, most: int) -> float:
    """Smallest of 1, 2 or 5 times a power of ten that gives at most ``most`` steps in ``span``.

    >>> tick_step(5.2, 12), tick_step(0.06, 12)
    (0.5, 0.005)
    """
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return float(f"{step * power:.6g}")


def _axis(panel: Panel, rows: int) -> Iterator[str]:
    first, last = panel.window
    step = tick_step(last - first, 12)
    unit, scale = panel.clock.unit(last)
    bottom = panel.row_top(rows)
    ticks = [k * step for k in range(math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9) + 1)]
    digits = max(0, -math.floor(math.log10(step * scale) + 1e-9))
    yield group(
        (line(panel.x(t), panel.top, panel.x(t), bottom + 4) for t in ticks),
        stroke=palette.GRID,
        stroke_width=0.75,
    )
    if not panel.labelled:
        return
    labels = [text(panel.x(t), bottom + 17, f"{t * scale:,.{digits}f}") for t in ticks]
    labels.append(text(panel.left - 20, bottom + 17, f"time, {unit}", text_anchor="end"))
    yield group(labels, fill=palette.FAINT_INK, font_size=11, text_anchor="middle")


def frame(panel: Panel, rows: int) -> str:
    """The outline of a panel that shows a part of another one."""
    return rect(
        panel.left,
        panel.top - 3,
        panel.width,
        rows * panel.row_height + 4,
        fill="none",
        stroke=palette.INK,
        stroke_width=0.8,
    )


def callout(overview: Panel, zoom: Panel, rows: int) -> str:
    """The stretch of ``overview`` that ``zoom`` shows, and lines that lead from one to the other."""
    left, right = (overview.x(time) for time in zoom.window)
    top, bottom, end = overview.top - 3, overview.top + overview.height(rows) - 6, zoom.top - 3
    outline = rect(left, top, right - left, rows * overview.row_height + 4)
    leads = "".join(
        f"M{number(x)} {number(overview.row_top(rows) + 1)}V{number(bottom)}L{number(to)} {number(end)}"
        for x, to in ((left, zoom.left), (right, zoom.left + zoom.width))
    )
    dashes = element("path", d=leads, stroke_dasharray="3 3", stroke_opacity=0.6)
    return group([outline, dashes], fill="none", stroke=palette.INK, stroke_width=0.8)
