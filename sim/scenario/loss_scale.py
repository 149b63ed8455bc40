"""Dynamic loss scaling of FP16, as a scenario asks for it: whose rule, and what of it is set otherwise."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...hardware.fields import number, whole

Factor = Annotated[float, number(gt=1, le=2.0**24)]
Steps = Annotated[int, *whole(1, 10**9)]
Share = Annotated[float, number(gt=0, lt=1)]
Scale = Annotated[float, number(ge=2.0**-126, lt=2.0**128)]
"""Both frameworks hold the scale in FP32 (grad_scaler.py)."""

MOST_OVERFLOWS = 1000
"""In a row, before one growth is undone. Our own bound: a run that skips more than that trains nothing."""

DEFAULTS = {"megatron": (2.0**32, 1000, 2), "torch": (2.0**16, 2000, 1)}
"""Initial scale, growth interval and hysteresis (sources: sim/result/loss_scaling.py)."""


class LossScale(BaseModel):
    """It grows by ``growth`` after ``growth_interval`` steps without overflow, and falls by ``backoff``.

    ``hysteresis`` overflows are skipped before it falls for the first time. ``sustained`` is the scale that
    gradients bear, for the steps that are skipped at the start of a run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)

    kind: Literal["megatron", "torch"] = Field(default="megatron", description="whose rule and defaults")
    initial: Scale | None = Field(
        default=None, description="scale of the first step; default: the framework's"
    )
    growth_interval: Steps | None = Field(
        default=None, description="steps without overflow before it grows; default: the framework's"
    )
    hysteresis: Steps | None = Field(
        default=None, description="overflows before it first falls; default: the framework's"
    )
    growth: Factor = Field(default=2.0, description="factor by which it grows")
    backoff: Share = Field(default=0.5, description="factor by which it falls")
    sustained: Scale | None = Field(
        default=None,
        description="scale that gradients bear; default: skipped steps of the start are not counted",
    )

    @model_validator(mode="after")
    def _comes_down(self) -> LossScale:
        overflows = math.log(self.growth) / -math.log(self.backoff)
        if overflows > MOST_OVERFLOWS:
            raise ValueError(
                f"backoff {self.backoff} undoes a growth of {self.growth} in {overflows:.3g} skipped steps,"
                f" more than {MOST_OVERFLOWS}: no such run would train; lower backoff (frameworks have 0.5)"
            )
        return self

    @property
    def start(self) -> float:
        """The initial scale."""
        return self.initial or DEFAULTS[self.kind][0]

    @property
    def interval(self) -> int:
        """Steps without overflow before the scale grows."""
        return self.growth_interval or DEFAULTS[self.kind][1]

    @property
    def patience(self) -> int:
        """Overflows before the scale falls."""
        return self.hysteresis or DEFAULTS[self.kind][2]
