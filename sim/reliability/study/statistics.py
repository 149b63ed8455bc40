"""Means with confidence intervals, from few numbers and without heavy libraries.

The ETTR of a campaign is useful time over wall time of all replications together: by Wald's identity that
ratio has no bias where runs end at a renewal, which a mean of ratios has. Its interval is that of a ratio
estimator (Cochran, Sampling Techniques, section 2.11), with Student's t, on the scale of log(p / (1 - p)): it
stays inside [0, 1], and is the usual one where it is narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Estimate:
    """A mean, its confidence interval and its standard error; of a single value nobody knows them
    (``bounded`` is false, the error nan).
    """

    mean: float
    low: float
    high: float
    bounded: bool = True
    error: float = math.nan

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def t_quantile(confidence: float, freedom: int) -> float:
    """Two-sided quantile of Student's t: exact for 1 and 2 degrees, else Hill's expansion (Abramowitz and
    Stegun 26.7.5).

    >>> round(t_quantile(0.95, 10), 3), round(t_quantile(0.95, 1000), 3), round(t_quantile(0.95, 1), 2)
    (2.228, 1.962, 12.71)
    """
    p = (1 + confidence) / 2
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) / math.sqrt(2 * p * (1 - p))
    x, n = NormalDist().inv_cdf(p), float(freedom)
    g1 = (x**3 + x) / 4
    g2 = (5 * x**5 + 16 * x**3 + 3 * x) / 96
    g3 = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
    g4 = (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160
    return x + g1 / n + g2 / n**2 + g3 / n**3 + g4 / n**4


def mean_of(values: Sequence[float], confidence: float) -> Estimate:
    """The mean of independent values; of one value, without an interval. Where no value is negative, neither
    is the interval: times and counts.
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Estimate(mean, mean, mean, bounded=False)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    error = math.sqrt(variance / count)
    half = t_quantile(confidence, count - 1) * error
    low = max(0.0, mean - half) if min(values) >= 0.0 else mean - half
    return Estimate(mean, low, mean + half, error=error)


def ratio_of(parts: Sequence[float], wholes: Sequence[float], confidence: float) -> Estimate:
    """The sum of ``parts`` over the sum of ``wholes``: a share, as is its interval."""
    total = math.fsum(wholes)
    if total == 0:
        return Estimate(1.0, 1.0, 1.0, error=0.0)
    ratio = min(1.0, max(0.0, math.fsum(parts) / total))
    if len(parts) < 2:
        return Estimate(ratio, ratio, ratio, bounded=False)
    count = len(parts)
    spread = math.fsum((part - ratio * whole) ** 2 for part, whole in zip(parts, wholes, strict=True))
    error = math.sqrt(spread / (count - 1) / count) / (total / count)
    low, high = _around_share(ratio, t_quantile(confidence, count - 1) * error)
    return Estimate(ratio, low, high, error=error)


def _around_share(share: float, half: float) -> tuple[float, float]:
    """``share`` plus and minus ``half``, to first order, on the scale of log odds."""
    odd = share * (1.0 - share)
    if odd <= 0.0:  # all or nothing, in every replication
        return share, share
    factor = math.exp(min(half / odd, 700.0))
    return share / (share + (1.0 - share) * factor), share / (share + (1.0 - share) / factor)


def ratio_difference(
    a: tuple[Sequence[float], Sequence[float]], b: tuple[Sequence[float], Sequence[float]], confidence: float
) -> Estimate:
    """Ratio of ``b`` less that of ``a``, both (parts, wholes), replication by replication with the same
    chance.
    """
    (parts_a, wholes_a), (parts_b, wholes_b) = a, b
    count = len(parts_a)
    mean_a, mean_b = math.fsum(wholes_a) / count, math.fsum(wholes_b) / count
    ratio_a, ratio_b = math.fsum(parts_a) / count / mean_a, math.fsum(parts_b) / count / mean_b
    each = [
        (pb - ratio_b * wb) / mean_b - (pa - ratio_a * wa) / mean_a
        for pa, wa, pb, wb in zip(parts_a, wholes_a, parts_b, wholes_b, strict=True)
    ]
    difference = ratio_b - ratio_a
    if count < 2:
        return Estimate(difference, difference, difference, bounded=False)
    error = math.sqrt(math.fsum(value * value for value in each) / (count - 1) / count)
    half = t_quantile(confidence, count - 1) * error
    return Estimate(difference, max(-1.0, difference - half), min(1.0, difference + half), error=error)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of them lie, straight between neighbours; nan of none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
