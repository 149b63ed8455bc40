"""Families of measured runs, each predicted once more as if nobody had read its trainer's code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import log

from ..cases.preset import preset_of
from ..cases.unread_trainer import as_unread
from ..fit.steps.source_terms import SourceRow
from ..fit.steps.unread_spread import Move
from .predict import Prediction
from .run import Report, ValidatedCase, predictions_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedUnread:
    """A validated run and its prediction as if nobody had read its trainer, with a ``generic`` preset. The
    step ``moved`` by so much, in logarithms, when the trainer was read."""

    row: ValidatedCase
    generic: str
    prediction: Prediction
    moved: float


def predicted_unread(report: Report, *, jobs: int = 1) -> list[PredictedUnread]:
    """The step of one run of each family, predicted as it is and as if nobody had read its trainer's code.

    Runs of which either prediction is refused are left out. ``moved`` is the logarithm of the first step over
    the second. ``jobs`` processes share the predictions.
    """
    known = [(row, unread) for row in _one_a_family(report) if (unread := as_unread(row.case)) is not None]
    predictions = predictions_of([unread for _, unread in known], jobs=jobs)
    found = []
    for (row, unread), prediction in zip(known, predictions, strict=True):
        step_s = row.prediction.step_time_s
        if prediction.step_time_s is not None and step_s is not None:
            moved = log(step_s / prediction.step_time_s)
            generic = preset_of(unread.software)
            found.append(PredictedUnread(row=row, generic=generic, prediction=prediction, moved=moved))
    return found


def unread_moves(predicted: Iterable[PredictedUnread]) -> list[Move]:
    """How far the predicted step of each run moved once its trainer had been read."""
    return [Move(source=one.row.source, generic=one.generic, moved=one.moved) for one in predicted]


def unread_rows(predicted: Iterable[PredictedUnread], rows: Iterable[SourceRow]) -> list[SourceRow]:
    """The ``rows`` that were ``predicted``, each as if neither its source had been seen nor its trainer
    read."""
    known = {row.name: row for row in rows}
    return [
        replace(row, error=row.error + one.moved, sample=one.prediction.doubt.sample)
        for one in predicted
        if one.prediction.doubt is not None and (row := known.get(one.row.case.id)) is not None
    ]


def _one_a_family(report: Report) -> Iterator[ValidatedCase]:
    """The middle run of each family with a step, by id, whatever the order of files; none with experts, of
    which intervals have terms of their own."""
    families: dict[tuple[str, str], list[ValidatedCase]] = {}
    for row in report.rows:
        if row.case.measured.step_time_s is not None and row.case.model.moe is None:
            families.setdefault((row.source, row.case.family), []).append(row)
    for _, rows in sorted(families.items()):
        yield sorted(rows, key=lambda row: row.case.id)[len(rows) // 2]
