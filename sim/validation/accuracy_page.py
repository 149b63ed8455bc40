"""docs/accuracy.md: how near the predictions are to measured runs, written by the program itself.

Deterministic: the same report and the same notes give the same page.
"""

from __future__ import annotations

from pathlib import Path

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
from .intervals import interval_grid, intervals_by_group
from .run import Report
from .summary import ACCEPTANCE_SOURCES, TRUSTS, summarize

NOTES = Path(__file__).parents[2] / "docs" / "accuracy-notes.md"
"""Explanations written by hand, put at the end of the page; an installed package has none."""

HEAD = f"""\
# Accuracy

Made by `make validate`, which runs

    stepsim validate ../shared/data/cases/*.yaml --markdown docs/accuracy.md

and predicts every measured run of these files from its configuration alone. Do not edit this page;
explanations belong in `accuracy-notes.md`.

A family is one model and layout. Errors are averaged within a family first, so that a sweep of hundreds of
rows counts as little as a single run. The acceptance set is the rows of high trust that are dense, in
16 bit and without context parallelism, of
{", ".join(f"`{source}`" for source in ACCEPTANCE_SOURCES)}.
Every case of every file is counted: predicted, or refused with the reason.
"""


def accuracy_markdown(report: Report, notes: Path = NOTES, *, picture: Path | None = None) -> str:
    """The page, ending with the text of the file ``notes`` where there is one.

    ``picture`` is drawn of the same report (scatter.py), into the folder of the page.
    """
    summary = summarize(report)
    parts = [HEAD, section(overall_grid(summary)), f"{LEGEND[0].upper()}{LEGEND[1:]}\n"]
    if picture is not None:
        parts.append(f"![Predicted over measured step times, by source]({picture.name})\n")
    parts += [section(source_grid(summary, trust)) for trust in TRUSTS[:2]]
    parts += [
        section(regime_grid(summary, "high")),
        section(interval_grid(intervals_by_group(report.rows))),
        section(outcome_grid(summary)),
        section(worst_grid(report)),
        section(refused_grid(summary)),
    ]
    if summary.internal_errors:
        parts.append(
            f"{summary.internal_errors} of the refused cases met a mistake of the simulator itself.\n"
        )
    if notes.is_file():
        parts.append(notes.read_text(encoding="utf-8"))
    return "\n".join(part for part in parts if part)


def section(grid: Grid) -> str:
    """A heading and a table; empty where the table has no rows."""
    if not grid.rows:
        return ""
    rule = ["---" if index < grid.labels else "--:" for index in range(len(grid.columns))]
    lines = [_line(grid.columns), _line(rule), *map(_line, grid.rows)]
    return f"## {grid.title}\n\n" + "\n".join(lines) + "\n"


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
