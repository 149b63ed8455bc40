"""What pipeline ranks hold over a step, as a picture in SVG: terms stacked, the capacity as a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ...figures import gigabytes, seconds
from ...result.step import MOVING
from ..timeline import palette
from ..timeline.page import LEFT, RIGHT, WIDTH, page
from ..timeline.svg import element, group, line, number, rect, text

if TYPE_CHECKING:
    from ...result.result import Result
    from ...result.step import StageMemory

HEIGHT, GAP, TOP = 120.0, 34.0, 74.0
MOST = 8
COLOURS = {
    "held all step long": "#55585c",
    "gathered": "#9b3f7f",
    "gradients": "#eeb15c",
    "activations": "#6f9fcd",
    "logits": "#7dbb8a",
    "allocator": "#d9d9d5",
}
"""Bottom to top."""


def memory_svg(result: Result) -> str:
    """One panel a pipeline rank, at most MOST of them, evenly chosen; the same bytes for the same result."""
    every = max(1, -(-len(result.memory) // MOST))
    shown = result.memory[::every]
    name = result.scenario.name if result.scenario else "program"
    parts = [text(LEFT, 28, f"Memory of {name}", font_size=18, fill=palette.INK), *_legend()]
    for i, stage in enumerate(shown):
        parts += _panel(stage, TOP + i * (HEIGHT + GAP), result.makespan_s)
    return page(f"Memory: {name}", parts, TOP + len(shown) * (HEIGHT + GAP))


def _legend() -> Iterator[str]:
    for i, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + i * 160
        yield rect(x, 40, 12, 12, fill=colour)
        yield text(x + 18, 50, name, font_size=12, fill=palette.FAINT_INK)


def _panel(stage: StageMemory, top: float, makespan_s: float) -> Iterator[str]:
    width, bottom = WIDTH - LEFT - RIGHT, top + HEIGHT
    highest = max(stage.capacity_bytes, stage.peak_bytes)

    def x(at_s: float) -> float:
        return LEFT + width * (at_s / makespan_s if makespan_s else 0.0)

    def y(size: float) -> float:
        return bottom - HEIGHT * size / highest

    yield rect(LEFT, top, width, HEIGHT, fill=palette.IDLE)
    points = [(0.0, (0.0,) * len(MOVING)), *stage.moving, (makespan_s, (0.0,) * len(MOVING))]
    levels = [0.0] * len(points)
    layers = []
    for name, colour in COLOURS.items():
        above = [low + _size(stage, name, sizes) for low, (_, sizes) in zip(levels, points, strict=True)]
        if any(high > low for low, high in zip(levels, above, strict=True)):
            bands = zip(points, levels, above, strict=True)
            layers.append(_steps([(x(at), y(low), y(high)) for (at, _), low, high in bands], colour))
        levels = above
    yield group(layers)
    limit = y(stage.capacity_bytes)
    yield line(LEFT, limit, LEFT + width, limit, stroke=palette.INK, stroke_dasharray="4 3")
    words = f"pp {stage.pp}: peak {gigabytes(stage.peak_bytes)} of {gigabytes(stage.capacity_bytes)}"
    words += f", at {stage.peak_action} {seconds(stage.peak_s)}" if stage.peak_action else ""
    yield text(LEFT, top - 5, words, font_size=12, fill=palette.INK)


def _size(stage: StageMemory, name: str, sizes: tuple[float, ...]) -> float:
    if name == "held all step long":
        return stage.static_bytes
    return stage.beside_bytes if name == "allocator" else sizes[MOVING.index(name)]


def _steps(band: Sequence[tuple[float, float, float]], colour: str) -> str:
    """A band that keeps each point's height until the next one."""
    upper, lower = [], []
    for (x, low, high), (after, _, _) in pairwise(band):
        upper.append(f"{number(x)} {number(high)} {number(after)} {number(high)}")
        lower.append(f"{number(after)} {number(low)} {number(x)} {number(low)}")
    return element("polygon", points=" ".join([*upper, *reversed(lower)]), fill=colour)
