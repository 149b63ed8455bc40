"""Relative errors as figures: averaged within families first, then over families, each counted once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from ...sim.reliability.study.statistics import quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of ``cases`` in ``families``.

    ``median`` and ``p90`` are over families, of the mean absolute error in each; ``signed_median``
    is over families of the mean signed error.
    """

    cases: int
    families: int
    median: float
    p90: float
    signed_median: float


def errors_of(errors: Iterable[tuple[str, float]]) -> Errors | None:
    """Figures of (family, relative error); None without any."""
    families: dict[str, list[float]] = defaultdict(list)
    for family, error in errors:
        families[family].append(error)
    if not families:
        return None
    absolute = sorted(fmean(map(abs, values)) for values in families.values())
    return Errors(
        cases=sum(map(len, families.values())),
        families=len(families),
        median=median(absolute),
        p90=quantile(absolute, 0.9),
        signed_median=median(fmean(values) for values in families.values()),
    )
