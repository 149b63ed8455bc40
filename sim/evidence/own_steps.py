"""What a user's own measured steps say of the user's other steps: how far predictions move, and how sure they
are then.

Knows by how much sources differ from one another (``SourceSpread``, which ``stepsim calibrate residuals``
estimates). The error of a step has three parts: factors that all steps of one cluster and stack share; an
error that steps of one kind share, which fades with their distance; and a rest of one run. So the error is a
Gaussian process over steps, conditioned on the user's own steps (Rasmussen and Williams 2006, Gaussian
Processes for Machine Learning, section 2.7: a linear part, and a residual that decays with distance). The
rest of one run has the heavy tails of Student's t, so a run that is far off counts for less (Lange, Little
and Taylor 1989, J. Am. Stat. Assoc. 84, section 3: the variance of each run is estimated from its residual).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...hardware.step_factors import CAUSES, OwnStep, StepKind

if TYPE_CHECKING:
    from numpy.typing import NDArray


FREEDOM = 4.0
"""Degrees of freedom of errors that one run alone has, the same as of all errors of steps
(calibration/fit/steps)."""
_ROUNDS = 20
"""Iterations of each run's variance; after these a prediction of one run's kind moves by 0.1 % at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpread:
    """Standard deviations of the logarithms of durations, by what differs between sources: all of a step
    (``common``), what takes its time, its ``kind``, a ``run``; ``fixed_s`` in seconds. Errors of steps
    ``reach`` apart have 1/e of ``kind`` in common. Where nobody read the code of the trainer,
    ``unread_common`` and ``unread_kind`` are added to the first two. Within ``quantile`` times the whole lie
    nine in ten of the other runs of a source of which one was seen."""

    common: float
    matrix: float
    memory: float
    host: float
    checks: float
    node: float
    network: float
    fixed_s: float
    kind: float
    run: float
    reach: float
    unread_common: float
    unread_kind: float
    quantile: float

    def of_trainer(self, *, read: bool) -> SourceSpread:
        """The spreads of sources whose trainer's code somebody ``read``, or nobody: what a generic preset
        gets wrong is in part the same in all steps, and in part different in each kind."""
        if read:
            return self
        return replace(
            self,
            common=math.hypot(self.common, self.unread_common),
            kind=math.hypot(self.kind, self.unread_kind),
        )

    def of_kernels(self, sigma: float) -> SourceSpread:
        """The spreads where GEMMs and attention are in doubt by ``sigma`` besides, as they are on a GPU
        whose kernels nobody measured: a step of that GPU then says the more of them."""
        return replace(self, matrix=math.hypot(self.matrix, sigma)) if sigma else self

    @property
    def factors(self) -> NDArray[np.float64]:
        """The covariance of the factors and of the fixed time, where no step was measured."""
        own = np.array([*(getattr(self, cause) for cause in CAUSES), self.fixed_s]) ** 2
        together = np.array([1.0] * len(CAUSES) + [0.0])
        found: NDArray[np.float64] = np.diag(own) + self.common**2 * np.outer(together, together)
        return found

    def shared(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Covariance of the errors of steps of one cluster by their distance, without the common factors."""
        found: NDArray[np.float64] = self.kind**2 * np.exp(-distance / self.reach)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """A step as a sample of its cluster: the ``shares`` of its critical path by cause, its seconds, and what
    kind of step it is."""

    shares: Mapping[str, float]
    step_s: float
    kind: StepKind

    @property
    def loads(self) -> NDArray[np.float64]:
        """How much each factor, and a second of fixed time, moves the logarithm of the step time."""
        return np.array([*(self.shares.get(cause, 0.0) for cause in CAUSES), 1.0 / self.step_s])


@dataclass(frozen=True, slots=True)
class Conditioned:
    """What the steps ``seen`` say of a cluster: ``weights`` times the covariance with them is the expected
    error of a step; ``precision`` is the inverse of their own covariance."""

    spread: SourceSpread
    seen: tuple[StepSample, ...]
    weights: NDArray[np.float64]
    precision: NDArray[np.float64]

    @property
    def factors(self) -> NDArray[np.float64]:
        """The expected logarithms of the factors, and the fixed time in seconds."""
        found: NDArray[np.float64] = self.spread.factors @ self._loads.T @ self.weights
        return found

    @property
    def factor_covariance(self) -> NDArray[np.float64]:
        """The covariance of the factors once the steps are seen: how sure they are."""
        gain = self.spread.factors @ self._loads.T
        found: NDArray[np.float64] = self.spread.factors - gain @ self.precision @ gain.T
        return found

    @property
    def pulls(self) -> NDArray[np.float64]:
        """The logarithm of how much longer steps of its kind take than the factors say, by step seen."""
        found: NDArray[np.float64] = self.spread.kind**2 * self.weights
        return found

    def variance(self, step: StepSample) -> float:
        """The variance of the logarithm of another step's time, without the part that its run alone has."""
        known = float(step.loads @ self.spread.factors @ step.loads) + self.spread.kind**2
        if not self.seen:
            return known
        with_seen = _covariance(self.spread, [step], self.seen)[0]
        return max(0.0, known - float(with_seen @ self.precision @ with_seen))

    @property
    def _loads(self) -> NDArray[np.float64]:
        return np.array([step.loads for step in self.seen]).reshape(len(self.seen), len(CAUSES) + 1)


def conditioned(spread: SourceSpread, steps: Sequence[StepSample], errors: Sequence[float]) -> Conditioned:
    """What is known after ``steps``, each measured ``exp(error)`` times as long as with all factors at 1."""
    shared, seen = _covariance(spread, steps, steps), np.asarray(errors, dtype=np.float64)
    precision = _precision(shared, variances_of_runs(spread.run, shared, seen))
    return Conditioned(spread, tuple(steps), precision @ seen, precision)


def variances_of_runs(
    run: float, shared: NDArray[np.float64], errors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The variance of the part of the error that each run alone has. Its standard deviation is ``run`` for a
    usual run, and grows for one that is far off.

    ``errors`` are the errors of runs of one cluster, ``shared`` is the covariance of the part that they have
    in common. Both may have leading axes, for many clusters at once.

    >>> one, far = np.array([[0.0025]]), np.array([0.4])
    >>> variances_of_runs(0.03, one, np.array([0.0])).round(5), variances_of_runs(0.03, one, far).round(5)
    (array([0.00085]), array([0.02818]))
    """
    found = np.full_like(errors, run**2)
    diagonal = np.arange(errors.shape[-1])
    for _ in range(_ROUNDS):
        gain = shared @ _precision(shared, found)
        left = errors - (gain @ errors[..., None])[..., 0]
        open_ = (shared - gain @ shared)[..., diagonal, diagonal]
        found = (FREEDOM * run**2 + left**2 + open_) / (FREEDOM + 1)
    return found


def _precision(shared: NDArray[np.float64], alone: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse covariance of measured errors."""
    whole = shared + alone[..., None] * np.eye(alone.shape[-1])
    return np.asarray(np.linalg.inv(whole), dtype=np.float64)


def after_own(spread: SourceSpread, steps: Sequence[OwnStep]) -> Conditioned:
    """What the measured steps of a profile say of its cluster."""
    samples = [StepSample(shares=step.shares, step_s=step.calibrated_s, kind=step.kind) for step in steps]
    return conditioned(spread, samples, [math.log(step.measured_s / step.predicted_s) for step in steps])


def typical(spread: SourceSpread, step: StepSample) -> float:
    """The standard deviation of the logarithm of a step of a cluster of which none was measured."""
    return math.sqrt(conditioned(spread, (), ()).variance(step) + spread.run**2)


def _covariance(
    spread: SourceSpread, steps: Sequence[StepSample], others: Sequence[StepSample]
) -> NDArray[np.float64]:
    """Covariance of the errors of two lists of steps on one cluster."""
    if not steps or not others:
        return np.zeros((len(steps), len(others)))
    left, right = (np.array([step.loads for step in rows]) for rows in (steps, others))
    apart = distances([one.kind for one in steps], [two.kind for two in others])
    found: NDArray[np.float64] = left @ spread.factors @ right.T + spread.shared(apart)
    return found


def distances(kinds: Sequence[StepKind], others: Sequence[StepKind]) -> NDArray[np.float64]:
    """How unlike steps are: ``StepKind.distance`` of each of ``kinds`` (rows) to each of ``others``
    (columns), all at once."""
    both = [*kinds, *others]
    sizes = np.log2(
        [
            [one.sizes.get(name, 1.0) for name in sorted({n for one in both for n in one.sizes})]
            for one in both
        ]
    ).reshape(len(both), -1)
    names = sorted({name for one in both for name in one.kinds})
    words = np.array([[one.kinds.get(name, "") for name in names] for one in both], dtype=object).reshape(
        len(both), -1
    )
    count = len(kinds)
    squares = ((sizes[:count, None] - sizes[None, count:]) ** 2).sum(axis=2)
    differ = (words[:count, None] != words[None, count:]).sum(axis=2)
    found: NDArray[np.float64] = np.sqrt(squares + differ)
    return found
