"""Laws of chance as a document writes them: of durations, and of the gaps between failures."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from ....hardware.fields import PositiveShare, Seconds, SecondsAboveZero, Shape, Spread
from .fields import FaultsBlock


class Exponential(FaultsBlock):
    """Exponential with this mean."""

    mean: SecondsAboveZero = Field(description="mean")


class Lognormal(FaultsBlock):
    """Lognormal: half of all below ``median``, ``sigma`` the deviation of the logarithm."""

    median: SecondsAboveZero = Field(description="half of all lie below")
    sigma: Spread = Field(description="deviation of the logarithm")


class Weibull(FaultsBlock):
    """Weibull with this shape and mean."""

    shape: Shape = Field(description="below 1: many short ones")
    mean: SecondsAboveZero = Field(description="mean")


class Uniform(FaultsBlock):
    """Even between two bounds."""

    low: Seconds = Field(description="shortest")
    high: Seconds = Field(description="longest")

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} s lies above high {self.high:g} s")
        return self


class Lasting(FaultsBlock):
    """How long something lasts: one law. Text such as ``40min`` is a constant."""

    constant: Seconds | None = Field(default=None, description="always the same")
    exponential: Exponential | None = Field(default=None, description="exponential")
    lognormal: Lognormal | None = Field(default=None, description="lognormal")
    weibull: Weibull | None = Field(default=None, description="Weibull")
    uniform: Uniform | None = Field(default=None, description="even between bounds")

    @model_validator(mode="after")
    def _one(self) -> Lasting:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"one law is needed: a duration such as 4h, or one of {known}")
        return self


def _lasting(value: Any) -> Any:
    return {"constant": value} if isinstance(value, str | int | float) else value


Duration = Annotated[
    Lasting, BeforeValidator(_lasting, json_schema_input_type=str | Lasting), Field(examples=["4h"])
]


class WeibullShape(FaultsBlock):
    """Shape below 1: early failures; 1: exponential; above: wear."""

    shape: Shape = Field(description="below 1: early failures")


class LognormalShape(FaultsBlock):
    """Deviation of the logarithm."""

    sigma: Spread = Field(description="of the logarithm")


class UniformShape(FaultsBlock):
    """Even within this share of the mean on both sides: 1 is from zero to twice the mean."""

    spread: PositiveShare = Field(default=1.0, description="share of the mean on both sides")


class Nothing(FaultsBlock):
    """A law without numbers of its own."""


class Gaps(FaultsBlock):
    """The law of the time between failures of one unit; its mean is the process's own."""

    exponential: Nothing | None = Field(default=None, description="memoryless")
    constant: Nothing | None = Field(default=None, description="at regular times")
    weibull: WeibullShape | None = Field(default=None, description="Weibull")
    lognormal: LognormalShape | None = Field(default=None, description="lognormal")
    uniform: UniformShape | None = Field(default=None, description="even around the mean")

    @model_validator(mode="after")
    def _one(self) -> Gaps:
        if sum(getattr(self, name) is not None for name in type(self).model_fields) != 1:
            raise ValueError(f"one law is needed: {', '.join(type(self).model_fields)}")
        return self

    @property
    def memoryless(self) -> bool:
        """Whether the past says nothing about the next failure."""
        return self.exponential is not None or (self.weibull is not None and self.weibull.shape == 1.0)


def _gaps(value: Any) -> Any:
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, dict) else []
    for name in names:
        if name not in Gaps.model_fields:
            raise ValueError(f"no law is called {name!r}; known: {', '.join(Gaps.model_fields)}")
    return {value: {}} if isinstance(value, str) else value


Arrival = Annotated[
    Gaps,
    BeforeValidator(_gaps, json_schema_input_type=str | Gaps),
    Field(examples=["exponential", {"weibull": {"shape": 0.78}}]),
]
EXPONENTIAL = Gaps(exponential=Nothing())
