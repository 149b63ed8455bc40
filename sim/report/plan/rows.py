"""All layouts that a planner replayed, as a table in a file: one row each.

Knows the columns; rows_file.py knows the formats.
"""

from __future__ import annotations

import math
from pathlib import Path

from ...plan.search.layout_plan import LayoutPlan, written
from ..rows_file import plain_cell, write_rows

FIGURES = ("step_time_s", "bound_s", "peak_memory_bytes", "rank", "on_front", "refused")


def write_replays(plan: LayoutPlan, path: Path) -> None:
    """Write them to ``path``, in the format that its suffix names: the fields of each layout, its figures,
    its ``rank`` among the choices (empty for others). ValueError as ``write_rows``.
    """
    names = list(dict.fromkeys(name for one in plan.replays for name in one.settings))
    rank = {choice.number: place for place, choice in enumerate(plan.choices, 1)}
    front = {point.number for point in plan.front}
    rows = []
    for one in plan.replays:
        settings = written(one.settings)
        judged = one.judged
        rows.append(
            [
                *(plain_cell(settings.get(name)) for name in names),
                None if math.isinf(judged.step_time_s) else judged.step_time_s,
                one.bound_s,
                None if math.isnan(judged.peak_memory_bytes) else judged.peak_memory_bytes,
                rank.get(one.number),
                one.number in front,
                judged.refused,
            ]
        )
    write_rows("layouts", (*names, *FIGURES), rows, path)
