"""The memory bill of each pipeline rank as a table.

Knows rich and StageMemory. Shows as many terms as the width allows, the largest ones by name and
the rest as ``other``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..figures import GB, seconds
from ..result.result import Result
from ..result.step import StageMemory

if TYPE_CHECKING:
    from rich.table import Table

FIXED_WIDTH = 21  # columns of the stage, peak and headroom, with their gaps
OTHER_WIDTH = 7
MOST_ROWS = 32


def memory_table(result: Result, width: int) -> Table:
    """One row a pipeline rank, in GB (1e9 bytes); beyond MOST_ROWS the fullest ones only."""
    from rich.table import Table

    moment_width = max(len(_moment(stage)) for stage in result.memory) + 2
    names = _terms(result.memory, width - FIXED_WIDTH - moment_width)
    hidden = any(name not in names for stage in result.memory for name in stage.terms)
    fullest = sorted(result.memory, key=lambda stage: -stage.peak_bytes)[:MOST_ROWS]
    table = Table(box=None, padding=(0, 1), caption=_caption(result), caption_justify="left", header_style="")
    table.add_column(" pp", justify="right")
    for name in (*names, *(("other",) if hidden else ()), "peak"):
        table.add_column(name, justify="right", overflow="fold", min_width=5)
    table.add_column("headroom", justify="right", no_wrap=True)
    table.add_column("at", no_wrap=True)
    for stage in sorted(fullest, key=lambda stage: stage.pp):
        table.add_row(*_cells(stage, names, hidden=hidden), style="" if stage.fits else "bold")
    return table


def _caption(result: Result) -> str:
    capacity = min(stage.capacity_bytes for stage in result.memory)
    caption = f"  GB = 1e9 bytes; {_gb(capacity)} GB per GPU"
    if len(result.memory) > MOST_ROWS:
        caption += f"; the fullest {MOST_ROWS} of {len(result.memory)} pipeline ranks"
    return caption


def _terms(memory: Sequence[StageMemory], width: int) -> list[str]:
    """The largest terms over all stages that fit into ``width``, in the order of the bill."""
    largest: dict[str, float] = {}
    for stage in memory:
        for name, size_bytes in stage.terms.items():
            largest[name] = max(largest.get(name, 0.0), size_bytes)
    shown = [name for name, size_bytes in largest.items() if size_bytes > 0]
    by_size = sorted(shown, key=lambda name: -largest[name])
    if sum(map(_width, shown)) > width:
        while by_size and sum(map(_width, by_size)) + OTHER_WIDTH > width:
            by_size.pop()
    return [name for name in shown if name in by_size]


def _width(name: str) -> int:
    """Columns of a term: headings break between words, a figure takes five."""
    return max(5, *map(len, name.split())) + 2


def _cells(stage: StageMemory, names: Sequence[str], *, hidden: bool) -> list[str]:
    cells = [str(stage.pp), *(_gb(stage.terms.get(name, 0.0)) for name in names)]
    if hidden:
        cells.append(_gb(sum(size for name, size in stage.terms.items() if name not in names)))
    over = "" if stage.fits else "OOM "
    headroom = over + _gb(stage.capacity_bytes - stage.peak_bytes)
    return [*cells, _gb(stage.peak_bytes), headroom, _moment(stage)]


def _moment(stage: StageMemory) -> str:
    return f"{stage.peak_action} {seconds(stage.peak_s)}".lstrip()


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / GB:,.1f}"
