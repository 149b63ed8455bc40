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

MOST_ROWS = 32


def memory_table(result: Result, width: int) -> Table:
    """One row a pipeline rank, in GB (1e9 bytes); beyond MOST_ROWS the fullest ones only."""
    from rich.table import Table

    names = _terms(result.memory, width)
    hidden = any(size for stage in result.memory for name, size in stage.terms.items() if name not in names)
    fullest = sorted(result.memory, key=lambda stage: -stage.fullness)[:MOST_ROWS]
    table = Table(box=None, padding=(0, 1), caption=_caption(result), caption_justify="left", header_style="")
    table.add_column(" pp", justify="right")
    for name in (*names, *(("other",) if hidden else ()), "peak"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("headroom", justify="right", no_wrap=True)
    table.add_column("at", no_wrap=True)
    for stage in sorted(fullest, key=lambda stage: stage.pp):
        table.add_row(*_cells(stage, names, hidden=hidden), style="" if stage.fits else "bold")
    return table


def _caption(result: Result) -> str:
    sizes = sorted({stage.capacity_bytes for stage in result.memory})
    per_gpu = " or ".join(f"{_gb(size)} GB" for size in sizes)
    caption = f"  GB = 1e9 bytes; {per_gpu} per GPU"
    if len(result.memory) > MOST_ROWS:
        caption += f"; the fullest {MOST_ROWS} of {len(result.memory)} pipeline ranks"
    return caption


def _terms(memory: Sequence[StageMemory], width: int) -> list[str]:
    """The largest terms over all stages that fit into ``width`` beside the other columns, in the order of the
    bill.
    """
    largest: dict[str, float] = {}
    for stage in memory:
        for name, size_bytes in stage.terms.items():
            largest[name] = max(largest.get(name, 0.0), size_bytes)
    shown = [name for name, size_bytes in largest.items() if size_bytes > 0]
    by_size = sorted(shown, key=lambda name: -largest[name])
    widths = {name: _width([*name.split(), _gb(largest[name])]) for name in shown}  # headings break there
    rows = [_OTHERS, *(_cells(stage, (), hidden=True) for stage in memory)]
    pp, other, *rest = map(_width, zip(*rows, strict=True))
    left = width - pp - sum(rest)
    if sum(widths.values()) > left:
        while by_size and sum(widths[name] for name in by_size) + other > left:
            by_size.pop()
    return [name for name in shown if name in by_size]


_OTHERS = (" pp", "other", "peak", "headroom", "at")
"""Headings of the columns that are no terms, in the order of ``_cells``."""


def _width(texts: Sequence[str]) -> int:
    """What a column of these takes, with its gaps."""
    return max(map(len, texts)) + 2


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
