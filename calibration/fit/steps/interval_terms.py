"""What measured steps say of intervals: weights of causes, what differences to measured runs add, what many
GPUs wait for one another, and the quantile.

Whoever asks for a prediction has a cluster and a stack that nobody here has seen. So every run is predicted
with constants that never saw its source, and is as unlike measured runs as it is unlike those of all other
sources. Its error is scaled by a standard deviation below the prediction and one above it, whose terms are
found together as those that make all errors likeliest (two_pieces.py). A source counts as many times as it
has families that are as good as independent, since their errors go together; each term has a wide prior,
worth one of them, so that one that few families show stays near what was measured otherwise. How many such
standard deviations, each with NOISE, hold nine in ten of one more source is then counted with sources alike
(a normalised score, hierarchically conformal), above and below the prediction so many that no more than one
in twenty is left out there. And everything is done again without each source in turn,
which says what the intervals hold of a source that they never saw.

Sources: Lei, G'Sell, Rinaldo, Tibshirani and Wasserman 2018, J. Am. Stat. Assoc. 113, section 5.2 (scores
scaled by their local spread); Lee, Barber and Willett 2023, arXiv:2306.06342 (groups of rows, and one more);
Romano, Patterson and Candes 2019, NeurIPS 32, section 4 (each tail by itself); Kish 1965, Survey Sampling
(families of one source).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import yaml

from ....hardware.deviations import Deviation
from ....sim.evidence.interval import LEVEL, REACHES, deviations_of, parts_of, reach_of
from ....sim.evidence.interval_slowest import SLOWEST
from ....sim.evidence.measured_steps import (
    DIFFERENCES,
    EXPERTS,
    KINDS,
    WAITS,
    Doubt,
    MeasuredSteps,
    Regime,
    differences,
    measured_steps,
    nearest,
    spanning,
)
from ....sim.evidence.run_noise import NOISE
from ....sim.figures import significant
from ..growth import (
    independent_witnesses,
    level_for_another,
    sides_that_hold,
    weighted_quantile,
    witnesses,
)
from .two_pieces import LOOSENESS, slope, unlikely

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAD = """\
# What measured steps say of intervals (sim/evidence/measured_steps.py says what each entry means). Written by
#   stepsim calibrate residuals CASES.yaml... --held-out docs/step-fit.json --write
# Do not edit.
"""

_TERM_START = 0.05
"""Where the terms of differences start: what the best known steps are off by, docs/step-fit.md."""

_EXPERTS_START = 0.1
"""Where the term of experts starts: grouped GEMMs are off by 10 % in the median of their 99 points
(docs/kernel-errors.md), a standard deviation of 0.15, and take about two thirds of such a step."""

_NAMES = (*KINDS, *EXPERTS, *DIFFERENCES, WAITS)
_OF_CAUSES = len(KINDS) + len(EXPERTS)
_LOW, _HIGH = math.log(2e-3), math.log(3.0)
_FAR = 1e3  # a distance that no step is away from a measured one


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A measured run: ``error`` is the logarithm of measured over predicted step time, by constants that
    never saw its source. ``fitted`` runs have shaped constants, and are measured for all other sources.
    ``outside``: of a measured range."""

    family: str
    source: str
    error: float
    doubt: Doubt
    fitted: bool
    outside: bool


@dataclass(frozen=True, slots=True)
class _Table:
    """Variances of every row as arrays: ``known``, by kind of cause and of experts (``weighed``), of the
    squared differences to every measured regime of other sources (rows, regimes, differences), and of
    ``waits`` and of the ``slowest`` GPU, which lengthen."""

    errors: NDArray[np.float64]
    weights: NDArray[np.float64]
    known: NDArray[np.float64]
    weighed: NDArray[np.float64]
    squares: NDArray[np.float64]
    waits: NDArray[np.float64]
    slowest: NDArray[np.float64]

    def unlikely(self, logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Minus the logarithm of the likelihood where the values of _NAMES have these ``logs``, and its
        gradient."""
        values = np.exp(2 * logs)
        own, far, wait = values[:_OF_CAUSES], values[_OF_CAUSES:-1], values[-1]
        away = self.squares @ far
        nearest = self.squares[np.arange(len(away)), away.argmin(axis=1)]
        below = self.known + self.weighed @ own + away.min(axis=1)
        above = below + wait * self.waits + self.slowest
        by_below, by_above = slope(self.errors, below, above)
        of_above = self.weights * by_above
        of_both = of_above + self.weights * by_below
        gradient = [self.weighed.T @ of_both, nearest.T @ of_both, [self.waits @ of_above]]
        lost = float(self.weights @ unlikely(self.errors, below, above))
        return lost, 2 * values * np.concatenate(gradient)


def fit_interval_terms(rows: Sequence[StepRow]) -> MeasuredSteps:
    """Everything that intervals read of measured steps. ValueError where there is nothing to learn from."""
    found = learnt_terms(rows)
    shown = _showing(rows, {name: one.sigma for name, one in found.terms.items()})
    terms = {name: replace(one, source=_source(name, shown[name])) for name, one in found.terms.items()}
    return replace(found, terms=terms, left_out=_left_out(rows))


def without_each_source(rows: Sequence[StepRow]) -> Iterator[tuple[str, MeasuredSteps]]:
    """Each source, with what intervals read of measured steps where it is not among them; no source without
    which there is nothing to learn from."""
    for source in sorted({row.source for row in rows}):
        others = [row for row in rows if row.source != source]
        if len({row.source for row in others if row.fitted}) > 1:
            yield source, learnt_terms(others)


def learnt_terms(rows: Sequence[StepRow]) -> MeasuredSteps:
    """Fit the terms as ``fit_interval_terms`` does, without the two figures that need a fit for each source:
    who shows a term, and what share of sources left out the intervals hold. ValueError where there is nothing
    to learn from."""
    rows = sorted(rows, key=lambda row: (row.source, row.family, row.error, repr(row.doubt.regime)))
    fitted = [row for row in rows if row.fitted]
    if len({row.source for row in fitted}) < 2:
        raise ValueError("intervals need runs that shaped constants (high trust) of two sources or more")
    known = replace(
        measured_steps(),
        steps=significant(_of_all(fitted)),
        families=_spanning(frozenset(row.doubt.regime for row in fitted)),
        families_on=_families_on(fitted),
        left_out={},
    )
    others = {source: _without(known, fitted, source) for source in {row.source for row in rows}}
    values = _likeliest(_table(rows, others))
    found = _with_values(known, dict(zip(_NAMES, map(significant, values.tolist()), strict=True)))
    known_of = {source: _with_values(one, _values(found)) for source, one in others.items()}
    below, above = map(significant, _quantiles(rows, known_of))
    return replace(found, quantile=above, quantile_below=below)


def _with_values(steps: MeasuredSteps, values: Mapping[str, float]) -> MeasuredSteps:
    return replace(
        steps,
        weights={kind: values[kind] for kind in KINDS},
        terms={name: Deviation(sigma=values[name], source="") for name in (*DIFFERENCES, *EXPERTS, WAITS)},
    )


def _values(steps: MeasuredSteps) -> dict[str, float]:
    return {**steps.weights, **{name: one.sigma for name, one in steps.terms.items()}}


def _left_out(rows: Sequence[StepRow]) -> dict[str, float]:
    """Share of runs held, each by a fit and a quantile without its source."""
    held: list[tuple[StepRow, bool]] = []
    for source, steps in without_each_source(rows):
        for row in (row for row in rows if row.source == source):
            below, above = reach_of(parts_of(row.doubt, steps), steps)
            held.append((row, -below <= row.error <= above))
    groups = {
        "high trust": [inside for row, inside in held if row.fitted],
        "medium trust": [inside for row, inside in held if not row.fitted],
        "experts": [inside for row, inside in held if row.doubt.experts.share > 0],
        "outside": [inside for row, inside in held if row.outside],
    }
    return {name: round(sum(own) / len(own), 4) for name, own in groups.items() if own}


def _table(rows: Sequence[StepRow], others: Mapping[str, MeasuredSteps]) -> _Table:
    """``others`` is what is measured for a run of each source."""
    most = max(len(one.families) for one in others.values())
    return _Table(
        errors=np.array([row.error for row in rows]),
        weights=np.array(independent_witnesses((row.source, row.family) for row in rows)),
        known=np.array([_known(row.doubt, others[row.source]) for row in rows]),
        weighed=np.array(
            [
                [*(_variance(row.doubt, kind) for kind in KINDS), *(a**2 for a in row.doubt.experts.amounts)]
                for row in rows
            ]
        ),
        squares=np.array([_squares(row, others[row.source].families, most) for row in rows]),
        waits=np.array([(row.doubt.communication * row.doubt.awaited_doublings) ** 2 for row in rows]),
        slowest=np.array([_variance(row.doubt, SLOWEST) for row in rows]),
    )


def _without(steps: MeasuredSteps, fitted: Sequence[StepRow], source: str) -> MeasuredSteps:
    """What is measured for a run of ``source``: runs of all others."""
    others = [row for row in fitted if row.source != source]
    families = _spanning(frozenset(row.doubt.regime for row in others))
    return replace(steps, families=families, families_on=_families_on(others))


@lru_cache(maxsize=1024)
def _spanning(regimes: frozenset[Regime]) -> tuple[Regime, ...]:
    return tuple(spanning(regimes))


def _families_on(fitted: Sequence[StepRow]) -> dict[str, int]:
    """How many families each GPU has measured."""
    pairs = {(row.doubt.regime.gpu, row.family) for row in fitted}
    return dict(sorted(Counter(gpu for gpu, _ in pairs).items()))


def _of_all(fitted: Sequence[StepRow]) -> float:
    """What no curve knows of steps, of any GPU: the median over families of their GPU's residual."""
    found = {row.family: part.sigma for row in fitted for part in row.doubt.causes if part.kind == "steps"}
    return weighted_quantile([(sigma, 1.0) for sigma in sorted(found.values())], 0.5)


def _known(doubt: Doubt, steps: MeasuredSteps) -> float:
    """Sum of the variances of causes whose weight no step tells."""
    return sum(
        (part.share * (steps.pooled(part.sigma, doubt.regime.gpu) if part.kind == "steps" else part.sigma))
        ** 2
        for part in doubt.causes
        if part.kind not in (*KINDS, SLOWEST, *REACHES)  # these are on one side, and the last no residual
    )


def _variance(doubt: Doubt, kind: str) -> float:
    """Sum of the variances of causes of one kind."""
    return sum((part.share * part.sigma) ** 2 for part in doubt.causes if part.kind == kind)


def _squares(row: StepRow, regimes: Sequence[Regime], most: int) -> list[list[float]]:
    """Squared differences of a row's regime from each of the ``regimes``, padded to ``most`` with a regime
    that is far from all."""
    found = [[far**2 for far in differences(row.doubt.regime, regime)] for regime in regimes]
    return found + [[_FAR**2] * len(DIFFERENCES)] * (most - len(found))


def _likeliest(table: _Table) -> NDArray[np.float64]:
    """The values of _NAMES that make the errors likeliest."""
    from scipy.optimize import minimize

    starts = dict.fromkeys(KINDS, 1.0) | {EXPERTS[0]: _EXPERTS_START}
    centre = np.log([starts.get(name, _TERM_START) for name in _NAMES])

    def with_prior(logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        away, (value, gradient) = (logs - centre) / LOOSENESS, table.unlikely(logs)
        return value + float(away @ away) / 2, gradient + away / LOOSENESS

    found = minimize(with_prior, centre, jac=True, method="L-BFGS-B", bounds=[(_LOW, _HIGH)] * len(_NAMES))
    values: NDArray[np.float64] = np.exp(found.x)
    return values


def _quantiles(rows: Sequence[StepRow], others: Mapping[str, MeasuredSteps]) -> tuple[float, float]:
    """How many times their standard deviations and NOISE below and above the prediction hold nine in ten of
    another source than those of ``rows``, and leave out one in twenty at most on either side; each run by
    what is measured for its source."""
    found = []
    counts = witnesses((row.source, row.family) for row in rows)
    for row, count in zip(rows, counts, strict=True):
        parts = parts_of(row.doubt, others[row.source])
        below, above = deviations_of(part for part in parts if part.kind not in REACHES)
        found.append((row.error, below + NOISE, above + NOISE, count))
    return sides_that_hold(found, level_for_another(LEVEL, len({row.source for row in rows})))


def _source(name: str, shown: Sequence[StepRow]) -> str:
    """How many runs and families show a term."""
    families, sources = {row.family for row in shown}, {row.source for row in shown}
    unit = "a doubling; " if name in ("sequence", "gpus", WAITS) else ""
    return (
        f"{unit}stepsim calibrate residuals: {len(shown)} measured steps of {len(families)} families "
        f"in {len(sources)} sources"
    )


def _showing(rows: Sequence[StepRow], sigmas: Mapping[str, float]) -> dict[str, list[StepRow]]:
    """Runs that show each term: with experts, with communication, and unlike the nearest of other sources in
    that."""
    found: dict[str, list[StepRow]] = {name: [] for name in sigmas}
    fitted = [row for row in rows if row.fitted]
    for row in rows:
        others = _spanning(frozenset(one.doubt.regime for one in fitted if one.source != row.source))
        far = nearest(row.doubt.regime, others, sigmas)[1] if others else ()
        for name, amount in (
            *zip(DIFFERENCES, far, strict=False),
            *zip(EXPERTS, row.doubt.experts.amounts, strict=True),
            (WAITS, row.doubt.communication),
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
        "unread": {kin: asdict(one) for kin, one in steps.unread.items()},
        "steps": steps.steps,
        "families_on": dict(steps.families_on),
        "sources": asdict(steps.sources),
        "left_out": dict(steps.left_out),
    }
    families = "".join(
        f"  - {yaml.safe_dump(asdict(one), default_flow_style=True, width=200, sort_keys=False)}"
        for one in steps.families
    )
    numbers: str = yaml.safe_dump(document, sort_keys=False, width=116, allow_unicode=True)
    return f"{_HEAD}{numbers}families:\n{families}"
