"""Values of files that other programs wrote, checked before anything is computed with them.

A profiler's event, a row of a database, a cell of a table: each is looked at once, by hand, because there are
millions of them. Knows types and bounds; where the value stood, the caller says. Every error names the place,
the value and what must stand there.
"""

from __future__ import annotations

import math
from typing import Any

from ....hardware.shown import value_text as shown

LARGEST_SIZE = 2**40
"""Largest dimension of a tensor. Tokens of a global batch, the largest that training has, are below 2**32."""

LARGEST_BYTES = 2**60
"""Largest traffic of one message or kernel: an exbibyte is a million times the memory of a GPU."""

LARGEST_SECONDS = 1e6
"""Most seconds that one kernel or collective may take: eleven days."""


def number(where: str, value: Any, *, low: float = 0.0, high: float = math.inf) -> float:
    """``value`` as a float from ``low`` to ``high``. ValueError for text, true, NaN, infinity, or beyond."""
    if type(value) is int and abs(value).bit_length() <= 1000:
        value = float(value)
    if type(value) is not float or not (math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{where}: {shown(value)} where a number must stand{_range(low, high)}")
    return value


def whole(where: str, value: Any, *, low: int = 0, high: int = LARGEST_SIZE) -> int:
    """``value`` as an int from ``low`` to ``high``. ValueError for text, true, fractions, or beyond."""
    if type(value) is float and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{where}: {shown(value)} where a whole number must stand{_range(low, high)}")
    return value


def text(where: str, value: Any) -> str:
    """``value``, which must be text and not empty."""
    if type(value) is not str or not value:
        raise ValueError(f"{where}: {shown(value)} where text must stand")
    return value


def written_number(where: str, word: str | None, *, low: float = 0.0, high: float) -> float:
    """The number that ``word``, a cell of a table or a word of a log, spells."""
    value = _float(word)
    if not (math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{where}: {shown(word)} where a number must stand{_range(low, high)}")
    return value


def written_whole(where: str, word: str | None, *, low: int = 0, high: int = LARGEST_SIZE) -> int:
    """The whole number that ``word`` spells; ``4096.0`` and ``1e9`` are some, too.

    >>> written_whole("m", "4096"), written_whole("bytes", "1e9")
    (4096, 1000000000)
    """
    try:
        value = int(word or "") if len(word or "") < 20 else math.nan  # int keeps every digit
    except ValueError:
        value = _float(word)
    if not (low <= value <= high and value == int(value)):
        raise ValueError(f"{where}: {shown(word)} is not a whole number of at least {low}{_most(high)}")
    return int(value)


def written_seconds(where: str, word: str | None) -> float:
    """The duration of a kernel or collective in a cell ``seconds``: above a picosecond, below eleven days."""
    try:
        return written_number(where, word, low=1e-12, high=LARGEST_SECONDS)
    except ValueError:
        raise ValueError(
            f"{where}: seconds: {shown(word)} is not a duration of a kernel in seconds"
        ) from None


def written_flag(where: str, word: str | None) -> bool:
    """Yes or no as tables write it; an empty cell is no."""
    plain = (word or "").strip().lower()
    if plain not in ("", "0", "false", "no", "1", "true", "yes"):
        raise ValueError(f"{where}: {shown(word)} where 0 or 1 must stand")
    return plain in ("1", "true", "yes")


def _float(word: str | None) -> float:
    try:
        return float(word or "")
    except ValueError:
        return math.nan


def _range(low: float, high: float) -> str:
    if low == -math.inf:
        return ""
    return f" from {low:g} to {high:g}" if math.isfinite(high) else f" of at least {low:g}"


def _most(high: float) -> str:
    return f" and at most {high:g}"


__all__ = [
    "LARGEST_BYTES",
    "LARGEST_SECONDS",
    "LARGEST_SIZE",
    "number",
    "shown",
    "text",
    "whole",
    "written_flag",
    "written_number",
    "written_seconds",
    "written_whole",
]
