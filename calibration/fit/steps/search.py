"""Searching one constant on a fixed grid, coarse to fine, and how flat its optimum is.

Knows numbers alone. A grid, not a continuous minimiser: results have the digits that the data can
show, fits of two halves meet in the same values, and what one asks the other need not simulate again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

Score = Callable[[float], float]
"""Error of a value of the constant; the smaller, the better. Asked often for the same value: memoise."""

Points = tuple[tuple[float, float], ...]
"""(value, error) in ascending order of value."""


def coarse_to_fine(values: Sequence[float], score: Score, stride: int) -> float:
    """The best of every ``stride``-th value, then its neighbours at half the distance, and so on.

    Finds the optimum where the curve has one valley wider than the coarse step. The outer values are asked
    first: a score that knows where nothing changes then has less to find out.

    >>> coarse_to_fine([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], lambda x: abs(x - 0.31), stride=4)
    0.3
    """
    centre = (values[0] + values[-1]) / 2
    start = min(sorted(values[::stride], key=lambda value: -abs(value - centre)), key=score)
    return climb(values, score, start, strides=_halves(stride))


def climb(values: Sequence[float], score: Score, start: float, strides: Sequence[int]) -> float:
    """From next to ``start``, step to the better neighbour while there is one, at each stride in turn."""
    at = min(range(len(values)), key=lambda i: abs(values[i] - start))
    for stride in strides:
        while True:
            near = [i for i in (at, at - stride, at + stride) if 0 <= i < len(values)]
            best = min(near, key=lambda i: score(values[i]))  # equal: stays
            if best == at:
                break
            at = best
    return values[at]


def around(values: Sequence[float], best: float, stride: int, *, near: bool = False) -> list[float]:
    """Every ``stride``-th value and, closer and closer, the neighbours of ``best``: what a curve shows.

    ``near``: the neighbours alone.
    """
    at = values.index(best)
    close = {at, *(at + sign * step for step in (1, 2, 4) for sign in (-1, 1))}
    return [
        values[i]
        for i in sorted(close | set(() if near else range(0, len(values), stride)))
        if 0 <= i < len(values)
    ]


def flat_range(points: Points, within: float) -> tuple[float, float]:
    """Between which values the error stays ``within`` of the least one, straight lines between the points.

    >>> flat_range(((0.8, 0.12), (0.9, 0.1), (1.0, 0.102)), within=0.01)
    (0.85, 1.0)
    """
    least = min(range(len(points)), key=lambda i: points[i][1])
    limit = points[least][1] + within
    return (
        _crossing(points[least::-1], limit),
        _crossing(points[least:], limit),
    )


def _crossing(outwards: Points, limit: float) -> float:
    for (x, error), (further, worse) in pairwise(outwards):
        if worse > limit:
            return round(x + (further - x) * (limit - error) / (worse - error), 12)
    return outwards[-1][0]


def _halves(stride: int) -> list[int]:
    """``stride`` halved again and again down to 1: 8 gives 4, 2, 1."""
    return [stride >> shift for shift in range(1, stride.bit_length())]
