"""Types of the fields that users write: which numbers are numbers, in which range, and where units belong.

Knows that ``true`` is no number, that every number is finite, and bounds that no real job reaches: past them
a value is a slip of the keyboard, and its consequences would be counted in earnest. A document writes
quantities with their unit; a Python caller may give SI numbers. Does not know which fields there are.

    >>> from pydantic import TypeAdapter
    >>> TypeAdapter(Seconds).validate_python("40min", context=FROM_DOCUMENT)
    2400.0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_core.core_schema import no_info_plain_validator_function

from .limits import LARGEST, MOST_GPUS
from .quantities import Dimension, format_quantity, parse_quantity

FROM_DOCUMENT = {"document": True}
"""Validation context under which a quantity must be text with a unit; Python callers may give SI numbers."""

YEAR_S = 365.25 * 86400.0
CENTURY_S = 100 * YEAR_S
"""A hundred years in seconds, the upper end of ranges: nothing that a job waits for takes longer."""

MOST_LAYERS = 10_000
"""Most layers of a model: published ones have some hundred; 2,500 were tried (DeepNet, arXiv:2203.00555)."""

LEAST_CHANCE = 1e-12
"""The smallest probability that a field takes besides 0: no job has as many trials, and a law
of rarer events has no finite mean."""


def number(
    *, gt: float | None = None, ge: float | None = None, lt: float | None = None, le: float | None = None
) -> Any:
    """Annotation of a float field: a finite number within bounds, no text and no bool."""
    return Field(strict=True, allow_inf_nan=False, gt=gt, ge=ge, lt=lt, le=le)


def _whole(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a whole number is needed")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("a whole number is needed")
    if abs(value) > LARGEST:
        raise ValueError("a whole number up to 1e12 is needed")
    return int(value)


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a whole number is needed")
    return value


NO_BOOL = BeforeValidator(_no_bool)
"""Annotation of a choice of numbers, among which True would pass for 1."""


def whole(low: int, high: int = LARGEST) -> tuple[Any, Any]:
    """Annotation of an int field: what YAML calls 2048, 2e3 or 2048.0, but no text and no bool."""
    return BeforeValidator(_whole, json_schema_input_type=int), Field(ge=low, le=high)


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Says of a field that it is a quantity, in which range; for documentation."""

    dimension: Dimension
    low: float
    high: float

    @property
    def range(self) -> str:
        """The range as text, both ends with their units."""
        return f"{_shown(self.low, self.dimension)} to {_shown(self.high, self.dimension)}"


@dataclass(frozen=True)
class OneOf:
    """Says of a text field that it is one of the ``names`` that a registry has when the field is read.

    What ``Literal`` does for names that no file but the registry's should list, with the same errors.
    ``surely`` may say of a name that it is one, so that the others need not be found.
    """

    names: Callable[[], tuple[str, ...]]
    surely: Callable[[str], bool] = lambda name: False

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        return {"enum": list(self.names()), "type": "string"}

    def _checked(self, value: Any) -> Any:
        if isinstance(value, str) and self.surely(value):
            return value
        known = self.names()
        if not isinstance(value, str) or value not in known:
            expected = ", ".join(map(repr, known[:-1])) + f" or {known[-1]!r}"
            raise PydanticKnownError("literal_error", {"expected": expected})
        return value


def quantity(
    dimension: Dimension, low: float, high: float, *, text_only: bool = False
) -> tuple[Any, Any, Any, Quantity]:
    """Annotation of a float field in SI units that lies from ``low`` to ``high``.

    It is text with a unit in a document, and writes itself back so; ``text_only``: from Python too.
    """
    return (
        BeforeValidator(_parser(dimension, low, high, text_only), json_schema_input_type=str),
        Field(strict=True, allow_inf_nan=False),
        PlainSerializer(lambda value: format_quantity(value, dimension), when_used="json"),
        Quantity(dimension=dimension, low=low, high=high),
    )


def _parser(
    dimension: Dimension, low: float, high: float, text_only: bool
) -> Callable[[Any, ValidationInfo], Any]:
    """What reads a quantity; out of range is an error that states the range with its unit."""

    def parse(value: Any, info: ValidationInfo) -> Any:
        if value is None or isinstance(value, dict | list | tuple):
            raise ValueError("text with a unit is needed")
        if isinstance(value, str) or text_only or info.context == FROM_DOCUMENT:
            size = parse_quantity(value if isinstance(value, str) else str(value), dimension)
        elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return value  # not a finite number: the type of the field says so
        else:
            size = float(value)
        if size < low:
            raise ValueError(f"{value} is too small; it must be {_shown(low, dimension)} or more")
        if size > high:
            raise ValueError(f"{value} is too large; it must be {_shown(high, dimension)} or less")
        return size

    return parse


def _shown(value: float, dimension: Dimension) -> str:
    """A bound in a unit that people read."""
    if dimension == "seconds" and value >= YEAR_S:
        return f"{value / YEAR_S:g} years"
    if dimension == "seconds" and 0 < value < 1e-3:
        return f"{value * 1e6:g} us"
    unit = format_quantity(value, dimension).partition(" ")[2]
    return f"{value:g} {unit}"


Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]

Count = Annotated[int, *whole(1)]
CountOrZero = Annotated[int, *whole(0)]
ZeroOrOne = Annotated[int, *whole(0, 1)]
Gpus = Annotated[int, *whole(1, MOST_GPUS)]
Ways = Annotated[int, *whole(1, 65_536)]
"""Ranks of a group that cuts layers, heads, sequences or experts: no job has cut anything so finely."""
SwitchPorts = Annotated[int, *whole(2)]
"""Ports of a switch, at least two: half of them lead up, and a switch with one port joins nothing."""
Stages = Annotated[int, *whole(1, 1024)]
"""Pipeline stages, or chunks of one; published jobs have up to 64."""
Layers = Annotated[int, *whole(1, MOST_LAYERS)]
LayersOrZero = Annotated[int, *whole(0, MOST_LAYERS)]

Seconds = Annotated[float, *quantity("seconds", 0.0, CENTURY_S), Field(examples=["30min"])]
SecondsAboveZero = Annotated[float, *quantity("seconds", 1e-6, CENTURY_S), Field(examples=["10 s"])]
"""Seconds, from a microsecond on: no step, interval or time between failures is shorter."""
Latency = Annotated[float, *quantity("seconds", 0.0, 60.0), Field(examples=["2 us"])]
"""Seconds of latency of one message or one kernel."""
Rate = Annotated[float, *quantity("bytes_per_s", 1e3, 1e18), Field(examples=["2 TB/s"])]
"""Bytes per second, from a kilobyte a second on: what is slower is broken."""
MOST_BYTES = 1e21
"""Most bytes of anything that is stored or sent: a billion terabytes."""

Size = Annotated[float, *quantity("bytes", 1.0, MOST_BYTES), Field(examples=["5.7 TB"])]

Share = Annotated[float, number(ge=0, le=1)]
"""A fraction between 0 and 1."""
PositiveShare = Annotated[float, number(ge=1e-6, le=1)]
"""What is left of something, as a fraction: below a millionth nothing is left."""


def _chance(value: Any) -> Any:
    small = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < LEAST_CHANCE
    if small:
        raise ValueError(f"{value!r} is less than {LEAST_CHANCE:g}, which never happens; write 0")
    return value


Chance = Annotated[float, BeforeValidator(_chance, json_schema_input_type=float), number(ge=0, le=1)]
"""A probability: 0, or large enough that it happens."""
Ratio = Annotated[float, number(ge=1, le=1000)]
"""A factor of at least 1: how many times as long, or as much."""
Spread = Annotated[float, number(gt=0, le=10)]
"""A standard deviation, over its mean or of a logarithm; above 10 a few extreme draws would decide
everything."""
Shape = Annotated[float, number(ge=0.1, le=100)]
"""Shape of a Weibull law. Below 0.1 events that nobody lives to see make up its mean; above 100 it is a
constant."""
Price = Annotated[float, number(gt=0, le=1e6)]
Power = Annotated[float, *quantity("watts", 1.0, 1e6), Field(examples=["350 W"])]
PowerOrZero = Annotated[float, *quantity("watts", 0.0, 1e6), Field(examples=["2 kW"])]
