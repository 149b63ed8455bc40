"""What pipeline ranks hold over a step, as a picture in SVG: terms stacked, the capacity as a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...figures import gigabytes, seconds
from ...result.step import IDLE, MOVING
from ..drawing import chart, palette
from ..timeline.clock import SECONDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ...result.result import Result
    from ...result.step import StageMemory

WIDTH, HEIGHT, HEAD = 1200.0, 160.0, 120.0
TALL = 320.0
"""Of a panel where there are one or two: terms of a sharded model are thin."""

MOST = 8
HELD = ("weights", "optimizer", "gradients, held", "communication", "context and workspace")
"""Terms that stay all step long; gradients that come and go are MOVING's."""

COLOURS = {
    "weights": "#2f3a4a",
    "optimizer": "#4d6072",
    "gradients, held": "#8a6d4b",
    "communication": "#8d949b",
    "context and workspace": "#b3b6b8",
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
    legend = [*((chart.key(colour, marker="s"), name) for name, colour in COLOURS.items())]
    legend = [entry for entry, name in zip(legend, COLOURS, strict=True) if _occurs(name, shown)]
    height = HEIGHT if len(shown) > 2 else TALL
    with chart.canvas(WIDTH, HEAD + height * len(shown)) as figure:
        panels = figure.subplots(len(shown), sharex=True, squeeze=False)
        for panel, stage in zip(panels.flat, shown, strict=True):
            _panel(panel, stage, result.makespan_s)
        unit, scale = SECONDS.unit(result.makespan_s)
        chart.written(panel.xaxis, lambda at_s: f"{at_s * scale:,.6g}")
        panel.set_xlabel(f"time, {unit}")
        capacity = (chart.key(palette.INK, "--"), "capacity")
        chart.head(figure, f"Memory of {name}", series=[*legend, capacity])
        return chart.svg(figure, f"Memory: {name}")


def _panel(panel: Axes, stage: StageMemory, makespan_s: float) -> None:
    """Each term keeps its size until the next action changes it."""
    nothing = (0.0,) * len(MOVING)
    points = [(0.0, nothing), *stage.moving, (makespan_s, nothing)]
    times = [at_s for at_s, _ in points]
    levels = [0.0] * len(points)
    for name, colour in COLOURS.items():
        own = _sizes(stage, name, [sizes for _, sizes in points])
        above = [low + size for low, size in zip(levels, own, strict=True)]
        if above != levels:
            bands = [*zip(levels, above, strict=True)]
            last = len(points) - 1
            kept = [n for n, band in enumerate(bands) if n in (0, last) or band != bands[n - 1]]
            at_s, low, high = ([values[n] for n in kept] for values in (times, levels, above))
            panel.fill_between(at_s, low, high, step="post", color=colour, linewidth=0)
            brief = _brief(times, [high - low for low, high in bands], makespan_s / WIDTH)
            panel.vlines(
                [times[n] for n in brief],
                [levels[n] for n in brief],
                [above[n] for n in brief],
                color=colour,
                linewidth=1,
            )
        levels = above
    panel.axhline(stage.capacity_bytes, color=palette.INK, linewidth=1, linestyle="--")
    words = f"pp {stage.pp}: peak {gigabytes(stage.peak_bytes)} of {gigabytes(stage.capacity_bytes)}"
    words += f", at {stage.peak_action} {seconds(stage.peak_s)}" if stage.peak_action else ""
    chart.written(panel.yaxis, lambda size: f"{size / 1e9:g}")
    panel.set(title=words, ylabel="GB", xlim=(0.0, makespan_s or 1.0), facecolor=palette.IDLE)
    panel.set_ylim(0.0, 1.05 * max(stage.capacity_bytes, stage.peak_bytes))


def _brief(times: Sequence[float], sizes: Sequence[float], shortest_s: float) -> list[int]:
    """Where a term is larger than before and after for less than ``shortest_s``, as logits are: an area
    of no width is not seen, and the peak may be there."""
    return [
        n
        for n in range(1, len(times) - 1)
        if times[n + 1] - times[n] < shortest_s and sizes[n] > max(sizes[n - 1], sizes[n + 1])
    ]


def _occurs(name: str, stages: Sequence[StageMemory]) -> bool:
    """Whether any rank holds some of a term."""
    nothing = (0.0,) * len(MOVING)
    return any(
        size != 0.0
        for stage in stages
        for size in _sizes(stage, name, [*(sizes for _, sizes in stage.moving), nothing])
    )


def _held(stage: StageMemory) -> dict[str, float]:
    """What ``static_bytes`` is made of, by HELD. ``terms`` has gradients with those that pass."""
    beside = sum(
        stage.terms.get(name, 0.0) for name in ("context", "workspace", "flat buffers", "outputs", IDLE)
    )
    found = {name: stage.terms.get(name, 0.0) for name in ("weights", "optimizer", "communication")}
    found["context and workspace"] = beside
    return {**found, "gradients, held": max(stage.static_bytes - sum(found.values()), 0.0)}


def _sizes(stage: StageMemory, name: str, moving: list[tuple[float, ...]]) -> list[float]:
    """The bytes of a term at each moment."""
    if name in MOVING:
        place = MOVING.index(name)
        return [sizes[place] for sizes in moving]
    return [_held(stage)[name] if name in HELD else stage.beside_bytes] * len(moving)
