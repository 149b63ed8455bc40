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
    """``numbered_rows``, and for each number that occurs a row that has it."""
    key, there, first = numbered_rows(codes, sizes)
    return key, dict(zip(there.tolist(), first.tolist(), strict=True))


def numbered_rows(codes: Sequence[Codes], sizes: Sequence[int]) -> tuple[Codes, Codes, Codes]:
    """A number for each row, equal for rows of equal codes; the numbers that occur, in order; and of each of
    these the first row.

    Numbers are below the product of the ``sizes``, or dense where that is large.
    """
    rows = len(codes[0]) if codes else 0
    if not codes:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    key, most = np.zeros(rows, dtype=np.int64), 1
    for code, size in zip(codes, sizes, strict=True):
        key, most = key * size + code, most * size
        if most > _LARGEST_TABLE:
            found, key = np.unique(key, return_inverse=True)
            key, most = key.ravel(), len(found)
    first = np.full(most, -1, dtype=np.int64)
    first[key[::-1]] = np.arange(rows)[::-1]
    there = np.flatnonzero(first >= 0)
    return key, there, first[there]
