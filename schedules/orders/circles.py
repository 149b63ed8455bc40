"""Ranks that wait for each other in a circle, found by following whom each waits for.

Knows ranks only: not what they wait for, nor why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SHOWN = 8


def circles(waits_for: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """Each circle as its ranks in the order of waiting, from the lowest one; found in linear time.

    ``waits_for`` holds every rank that waits, and the one rank that it waits for, which waits too.

    >>> circles({0: 2, 1: 2, 2: 1, 3: 0, 4: 5, 5: 4})
    ((1, 2), (4, 5))
    """
    found: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for start in waits_for:
        path: list[int] = []
        rank = start
        while rank not in seen:
            seen.add(rank)
            path.append(rank)
            rank = waits_for[rank]
        if rank in path:
            circle = path[path.index(rank) :]
            turn = circle.index(min(circle))
            found.append((*circle[turn:], *circle[:turn]))
    return tuple(sorted(found))


def named(circle: Sequence[int]) -> str:
    """A circle in words.

    >>> named((0, 2, 1))
    'ranks 0, 2 and 1'
    """
    if len(circle) > _SHOWN:
        return f"ranks {', '.join(map(str, circle[:_SHOWN]))}, ... ({len(circle)} in all)"
    return f"ranks {', '.join(map(str, circle[:-1]))} and {circle[-1]}"
