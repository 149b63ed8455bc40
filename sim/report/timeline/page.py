"""The page around a timeline: its measures, the zoomed panel, the document.

Knows panels and rows; not what is said about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..drawing.svg import document, element, paper
from .boxes import Track
from .panel import Panel, callout, draw, frame

WIDTH = 1200.0
LEFT = 70.0
RIGHT = 24.0
LETTER = 6.2  # of the largest names, 12 pixels high
READABLE_BOX = 9.0  # pixels: under this, numbers do not fit and a zoom is added
ZOOMED_BOX = 18.0  # pixels that a typical forward has in the zoom


def row_height(rows: int) -> float:
    """Rows of 12 to 44 pixels: a small schedule may be tall, a large one must fit a page."""
    return min(44.0, max(12.0, 420.0 / rows))


def left_of(rows: Sequence[Track]) -> float:
    """Room for the names of rows: more of it where faults tell ranks of a stage apart."""
    longest = max((len(row.name) for row in rows), default=0)
    return max(LEFT, 16.0 + LETTER * longest)


def enlarged(rows: Sequence[Track], main: Panel) -> tuple[list[str], float]:
    """The zoomed panel with what leads to it, if one is needed, and where all panels end."""
    zoom = zoomed(rows, main)
    if zoom is None:
        return [], main.top + main.height(len(rows))
    parts = [callout(main, zoom, len(rows)), *draw(zoom, rows), frame(zoom, len(rows))]
    return parts, zoom.top + zoom.height(len(rows))


def zoomed(rows: Sequence[Track], main: Panel) -> Panel | None:
    """A panel on the way from warm-up to steady state, or None where boxes can be read already."""
    forwards = sorted(box.duration for row in rows for box in row.work if box.kind == "F")
    if not forwards:
        return None
    typical = forwards[len(forwards) // 2]
    if typical * main.pixels_per_unit >= READABLE_BOX:
        return None
    length = typical * (WIDTH - main.left - RIGHT) / ZOOMED_BOX
    turn = min((box.start for row in rows for box in row.work if box.kind in "BI"), default=0.0)
    last = main.window[1]
    first = min(max(0.0, turn - 0.35 * length), max(0.0, last - length))
    return replace(
        main,
        top=main.top + main.height(len(rows)) + 22,
        width=WIDTH - main.left - RIGHT,
        row_height=max(main.row_height, 20.0),
        window=(first, min(first + length, last)),
    )


def page(title: str, parts: Iterable[str], height: float, patterns: str = "") -> str:
    """The document: ``title`` for whoever hears it read, ``parts`` on white ground under ``patterns``."""
    hatches = element("defs", patterns) if patterns else ""
    return document(title, (hatches, paper(WIDTH, height), *parts), WIDTH, height)
