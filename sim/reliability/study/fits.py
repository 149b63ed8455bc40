"""Laws fitted to times between faults and to times of repair, each with its test.

Maximum likelihood for the exponential, Weibull and lognormal law, which are those of campaigns; the distance
of Kolmogorov and Smirnov, with its p-value by fits to samples of the fitted law (its parameters are of the
same data, for which the usual tables are too kind: Lilliefors 1967). Knows times; does not know faults.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LawName = Literal["exponential", "weibull", "lognormal"]
LAWS: tuple[LawName, ...] = ("exponential", "weibull", "lognormal")
FEWEST = 8
"""Times from which on a law is fitted."""
SAMPLES = 400
"""Samples that are drawn of a fitted law for its p-value, which is then known to within 0.025."""
_STEPS = 60
"""Halvings of the interval in which the shape is sought: more than a float has bits."""


@dataclass(frozen=True, kw_only=True)
class FittedLaw:
    """A law with its ``shape`` (Weibull's, the lognormal's sigma; 1 of an exponential) and ``scale_s`` (the
    median of a lognormal). ``p_value`` is the chance of a distance as large if the law held.
    """

    law: LawName
    shape: float
    scale_s: float
    mean_s: float
    log_likelihood: float
    distance: float
    p_value: float

    @property
    def aic(self) -> float:
        """Akaike's criterion: the smaller, the better."""
        return 2.0 * (1 if self.law == "exponential" else 2) - 2.0 * self.log_likelihood


def fits(times_s: Sequence[float], seed: int = 0) -> tuple[FittedLaw, ...]:
    """The laws fitted to times above zero, the best by Akaike's criterion first.

    ValueError for fewer than 8 times, or times that are not finite and above zero.
    """
    times = np.asarray(times_s, dtype=np.float64)
    if len(times) < FEWEST or not (np.isfinite(times) & (times > 0)).all():
        raise ValueError(f"a fit needs at least {FEWEST} times above zero, got {len(times)}")
    random = np.random.default_rng(seed)
    found = [_fit(law, times, random) for law in LAWS]
    return tuple(sorted(found, key=lambda one: one.aic))


def trend(starts_s: Sequence[float], length_s: float) -> float:
    """Laplace's test: by how many standard deviations the faults of a constant rate lie late in the record
    (below 0: early).
    """
    count = len(starts_s)
    middle = sum(starts_s) / count
    return (middle - length_s / 2) / (length_s * math.sqrt(1.0 / (12.0 * count)))


def frailty(counts: Sequence[int]) -> float:
    """The coefficient of variation of hosts' rates that makes counts scatter as they do; 0 where chance alone
    scatters them as much: Var = mean + (cv mean)².
    """
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / max(1, len(counts) - 1)
    return math.sqrt(max(0.0, variance - mean)) / mean


def _fit(law: LawName, times: Floats, random: np.random.Generator) -> FittedLaw:
    shape, scale = (float(one[0]) for one in _parameters(law, times[None, :]))
    distance = float(_distance(law, times[None, :], np.array([shape]), np.array([scale]))[0])
    drawn = _drawn(law, shape, scale, (SAMPLES, len(times)), random)
    others = _distance(law, drawn, *_parameters(law, drawn))
    return FittedLaw(
        law=law,
        shape=shape,
        scale_s=scale,
        mean_s=_mean(law, shape, scale),
        log_likelihood=_log_likelihood(law, times, shape, scale),
        distance=distance,
        p_value=float((1 + (others >= distance).sum()) / (1 + SAMPLES)),
    )


def _parameters(law: LawName, rows: Floats) -> tuple[Floats, Floats]:
    """Shape and scale of each row by maximum likelihood."""
    if law == "exponential":
        return np.ones(len(rows)), rows.mean(axis=1)
    logs = np.log(rows)
    if law == "lognormal":
        return np.maximum(logs.std(axis=1), 1e-9), np.exp(logs.mean(axis=1))
    # Weibull: 1/k = sum t^k log t / sum t^k - mean log t, by halving, as the right side grows with k.
    logs = logs - logs.max(axis=1, keepdims=True)
    middle = logs.mean(axis=1)
    low, high = np.full(len(rows), 1e-3), np.full(len(rows), 1e3)
    for _ in range(_STEPS):
        shape = np.sqrt(low * high)
        powers = np.exp(shape[:, None] * logs)
        more = (powers * logs).sum(axis=1) / powers.sum(axis=1) - middle > 1.0 / shape
        high, low = np.where(more, shape, high), np.where(more, low, shape)
    shape = np.sqrt(low * high)
    top = rows.max(axis=1)
    scale = top * np.exp(shape[:, None] * logs).mean(axis=1) ** (1.0 / shape)
    return shape, scale


def _distribution(law: LawName, rows: Floats, shape: Floats, scale: Floats) -> Floats:
    if law == "lognormal":
        from scipy.special import ndtr

        found: Floats = ndtr(np.log(rows / scale[:, None]) / shape[:, None])
        return found
    return 1.0 - np.exp(-((rows / scale[:, None]) ** shape[:, None]))


def _distance(law: LawName, rows: Floats, shape: Floats, scale: Floats) -> Floats:
    """Kolmogorov's distance of each row from its law."""
    ordered = _distribution(law, np.sort(rows, axis=1), shape, scale)
    count = rows.shape[1]
    above = np.arange(1, count + 1) / count - ordered
    below = ordered - np.arange(count) / count
    found: Floats = np.maximum(above.max(axis=1), below.max(axis=1))
    return found


def _drawn(
    law: LawName, shape: float, scale: float, size: tuple[int, int], random: np.random.Generator
) -> Floats:
    if law == "lognormal":
        return np.asarray(random.lognormal(math.log(scale), shape, size))
    return np.asarray(scale * random.weibull(shape, size))


def _mean(law: LawName, shape: float, scale: float) -> float:
    if law == "lognormal":
        return scale * math.exp(shape**2 / 2)
    return scale * math.gamma(1 + 1 / shape) if shape > 0.01 else math.inf


def _log_likelihood(law: LawName, times: Floats, shape: float, scale: float) -> float:
    if law == "lognormal":
        logs = np.log(times / scale) / shape
        return float((-np.log(times * shape * math.sqrt(2 * math.pi)) - logs**2 / 2).sum())
    ratio = times / scale
    return float((math.log(shape / scale) + (shape - 1) * np.log(ratio) - ratio**shape).sum())
