"""Families of measured runs, each told once more as if nobody had read its trainer's code."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

from ..cases.kin import as_unread
from ..cases.preset import preset_of
from ..fit.steps.unread_spread import Move
from .run import Report, ValidatedCase, predictions_of


def unread_moves(report: Report, *, jobs: int = 1) -> list[Move]:
    """By how much the step of each family moved when its trainer was read; of families of which either
    prediction was refused, nothing."""
    known = [(row, unread) for row in _one_a_family(report) if (unread := as_unread(row.case)) is not None]
    told = predictions_of([unread for _, unread in known], jobs=jobs)
    found = []
    for (row, unread), prediction in zip(known, told, strict=True):
        step_s = row.prediction.step_time_s
        if prediction.step_time_s is not None and step_s is not None:
            moved = log(step_s / prediction.step_time_s)
            found.append(Move(source=row.source, kin=preset_of(unread.software), moved=moved))
    return found


def _one_a_family(report: Report) -> Iterator[ValidatedCase]:
    """The middle run of each family with a step, by id, whatever the order of files; none with experts, of
    which intervals have terms of their own."""
    families: dict[tuple[str, str], list[ValidatedCase]] = {}
    for row in report.rows:
        if row.case.measured.step_time_s is not None and row.case.model.moe is None:
            families.setdefault((row.source, row.case.family), []).append(row)
    for _, rows in sorted(families.items()):
        yield sorted(rows, key=lambda row: row.case.id)[len(rows) // 2]
