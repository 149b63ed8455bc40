"""The slowdown that each worker of a job causes by itself, as a heat map in SVG: replicas across, stages down

The same input gives the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...sim.report.drawing import chart, palette
from .stragglers import Stragglers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL, FRAME, LEAST = 44.0, 150.0, 520.0
_MOST = 1600.0
_FULL = 1.2
"""Slowdown at least that the darkest cell stands for: noise of a job without stragglers stays pale."""
_WRITTEN = 400
"""Cells up to which each has its number written in it."""


def heat_map_svg(found: Stragglers) -> str:
    """An SVG document; pointing at a cell shows its worker."""
    replicas, stages = found.by_worker.shape
    size = min(CELL, (_MOST - FRAME) / max(replicas, stages))
    width, height = max(LEAST, FRAME + size * replicas), FRAME + max(size * stages, 120.0)
    title = f"Slowdown by worker: S = {found.figures.slowdown:.3f}"
    with chart.canvas(width, height) as figure:
        panel = figure.subplots()
        _cells(panel, found)
        chart.head(figure, title, "one worker as it was, all others as usual")
        return chart.svg(figure, title)


def _cells(panel: Axes, found: Stragglers) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    replicas, stages = found.by_worker.shape
    colours = LinearSegmentedColormap.from_list("heat", ["#ffffff", chart.AMBER])
    darkest = max(_FULL, float(found.by_worker.max()))
    for replica in range(replicas):
        for stage in range(stages):
            value = float(found.by_worker[replica, stage])
            share = min(1.0, max(0.0, (value - 1) / (darkest - 1)))
            (cell,) = panel.bar(
                replica, 0.94, width=0.94, bottom=stage - 0.47, color=colours(share), edgecolor=palette.GRID
            )
            rank = found.ranks.get((replica, stage), "?")
            chart.hint(cell, [f"rank {rank}: dp {replica}, stage {stage}: {value:.3f}"])
            if replicas * stages <= _WRITTEN:
                panel.annotate(f"{value:.2f}", (replica, stage), ha="center", va="center", color=palette.INK)
    panel.grid(visible=False)
    panel.set_xlim(-0.5, replicas - 0.5)
    panel.set_ylim(stages - 0.5, -0.5)
    panel.set_xlabel("data-parallel replica")
    panel.set_ylabel("stage")
    for axis, count in ((panel.xaxis, replicas), (panel.yaxis, stages)):
        every = max(1, count // 16)
        axis.set_ticks(np.arange(0, count, every))
