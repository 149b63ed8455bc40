"""How much wider an interval must be at a distance: by errors of points that were left out at that distance.

Knows errors, distances and quantiles. Does not know what was left out of which fit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NORMAL_NINTH = 1.6449
"""Standard deviations of a normal distribution that hold nine in ten."""

LEAST_DISTANCE = 0.5
"""Doublings; nearer points say little of growth, since their error divided by their distance is all noise."""

LEAST_SIGMA = 0.005
"""What is stated where left-out points show no growth at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A point that a fit did not see: ``error`` is the logarithm of measured over predicted time,
    ``distance`` how far it lies outside what the fit saw, in doublings. ``sigma`` is what the fit leaves of
    points that it saw; ``group`` is what counts as one witness, however many points it has."""

    group: str
    distance: float
    error: float
    sigma: float


def growth_per_doubling(points: Sequence[LeftOut]) -> float:
    """The least ``g`` with which nine in ten points lie within ``hypot(sigma, g distance)``, normally scaled.

    Groups count alike, however many points they have.

    >>> points = [LeftOut(group="a", distance=2.0, error=0.02 * n, sigma=0.0) for n in range(1, 11)]
    >>> round(growth_per_doubling(points), 4)
    0.0547
    """
    far = [point for point in points if point.distance >= LEAST_DISTANCE]
    if not far:
        raise ValueError("no point was left out half a doubling or more away, so that growth cannot be seen")
    many = Counter(point.group for point in far)
    needed = sorted((_needed(point), 1.0 / many[point.group]) for point in far)
    return max(weighted_quantile(needed, 0.9), LEAST_SIGMA)


def weighted_quantile(ascending: Sequence[tuple[float, float]], share: float) -> float:
    """The first value up to which ``share`` of the weights lies; (value, weight) in ascending order."""
    limit, seen = share * sum(weight for _, weight in ascending), 0.0
    for value, weight in ascending:
        seen += weight
        if seen >= limit * (1 - 1e-12):
            return value
    return ascending[-1][0]


def shortest_holding(pairs: Iterable[tuple[float, float]], share: float) -> tuple[float, float]:
    """The two values, least apart, between which ``share`` of the weights lies; (value, weight), any order.

    >>> shortest_holding([(-9.0, 1.0), (-1.0, 1.0), (0.0, 1.0), (2.0, 1.0)], 0.75)
    (-1.0, 2.0)
    """
    ascending = sorted(pairs)
    wanted = share * sum(weight for _, weight in ascending) * (1 - 1e-12)
    best, held, first = (ascending[0][0], ascending[-1][0]), 0.0, 0
    for high, weight in ascending:
        held += weight
        while held - ascending[first][1] >= wanted:
            held, first = held - ascending[first][1], first + 1
        low = ascending[first][0]
        if held >= wanted and high - low < best[1] - best[0]:
            best = low, high
    return best


def _needed(point: LeftOut) -> float:
    beyond = (point.error / NORMAL_NINTH) ** 2 - point.sigma**2
    return math.sqrt(max(0.0, beyond)) / point.distance
