"""A timed schedule as lines of a terminal: one line a rank, time from left to right.

Readable without colour: every action begins with its letter, small on odd chunks; idle columns are
dots. Where columns are wider than actions, each shows what fills most of it. Knows rich, rows of boxes
and columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ..drawing import palette
from ..timeline.boxes import Box, Track

if TYPE_CHECKING:
    from rich.text import Text

IDLE = "·"
_FEW_COLOURS = {
    "F": "bright_white on blue",
    "B": "black on yellow",
    "I": "black on yellow",
    "W": "bright_white on green",
}
WIDEST_UNIT = 4  # columns of the shortest action at most: room for its letter and three digits


def columns(rows: Sequence[Track], last: float, room: int) -> int:
    """How many columns show the time up to ``last``: as many for each unit as fit, at most ``room``."""
    shortest = min(box.duration for row in rows for box in row.work)
    per_shortest = min(WIDEST_UNIT, int(room * shortest / last))
    if per_shortest < 1:
        return room
    return min(room, round(per_shortest * last / shortest))


def line(row: Track, last: float, width: int, *, filler: str, few_colours: bool = False) -> Text:
    """One row in ``width`` columns; ``filler`` follows an action's label up to its end.

    ``few_colours``: of terminals that know sixteen, which would show other hues for our shades.
    """
    from rich.text import Text

    text = Text(no_wrap=True, end="")
    for box, run in groupby(_shown(row.work, last, width)):
        length = len(list(run))
        if box is None:
            text.append(IDLE * length, style="dim")
            continue
        letter = box.kind.lower() if box.chunk % 2 else box.kind
        label = f"{letter}{box.label}"
        written = label.ljust(length, filler) if len(label) <= length else letter * length
        ground = palette.fill(box.kind, box.chunk, row.chunks)
        style = _FEW_COLOURS[box.kind] if few_colours else f"{palette.ink_on(ground)} on {ground}"
        text.append(written, style=style)
    return text


def _shown(boxes: Sequence[Box], last: float, width: int) -> Iterator[Box | None]:
    """The box that fills most of each column, of the kind that does; None where idle time does."""
    column = last / width
    inside: dict[int, list[tuple[float, Box]]] = defaultdict(list)
    for box in boxes:
        start, end = box.start / column, box.end / column
        for at in range(int(start + 1e-9), min(int(end - 1e-9), width - 1) + 1):
            inside[at].append((min(end, at + 1) - max(start, at), box))
    for at in range(width):
        parts = inside[at]
        by_kind: dict[str | None, float] = defaultdict(float)
        by_kind[None] = 1 - sum(part for part, _ in parts)
        for part, box in parts:
            by_kind[box.kind] += part
        kind = max(by_kind, key=lambda kind: round(by_kind[kind], 6))
        yield max(((part, box) for part, box in parts if box.kind == kind), key=_size)[1] if kind else None


def _size(member: tuple[float, Box]) -> float:
    return member[0]
