"""What measured steps say of intervals: weights of causes, what differences to measured runs add, and the
quantiles.

Runs of high trust are predicted with constants that never saw their family, and as unlike the others as
they are: their own family does not count as measured. Runs of medium trust shaped no constant at all. A
run's error is scaled by a standard deviation whose terms are found together (Student's t with four degrees
of freedom, since errors of runs have heavy tails; families count alike; each term has a wide prior, so that
one that few families show stays near what was measured otherwise). How many such standard deviations, above
and below, hold nine in ten is then counted on the runs that shaped no constant (a normalised conformal
score): the shortest interval that does, since measured steps are slower than predicted rather than faster.
And everything is done again without each source in turn, which says what the intervals hold of a source that
they never saw.

Sources: Lei, G'Sell, Rinaldo, Tibshirani and Wasserman 2018, J. Am. Stat. Assoc. 113, section 5.2 (scores
scaled by their local spread); Lange, Little and Taylor 1989, J. Am. Stat. Assoc. 84 (errors of Student's
t).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import yaml

from ....hardware.deviations import Deviation
from ....sim.evidence.measured_steps import (
    DIFFERENCES,
    EXPERTS,
    KINDS,
    Doubt,
    MeasuredSteps,
    Regime,
    differences,
    measured_steps,
    nearest,
    spanning,
)
from ..growth import shortest_holding

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAD = """\
# What measured steps say of intervals (sim/evidence/measured_steps.py says what each entry means). Written by
#   stepsim calibrate residuals CASES.yaml... --held-out docs/step-fit.json --write
# Do not edit.
"""

_LEVEL = 0.9
_FREEDOM = 4.0
_LOOSENESS = math.log(3.0)
"""Standard deviation of a prior, in logarithms: a factor of three either way, worth one family."""

_TERM_START = 0.05
"""Where the terms of differences start: what the best known steps are off by, docs/step-fit.md."""

_NAMES = (*KINDS, *EXPERTS, *DIFFERENCES)
_LOW, _HIGH = math.log(2e-3), math.log(3.0)
_OWN = 1e6  # a distance that makes a run's own family the last choice


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A measured run: ``error`` is the logarithm of measured over predicted step time. ``fitted`` runs have
    shaped constants, and are measured for all others. ``outside``: of a measured range."""

    family: str
    source: str
    error: float
    doubt: Doubt
    fitted: bool
    outside: bool


@dataclass(frozen=True, slots=True)
class _Table:
    """Variances of every row as arrays: ``known``, by kind of cause and of experts, and squared differences
    to every family (rows, families, differences)."""

    errors: NDArray[np.float64]
    weights: NDArray[np.float64]
    known: NDArray[np.float64]
    weighed: NDArray[np.float64]
    squares: NDArray[np.float64]

    def sigmas(self, values: NDArray[np.float64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        own, far = values[: -len(DIFFERENCES)] ** 2, values[-len(DIFFERENCES) :] ** 2
        found: NDArray[np.float64] = np.sqrt(
            self.known[rows] + self.weighed[rows] @ own + (self.squares[rows] @ far).min(axis=1)
        )
        return found


def fit_interval_terms(rows: Sequence[StepRow]) -> MeasuredSteps:
    """Everything that intervals read of measured steps. ValueError where there is nothing to learn from."""
    rows = sorted(rows, key=lambda row: (row.source, row.family, row.error, repr(row.doubt.regime)))
    fitted = [row for row in rows if row.fitted]
    unseen = np.array([not row.fitted for row in rows])
    if not fitted or not unseen.any():
        raise ValueError("intervals need runs that shaped constants (high trust) and others (medium trust)")
    table = _table(rows)
    everything = np.ones(len(rows), dtype=bool)
    values = _fit(table, everything, _starts())
    below, above = _ends(table, values, unseen)
    families = tuple(spanning(row.doubt.regime for row in fitted))
    sigmas = {name: _rounded(value) for name, value in zip(_NAMES, values.tolist(), strict=True)}
    shown = _showing(rows, sigmas)
    found = MeasuredSteps(
        quantile=_rounded(above),
        quantile_below=_rounded(below),
        weights={kind: sigmas[kind] for kind in KINDS},
        terms={
            name: Deviation(sigma=sigmas[name], source=_source(name, shown[name]))
            for name in (*DIFFERENCES, *EXPERTS)
        },
        families=families,
        sources=measured_steps().sources,
        left_out={},
    )
    return replace(found, left_out=_left_out(rows, table, values))


def _left_out(rows: Sequence[StepRow], table: _Table, values: NDArray[np.float64]) -> dict[str, float]:
    """Share of runs held, each by a fit and quantiles without its source."""
    sources = np.array([row.source for row in rows], dtype=object)
    unseen = np.array([not row.fitted for row in rows])
    held = np.zeros(len(rows), dtype=bool)
    for source in sorted(set(sources)):
        out = sources == source
        if not (unseen & ~out).any():
            continue
        without = _fit(table, ~out, np.log(values))
        below, above = _ends(table, without, unseen & ~out)
        scores = table.errors[out] / table.sigmas(without, out)
        held[out] = (-below <= scores) & (scores <= above)
    groups = {
        "high trust": ~unseen,
        "medium trust": unseen,
        "experts": np.array([row.doubt.experts.share > 0 for row in rows]),
        "outside": np.array([row.outside for row in rows]),
    }
    return {name: round(float(held[own].mean()), 4) for name, own in groups.items() if own.any()}


def _table(rows: Sequence[StepRow]) -> _Table:
    families = sorted({(row.family, row.doubt.regime) for row in rows if row.fitted}, key=repr)
    many = Counter(row.family for row in rows)
    return _Table(
        errors=np.array([row.error for row in rows]),
        weights=np.array([1.0 / many[row.family] for row in rows]),
        known=np.array([_variance(row.doubt, None) for row in rows]),
        weighed=np.array(
            [
                [*(_variance(row.doubt, kind) for kind in KINDS), *(a**2 for a in row.doubt.experts.amounts)]
                for row in rows
            ]
        ),
        squares=np.array([_squares(row, families) for row in rows]),
    )


def _variance(doubt: Doubt, kind: str | None) -> float:
    """Sum of the variances of causes of one kind; None: of those whose weight no step tells."""
    return sum(
        (part.share * part.sigma) ** 2
        for part in doubt.causes
        if (part.kind == kind if kind else part.kind not in KINDS)
    )


def _squares(row: StepRow, families: Sequence[tuple[str, Regime]]) -> list[list[float]]:
    return [
        [_OWN] * len(DIFFERENCES)
        if row.fitted and family == row.family
        else [far**2 for far in differences(row.doubt.regime, regime)]
        for family, regime in families
    ]


def _starts() -> NDArray[np.float64]:
    return np.log([1.0] * len(KINDS) + [_TERM_START] * (len(EXPERTS) + len(DIFFERENCES)))


def _fit(table: _Table, rows: NDArray[np.bool_], begun: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values of _NAMES that make the errors of ``rows`` likeliest."""
    from scipy.optimize import minimize

    centre, errors, weights = _starts(), table.errors[rows], table.weights[rows]

    def unlikely(logs: NDArray[np.float64]) -> float:
        sigmas = table.sigmas(np.exp(logs), rows)
        scores = (errors / sigmas) ** 2
        tails = (_FREEDOM + 1) / 2 * np.log1p(scores / _FREEDOM)
        prior = ((logs - centre) / _LOOSENESS) ** 2 / 2
        return float(np.sum(weights * (np.log(sigmas) + tails)) + np.sum(prior))

    found = minimize(unlikely, begun, method="L-BFGS-B", bounds=[(_LOW, _HIGH)] * len(_NAMES))
    values: NDArray[np.float64] = np.exp(found.x)
    return values


def _ends(table: _Table, values: NDArray[np.float64], rows: NDArray[np.bool_]) -> tuple[float, float]:
    """Standard deviations below and above predictions, as few as hold nine in ten of the runs ``rows``."""
    scores = table.errors[rows] / table.sigmas(values, rows)
    low, high = shortest_holding(((score, 1.0) for score in scores.tolist()), _LEVEL)
    return max(0.0, -low), max(0.0, high)


def _rounded(value: float) -> float:
    """The value to three significant digits."""
    return float(f"{value:.3g}")


def _source(name: str, shown: Sequence[StepRow]) -> str:
    """How many runs and families show a term."""
    families, sources = {row.family for row in shown}, {row.source for row in shown}
    unit = "a doubling; " if name in ("sequence", "gpus") else ""
    return (
        f"{unit}stepsim calibrate residuals: {len(shown)} measured steps of {len(families)} families "
        f"in {len(sources)} sources"
    )


def _showing(rows: Sequence[StepRow], sigmas: Mapping[str, float]) -> dict[str, list[StepRow]]:
    """Runs that show each term: with experts, and unlike the nearest other family in that."""
    found: dict[str, list[StepRow]] = {name: [] for name in (*DIFFERENCES, *EXPERTS)}
    for row in rows:
        others = [one.doubt.regime for one in rows if one.fitted and one.family != row.family]
        far = nearest(row.doubt.regime, set(others), sigmas)[1] if others else ()
        for name, amount in (
            *zip(DIFFERENCES, far, strict=False),
            *zip(EXPERTS, row.doubt.experts.amounts, strict=True),
        ):
            if amount > 0:
                found[name].append(row)
    return found


def steps_text(steps: MeasuredSteps) -> str:
    """sim/evidence/measured_steps.yaml; the same bytes for the same numbers."""
    document = {
        "quantile": steps.quantile,
        "quantile_below": steps.quantile_below,
        "weights": dict(steps.weights),
        "terms": {name: asdict(one) for name, one in steps.terms.items()},
        "sources": asdict(steps.sources),
        "left_out": dict(steps.left_out),
    }
    families = "".join(
        f"  - {yaml.safe_dump(asdict(one), default_flow_style=True, width=200, sort_keys=False)}"
        for one in steps.families
    )
    numbers: str = yaml.safe_dump(document, sort_keys=False, width=116, allow_unicode=True)
    return f"{_HEAD}{numbers}families:\n{families}"
