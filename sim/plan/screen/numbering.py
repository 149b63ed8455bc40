"""Numbers for what is alike among many layouts, so that each distinct thing is worked out once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..row_numbers import numbered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Codes = NDArray[np.int64]

Thing = TypeVar("Thing", bound=Hashable)


def dense(codes: Sequence[Codes]) -> tuple[Codes, list[int]]:
    """A number for each row, from 0 on, equal for rows of equal codes; and a row with each number."""
    key, rows = numbered(codes, [int(code.max(initial=0)) + 1 for code in codes])
    place = np.zeros(max(rows, default=0) + 1, dtype=np.int64)
    place[list(rows)] = np.arange(len(rows))
    return place[key], list(rows.values())


def distinct(
    number: Codes, rows: Sequence[int], thing_of: Callable[[int], Thing]
) -> tuple[Codes, list[Thing]]:
    """The things of these rows, each once; and for each layout the number of its own.

    ``number`` has for each layout the place in ``rows`` of the row that stands for it.
    """
    known: dict[Thing, int] = {}
    place = np.array([known.setdefault(thing_of(row), len(known)) for row in rows], dtype=np.int64)
    return place[number], list(known)


def sums(counts: NDArray[Any], figures: NDArray[np.float64]) -> NDArray[np.float64]:
    """``counts @ figures``, so that what is found of a column does not depend on which others there are: a
    product of matrices may add up in another order where there are more of them."""
    found = np.zeros((counts.shape[0], figures.shape[1]))
    for count, row in zip(counts.T, figures, strict=True):
        if count.any():
            found += count[:, np.newaxis] * row
    return found


class KnownFigures:
    """What is known of each number of ``numbers``: a figure, or so many ``figures``; not a number before."""

    def __init__(self, numbers: Codes, figures: int | None = None) -> None:
        count = int(numbers.max(initial=-1)) + 1
        self._of = np.full(count if figures is None else (count, figures), np.nan)
        self._put = np.zeros(count, dtype=bool)

    def missing(self, numbers: Codes) -> Codes:
        """The places in ``numbers`` of those of which nothing is known."""
        return np.flatnonzero(~self._put[numbers])

    def put(self, number: int, figures: float | Sequence[float]) -> None:
        """These are the figures of a number."""
        self._of[number] = figures
        self._put[number] = True

    def of(self, numbers: Codes) -> NDArray[np.float64]:
        """The figures of each."""
        found: NDArray[np.float64] = self._of[numbers]
        return found
