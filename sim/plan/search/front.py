"""Pareto fronts: what no other candidate beats in every respect at once.

Knows columns of numbers of which less is better, or more; not what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def front_of(costs: NDArray[np.float64]) -> list[int]:
    """Rows of ``costs`` (less is better, in every column) that no other row dominates, by their first column.

    A row dominates another that it is nowhere worse than and somewhere better. Of equal rows the first stays.

    >>> import numpy as np
    >>> front_of(np.array([[2.0, 1.0], [1.0, 2.0], [2.0, 2.0], [1.0, 2.0]]))
    [1, 0]
    """
    kept: list[int] = []
    left = np.lexsort(costs.T[::-1])
    while len(left):  # sorted by every column in turn: whatever dominates a row stands before it
        best, left = int(left[0]), left[1:]
        kept.append(best)
        left = left[~np.all(costs[left] >= costs[best], axis=1)]
    return kept


def hopeful(optimistic: NDArray[np.float64], known: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each row of ``optimistic`` may be on the front, given rows that are ``known``: none of these is
    as good in every column.

    >>> import numpy as np
    >>> hopeful(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[2.0, 4.0]])).tolist()
    [True, False]
    """
    left = np.arange(len(optimistic))
    for row in known:
        left = left[np.any(optimistic[left] < row, axis=1)]
    alive: NDArray[np.bool_] = np.zeros(len(optimistic), dtype=bool)
    alive[left] = True
    return alive
