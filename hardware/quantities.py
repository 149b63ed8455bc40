"""Quantities with units: ``400 Gb/s``, ``80 GB``, ``2 us`` as SI floats.

Knows units, prefixes and the difference between bits and bytes and between GB and GiB. Does not
know files or fields: whoever reads a file says where the text stood.

    >>> parse_quantity("400 Gb/s", "bytes_per_s"), parse_quantity("50 GB/s", "bytes_per_s")
    (50000000000.0, 50000000000.0)
    >>> parse_quantity("80 GiB", "bytes") - parse_quantity("80 GB", "bytes")
    5899345920.0
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Dimension = Literal["bytes", "bytes_per_s", "seconds", "flops", "flops_per_s", "hertz", "watts"]

_DECIMAL: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_BITS_PER_BYTE: Final = 8.0
HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S

_NUMBER: Final = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*")


@dataclass(frozen=True, kw_only=True)
class _Units:
    """The units of one dimension and what to tell someone who got it wrong."""

    what: str
    example: str
    si_unit: str
    factors: Mapping[str, float]


def _scaled(unit: str, prefixes: Mapping[str, float], divisor: float = 1.0) -> dict[str, float]:
    return {prefix + unit: factor / divisor for prefix, factor in prefixes.items()}


_ALL_PREFIXES: Final = _DECIMAL | _BINARY
_BYTES: Final = _scaled("B", _ALL_PREFIXES) | _scaled("b", _ALL_PREFIXES, _BITS_PER_BYTE)
_BYTES_PER_S: Final = (
    {f"{unit}/s": factor for unit, factor in _BYTES.items()}
    | _scaled("bps", _DECIMAL, _BITS_PER_BYTE)
    | _scaled("bit/s", _DECIMAL, _BITS_PER_BYTE)
)
_MICRO_SIGNS: Final = ("u", "\u00b5", "\u03bc")  # the letter u, the micro sign, the Greek letter
_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "ns": 1e-9, "min": 60.0, "h": HOUR_S, "d": DAY_S} | {
    f"{sign}s": 1e-6 for sign in _MICRO_SIGNS
}

_DIMENSIONS: Final[Mapping[Dimension, _Units]] = MappingProxyType(
    {
        "bytes": _Units(what="a size", example="80 GB or 80 GiB", si_unit="B", factors=_BYTES),
        "bytes_per_s": _Units(
            what="a rate", example="400 Gb/s (bits) or 50 GB/s (bytes)", si_unit="B/s", factors=_BYTES_PER_S
        ),
        "seconds": _Units(what="a duration", example="2 us or 13.75 s", si_unit="s", factors=_SECONDS),
        "flops": _Units(
            what="a number of operations",
            example="312 TFLOP",
            si_unit="FLOP",
            factors=_scaled("FLOP", _DECIMAL) | _scaled("FLOPs", _DECIMAL),
        ),
        "flops_per_s": _Units(
            what="a compute rate",
            example="989 TFLOP/s",
            si_unit="FLOP/s",
            factors=_scaled("FLOP/s", _DECIMAL)
            | _scaled("FLOPS", _DECIMAL)
            | _scaled("flop/s", _DECIMAL)
            | _scaled("flops", _DECIMAL),
        ),
        "hertz": _Units(
            what="a frequency", example="1.98 GHz", si_unit="Hz", factors=_scaled("Hz", _DECIMAL)
        ),
        "watts": _Units(what="a power", example="700 W", si_unit="W", factors=_scaled("W", _DECIMAL)),
    }
)


def parse_quantity(text: str | int, dimension: Dimension) -> float:
    """The SI value of ``text``: bytes, bytes per second, seconds, FLOP, FLOP/s, hertz or watts.

    A plain int is taken as bytes where a size is asked for; every other bare number is refused,
    since nobody can tell Gb from GB or us from ms afterwards.

    Raises:
        ValueError: no unit, a unit of something else, an unknown unit, a negative or infinite
            value; the message says what was expected and gives an example.
    """
    units = _DIMENSIONS[dimension]
    if dimension == "bytes" and isinstance(text, int) and not isinstance(text, bool):
        return _not_negative(float(text), str(text), units)
    match = _NUMBER.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not {units.what}; write a number and a unit, such as {units.example}")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f"{number} has no unit; write {units.what} with one, such as {units.example}")
    if unit not in units.factors:
        raise ValueError(
            f"{str(text)!r} is not {units.what}{_guess(unit, units)}; write it as {units.example}"
        )
    return _not_negative(float(number) * units.factors[unit], str(text), units)


def quantity_of(option: str, text: str, dimension: Dimension) -> float:
    """What was given to an option of a command; as ``parse_quantity``, whose messages name the option.

    >>> quantity_of("--deadline", "30", "seconds")
    Traceback (most recent call last):
    ...
    ValueError: --deadline: 30 has no unit; write a duration with one, such as 2 us or 13.75 s
    """
    try:
        return parse_quantity(text, dimension)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def format_quantity(value: float, dimension: Dimension) -> str:
    """``value`` in the SI unit, every digit kept: ``parse_quantity`` gives the same float back."""
    return f"{value!r} {_DIMENSIONS[dimension].si_unit}"


def shown_quantity(value: float, dimension: Dimension) -> str:
    """``value`` as people write it, four digits with a decimal prefix.

    >>> shown_quantity(864e9, "bytes_per_s"), shown_quantity(2.7e-6, "seconds")
    ('864 GB/s', '2.7 us')
    """
    si_unit = _DIMENSIONS[dimension].si_unit
    steps = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "u", 1e-9: "n"}
    factor = next((step for step in steps if value >= step), 1.0)
    return f"{value / factor:.4g} {steps[factor]}{si_unit}"


def _not_negative(value: float, text: str, units: _Units) -> float:
    if value < 0 or not math.isfinite(value):
        raise ValueError(
            f"{text!r} is out of range; {units.what} is finite and not negative, such as {units.example}"
        )
    return value


def _guess(unit: str, units: _Units) -> str:
    """What the writer may have meant: a unit of another dimension, or other capitals."""
    for other in _DIMENSIONS.values():
        if unit in other.factors:
            return f": {unit} measures {other.what}"
    by_lower_case = {known.lower(): known for known in units.factors}
    near = by_lower_case.get(unit.lower())
    return f": the unit {unit!r} is unknown" + (f" (did you mean {near}?)" if near else "")
