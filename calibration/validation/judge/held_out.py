"""Errors on families that the fit of the constants did not see, by grouped cross-validation.

The families are split in two halves by a hash of their names (cases/halves.py). ``stepsim calibrate steps
--save`` fits the constants on either half and leaves them in a file; validation then predicts every row of
high trust with the constants of the half that its family is not in, beside the shipped ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...cases.errors import Errors, errors_of
from ..run import Report, ValidatedCase


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutErrors:
    """Errors of one set of rows: with the shipped constants, and with those of the other half."""

    name: str
    shipped: Errors
    held_out: Errors


def held_out_error(report: Report, row: ValidatedCase) -> float | None:
    """Predicted over measured, minus one, by constants that never saw the row's family; None without one."""
    seconds, measured = report.held_out.get(row.case.id), row.case.measured.step_time_s
    return None if seconds is None or measured is None else seconds / measured - 1


def held_out_errors(report: Report, trusts: Sequence[str], source: str | None = None) -> Errors | None:
    """Figures of all rows that were predicted so."""
    return errors_of(
        (row.case.family, error)
        for row in report.rows
        if row.case.trust in trusts
        and source in (None, row.source)
        and (error := held_out_error(report, row)) is not None
    )


def by_source(report: Report) -> list[HeldOutErrors]:
    """All rows of high trust together, then each source."""
    sources = sorted({row.source for row in report.rows if row.case.trust == "high"})
    found = []
    for source in (None, *sources):
        held_out = held_out_errors(report, ("high",), source)
        shipped = errors_of(
            (row.case.family, row.error)
            for row in report.rows
            if row.case.trust == "high" and source in (None, row.source) and row.error is not None
        )
        if held_out and shipped:
            found.append(
                HeldOutErrors(name=source or "all of high trust", shipped=shipped, held_out=held_out)
            )
    return found
