"""Tables in Markdown."""

from __future__ import annotations

from .grids import Grid


def section(grid: Grid) -> str:
    """A heading and a table; empty where the table has no rows."""
    if not grid.rows:
        return ""
    rule = ["---" if index < grid.labels else "--:" for index in range(len(grid.columns))]
    lines = [_line(grid.columns), _line(rule), *map(_line, grid.rows)]
    return f"## {grid.title}\n\n" + "\n".join(lines) + "\n"


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
