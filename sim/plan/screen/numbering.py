"""Numbers for things that many layouts have in common, so that each distinct thing is worked out once."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..row_numbers import numbered_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Codes = NDArray[np.int64]

Thing = TypeVar("Thing", bound=Hashable)


def dense(codes: Sequence[Codes]) -> tuple[Codes, list[int]]:
    """Two arrays: a number for each row, counted from 0 and equal where all codes are equal; and one row that
    has each number."""
    key, there, first = numbered_rows(codes, [int(code.max(initial=0)) + 1 for code in codes])
    place = np.zeros(int(there.max(initial=0)) + 1, dtype=np.int64)
    place[there] = np.arange(len(there))
    return place[key], first.tolist()


def distinct(
    number: Codes, rows: Sequence[int], thing_of: Callable[[int], Thing]
) -> tuple[Codes, list[Thing]]:
    """The distinct things of these rows; and for each layout the place of its own.

    ``number`` has for each layout the place in ``rows`` of the row that stands for it.
    """
    known: dict[Thing, int] = {}
    place = np.array([known.setdefault(thing_of(row), len(known)) for row in rows], dtype=np.int64)
    return place[number], list(known)


def sums(counts: NDArray[Any], figures: NDArray[np.float64]) -> NDArray[np.float64]:
    """``counts @ figures``, added up column by column. A product of matrices may add in another order where
    there are more columns, so that what is found of one column would depend on the others."""
    found = np.zeros((counts.shape[0], figures.shape[1]))
    for count, row in zip(counts.T, figures, strict=True):
        if count.any():
            found += count[:, np.newaxis] * row
    return found


class KnownFigures:
    """One figure, or several, for each number in ``numbers``; computed once for each number."""

    def __init__(self, numbers: Codes, figures: int | None = None) -> None:
        count = int(numbers.max(initial=-1)) + 1
        self._of = np.full(count if figures is None else (count, figures), np.nan)
        self._put = np.zeros(count, dtype=bool)

    def missing(self, numbers: Codes) -> Codes:
        """The places in ``numbers`` of those whose figures are not known yet."""
        return np.flatnonzero(~self._put[numbers])

    def put(self, number: int, figures: float | Sequence[float]) -> None:
        """Set the figures of a number."""
        self._of[number] = figures
        self._put[number] = True

    def of(self, numbers: Codes) -> NDArray[np.float64]:
        """The figures of each number that was given."""
        found: NDArray[np.float64] = self._of[numbers]
        return found


class CommonFigures:
    """Some ``figures`` for each of ``count`` numbers, computed by whichever process asks for them first.

    Where they are ``shared``, all processes forked from this one read and write the same table, and none
    waits for another. Each number is computed by one process, unless several ask for it while it is being
    computed.
    """

    def __init__(self, figures: int, count: int, *, shared: bool = False) -> None:
        every = zeros(figures + 1, count, shared=shared)
        self._of, self._begun = every[:-1], every[-1]
        self._of[:] = np.nan

    def of(self, numbers: Codes, work: Callable[[int], Sequence[float]]) -> NDArray[np.float64]:
        """The figures of each of ``numbers``; ``work`` computes those of one number, none of which may be
        nan."""
        new = dict.fromkeys(numbers[np.isnan(self._of[:, numbers]).any(axis=0)].tolist())
        for again in (False, True):
            for number in new:
                if np.isnan(self._of[:, number]).any() if again else not self._begun[number]:
                    self._begun[number] = 1.0
                    self._of[:, number] = work(number)
        found: NDArray[np.float64] = self._of[:, numbers]
        return found


def zeros(rows: int, columns: int, *, shared: bool = True) -> NDArray[np.float64]:
    """An array of zeros. If ``shared``, a parent and the children that it forks see what the other writes
    into it."""
    if not shared:
        return np.zeros((rows, columns))
    memory = mmap.mmap(-1, max(1, rows * columns * np.dtype(np.float64).itemsize))
    return np.frombuffer(memory, dtype=np.float64, count=rows * columns).reshape(rows, columns)
