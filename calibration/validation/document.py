"""A report as a JSON document: ``stepsim validate --json``, whose keys stay fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .intervals import intervals_by_group, intervals_by_range
from .run import Report, ValidatedCase
from .summary import Figures, Summary, summarize


def report_document(report: Report) -> dict[str, Any]:
    """Every row in order, and the summary. Times in seconds, memory in bytes, errors relative."""
    groups = intervals_by_group(report.rows) | intervals_by_range(report.rows)
    intervals = {name: asdict(one) for name, one in groups.items()}
    return {
        "cases": [_row(row) for row in report.rows],
        "summary": _summary(summarize(report)) | {"intervals": intervals},
        "refused": [{"file": one.file, "reason": one.reason} for one in report.refused],
    }


def _row(row: ValidatedCase) -> dict[str, Any]:
    case, prediction = row.case, row.prediction
    return {
        "id": case.id,
        "family": case.family,
        "source": row.source,
        "regime": row.regime,
        "trust": case.trust,
        "measured_step_time_s": case.measured.step_time_s,
        "predicted_step_time_s": prediction.step_time_s,
        "error": row.error,
        "measured_memory_bytes": case.measured.memory_bytes,
        "predicted_memory_bytes": prediction.memory_bytes,
        "measured_outcome": case.measured.outcome,
        "predicted_outcome": prediction.outcome,
        "fit_probability": prediction.fit_probability,
        "refused": prediction.refused,
        "predicted_interval_s": None if prediction.interval_s is None else list(prediction.interval_s),
    }


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        "overall": _levels(summary.overall),
        "acceptance": _figures(summary.acceptance),
        "sources": {name: _levels(levels) for name, levels in summary.sources.items()},
        "regimes": {name: _levels(levels) for name, levels in summary.regimes.items()},
        "refused": dict(summary.refused),
        "internal_errors": summary.internal_errors,
    }


def _levels(levels: Mapping[str, Figures]) -> dict[str, Any]:
    return {trust: _figures(figures) for trust, figures in levels.items()}


def _figures(figures: Figures) -> dict[str, Any]:
    document = asdict(figures)
    document["outcomes"]["balanced_accuracy"] = figures.outcomes.balanced_accuracy
    return document
