"""What a few measured steps of a cluster are worth for its others: each source in turn is the user's own.

A source is predicted as if nothing of it had been seen (source_left_out.py); then one run of it, or a few,
are taken as measured, in turn, and the others are predicted with what these say, by spreads between sources
that never saw it. What ``stepsim calibrate steps --own`` simulates is here linear about the critical path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from statistics import median

from ....sim.evidence.interval_waits import waits_of_many
from ....sim.evidence.measured_steps import EXPERTS, Doubt, MeasuredSteps, measured_steps
from ....sim.evidence.own_steps import SourceSpread
from ....sim.reliability.study.statistics import quantile as quantile_of
from ...fit.growth import weighted_quantile
from ...fit.steps.source_terms import (
    Calibrated,
    SourceRow,
    after_most_alike,
    calibrated,
    spreads_without,
)
from ..run import JUDGED, Report
from .source_left_out import reaches

NEAR = 2.0
"""Doublings, and kinds that differ, up to which a run is like the one that was measured."""
FEW = (1, 3)
"""Runs of a source that are taken as measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterRuns:
    """Rows before and after ``runs`` runs of their source were measured: errors over families, the share of
    measured steps in 90 % intervals, and their median width, over rows."""

    name: str
    runs: int
    cases: int
    families: int
    unseen: float
    unseen_p90: float
    median: float
    p90: float
    inside: float
    width: float


def source_rows(report: Report, steps: MeasuredSteps) -> list[SourceRow]:
    """Measured steps of high and medium trust, predicted without their source; ``steps`` says what causes
    beyond measured ranges add."""
    found = []
    for row in report.rows:
        measured_s, left_s = row.case.measured.step_time_s, report.source_left_out.get(row.case.id)
        doubt = row.prediction.doubt
        if row.case.trust not in JUDGED["source"] or measured_s is None or left_s is None or doubt is None:
            continue
        found.append(
            SourceRow(
                name=row.case.id,
                source=row.source,
                gpu=row.case.hardware.gpu,
                family=row.case.family,
                error=log(measured_s / left_s),
                sample=doubt.sample,
                known=_known(doubt, steps),
                waits=sum((part.share * part.sigma) ** 2 for part in waits_of_many(doubt, steps)),
            )
        )
    return found


def _known(doubt: Doubt, steps: MeasuredSteps) -> float:
    """The variance of what lies beyond measured ranges, and of routed experts (interval.py)."""
    beyond = sum(
        (part.share * part.sigma * steps.weights.get(part.kind, 1.0)) ** 2
        for part in doubt.causes
        if part.kind in ("beyond", "hardware")
    )
    experts = zip(EXPERTS, doubt.experts.amounts, strict=True)
    return beyond + sum((amount * steps.terms[name].sigma) ** 2 for name, amount in experts)


def after_own_runs(report: Report) -> tuple[AfterRuns, ...]:
    """All rows after one and after a few runs of their source; those like the run that was measured; all
    after the run that is most like them; and each source after one. Empty where no source was left out."""
    steps = measured_steps()
    rows = source_rows(report, steps)
    if len({row.source for row in rows}) < 2:
        return ()
    spread, found, before = steps.sources, list[AfterRuns](), reaches(report)
    without = spreads_without(rows, spread)
    for runs in FEW:
        after = list(calibrated(rows, without, runs=runs))
        groups = {"all": after, "like a measured run": [one for one in after if one.apart <= NEAR]}
        if runs == FEW[0]:
            groups |= {"after the run most alike": [*after_most_alike(rows, without)]} | {
                name: [one for one in after if one.row.source == name]
                for name in sorted({one.row.source for one in after})
            }
        found += [
            _summary(name, runs, members, spread, before) for name, members in groups.items() if members
        ]
    return tuple(found)


def _summary(
    name: str,
    runs: int,
    after: Sequence[Calibrated],
    spread: SourceSpread,
    before: Mapping[str, tuple[float, float]],
) -> AfterRuns:
    """The figures of some rows. An interval is the narrower of both, as that of a prediction is."""
    ends = [
        min(
            (spread.quantile * one.sigma, spread.quantile * one.above),
            before.get(one.row.name, (inf, inf)),
            key=sum,
        )
        for one in after
    ]
    unseen = sorted(_by_family((one.row.family, one.row.error, one.weight) for one in after))
    left = sorted(_by_family((one.row.family, one.error, one.weight) for one in after))
    held = sum(
        one.weight for one, (below, above) in zip(after, ends, strict=True) if -below <= one.error <= above
    )
    widths = [(exp(above) - exp(-below), one.weight) for one, (below, above) in zip(after, ends, strict=True)]
    return AfterRuns(
        name=name,
        runs=runs,
        cases=len({one.row.name for one in after}),
        families=len(left),
        unseen=median(unseen),
        unseen_p90=quantile_of(unseen, 0.9),
        median=median(left),
        p90=quantile_of(left, 0.9),
        inside=held / sum(one.weight for one in after),
        width=weighted_quantile(sorted(widths), 0.5),
    )


def _by_family(errors: Iterable[tuple[str, float, float]]) -> Iterator[float]:
    """Mean absolute error of each family, predicted over measured minus 1."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for family, error, weight in errors:
        sums[family][0] += weight * abs(exp(-error) - 1)
        sums[family][1] += weight
    yield from (total / weight for total, weight in sums.values())
