"""Sets of time as sorted, disjoint intervals: union and difference.

Knows no spans; seconds in, seconds out.
"""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Sorted and disjoint; touching ones are joined, empty ones dropped.

    >>> union([(2.0, 3.0), (0.0, 1.0), (1.0, 1.5)])
    [(0.0, 1.5), (2.0, 3.0)]
    """
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def difference(intervals: list[Interval], holes: list[Interval]) -> list[Interval]:
    """What of ``intervals`` lies in no hole. Both must be sorted and disjoint.

    >>> difference([(0.0, 4.0)], [(1.0, 2.0), (3.0, 5.0)])
    [(0.0, 1.0), (2.0, 3.0)]
    """
    left: list[Interval] = []
    first = 0
    for begin, end in intervals:
        start = begin
        while first < len(holes) and holes[first][1] <= start:
            first += 1
        at = first
        while at < len(holes) and holes[at][0] < end:
            hole_start, hole_end = holes[at]
            if hole_start > start:
                left.append((start, hole_start))
            start = max(start, hole_end)
            at += 1
        if start < end:
            left.append((start, end))
    return left
