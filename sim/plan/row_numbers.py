"""Rows of several columns by one number each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Codes = NDArray[np.int64]

_LARGEST_TABLE = 1 << 22
"""Numbers of rows that are looked up; above that they are sorted."""


def numbered(codes: Sequence[Codes], sizes: Sequence[int]) -> tuple[Codes, dict[int, int]]:
    """A number for each row, equal for rows of equal codes; and of each number that occurs, a row.

    Numbers are below the product of the ``sizes``, or dense where that is large.
    """
    rows = len(codes[0]) if codes else 0
    if not codes:
        return np.zeros(0, dtype=np.int64), {}
    key, most = np.zeros(rows, dtype=np.int64), 1
    for code, size in zip(codes, sizes, strict=True):
        key, most = key * size + code, most * size
        if most > _LARGEST_TABLE:
            found, key = np.unique(key, return_inverse=True)
            key, most = key.ravel(), len(found)
    first = np.full(most, -1, dtype=np.int64)
    first[key[::-1]] = np.arange(rows)[::-1]
    there = np.flatnonzero(first >= 0)
    return key, dict(zip(there.tolist(), first[there].tolist(), strict=True))
