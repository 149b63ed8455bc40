"""Errors that published simulators print for the same runs: of single cases, or of a source as a whole.

Figures of others, copied from where they print them; nothing is fitted to them, and no prediction sees them.

Sources: MooreThreads/SimuMax docs/b200/b200_release_v1.2_summary.md (2026-05-01), columns ``rel err`` and
``alloc err``; vTrain, MICRO 2024: mean absolute percentage error 8.37 % on one host, 14.73 % on several
(ee.kaist.ac.kr/en, research achievement of 2025-03-26), over more runs than the cases hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from ..run import ValidatedCase

SIMUMAX_PERCENT = {
    "llama3_70b_l12_tp1_pp2_dp4_mbc4": (-1.69, -0.17),
    "llama3_70b_l12_tp4_pp1_dp2_mbc4": (-3.56, -0.33),
    "deepseekv2_tp1_ep8_pp1_dp8_l4_mbc4": (-6.28, -0.50),
    "deepseekv2_tp1_ep4_pp2_dp4_l4_mbc4": (-10.70, -0.74),
    "llama3_70b_l12_tp1_pp2_dp4_mbc8": (-2.41, -0.17),
    "llama3_70b_l12_tp4_pp1_dp2_mbc8": (-2.34, -0.33),
    "deepseekv2_tp1_ep8_pp1_dp8_l4_mbc8": (-6.74, -0.50),
    "deepseekv2_tp1_ep4_pp2_dp4_l4_mbc8": (-11.66, -0.74),
    "llama3_70b_l12_tp1_pp2_dp4_mbc32": (-5.90, -0.17),
    "llama3_70b_l12_tp4_pp1_dp2_mbc32": (-3.45, -0.33),
    "deepseekv2_tp1_ep8_pp1_dp8_l4_mbc32": (-13.54, -0.50),
    "deepseekv2_tp1_ep4_pp2_dp4_l4_mbc32": (-11.18, -0.74),
    "llama3_405b_l4_tp8_pp1_dp1_mbc4": (-1.15, -0.49),
    "llama3_405b_l4_tp8_pp1_dp1_mbc8": (-0.26, -0.49),
    "llama3_405b_l4_tp8_pp1_dp1_mbc32": (-1.54, -0.49),
    "llama3_70b_l12_tp2_cp4_pp1_dp1_seq32768_mbc4": (-9.27, -0.39),
    "llama3_70b_l12_tp1_cp8_pp1_dp1_seq32768_mbc4": (-7.97, -0.08),
    "llama3_405b_l4_tp2_cp4_pp1_dp1_seq32768_mbc4": (-8.59, -0.55),
    "llama3_405b_l4_tp1_cp8_pp1_dp1_seq32768_mbc4": (-5.36, -0.06),
    "llama3_70b_l12_tp2_cp4_pp1_dp1_seq131072_mbc4": (-5.70, -0.77),
    "llama3_70b_l12_tp1_cp8_pp1_dp1_seq131072_mbc4": (-6.96, -0.07),
}
"""Step time and allocated memory, percent, by case."""

SIMUMAX_PREFIX = "simumax-b200-"

OF_WHOLE_SOURCES = (
    ("vtrain_single", "vTrain, measured on the machine itself", 8.37),
    ("vtrain_multi", "vTrain, measured on the machine itself", 14.73),
)
"""Source, simulator, and the mean absolute error that it prints for all of its runs, percent."""


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
    own = {row.case.id: row for row in rows if row.case.id.startswith(SIMUMAX_PREFIX)}
    pairs = [
        (own[key], errors) for k, errors in SIMUMAX_PERCENT.items() if (key := SIMUMAX_PREFIX + k) in own
    ]
    times = [(abs(row.error), abs(e[0]) / 100) for row, e in pairs if row.error is not None]
    memory = [(abs(row.memory_error), abs(e[1]) / 100) for row, e in pairs if row.memory_error is not None]
    for what, values in (("step time", times), ("memory", memory)):
        if values:
            found.append(
                _other("SimuMax v1.2, kernels measured at these shapes", "simumax_b200", what, values)
            )
    for source, simulator, percent in OF_WHOLE_SOURCES:
        errors = [abs(row.error) for row in rows if row.source == source and row.error is not None]
        if errors:
            found.append(
                Other(
                    simulator=simulator,
                    source=source,
                    what="step time",
                    cases=len(errors),
                    theirs_mean=percent / 100,
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
