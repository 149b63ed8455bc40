"""The legend of the timeline: what is drawn, and nothing that is not.

Knows colours and tracks; places its entries in lines of a given width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...result.step import AXES
from ..drawing import palette
from ..drawing.svg import rect, text, text_width
from .boxes import Track

SIZE = 12.0
LINE = 20.0
SWATCH = 14.0
GAP = 20.0
"""Pixels between the words of an entry, as wide as they are estimated, and the next swatch."""
_OUTLINE: dict[str, float | str] = {"stroke": palette.GRID, "stroke_width": 0.8}


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """``fills`` side by side as one swatch, maybe ``outlined``; ``height`` as a share of the line's."""

    fills: tuple[str, ...]
    words: str
    height: float = 1.0
    outlined: bool = False

    @property
    def width(self) -> float:
        return SWATCH * max(1.0, len(self.fills) * 0.6) + 6 + text_width(self.words, SIZE) + GAP


def entries(rows: Sequence[Track], *, shares: bool, shades: str | None = None) -> tuple[LegendEntry, ...]:
    """What the rows hold; ``shares`` when thin boxes are drawn as shares of a column.

    ``shades`` says what the shades of a kind are, if not virtual chunks; nothing when it is empty.
    """
    kinds = {box.kind for row in rows for box in row.work}
    chunks = max((row.chunks for row in rows), default=1)
    found = [
        _work_entry(kind, chunks, f"chunks 0 to {chunks - 1}" if shades is None else shades)
        for kind in palette.WORDS
        if kind in kinds
    ]
    found += [LegendEntry((palette.FLAT[a],), f"{a.upper()} communication") for a in AXES if a in kinds]
    outside = {box.kind for row in rows for box in row.tail}
    found += [
        LegendEntry((f"url(#hatch-{a})",), f"{a.upper()} while compute idles") for a in AXES if a in outside
    ]
    exposed = {box.kind for row in rows for box in row.exposed}
    found += [LegendEntry((palette.FLAT[a],), f"exposed {a.upper()}", 0.35) for a in AXES if a in exposed]
    if any(row.pairs for row in rows):
        pair = tuple(palette.fill(kind, 0, chunks) for kind in "FB")
        found.append(LegendEntry(pair, "forward and backward run as one", outlined=True))
    found.append(LegendEntry((palette.IDLE,), "idle"))
    if shares:
        found.append(LegendEntry((palette.fill("F", 0, 1),), "thin boxes: height is share of time", 0.5))
    return tuple(found)


def _work_entry(kind: str, chunks: int, shades: str) -> LegendEntry:
    fills = tuple(palette.fill(kind, chunk, chunks) for chunk in range(chunks))
    if kind == "optimizer":
        return LegendEntry((palette.FLAT[kind],), palette.WORDS[kind])
    return LegendEntry(fills, palette.WORDS[kind] + (f", {shades}" if chunks > 1 and shades else ""))


def lines(found: Sequence[LegendEntry], width: float) -> list[list[LegendEntry]]:
    """The entries in reading order, as many a line as fit."""
    placed: list[list[LegendEntry]] = [[]]
    for entry in found:
        if placed[-1] and sum(e.width for e in placed[-1]) + entry.width > width:
            placed.append([])
        placed[-1].append(entry)
    return placed


def draw(found: Sequence[LegendEntry], left: float, top: float, width: float) -> Iterator[str]:
    for index, entries_of_line in enumerate(lines(found, width)):
        x, y = left, top + index * LINE
        for entry in entries_of_line:
            swatch = SWATCH * max(1.0, len(entry.fills) * 0.6)
            height = SWATCH * entry.height
            each = swatch / len(entry.fills)
            for k, fill in enumerate(entry.fills):
                outline = _OUTLINE if fill == palette.IDLE else {}
                yield rect(x + k * each, y + (SWATCH - height) / 2, each, height, fill=fill, **outline)
            if entry.outlined:
                yield rect(x, y, swatch, SWATCH, fill="none", stroke=palette.INK, stroke_width=1.2)
            yield text(x + swatch + 6, y + SWATCH - 3, entry.words, font_size=SIZE, fill=palette.INK)
            x += entry.width
