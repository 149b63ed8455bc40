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


def narrowest_ends(errors: Iterable[tuple[float, float, float, float]], share: float) -> tuple[float, float]:
    """How many spreads below and above zero hold ``share`` of the weights by the narrowest intervals on
    average; each error with its spread below, that above, and its weight.

    >>> narrowest_ends([(-1.0, 1.0, 2.0, 1.0), (-0.5, 1.0, 2.0, 1.0), (4.0, 1.0, 2.0, 1.0)], 0.6)
    (1.0, 0.0)
    """
    listed = list(errors)
    scores = sorted(
        (error / (above if error > 0 else below), weight) for error, below, above, weight in listed
    )
    mean_below = sum(below * weight for _, below, _, weight in listed)
    mean_above = sum(above * weight for _, _, above, weight in listed)
    wanted, last, held = share * sum(weight for _, weight in scores) * (1 - 1e-12), -1, 0.0
    best, least = (math.inf, math.inf), math.inf
    for low, weight in scores:
        while held < wanted and last + 1 < len(scores):
            last += 1
            held += scores[last][1]
        if held < wanted:
            break
        ends = max(0.0, -low), max(0.0, scores[last][0])
        if (width := ends[0] * mean_below + ends[1] * mean_above) < least:
            best, least = ends, width
        held -= weight
    return best


def _needed(point: LeftOut) -> float:
    beyond = (point.error / NORMAL_NINTH) ** 2 - point.sigma**2
    return math.sqrt(max(0.0, beyond)) / point.distance
