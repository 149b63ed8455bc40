"""Errors on sources of which nothing was seen: what a user with a new cluster and a new stack can expect.

Each source is predicted with the constants that all other sources give (``stepsim calibrate steps --save``
keeps them) and with an interval whose every term and quantile all other sources give. What is a fact of its
framework's code stays: that is read, not fitted. Noise is what no prediction can know: by how much runs of
one configuration differ that several clusters, or one cluster several times, have measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean, median

from ....sim.evidence.interval import interval_of
from ....sim.evidence.measured_steps import is_outside, measured_steps, spanning
from ...cases.errors import Errors, errors_of
from ...fit.steps.interval_terms import StepRow, without_each_source
from ..intervals import interval_score
from ..run import JUDGED, Report, ValidatedCase, configuration

LARGE = 1024
"""GPUs from which on a job is told apart by its scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Rows predicted without their source: errors with the shipped constants and without it, the share of
    measured steps in 90 % intervals, their median full width and mean score (intervals.py), and the noise of
    repeats (None without any)."""

    name: str
    shipped: Errors
    left_out: Errors
    inside: float
    width: float
    score: float
    noise: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    row: ValidatedCase
    shipped: float
    left_out: float
    inside: bool
    width: float
    score: float
    reach: tuple[float, float]


def by_source_left_out(report: Report) -> tuple[Unseen, ...]:
    """All rows of high and medium trust, each source, dense or experts, scale, then each GPU and precision by
    both."""
    rows = list(_rows(report))
    noise = _noise(report.rows)
    groups: dict[str, list[_Row]] = {"all": rows}
    names: tuple[Callable[[ValidatedCase], str], ...] = (lambda row: row.source, _kind, _scale, _regime)
    for name in names:
        for group in sorted({name(one.row) for one in rows}):
            groups[group] = [one for one in rows if name(one.row) == group]
    return tuple(_unseen(name, members, noise) for name, members in groups.items() if members)


def _unseen(name: str, rows: Sequence[_Row], noise: dict[str, float]) -> Unseen:
    shipped = errors_of((one.row.case.family, one.shipped) for one in rows)
    left_out = errors_of((one.row.case.family, one.left_out) for one in rows)
    assert shipped is not None
    assert left_out is not None
    repeated = [noise[one.row.case.id] for one in rows if one.row.case.id in noise]
    return Unseen(
        name=name,
        shipped=shipped,
        left_out=left_out,
        inside=fmean(one.inside for one in rows),
        width=median(one.width for one in rows),
        score=fmean(one.score for one in rows),
        noise=fmean(repeated) if repeated else None,
    )


def _rows(report: Report) -> Iterator[_Row]:
    known, shipped = dict(without_each_source(step_rows(report))), measured_steps()
    for row in report.rows:
        measured_s, left_s = row.case.measured.step_time_s, report.source_left_out.get(row.case.id)
        doubt = row.prediction.doubt
        if row.case.trust not in JUDGED["source"] or measured_s is None or left_s is None:
            continue
        if doubt is None or row.error is None:
            continue
        interval = interval_of(left_s, doubt, known.get(row.source, shipped))
        yield _Row(
            row=row,
            shipped=row.error,
            left_out=left_s / measured_s - 1,
            inside=interval.low_s <= measured_s <= interval.high_s,
            width=(interval.high_s - interval.low_s) / left_s,
            score=interval_score(interval.low_s, interval.high_s, measured_s) / left_s,
            reach=(log(left_s / interval.low_s), log(interval.high_s / left_s)),
        )


def reaches(report: Report) -> dict[str, tuple[float, float]]:
    """How far each row's interval reaches below and above its prediction, in logarithms, where no measured
    step of its source is known; by case id."""
    return {one.row.case.id: one.reach for one in _rows(report)}


def step_rows(report: Report) -> list[StepRow]:
    """Measured steps of high and medium trust, predicted without their source where the report has that."""
    known = [
        (row, row.prediction.doubt, measured_s)
        for row in report.rows
        if row.case.trust in JUDGED["source"]
        and row.prediction.doubt
        and (measured_s := row.case.measured.step_time_s) is not None
    ]
    families = tuple(spanning(doubt.regime for row, doubt, _ in known if row.case.trust == "high"))
    found = []
    for row, doubt, measured_s in known:
        predicted_s = report.source_left_out.get(row.case.id, row.prediction.step_time_s)
        assert predicted_s is not None
        found.append(
            StepRow(
                family=row.case.family,
                source=row.source,
                error=log(measured_s / predicted_s),
                doubt=doubt,
                fitted=row.case.trust == "high",
                outside=is_outside(doubt, families),
            )
        )
    return found


def _noise(rows: Iterable[ValidatedCase]) -> dict[str, float]:
    """How far each measured step is from the median of all steps of the same configuration, by case id."""
    alike: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in rows:
        seconds = row.case.measured.step_time_s
        if row.case.trust in JUDGED["source"] and seconds is not None:
            alike[configuration(row.case)].append((row.case.id, seconds))
    return {
        name: abs(seconds / middle - 1)
        for members in alike.values()
        if len(members) > 1
        for middle in (median(seconds for _, seconds in members),)
        for name, seconds in members
    }


def _kind(row: ValidatedCase) -> str:
    return "experts" if row.case.model.moe else "dense"


def _scale(row: ValidatedCase) -> str:
    return f"{LARGE:,} GPUs and more" if row.case.hardware.gpus >= LARGE else f"fewer than {LARGE:,} GPUs"


def _regime(row: ValidatedCase) -> str:
    return f"{row.case.hardware.gpu}, {row.case.layout.precision}, {_kind(row)}, {_scale(row)}"
