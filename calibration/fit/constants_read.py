"""Predictions that are made again only where a constant that they read has changed.

A fit asks for the same predictions hundreds of times, most often with one constant moved, and few of them
read that one. Which they read is found by watching one prediction, so that no list of it can grow old. Does
not know what is predicted. A prediction's branches must not turn on a constant's value: the other branch
would go unwatched (taking the smaller of two rates reads both).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from ...hardware.collectives import CollectiveConstants

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values = Sequence[float]
Prediction = Callable[[CollectiveConstants], Sequence[float]]


def remembered(
    predictions: Sequence[Prediction],
    paths: Sequence[str],
    constants_at: Callable[[Values], CollectiveConstants],
    values: Values,
) -> Callable[[Values], NDArray[Any]]:
    """Natural logarithms of all predicted seconds, one prediction after the other, over values of ``paths``.

    ``constants_at`` makes constants of such values; those at ``values`` are the ones watched.
    """
    import numpy as np

    index = {path: i for i, path in enumerate(paths)}
    watched = constants_at(values)
    read = [sorted(index[path] for path in paths_read(one, watched) if path in index) for one in predictions]
    known: list[dict[tuple[float, ...], NDArray[Any]]] = [{} for _ in predictions]

    def log_seconds(values: Values) -> NDArray[Any]:
        constants = cache(lambda: constants_at(values))  # none needed where all is known
        now = []
        for predict, places, found in zip(predictions, read, known, strict=True):
            key = tuple([values[i] for i in places])
            if key not in found:
                found[key] = np.log(predict(constants()))
            now.append(found[key])
        return np.concatenate(now)

    return log_seconds


def paths_read(predict: Prediction, constants: CollectiveConstants) -> frozenset[str]:
    """Paths, such as ``tree.pipelining``, of all constants that ``predict`` reads."""
    read: set[str] = set()
    predict(cast(CollectiveConstants, _Watched(constants, "", read)))
    return frozenset(read)


class _Watched:
    """A part of the constants that notes what is read of it: an object's fields, a mapping's entries."""

    def __init__(self, part: Any, path: str, read: set[str]) -> None:
        self._part, self._path, self._read = part, path, read

    def __getattr__(self, name: str) -> Any:
        return self._noted(name, getattr(self._part, name))

    def __getitem__(self, name: str) -> Any:
        return self._noted(name, self._part[name])

    def items(self) -> list[tuple[str, Any]]:
        return [(name, self[name]) for name in self._part]

    def _noted(self, name: str, value: Any) -> Any:
        path = f"{self._path}{name}"
        if isinstance(value, Mapping) or is_dataclass(value):
            return _Watched(value, f"{path}.", self._read)
        assert not callable(value), f"{path}: what a method reads goes unwatched"
        self._read.add(path)
        return value
