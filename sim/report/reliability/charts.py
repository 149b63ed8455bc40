"""Charts as SVG inside a page: a frame with axes, curves, steps, marks and rows of bars.

Knows pixels, ticks and how many points an eye can tell apart; does not know what is drawn. Equal input gives
equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..timeline import palette
from ..timeline.svg import FONT, element, escape, line, number, rect, text, text_width

WIDTH = 1040.0
SIZE = 13.0
Points = Sequence[tuple[float, float]]


def picture(parts: Iterator[str] | Sequence[str], width: float, height: float) -> str:
    """An SVG element that is as wide as its place in the page."""
    return element(
        "svg",
        "\n".join(filter(None, parts)),
        viewBox=f"0 0 {width:g} {height:g}",
        width="100%",
        role="img",
        font_family=FONT,
        font_size=SIZE,
    )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between both: a power of ten times 1, 2 or 5 apart.

    >>> ticks(0.0, 0.93)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    rough = (high - low) / most
    if not rough > 0 or not math.isfinite(rough):
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """From data to pixels. ``low`` and ``high`` are corners; ``logarithmic``: of the x axis."""

    low: tuple[float, float]
    high: tuple[float, float]
    width: float = WIDTH
    height: float = 300.0
    left: float = 70.0
    right: float = 24.0
    top: float = 34.0
    bottom: float = 46.0
    logarithmic: bool = False

    def x(self, value: float) -> float:
        """Pixels from the left."""
        low, high = self.low[0], self.high[0]
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        part = (value - low) / (high - low) if high > low else 0.5
        return self.left + part * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Pixels from above."""
        low, high = self.low[1], self.high[1]
        part = (value - low) / (high - low) if high > low else 0.5
        return self.height - self.bottom - part * (self.height - self.top - self.bottom)

    def across(
        self, at: Sequence[float], words: str, write: Callable[[float], str] = "{:g}".format
    ) -> Iterator[str]:
        """The x axis with its ticks."""
        base = self.height - self.bottom
        yield line(self.left, base, self.width - self.right, base, stroke=palette.INK)
        for tick in at:
            x = self.x(tick)
            yield line(x, base, x, base + 5, stroke=palette.INK)
            yield text(x, base + 19, write(tick), text_anchor="middle", fill=palette.INK, font_size=12)
        middle = (self.left + self.width - self.right) / 2
        yield text(middle, self.height - 8, words, text_anchor="middle", fill=palette.FAINT_INK)

    def up(
        self, at: Sequence[float], words: str, write: Callable[[float], str] = "{:g}".format
    ) -> Iterator[str]:
        """The y axis: lines across, and its words above."""
        for tick in at:
            y = self.y(tick)
            yield line(self.left, y, self.width - self.right, y, stroke=palette.GRID)
            yield text(self.left - 8, y + 4, write(tick), text_anchor="end", fill=palette.INK, font_size=12)
        yield text(8, self.top - 16, words, fill=palette.FAINT_INK)

    def curve(
        self, points: Points, colour: str, width: float = 2.0, *, steps: bool = False, **more: str
    ) -> str:
        """A line through points, or steps from one to the next; thinned to what can be seen."""
        drawn = [(self.x(x), self.y(y)) for x, y in points]
        drawn = thinned(drawn)
        if not drawn:
            return ""
        path = [f"M{number(drawn[0][0])} {number(drawn[0][1])}"]
        for x, y in drawn[1:]:
            path.append(f"H{number(x)}V{number(y)}" if steps else f"L{number(x)} {number(y)}")
        return element("path", d="".join(path), fill="none", stroke=colour, stroke_width=width, **more)

    def upright(self, x: float, words: str, colour: str, row: int = 0) -> Iterator[str]:
        """A dotted line at ``x`` with words above it."""
        at = self.x(x)
        yield line(
            at, self.top, at, self.height - self.bottom, stroke=colour, stroke_width=2, stroke_dasharray="2 3"
        )
        yield text(at, self.top - 6 - 14 * row, words, text_anchor="middle", fill=colour)

    def whisker(self, x: float, low: float, high: float, colour: str) -> str:
        """An interval."""
        return line(self.x(x), self.y(low), self.x(x), self.y(high), stroke=colour)


def thinned(points: list[tuple[float, float]], apart: float = 1.0) -> list[tuple[float, float]]:
    """At most four points of each ``apart`` pixels: first, lowest, highest and last, in their order."""
    if len(points) < 8:
        return points
    found: list[tuple[float, float]] = []
    group: list[tuple[float, float]] = []
    for point in [*points, (math.inf, 0.0)]:
        if group and math.floor(point[0] / apart if math.isfinite(point[0]) else -1) != math.floor(
            group[0][0] / apart
        ):
            keep = {0, len(group) - 1}
            keep |= {
                min(range(len(group)), key=lambda n: group[n][1]),
                max(range(len(group)), key=lambda n: group[n][1]),
            }
            found += [group[n] for n in sorted(keep)]
            group = []
        group.append(point)
    return found


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A row: ``words`` on its right, an interval if it has one, ``hint`` under the pointer."""

    name: str
    value: float
    words: str
    colour: str
    interval: tuple[float, float] | None = None
    hint: str = ""


ROW = 30.0


def bars(rows: Sequence[Bar], words: str) -> str:
    """Rows of bars from zero, the first on top, with names on the left."""
    ends = [end for row in rows for end in (row.value, *(row.interval or ()))]
    low, high = min(0.0, *ends, 0.0), max(0.0, *ends, 1e-9)
    left = max((text_width(row.name, SIZE * 1.1) for row in rows), default=0.0) + 24
    right = max((text_width(row.words, SIZE * 1.1) for row in rows), default=0.0) + 24
    height = ROW * max(1, len(rows)) + 56
    frame = Frame(low=(low, 0.0), high=(high, 1.0), height=height, left=left, right=right, top=8)

    def parts() -> Iterator[str]:
        yield from frame.across(ticks(low, high), words)
        for place, row in enumerate(rows):
            y = frame.top + ROW * place
            x, zero = frame.x(row.value), frame.x(0.0)
            yield text(left - 10, y + 19, row.name, text_anchor="end", fill=palette.INK)
            yield rect(min(x, zero), y + 4, abs(x - zero), ROW - 8, row.hint, fill=row.colour)
            end = max(x, zero)
            if row.interval:
                a, b = (frame.x(value) for value in row.interval)
                yield line(a, y + ROW / 2, b, y + ROW / 2, stroke=palette.FAINT_INK, stroke_width=1.2)
                end = max(end, b)
            yield text(end + 8, y + 19, row.words, fill=palette.INK)
        zero = frame.x(0.0)
        yield line(zero, frame.top, zero, height - frame.bottom, stroke=palette.INK)

    return picture(list(parts()), WIDTH, height)


def legend(names: Sequence[tuple[str, str]], x: float, y: float, most: float = WIDTH) -> Iterator[str]:
    """Colour and name, one after the other."""
    begun = x
    for name, colour in names:
        wide = text_width(name, SIZE * 1.1) + 34
        if x + wide > most:
            x, y = begun, y + 18
        yield rect(x, y - 9, 14, 9, fill=colour)
        yield text(x + 19, y, name, fill=palette.INK)
        x += wide


def dots(at: Sequence[float], y: float, colour: str, words: str) -> str:
    """Marks at these pixels in one path, each once: what lies on one pixel looks like one."""
    places = sorted({round(x) for x in at})
    path = "".join(f"M{x} {number(y - 3)}v6" for x in places)
    return (
        element("path", f"<title>{escape(words)}</title>", d=path, stroke=colour, stroke_width=2)
        if path
        else ""
    )
