"""Means with confidence intervals, from few numbers and without heavy libraries.

The ETTR of a campaign is useful time over wall time of all replications together: by Wald's identity that
ratio has no bias where runs end at a renewal, which a mean of ratios has. Its interval is that of a ratio
estimator (Cochran, Sampling Techniques, section 2.11), with Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Estimate:
    """A mean and its confidence interval; of a single value nobody knows it (``bounded`` is false)."""

    mean: float
    low: float
    high: float
    bounded: bool = True

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
    """The mean of independent values; of one value, without an interval."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Estimate(mean, mean, mean, bounded=False)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = t_quantile(confidence, count - 1) * math.sqrt(variance / count)
    return Estimate(mean, mean - half, mean + half)


def ratio_of(parts: Sequence[float], wholes: Sequence[float], confidence: float) -> Estimate:
    """The sum of ``parts`` over the sum of ``wholes``."""
    total = math.fsum(wholes)
    if total == 0:
        return Estimate(1.0, 1.0, 1.0)
    ratio = math.fsum(parts) / total
    if len(parts) < 2:
        return Estimate(ratio, ratio, ratio, bounded=False)
    count = len(parts)
    spread = math.fsum((part - ratio * whole) ** 2 for part, whole in zip(parts, wholes, strict=True))
    half = t_quantile(confidence, count - 1) * math.sqrt(spread / (count - 1) / count) / (total / count)
    return Estimate(ratio, ratio - half, ratio + half)


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
    around = mean_of(each, confidence)
    difference = ratio_b - ratio_a
    half = around.half_width
    return Estimate(difference, difference - half, difference + half, around.bounded)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of them lie, straight between neighbours; nan of none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
