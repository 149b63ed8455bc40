"""By how much the steps of one source differ from those of others: a spread for each thing that takes time.

A source is one cluster with one stack, and so is a user. Its steps have errors in common: all that it runs
may be slower (``common``), or its matrix products, its kernels bound by memory, its host, its network; steps
of one kind have more in common, the less the further they are apart; what is left is of one run. The spreads
are those that make the errors likeliest with which every source was predicted by constants of all others.
Each has a wide prior, worth one source, and errors beyond ``CLIP`` count as that, since the errors of runs
have heavy tails. How many standard deviations, each with NOISE, hold nine in ten of one more source is
counted on what one run of a source leaves of its others, sources alike, each with the spreads that all
others give.

Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, section 5.4.1 (the likelihood).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ....hardware.step_factors import CAUSES
from ....sim.evidence.own_steps import CLIP, SourceSpread, StepSample, conditioned, distances
from ....sim.evidence.run_noise import NOISE
from ..growth import NORMAL_NINTH, level_for_another, spreads_that_hold, witnesses

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 60
"""Rows of a source that shape the spreads, by a hash of their names: a sweep of hundreds says no more."""
CHOICES = 20
"""Runs of a source that are taken as the one that was measured, in turn."""
NAMES = ("common", *CAUSES, "fixed_s", "kind", "run", "reach")
STARTS = {"host": 0.3, "network": 0.2, "node": 0.1, "fixed_s": 0.02, "run": 0.03, "reach": 3.0}
"""Where the terms start that do not start at 0.05: what hosts and logs of collectives are off by elsewhere
(hardware/deviations.yaml), and fixed times of the presets that have one."""
_LOOSENESS = math.log(2.0)
_LEVEL = 0.9


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
class _Block:
    """The rows of one source: errors, loads (rows, factors), distances, known variances."""

    errors: NDArray[np.float64]
    loads: NDArray[np.float64]
    distances: NDArray[np.float64]
    known: NDArray[np.float64]


def fit_source_spread(rows: Sequence[SourceRow]) -> SourceSpread:
    """The spreads of all ``rows``, and the quantile. ValueError where there are no two sources."""
    spread = _likeliest([*_blocks(rows).values()], _STARTED)
    without = spreads_without(rows, spread)
    counts = witnesses((row.source, row.family) for row in rows)
    count = {row.name: one for row, one in zip(rows, counts, strict=True)}
    left = [*calibrated(rows, without)]
    if not left:
        raise ValueError("how far one run speaks for others shows in sources of two runs or more")
    errors = [
        (one.error, one.sigma + NOISE, one.above + NOISE, one.weight * count[one.row.name]) for one in left
    ]
    level = level_for_another(_LEVEL, len({one.row.source for one in left}))
    return rounded(replace(spread, quantile=spreads_that_hold(errors, level)))


def weighted_quantile(pairs: Sequence[tuple[float, float]], level: float) -> float:
    """The least value that, with those below it, has ``level`` of the weight; ``pairs`` of value and weight.

    >>> weighted_quantile([(3.0, 1.0), (1.0, 2.0), (2.0, 1.0)], 0.5)
    1.0
    """
    wanted, reached = level * sum(weight for _, weight in pairs), 0.0
    for value, weight in sorted(pairs):
        reached += weight
        if reached >= wanted:
            return value
    return max(value for value, _ in pairs)


def rounded(spread: SourceSpread) -> SourceSpread:
    """The spread to three significant digits, as files state it."""
    return SourceSpread(**{name: float(f"{value:.3g}") for name, value in asdict(spread).items()})


def spreads_without(rows: Sequence[SourceRow], begun: SourceSpread) -> dict[str, SourceSpread]:
    """By source, the spreads that all others give, searched from ``begun``."""
    blocks = _blocks(rows)
    return {
        source: _likeliest([block for (name, _), block in blocks.items() if name != source], begun)
        for source in sorted({row.source for row in rows})
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


def _after_each(own: Sequence[SourceRow], spread: SourceSpread, runs: int) -> Iterator[Calibrated]:
    """The rows of one source after each choice of its runs: ``runs`` in a row, of an order by hash."""
    order = _some(own, len(own))
    choices = min(len(order), CHOICES)
    for first in range(choices):
        seen = [order[(first + more) % len(order)] for more in range(runs)]
        samples = [row.sample for row in seen]
        known = conditioned(spread, samples, [row.error for row in seen])
        apart = _apart(own, seen)
        for place, row in enumerate(own):
            if any(row is one for one in seen):
                continue
            pulled = known.pulls @ np.exp(-apart[place] / spread.reach)
            variance = known.variance(row.sample) + spread.run**2 + row.known
            yield Calibrated(
                row=row,
                error=row.error - float(row.sample.loads @ known.factors) - float(pulled),
                sigma=math.sqrt(variance),
                above=math.sqrt(variance + row.waits),
                apart=float(apart[place].min()),
                weight=1.0 / choices,
            )


def _likeliest(blocks: Sequence[_Block], begun: SourceSpread) -> SourceSpread:
    """The spreads that make the errors likeliest; the quantile stays."""
    from scipy.optimize import minimize

    if len(blocks) < 2:
        raise ValueError("how sources differ shows in two sources or more")
    centre = np.log([getattr(_STARTED, name) for name in NAMES])

    def unlikely(logs: NDArray[np.float64]) -> float:
        spread = _spread(logs, begun)
        prior = float(np.sum(((logs - centre) / _LOOSENESS) ** 2)) / 2
        return prior + sum(_unlikely(block, spread) for block in blocks)

    first = np.log([getattr(begun, name) for name in NAMES])
    bounds = [(math.log(1e-3), math.log(30.0 if name == "reach" else 2.0)) for name in NAMES]
    return _spread(minimize(unlikely, first, method="L-BFGS-B", bounds=bounds).x, begun)


def _spread(logs: NDArray[np.float64], counted: SourceSpread) -> SourceSpread:
    """Spreads of these logarithms, with the quantile of ``counted``."""
    return replace(counted, **dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))


def _clusters(rows: Sequence[SourceRow]) -> list[tuple[str, str]]:
    """The clusters of all sources: one for each GPU that a source ran on."""
    return sorted({(row.source, row.gpu) for row in rows})


def _blocks(rows: Sequence[SourceRow]) -> dict[tuple[str, str], _Block]:
    """The rows of each cluster that shape the spreads."""
    return {
        (source, gpu): _block(_some([row for row in rows if (row.source, row.gpu) == (source, gpu)], ROWS))
        for source, gpu in _clusters(rows)
    }


def _block(rows: Sequence[SourceRow]) -> _Block:
    return _Block(
        errors=np.clip([row.error for row in rows], -CLIP, CLIP),
        loads=np.array([row.sample.loads for row in rows]),
        distances=_apart(rows, rows),
        known=np.array([row.known for row in rows]),
    )


def _unlikely(block: _Block, spread: SourceSpread) -> float:
    """Minus the logarithm of the likelihood, of a normal distribution."""
    whole = block.loads @ spread.factors @ block.loads.T + spread.shared(block.distances)
    factor = np.linalg.cholesky(whole + np.diag(spread.run**2 + block.known))
    white = np.linalg.solve(factor, block.errors)
    return float(white @ white) / 2 + float(np.sum(np.log(np.diag(factor))))


def _apart(rows: Sequence[SourceRow], others: Sequence[SourceRow]) -> NDArray[np.float64]:
    return distances([row.sample.kind for row in rows], [row.sample.kind for row in others])


def _some(rows: Sequence[SourceRow], most: int) -> list[SourceRow]:
    return sorted(rows, key=lambda row: hashlib.sha256(row.name.encode()).digest())[:most]


_STARTED = SourceSpread(**{name: STARTS.get(name, 0.05) for name in NAMES}, quantile=NORMAL_NINTH)
