"""Types of fields that the fault blocks share: durations, rates, intervals, numbers.

A document writes durations with their unit; a Python caller gives SI numbers. Each type writes itself back
with its unit, so that a scenario's document loads again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    model_validator,
)

from ....hardware.quantities import Dimension, format_quantity, parse_quantity

_FROM_DOCUMENT = {"document": True}
_STEPS = re.compile(r"\s*(\d+)\s*steps?\s*")


class Part(BaseModel):
    """A block of fields: nothing unknown in it, and frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _parser(dimension: Dimension) -> Callable[[Any, ValidationInfo], Any]:
    def parse(value: Any, info: ValidationInfo) -> Any:
        python_caller = info.context != _FROM_DOCUMENT and not isinstance(value, str)
        if value is None or python_caller:
            return value
        if isinstance(value, dict | list):
            raise ValueError("text with a unit is needed")
        return parse_quantity(value, dimension)

    return parse


def _writer(dimension: Dimension) -> Callable[[Any], Any]:
    def write(value: Any) -> Any:
        return None if value is None else format_quantity(value, dimension)

    return write


def _quantity(dimension: Dimension) -> tuple[BeforeValidator, PlainSerializer]:
    return (
        BeforeValidator(_parser(dimension), json_schema_input_type=str),
        PlainSerializer(_writer(dimension), when_used="json"),
    )


_SECONDS = _quantity("seconds")
_RATE = _quantity("bytes_per_s")
_SIZE = _quantity("bytes")

Seconds = Annotated[float, *_SECONDS, Field(ge=0, allow_inf_nan=False, examples=["30min"])]
SecondsAboveZero = Annotated[float, *_SECONDS, Field(gt=0, allow_inf_nan=False, examples=["10 s"])]
Rate = Annotated[float, *_RATE, Field(gt=0, allow_inf_nan=False, examples=["2 TB/s"])]
Size = Annotated[float, *_SIZE, Field(gt=0, allow_inf_nan=False, examples=["5.7 TB"])]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A fraction of one."""
PositiveShare = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class Every(Part):
    """How often: after so much fault-free time, or after so many steps. ``30min`` or ``50 steps``."""

    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    steps: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _one(self) -> Every:
        if (self.seconds is None) == (self.steps is None):
            raise ValueError("give seconds or steps")
        return self

    def in_steps(self, step_s: float) -> int:
        """Whole steps, at least one."""
        return self.steps if self.steps is not None else max(1, round((self.seconds or 0.0) / step_s))

    def text(self) -> str:
        """As a document writes it."""
        if self.steps is not None:
            return f"{self.steps} steps"
        return format_quantity(self.seconds or 0.0, "seconds")


def _every(value: Any) -> Any:
    if not isinstance(value, str):
        if isinstance(value, bool | int | float):
            raise ValueError(f"{value!r} has no unit; write 30min or 50 steps")
        return value
    match = _STEPS.fullmatch(value)
    return {"steps": int(match[1])} if match else {"seconds": parse_quantity(value, "seconds")}


Interval = Annotated[
    Every,
    BeforeValidator(_every, json_schema_input_type=str),
    PlainSerializer(lambda every: every.text(), when_used="json"),
    Field(examples=["30min", "50 steps"]),
]
