"""Errors that published simulators print for the same runs: of single cases, or of a source as a whole.

Figures of others, copied from where they print them; nothing is fitted to them, and no prediction sees them.

Their sources stand in simumax.yaml and whole_sources.yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from ....hardware.catalogue import Table
from ..run import ValidatedCase


@dataclass(frozen=True, kw_only=True)
class SimumaxErrors:
    """What SimuMax prints for the run of case ``name``: errors of step time and memory, in percent."""

    name: str
    step_time_percent: float
    memory_percent: float


@dataclass(frozen=True, kw_only=True)
class SourceErrors:
    """The mean absolute error, in percent, that a simulator prints for all of its runs of source ``name``."""

    name: str
    simulator: str
    percent: float


SIMUMAX: Table[SimumaxErrors] = Table("run of SimuMax", __package__, "simumax.yaml", SimumaxErrors)
WHOLE_SOURCES: Table[SourceErrors] = Table("source", __package__, "whole_sources.yaml", SourceErrors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A published simulator beside this one on the same rows: mean and, where known, median errors."""

    simulator: str
    source: str
    what: str
    cases: int
    theirs_mean: float
    theirs_median: float | None
    ours_mean: float
    ours_median: float


def others(rows: Sequence[ValidatedCase]) -> list[Other]:
    """Every published simulator whose runs are among ``rows``."""
    found = []
    own = {row.case.id: row for row in rows}
    pairs = [(own[one.name], one) for one in SIMUMAX.records().values() if one.name in own]
    times = [(row.error, one.step_time_percent) for row, one in pairs]
    memory = [(row.memory_error, one.memory_percent) for row, one in pairs]
    for what, measured in (("step time", times), ("memory", memory)):
        values = [(abs(ours), abs(percent) / 100) for ours, percent in measured if ours is not None]
        if values:
            found.append(
                _other("SimuMax v1.2, kernels measured at these shapes", "simumax_b200", what, values)
            )
    for printed in WHOLE_SOURCES.records().values():
        errors = [abs(row.error) for row in rows if row.source == printed.name and row.error is not None]
        if errors:
            found.append(
                Other(
                    simulator=printed.simulator,
                    source=printed.name,
                    what="step time",
                    cases=len(errors),
                    theirs_mean=printed.percent / 100,
                    theirs_median=None,
                    ours_mean=fmean(errors),
                    ours_median=median(errors),
                )
            )
    return found


def _other(simulator: str, source: str, what: str, pairs: Sequence[tuple[float, float]]) -> Other:
    ours, theirs = [own for own, _ in pairs], [other for _, other in pairs]
    return Other(
        simulator=simulator,
        source=source,
        what=what,
        cases=len(pairs),
        theirs_mean=fmean(theirs),
        theirs_median=median(theirs),
        ours_mean=fmean(ours),
        ours_median=median(ours),
    )
