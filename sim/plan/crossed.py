"""Axes crossed with one another: rows of codes, of which an axis with one value takes none.

Knows codes and values as arrays; which axes and values there are is ``axes.py``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .axes import Values

    Codes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Crossed:
    """A cross product of ``rows`` rows: which value of each axis with several values every row has."""

    rows: int = 1
    codes: Mapping[str, Codes] = field(default_factory=dict)

    def of(self, name: str) -> Codes:
        """The codes of an axis: all are 0 where it has one value."""
        found = self.codes.get(name)
        return np.zeros(self.rows, dtype=np.int64) if found is None else found

    def by(self, name: str, size: int) -> Crossed:
        """Each row with each of the ``size`` values of one more axis."""
        if size == 1:
            return self
        codes = {known: np.repeat(code, size) for known, code in self.codes.items()}
        codes[name] = np.tile(np.arange(size), self.rows)
        return Crossed(rows=self.rows * size, codes=codes)

    def only(self, stands: NDArray[np.bool_]) -> Crossed:
        """The rows that stand."""
        codes = {name: code[stands] for name, code in self.codes.items()}
        return Crossed(rows=int(stands.sum()), codes=codes)


def array_of(values: Values) -> NDArray[Any]:
    """Values as integers or booleans where all are, else as objects."""
    if all(type(value) is bool for value in values):
        return np.array(values, dtype=bool)
    if all(type(value) is int for value in values):
        return np.array(values, dtype=np.int64)
    found = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        found[place] = value
    return found
