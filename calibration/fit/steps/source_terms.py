"""By how much the steps of one source differ from those of others: a spread for each thing that takes time.

A source is one cluster with one software stack, as a user has. The errors of its steps have parts in common:

- everything may be slower (``common``), or GEMMs, kernels bound by memory, the host, or the network;
- steps of one kind share an error, which fades with their distance;
- the rest belongs to one run.

The spreads are used to say what one run of a cluster tells of another. They are therefore fitted on pairs:
each run is predicted after one other run of its cluster, with constants of all other sources, and the spreads
maximise the likelihood of these errors. That is a composite likelihood, of pairs in place of all runs
together; the density of an error is that of two_pieces.py, as in interval_terms.py. A source counts as often
as it has independent families. Each spread has a wide prior, which is worth one family.

The number of standard deviations that hold nine in ten of a new source is counted on sources that were left
out: each with the spreads that all others give, after one of its runs is known. What is added to the spreads
where nobody read a trainer's code is found in the same way, on runs whose trainer was read, each predicted
as if it had not been.

Source: Varin, Reid and Firth 2011, An overview of composite likelihood methods, Statistica Sinica 21.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from ....hardware.step_factors import CAUSES
from ....sim.evidence.interval import LEVEL
from ....sim.evidence.own_steps import (
    SourceSpread,
    StepSample,
    conditioned,
    distances,
    variances_of_runs,
)
from ..growth import (
    NORMAL_NINTH,
    independent_witnesses,
    level_for_another,
    spreads_that_hold,
    witnesses,
)
from .two_pieces import LOOSENESS, unlikely

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHOICES = 20
"""Runs of a source that are taken as the one that was measured, in turn."""
NAMES = ("common", *CAUSES, "fixed_s", "kind", "run", "reach")
UNREAD = ("unread_common", "unread_kind")
"""What is added to the spreads where nobody read the code of a trainer."""
STARTS = {"fixed_s": 0.02, "run": 0.03, "reach": 3.0}
"""Where the terms start that do not start at 0.05: fixed times of the presets that have one, and how far runs
of a kind are apart."""
_SETTLED = 1e-6
"""Relative gain of the logarithm of the likelihood below which a search ends: 0.001 of it in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """A run that was predicted without its source; what ran on one ``gpu`` there is one cluster.

    ``error`` is the logarithm of measured over predicted step time, ``known`` the variance of what lies
    beyond measured ranges and of routed experts, ``waits`` that of what only lengthens a step.
    """

    name: str
    source: str
    gpu: str
    family: str
    error: float
    sample: StepSample
    known: float = 0.0
    waits: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A row after runs of its source were measured: what is left of its ``error``, and how sure that is,
    below the prediction (``sigma``) and ``above``; ``apart`` is its distance to the nearest of them,
    ``weight`` one over the choices that were taken in turn."""

    row: SourceRow
    error: float
    sigma: float
    above: float
    apart: float
    weight: float


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Runs of each cluster after one other was measured. Of the runs that were measured: errors, and products
    of their loads; of each pair, whose cluster is of ``sources``: which of them was ``seen``, and of the
    other run its error, products of its loads, and of both runs' loads, its distance, known variance, waits
    and how often it counts. Products are of each load with each, as a covariance of factors is."""

    seen_errors: NDArray[np.float64]
    seen_products: NDArray[np.float64]
    sources: NDArray[np.str_]
    seen: NDArray[np.int64]
    errors: NDArray[np.float64]
    products: NDArray[np.float64]
    both_products: NDArray[np.float64]
    distances: NDArray[np.float64]
    known: NDArray[np.float64]
    waits: NDArray[np.float64]
    counts: NDArray[np.float64]

    def without(self, source: str) -> _Pairs:
        """The pairs of all other sources."""
        kept = self.sources != source
        of_runs = ("seen_errors", "seen_products")
        names = [one.name for one in fields(self) if one.name not in of_runs]
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

    def unlikely(self, spread: SourceSpread) -> float:
        """Minus the logarithm of the composite likelihood."""
        factors = spread.factors.ravel()
        own = self.seen_products @ factors + spread.kind**2
        alone = variances_of_runs(spread.run, own[:, None, None], self.seen_errors[:, None])[:, 0]
        shared = self.both_products @ factors + spread.shared(self.distances)
        gain = shared / (own + alone)[self.seen]
        known = self.products @ factors + spread.kind**2
        below = known - gain * shared + spread.run**2 + self.known
        above = below + self.waits
        left = self.errors - gain * self.seen_errors[self.seen]
        return float(self.counts @ unlikely(left, below, above))


def fit_source_spread(rows: Sequence[SourceRow], unread: Sequence[SourceRow] = ()) -> SourceSpread:
    """The spreads of all ``rows``, and the quantile; what is added to them where nobody read a trainer's code
    by the rows ``unread``, which were predicted as if nobody had. Without two sources of these that is what a
    search starts from. ValueError where there are no two sources of ``rows``."""
    spread = _likeliest(_pairs(rows), _STARTED)
    without = spreads_without(rows, spread)
    counts = witnesses((row.source, row.family) for row in rows)
    count = {row.name: one for row, one in zip(rows, counts, strict=True)}
    left = [*calibrated(rows, without)]
    if not left:
        raise ValueError("how far one run speaks for others shows in sources of two runs or more")
    errors = [(one.error, one.sigma, one.above, one.weight * count[one.row.name]) for one in left]
    level = level_for_another(LEVEL, len({one.row.source for one in left}))
    spread = replace(spread, quantile=spreads_that_hold(errors, level))
    if _sources_with_pairs(unread) > 1:
        spread = _likeliest(_pairs(unread), spread, read=False)
    return rounded(spread)


def _sources_with_pairs(rows: Sequence[SourceRow]) -> int:
    """How many sources have two or more runs on one cluster."""
    runs = Counter((row.source, row.gpu) for row in rows)
    return len({source for (source, _), number in runs.items() if number > 1})


def rounded(spread: SourceSpread) -> SourceSpread:
    """The spread to three significant digits, as files state it."""
    return SourceSpread(**{name: float(f"{value:.3g}") for name, value in asdict(spread).items()})


def spreads_without(rows: Sequence[SourceRow], begun: SourceSpread) -> dict[str, SourceSpread]:
    """For each source, the spreads that all other sources give; the search starts at ``begun``."""
    pairs = _pairs(rows)
    return {
        source: _likeliest(pairs.without(source), begun) for source in sorted({row.source for row in rows})
    }


def calibrated(
    rows: Sequence[SourceRow], without: Mapping[str, SourceSpread], *, runs: int = 1
) -> Iterator[Calibrated]:
    """Every row after ``runs`` runs of its source and GPU, for up to ``CHOICES`` choices of them, by the
    spreads ``without`` its source."""
    for source, gpu in _clusters(rows):
        own = [row for row in rows if (row.source, row.gpu) == (source, gpu)]
        if len(own) > runs:
            yield from _after_each(own, without[source], runs)


def after_most_alike(rows: Sequence[SourceRow], without: Mapping[str, SourceSpread]) -> Iterator[Calibrated]:
    """Every row after the one run of its source and GPU that is most like it, and is not of its very kind."""
    for source, gpu in _clusters(rows):
        own = [row for row in rows if (row.source, row.gpu) == (source, gpu)]
        apart = _apart(own, own)
        far = np.where(apart > 0, apart, math.inf)
        for row, distances_ in zip(own, far, strict=True):
            nearest = int(distances_.argmin())
            if distances_[nearest] < math.inf:
                yield from _after([own[nearest]], [row], without[source], 1.0)


def _after_each(own: Sequence[SourceRow], spread: SourceSpread, runs: int) -> Iterator[Calibrated]:
    """The rows of one source after each choice of its runs: ``runs`` in a row, of an order by hash."""
    order = _by_hash(own)
    choices = min(len(order), CHOICES)
    for first in range(choices):
        seen = [order[(first + more) % len(order)] for more in range(runs)]
        others = [row for row in own if not any(row is one for one in seen)]
        yield from _after(seen, others, spread, 1.0 / choices)


def _after(
    seen: Sequence[SourceRow], others: Sequence[SourceRow], spread: SourceSpread, weight: float
) -> Iterator[Calibrated]:
    """``others`` after the runs ``seen`` of their cluster."""
    known = conditioned(spread, [row.sample for row in seen], [row.error for row in seen])
    apart = _apart(others, seen)
    for row, far in zip(others, apart, strict=True):
        pulled = known.pulls @ np.exp(-far / spread.reach)
        variance = known.variance(row.sample) + spread.run**2 + row.known
        yield Calibrated(
            row=row,
            error=row.error - float(row.sample.loads @ known.factors) - float(pulled),
            sigma=math.sqrt(variance),
            above=math.sqrt(variance + row.waits),
            apart=float(far.min()),
            weight=weight,
        )


def _likeliest(pairs: _Pairs, begun: SourceSpread, *, read: bool = True) -> SourceSpread:
    """``begun`` with the spreads that make the errors likeliest: all of runs whose trainer was ``read``, and
    of others what is added to these. The quantile stays."""
    from scipy.optimize import minimize

    if len(set(pairs.sources.tolist())) < 2:
        raise ValueError("how sources differ shows in two sources of two runs or more")
    names = NAMES if read else UNREAD
    centre = np.log([getattr(_STARTED, name) for name in names])

    def spread_of(logs: NDArray[np.float64]) -> SourceSpread:
        return replace(begun, **dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def with_prior(logs: NDArray[np.float64]) -> float:
        prior = float(np.sum(((logs - centre) / LOOSENESS) ** 2)) / 2
        return prior + pairs.unlikely(spread_of(logs).of_trainer(read=read))

    first = np.log([getattr(begun, name) for name in names])
    bounds = [(math.log(1e-3), math.log(30.0 if name == "reach" else 2.0)) for name in names]
    found = minimize(with_prior, first, method="L-BFGS-B", bounds=bounds, options={"ftol": _SETTLED})
    return spread_of(found.x)


def _clusters(rows: Sequence[SourceRow]) -> list[tuple[str, str]]:
    """The clusters of all sources: one for each GPU that a source ran on."""
    return sorted({(row.source, row.gpu) for row in rows})


def _pairs(rows: Sequence[SourceRow]) -> _Pairs:
    """Every row with each choice of one run of its cluster."""
    each = independent_witnesses((row.source, row.family) for row in rows)
    counts = {row.name: count for row, count in zip(rows, each, strict=True)}
    seen: list[SourceRow] = []
    others: list[SourceRow] = []
    places: list[tuple[int, int]] = []
    apart: list[NDArray[np.float64]] = []
    for source, gpu in _clusters(rows):
        own = [row for row in rows if (row.source, row.gpu) == (source, gpu)]
        chosen = _by_hash(own)[:CHOICES]
        far = _apart(chosen, own)
        for place, one in enumerate(chosen):
            kept = [row is not one for row in own]
            places += [(len(seen), len(chosen))] * sum(kept)
            others += [row for row in own if row is not one]
            apart.append(far[place, kept])
            seen.append(one)
    number = np.array([place for place, _ in places], dtype=np.int64)
    seen_loads, loads = (np.array([row.sample.loads for row in some]) for some in (seen, others))
    return _Pairs(
        seen_errors=np.array([row.error for row in seen]),
        seen_products=_products(seen_loads, seen_loads),
        sources=np.array([row.source for row in others]),
        seen=number,
        errors=np.array([row.error for row in others]),
        products=_products(loads, loads),
        both_products=_products(seen_loads[number], loads),
        distances=np.concatenate(apart),
        known=np.array([row.known for row in others]),
        waits=np.array([row.waits for row in others]),
        counts=np.array([counts[row.name] / of for row, (_, of) in zip(others, places, strict=True)]),
    )


def _products(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Row by row, each load of one with each of the other."""
    found: NDArray[np.float64] = (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)
    return found


def _apart(rows: Sequence[SourceRow], others: Sequence[SourceRow]) -> NDArray[np.float64]:
    return distances([row.sample.kind for row in rows], [row.sample.kind for row in others])


def _by_hash(rows: Sequence[SourceRow]) -> list[SourceRow]:
    return sorted(rows, key=lambda row: hashlib.sha256(row.name.encode()).digest())


_STARTED = SourceSpread(**{name: STARTS.get(name, 0.05) for name in (*NAMES, *UNREAD)}, quantile=NORMAL_NINTH)
