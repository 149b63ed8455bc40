"""The nanotron sweep by number of hosts and by measured MFU: where the error of its rows sits.

MFU counts the full score matrix, as the sweep's own table does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...cases.errors import Errors, errors_of
from ..baselines import ideal_s
from ..run import ValidatedCase

SOURCE = "hf_nanotron_h100"
TRUSTS = ("high", "medium")
BANDS = ((0.0, 0.05), (0.05, 0.10), (0.10, 0.20), (0.20, 0.30), (0.30, math.inf))
FAST_ENOUGH = 0.10
"""MFU from which a run counts as one that somebody would keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Errors of a group of rows; by families first, and the plain median over ``rows``."""

    name: str
    errors: Errors
    row_median: float


def judged(rows: Sequence[ValidatedCase]) -> list[ValidatedCase]:
    """Rows of the sweep that are held to something."""
    return [
        row for row in rows if row.source == SOURCE and row.case.trust in TRUSTS and row.error is not None
    ]


def measured_mfu(row: ValidatedCase) -> float:
    """MFU of a row with a measured step time; nan where the GPU's peak is unknown."""
    ideal, measured = ideal_s(row.case), row.case.measured.step_time_s
    return ideal / measured if ideal and measured else math.nan


def by_nodes(rows: Sequence[ValidatedCase]) -> list[Cell]:
    """Errors of the step time by how many hosts a run had: one cell for each number of hosts."""
    counts = sorted({_nodes(row) for row in judged(rows)})
    return [
        cell
        for n in counts
        if (cell := _cell(f"{n} host{'s' if n > 1 else ''}", rows, lambda r, n=n: _nodes(r) == n))  # type: ignore[misc]
    ]


def by_band(rows: Sequence[ValidatedCase]) -> list[Cell]:
    """One cell for each band of measured MFU, and one for all of at least ``FAST_ENOUGH``."""
    cells = [
        _cell(_band(low, high), rows, lambda row, low=low, high=high: low <= measured_mfu(row) < high)  # type: ignore[misc]
        for low, high in BANDS
    ]
    cells.append(fast(rows))
    return [cell for cell in cells if cell]


def fast(rows: Sequence[ValidatedCase]) -> Cell | None:
    """All rows with an MFU of at least ``FAST_ENOUGH``."""
    return _cell(f"at least {FAST_ENOUGH:.0%}", rows, lambda row: measured_mfu(row) >= FAST_ENOUGH)


def _cell(name: str, rows: Sequence[ValidatedCase], wanted: Callable[[ValidatedCase], bool]) -> Cell | None:
    from statistics import median

    found = [row for row in judged(rows) if wanted(row)]
    errors = errors_of((row.case.family, row.error or 0.0) for row in found)
    if errors is None:
        return None
    return Cell(name=name, errors=errors, row_median=median(abs(row.error or 0.0) for row in found))


def _nodes(row: ValidatedCase) -> int:
    hardware = row.case.hardware
    return max(1, hardware.gpus // hardware.gpus_per_node)


def _band(low: float, high: float) -> str:
    return f"{low:.0%} to {high:.0%}" if math.isfinite(high) else f"{low:.0%} and more"
