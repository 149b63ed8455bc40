"""What a planner's choice is worth: of every measured sweep, what it would have chosen, and what that lost.

A planner orders the layouts of a sweep that it would propose, without seeing what was measured; here it is
seen how the first ran, and the best of the first three. Layouts that ran out of memory are among them, and a
choice of one is counted as such; what the others lost is over the fastest that ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....sim.evidence.interval import interval_of
from ....sim.evidence.measured_steps import measured_steps
from ....sim.plan.boldness import is_bold, tried_first, worth_a_try
from ....sim.plan.certainty import Certainty, Contender, certainty_of
from ...cases.sweep import FEWEST_RUNS, job_of, layout_fields
from ..run import ValidatedCase
from .fit_probabilities import left_out_probabilities
from .rule_of_thumb import by_thumb, preference

PROPOSED = 0.9
"""Fit probability of a layout that a plan proposes, unless asked for bolder ones."""

THREE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """A layout of a sweep. ``fits``: the probability that it does, by runs of other families. ``measured_s``
    is None where it ran out of memory."""

    row: ValidatedCase
    predicted_s: float
    fits: float
    measured_s: float | None


Sweep = tuple[SweepRun, ...]
Planner = Callable[[Sweep], Sequence[SweepRun]]
"""The layouts that it proposes, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What choices lost in one sweep that counts with a weight: the first choice, and the best of the first
    three; inf where they ran out of memory, None where nothing was proposed."""

    first: float | None
    best_of_three: float | None
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What choices lost over some sweeps: shares in which nothing was proposed (``silent``), and in which the
    first ran ``out_of_memory`` or all three did; medians and ninth deciles of what the others lost."""

    name: str
    silent: float
    out_of_memory: float
    three_out_of_memory: float
    first: tuple[float, float]
    best_of_three: tuple[float, float]


def measured_sweeps(rows: Sequence[ValidatedCase], trusts: Sequence[str]) -> list[Sweep]:
    """Every sweep of FEWEST_RUNS runs or more of these trusts in which one ran."""
    return _sweeps(rows, trusts, left_out_probabilities(rows))


def sweeps_as_planned(rows: Sequence[ValidatedCase]) -> list[Sweep]:
    """Every sweep of any trust, with the fit probabilities that a plan gives its layouts today."""
    return _sweeps(rows, ("high", "medium", "low"), [row.prediction.fit_probability for row in rows])


def _sweeps(
    rows: Sequence[ValidatedCase], trusts: Sequence[str], probabilities: Sequence[float | None]
) -> list[Sweep]:
    jobs: dict[str, list[SweepRun]] = {}
    for row, fits in zip(rows, probabilities, strict=True):
        step_s = row.prediction.step_time_s
        if row.case.trust in trusts and step_s is not None and fits is not None:
            run = SweepRun(row=row, predicted_s=step_s, fits=fits, measured_s=row.case.measured.step_time_s)
            jobs.setdefault(job_of(row.case), []).append(run)
    return [
        tuple(sorted(runs, key=lambda run: run.row.case.id))
        for _, runs in sorted(jobs.items())
        if len(runs) >= FEWEST_RUNS and any(run.measured_s is not None for run in runs)
    ]


def by_time(fits: float) -> Planner:
    """The fastest predicted of those that fit with a probability of ``fits``."""

    def planner(sweep: Sweep) -> Sequence[SweepRun]:
        return sorted((run for run in sweep if run.fits >= fits), key=lambda run: run.predicted_s)

    return planner


def as_planned(sweep: Sweep) -> Sequence[SweepRun]:
    """What ``stepsim plan`` says: the fastest of those that are sure to fit, the bold choice where one is
    worth trying, then the others that are sure to."""
    safe = by_time(PROPOSED)(sweep)
    behind = safe[0].predicted_s if safe else math.inf

    def tried(run: SweepRun) -> float:
        return tried_first(run.predicted_s, run.fits, behind)

    bold_ones = is_bold(np.array([run.fits for run in sweep]), PROPOSED)
    faster = (run for run, is_ in zip(sweep, bold_ones, strict=True) if is_ and run.predicted_s < behind)
    bold = min(faster, key=tried, default=None)
    if bold is None or not worth_a_try(tried(bold), behind):
        return safe
    return [*safe[:1], bold, *safe[1:]]


def thumb(sweep: Sweep) -> Sequence[SweepRun]:
    """The choice by a rule of thumb, which asks no simulator (rule_of_thumb.py)."""
    order = by_thumb([run.row.case for run in sweep])
    return [sweep[place] for place in order]


def thumb_of_fitting(sweep: Sweep) -> Sequence[SweepRun]:
    """The rule of thumb applied to the layouts that stepsim predicts to fit."""
    fitting = tuple(run for run in sweep if run.fits >= PROPOSED)
    return sorted(fitting, key=lambda run: preference(run.row.case))


PLANNERS: Mapping[str, Planner] = {
    "stepsim, as a plan proposes": as_planned,
    f"stepsim, fit probability of {PROPOSED:g}": by_time(PROPOSED),
    "stepsim, by time alone": by_time(0.0),
    "rule of thumb": thumb,
    "rule of thumb, stepsim's memory": thumb_of_fitting,
}
THRESHOLDS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


def judged(name: str, sweeps: Sequence[Sweep], planner: Planner) -> Judgement:
    """What a planner's choices lost in these sweeps."""
    return _judgement(name, len(sweeps), [lost_by(sweep, planner(sweep)) for sweep in sweeps])


def at_random(sweeps: Sequence[Sweep]) -> Judgement:
    """What a planner without knowledge loses: every layout, and every three of them, are as likely as any
    other."""
    return _judgement("at random", len(sweeps), [one for sweep in sweeps for one in _any(sweep)])


def lost_by(sweep: Sweep, proposed: Sequence[SweepRun]) -> Lost:
    """What the first of the layouts that are ``proposed``, and the best of the first three, lost."""
    each = [_over_fastest(sweep, run) for run in proposed[:THREE]]
    return Lost(first=each[0] if each else None, best_of_three=min(each, default=None))


def _over_fastest(sweep: Sweep, run: SweepRun) -> float:
    fastest = min(one.measured_s for one in sweep if one.measured_s is not None)
    return math.inf if run.measured_s is None else run.measured_s / fastest - 1


def _any(sweep: Sweep) -> Iterator[Lost]:
    """Each layout first; and the chance of each to be the best of three that are drawn."""
    many = len(sweep)
    threes = math.comb(many, THREE)
    ascending = sorted(_over_fastest(sweep, run) for run in sweep)
    for place, lost in enumerate(ascending):
        yield Lost(first=lost, best_of_three=None, weight=1.0 / many)
        chance = math.comb(many - place - 1, THREE - 1) / threes
        yield Lost(first=None, best_of_three=lost, weight=chance)


def _judgement(name: str, sweeps: int, lost: Sequence[Lost]) -> Judgement:
    first = [(one.first, one.weight) for one in lost if one.first is not None]
    three = [(one.best_of_three, one.weight) for one in lost if one.best_of_three is not None]
    return Judgement(
        name=name,
        silent=1.0 - sum(weight for _, weight in first) / sweeps,
        out_of_memory=sum(weight for loss, weight in first if loss == math.inf) / sweeps,
        three_out_of_memory=sum(weight for loss, weight in three if loss == math.inf) / sweeps,
        first=_median_and_ninth(first),
        best_of_three=_median_and_ninth(three),
    )


def _median_and_ninth(lost: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Weighted median and 90th percentile of the losses of choices that ran; nan where none did."""
    from ...fit.growth import weighted_quantile

    ran = sorted(one for one in lost if one[0] < math.inf and one[1] > 0)
    return (weighted_quantile(ran, 0.5), weighted_quantile(ran, 0.9)) if ran else (math.nan, math.nan)


def certainty_of_sweep(sweep: Sweep) -> tuple[Sequence[SweepRun], Certainty] | None:
    """The runs of a sweep that ended, and how sure a plan would have been of each; None of fewer than two."""
    ran = [run for run in sweep if run.measured_s is not None and run.row.prediction.doubt is not None]
    if len(ran) < 2:
        return None
    contenders = []
    for run in ran:
        doubt = run.row.prediction.doubt
        assert doubt is not None
        interval = interval_of(run.predicted_s, doubt, measured_steps())
        contenders.append(
            Contender(value=run.predicted_s, parts=interval.parts, settings=layout_fields(run.row.case))
        )
    return ran, certainty_of(contenders)
