"""What every topology picture is made of: boxes, wires that may carry loads, and long rows folded short.

Knows shapes, colours and link names as text. Does not know any topology.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..drawing import palette
from ..drawing.svg import element, line, number, rect, text

WIDTH = 1200.0
MARGIN = 24.0
LEFT = 178.0  # names and counts of the tiers

FILLS = {
    "core": palette.SINGLE["B"],
    "spine": palette.SINGLE["W"],
    "leaf": palette.SINGLE["F"],
    "leaf 1": palette.RAMPS["F"][0],
    "spine 1": palette.RAMPS["W"][0],
    "router": palette.SINGLE["F"],
    "switch": palette.SINGLE["F"],
    "nic": palette.SINGLE["W"],
    "host": palette.IDLE,
    "gpu": palette.FLAT["optimizer"],
}
WIRES = {
    "nic": "#a8b4bf",
    "uplink": "#8fbf9c",
    "core": "#dfb77c",
    "local": "#4f86bd",
    "global": "#d9a05a",
    "torus": "#9fb3c6",
    "nvlink": "#a8abb0",
    "pcie": "#a8abb0",
    "cable": "#9fb3c6",
}
LOADS = ("#cfd8df", "#eeb15c", "#c92f44")
"""Idle, half and full links."""

Point = tuple[float, float]


@dataclass
class Sheet:
    """Shapes in the order of painting: frames, wires, boxes and words. ``loads`` is 0..1 by link name.

    ``trunk_end`` names the vertex that stands for a switch where loads are of trunks.
    """

    loads: Mapping[str, float] | None = None
    trunk_end: Callable[[str], str] = field(default=lambda name: name)
    frames: list[str] = field(default_factory=list)
    wires: list[str] = field(default_factory=list)
    boxes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._busiest: dict[str, float] = {}
        for name, load in (self.loads or {}).items():
            ends = re.sub(r" #\d+$", "", name).split(" -> ")
            both = " -- ".join(sorted(ends))
            self._busiest[both] = max(load, self._busiest.get(both, 0.0))

    def load(self, a: str, b: str) -> float | None:
        """The busiest cable between two vertices, in either direction; None without loads."""
        if self.loads is None:
            return None
        cable, trunk = (
            " -- ".join(sorted(ends)) for ends in ((a, b), (self.trunk_end(a), self.trunk_end(b)))
        )
        return self._busiest.get(cable, self._busiest.get(trunk, 0.0))

    def wire(self, start: Point, end: Point, kind: str, ends: tuple[str, str], *, bow: float = 0.0) -> None:
        """A cable; ``bow`` pixels of bend upwards."""
        load = self.load(*ends)
        colour = WIRES[kind] if load is None else load_colour(load)
        width = 1.1 if load is None else 1.0 + 1.8 * min(load, 1.0)
        if bow:
            middle = ((start[0] + end[0]) / 2, min(start[1], end[1]) - bow)
            path = " ".join(f"{number(x)} {number(y)}" for x, y in (middle, end))
            self.wires.append(
                element(
                    "path",
                    d=f"M{number(start[0])} {number(start[1])}Q{path}",
                    stroke=colour,
                    stroke_width=width,
                    fill="none",
                )
            )
        else:
            self.wires.append(line(*start, *end, stroke=colour, stroke_width=width))

    def box(
        self, x: float, y: float, width: float, height: float, label: str, kind: str, title: str = ""
    ) -> None:
        """A box around its middle ``x``, top at ``y``; the label is left out where it does not fit."""
        colour = FILLS[kind]
        outline: dict[str, float | str] = {"stroke": "#b9bcc0", "stroke_width": 0.8} if kind == "host" else {}
        self.boxes.append(
            rect(x - width / 2, y, width, height, title or label, rx=2.5, fill=colour, **outline)
        )
        size = min(11.0, height - 4, width / max(1, len(label)) / 0.56)
        if label and size >= 7:
            self.boxes.append(
                text(
                    x,
                    y + height / 2 + 0.36 * size,
                    label,
                    font_size=size,
                    fill=palette.ink_on(colour),
                    text_anchor="middle",
                )
            )

    def frame(self, x: float, y: float, width: float, height: float, label: str) -> None:
        """A pale frame with its name at the bottom left."""
        self.frames.append(
            rect(x, y, width, height, rx=5, fill="#fafaf8", stroke=palette.GRID, stroke_width=1)
        )
        self.frames.append(text(x + 8, y + height - 7, label, font_size=11, fill=palette.FAINT_INK))

    def words(self, x: float, y: float, words: str, size: float = 11.0, anchor: str = "middle") -> None:
        self.boxes.append(text(x, y, words, font_size=size, fill=palette.FAINT_INK, text_anchor=anchor))

    def tier(self, y: float, name: str, count: str) -> None:
        """The name of a row in the left margin, and how many it has in all."""
        self.boxes.append(text(MARGIN, y, name, font_size=13, font_weight="bold", fill=palette.INK))
        self.boxes.append(text(MARGIN, y + 15, count, font_size=11, fill=palette.FAINT_INK))

    def rate(self, y: float, lines: Sequence[str]) -> None:
        """What the cables between two rows are, in the left margin."""
        for index, words in enumerate(lines):
            self.boxes.append(
                text(MARGIN, y + 14 * index, words, font_size=11, font_style="italic", fill=palette.FAINT_INK)
            )


def load_colour(load: float) -> str:
    """The colour of a load: from grey over amber to red."""
    part = min(max(load, 0.0), 1.0) * 2
    low, high = LOADS[:2] if part <= 1 else LOADS[1:]
    mix = part if part <= 1 else part - 1
    pairs = zip(palette.channels(low), palette.channels(high), strict=True)
    return "#" + "".join(f"{round(a + mix * (b - a)):02x}" for a, b in pairs)


def folded(count: int, most: int) -> list[int | None]:
    """Up to ``most`` numbers of 0 to count - 1: all, or the first ones, None for what is left out, the last.

    >>> folded(3, 3), folded(14, 3)
    ([0, 1, 2], [0, 1, None, 13])
    """
    if count <= most:
        return list(range(count))
    return [*range(max(1, most - 1)), None, *([count - 1] if most > 1 else [])]


def hidden(count: int, shown: Sequence[int | None]) -> int:
    """How many of ``count`` are folded away."""
    return count - sum(one is not None for one in shown)


def gigabits(bytes_per_s: float) -> str:
    """A rate in bits.

    >>> gigabits(50e9), gigabits(3.2e12)
    ('400 Gb/s', '25.6 Tb/s')
    """
    bits = bytes_per_s * 8
    return f"{bits / 1e12:.4g} Tb/s" if bits >= 1e12 else f"{bits / 1e9:.4g} Gb/s"
