"""What all rows say together: errors averaged within families first, then over families.

Knows rows and arithmetic; the tables and pages that show it are elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..cases.errors import Errors, errors_of
from .baselines import Baseline, baselines
from .run import Report, ValidatedCase

TRUSTS = ("high", "medium", "low", "all")
"""Levels of trust in which figures are given; ``all`` is every row."""

ACCEPTANCE_SOURCES = (
    "korthikanti_2022",
    "megatron_sc21",
    "aleph_alpha_layouts",
    "dgxc_benchmarking",
    "hf_nanotron_h100",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Counts of outcomes, named measured_predicted, over the cases that were predicted."""

    ok_ok: int
    ok_oom: int
    oom_ok: int
    oom_oom: int

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean of the shares of ok and of oom that were predicted right; None where one did not occur."""
        ok, oom = self.ok_ok + self.ok_oom, self.oom_ok + self.oom_oom
        return (self.ok_ok / ok + self.oom_oom / oom) / 2 if ok and oom else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A group of rows. Errors are None where no row has one.

    The baselines' errors are those of the same rows as ``step_time``, so far as these have a baseline.
    """

    cases: int
    predicted: int
    refused: int
    internal_errors: int
    step_time: Errors | None
    memory: Errors | None
    outcomes: Confusion
    mfu_by_gpu: Errors | None
    mfu_by_regime: Errors | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures by trust for everything, each source and each regime; levels without rows are left out.

    ``acceptance`` is the set that the project holds itself to (see ``in_acceptance_set``); ``refused``
    counts rows by reason, most frequent first.
    """

    overall: Mapping[str, Figures]
    acceptance: Figures
    sources: Mapping[str, Mapping[str, Figures]]
    regimes: Mapping[str, Mapping[str, Figures]]
    refused: Mapping[str, int]
    internal_errors: int


Rated = tuple[ValidatedCase, Baseline]


def summarize(report: Report) -> Summary:
    """All figures of a report."""
    rated = list(zip(report.rows, baselines(report.rows), strict=True))
    return Summary(
        overall=_by_trust(rated),
        acceptance=_figures([one for one in rated if in_acceptance_set(one[0])]),
        sources=_grouped(rated, lambda row: row.source),
        regimes=_grouped(rated, lambda row: row.regime),
        refused=refusals(report.rows),
        internal_errors=sum(row.prediction.internal for row in report.rows),
    )


def in_acceptance_set(row: ValidatedCase) -> bool:
    """High trust, dense, 16 bit, without context parallelism, of the sources that state the most."""
    case = row.case
    return (
        case.trust == "high"
        and case.model.moe is None
        and case.layout.precision in ("fp16", "bf16")
        and case.layout.cp == 1
        and row.source in ACCEPTANCE_SOURCES
    )


def refusals(rows: Iterable[ValidatedCase]) -> dict[str, int]:
    """Refused rows by reason, most frequent first. Reasons that differ in their numbers alone are one."""
    reasons = Counter(
        _without_numbers(row.prediction.refused) for row in rows if row.prediction.refused is not None
    )
    return dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


def _grouped(rated: list[Rated], key: Callable[[ValidatedCase], str]) -> dict[str, dict[str, Figures]]:
    groups: dict[str, list[Rated]] = defaultdict(list)
    for one in rated:
        groups[key(one[0])].append(one)
    return {name: _by_trust(groups[name]) for name in sorted(groups)}


def _by_trust(rated: list[Rated]) -> dict[str, Figures]:
    levels = {trust: [one for one in rated if trust in ("all", one[0].case.trust)] for trust in TRUSTS}
    return {trust: _figures(members) for trust, members in levels.items() if members}


def _figures(rated: list[Rated]) -> Figures:
    rows = [row for row, _ in rated]
    timed = [(row, baseline) for row, baseline in rated if row.error is not None]
    refused = sum(row.prediction.refused is not None for row in rows)
    return Figures(
        cases=len(rows),
        predicted=len(rows) - refused,
        refused=refused,
        internal_errors=sum(row.prediction.internal for row in rows),
        step_time=_errors((row, row.error) for row, _ in timed),
        memory=_errors((row, row.memory_error) for row in rows),
        outcomes=confusion(rows),
        mfu_by_gpu=_errors((row, _off(baseline.gpu_and_precision_s, row)) for row, baseline in timed),
        mfu_by_regime=_errors((row, _off(baseline.regime_s, row)) for row, baseline in timed),
    )


def _errors(pairs: Iterable[tuple[ValidatedCase, float | None]]) -> Errors | None:
    return errors_of((row.case.family, error) for row, error in pairs if error is not None)


def _off(guessed_s: float | None, row: ValidatedCase) -> float | None:
    measured_s = row.case.measured.step_time_s
    return None if guessed_s is None or measured_s is None else guessed_s / measured_s - 1


def confusion(rows: Iterable[ValidatedCase]) -> Confusion:
    """Measured against predicted outcomes."""
    counts = Counter((row.case.measured.outcome, row.prediction.outcome) for row in rows)
    return Confusion(
        ok_ok=counts["ok", "ok"],
        ok_oom=counts["ok", "oom"],
        oom_ok=counts["oom", "ok"],
        oom_oom=counts["oom", "oom"],
    )


def _without_numbers(reason: str) -> str:
    """Numbers that stand alone become N; those inside names (H100, 1f1b) stay."""
    return re.sub(r"(?<![\w.-])\d[\d,.]*(?![\w.-])", "N", reason)
