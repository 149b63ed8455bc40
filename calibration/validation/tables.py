"""A validation as tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .grids import (
    LEGEND,
    Grid,
    outcome_grid,
    overall_grid,
    refused_grid,
    regime_grid,
    source_grid,
    worst_grid,
)
from .intervals import RANGES, interval_grid, intervals_by_group, intervals_by_range, range_grid
from .run import Report
from .summary import summarize

if TYPE_CHECKING:
    from rich.console import Console


def print_report(report: Report, console: Console) -> None:
    """Print the summary, sources and regimes, the worst rows and the refusals; empty tables are left out."""
    summary = summarize(report)
    grids = (
        overall_grid(summary),
        source_grid(summary, "high"),
        source_grid(summary, "medium"),
        regime_grid(summary),
        interval_grid(intervals_by_group(report.rows)),
        range_grid(intervals_by_range(report.rows), RANGES),
        outcome_grid(summary),
        worst_grid(report),
        refused_grid(summary),
    )
    for grid in grids:
        if grid.rows:
            print_grid(grid, console)
    console.print(LEGEND, style="dim")
    if summary.internal_errors:
        console.print(
            f"{summary.internal_errors} cases met a mistake of the simulator itself.", style="bold red"
        )


def print_grid(grid: Grid, console: Console) -> None:
    """One table; its title above it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=grid.title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.pad_edge, table.collapse_padding = False, True
    for index, column in enumerate(grid.columns):
        label = index < grid.labels
        table.add_column(column, justify="left" if label else "right", overflow="fold", no_wrap=not label)
    for row in grid.rows:
        table.add_row(*map(Text, row))  # Text: brackets in an id or a reason are no markup
    console.print(table)
