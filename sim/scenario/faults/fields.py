"""What the fault blocks share: a block of fields, and how often something happens.

The types of single fields are those of hardware/fields.py.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from ....hardware.fields import Count, SecondsAboveZero
from ....hardware.quantities import format_quantity

_STEPS = re.compile(r"\s*(\d+)\s*steps?\s*")


class FaultsBlock(BaseModel):
    """A block of fields: nothing unknown in it, and frozen. A block made elsewhere is checked again."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)


class Every(FaultsBlock):
    """How often: after some fault-free time, or after a number of steps. ``30min`` or ``50 steps``."""

    seconds: SecondsAboveZero | None = Field(default=None, description="of fault-free time")
    steps: Count | None = Field(default=None, description="steps")

    @model_validator(mode="after")
    def _one(self) -> Every:
        if (self.seconds is None) == (self.steps is None):
            raise ValueError("give seconds or steps")
        return self

    def in_steps(self, step_s: float) -> int:
        """Whole steps, at least one."""
        return self.steps if self.steps is not None else max(1, round((self.seconds or 0.0) / step_s))

    def text(self) -> str:
        """The value as a document writes it."""
        if self.steps is not None:
            return f"{self.steps} steps"
        return format_quantity(self.seconds or 0.0, "seconds")


def _every(value: Any) -> Any:
    if not isinstance(value, str):
        if isinstance(value, bool | int | float):
            raise ValueError(f"{value!r} has no unit; write 30min or 50 steps")
        return value
    match = _STEPS.fullmatch(value)
    return {"steps": int(match[1])} if match else {"seconds": value}


Interval = Annotated[
    Every,
    BeforeValidator(_every, json_schema_input_type=str),
    PlainSerializer(lambda every: every.text(), when_used="json"),
    Field(examples=["30min", "50 steps"]),
]
