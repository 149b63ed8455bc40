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

TOGETHER = 0.1
"""Correlation of the errors of a source's families. Errors over their standard deviations, sources left out,
have 0.095 in common within a source (variance between 23 sources and within them, 311 families)."""


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


def spreads_that_hold(errors: Iterable[tuple[float, float, float, float]], share: float) -> float:
    """How many spreads on either side of zero hold ``share`` of the weights; each error with its spread
    below, that above, and its weight.

    >>> spreads_that_hold([(-1.0, 1.0, 2.0, 1.0), (-0.5, 1.0, 2.0, 1.0), (4.0, 1.0, 2.0, 1.0)], 0.6)
    1.0
    """
    scores = sorted(
        (abs(error) / (high if error > 0 else low), weight) for error, low, high, weight in errors
    )
    return weighted_quantile(scores, share)


def sides_that_hold(errors: Iterable[tuple[float, float, float, float]], share: float) -> tuple[float, float]:
    """How many spreads below zero, and above it, hold ``share`` of the weights and leave out no more than
    half of the rest on either side; ``errors`` as for spreads_that_hold. Errors that lie to one side widen
    that side alone.

    >>> late = [(place, 1.0, 1.0, 1.0) for place in (-1.0, 0.5, 1.0, 2.0)]
    >>> sides_that_hold(late, 0.75)
    (1.0, 2.0)
    """
    known = list(errors)
    both, one_side = spreads_that_hold(known, share), (1.0 + share) / 2
    scores = [(error / (high if error > 0 else low), weight) for error, low, high, weight in known]
    above = weighted_quantile(sorted(scores), one_side)
    below = weighted_quantile(sorted((-score, weight) for score, weight in scores), one_side)
    return max(both, below), max(both, above)


def witnesses(rows: Iterable[tuple[str, str]]) -> list[float]:
    """What each of ``rows``, of a source and a family, counts: sources alike, families of one source alike.

    >>> witnesses([("a", "1"), ("a", "1"), ("b", "2"), ("b", "3")])
    [0.5, 0.5, 0.5, 0.5]
    """
    listed = list(rows)
    many, families = Counter(listed), Counter(source for source, _ in set(listed))
    return [1.0 / (many[row] * families[row[0]]) for row in listed]


def independent_witnesses(rows: Iterable[tuple[str, str]]) -> list[float]:
    """What each of ``rows``, of a source and a family, counts: its source as many times as it has families
    that are as good as independent of one another where their errors go together by TOGETHER (the design
    effect: Kish 1965, Survey Sampling), its family as all others of its source.

    >>> [round(count, 3) for count in independent_witnesses([("a", "1"), ("a", "1"), ("b", "2"), ("b", "3")])]
    [0.5, 0.5, 0.909, 0.909]
    """
    listed = list(rows)
    families = Counter(source for source, _ in set(listed))
    return [
        share * families[source] / (1 + TOGETHER * (families[source] - 1))
        for (source, _), share in zip(listed, witnesses(listed), strict=True)
    ]


def level_for_another(share: float, sources: int) -> float:
    """The share of ``sources``, each counted alike, that holds ``share`` of one more.

    The new one is as likely as any of them to be worse than all (hierarchical conformal prediction: Lee,
    Barber and Willett 2023, arXiv:2306.06342). 1 where so few sources cannot promise ``share``.

    >>> level_for_another(0.9, 9), level_for_another(0.9, 4)
    (1.0, 1.0)
    >>> round(level_for_another(0.9, 18), 9)
    0.95
    """
    return min(1.0, share * (sources + 1) / sources)


def _needed(point: LeftOut) -> float:
    beyond = (point.error / NORMAL_NINTH) ** 2 - point.sigma**2
    return math.sqrt(max(0.0, beyond)) / point.distance
