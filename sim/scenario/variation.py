"""How much the parts of a cluster differ from one another: laws of speeds of GPUs, their memory, their links.

Knows laws and draws numbers by seed; knows neither ranks nor time. A speed is a share of what the catalogue
says, 1 being that; a GPU of speed 0.98 takes 1/0.98 times as long.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...hardware.fields import Count, CountOrZero, Flag, OneOf, Text, number
from ...hardware.files import read_text
from ...hardware.files.shipped_yaml import load_shipped

Speeds = np.typing.NDArray[np.float64]

Speed = Annotated[float, number(ge=0.01, le=100)]
"""A share of what the catalogue says; below a hundredth it is broken."""

LEAST, MOST = 0.01, 100.0

LAWS = ("normal", "lognormal", "values", "file", "preset")


@cache
def presets() -> dict[str, Any]:
    """The published spreads by name: their law, whose parts they are of, and their source."""
    text = (files("stepsim.sim.scenario") / "variation.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = load_shipped(text)
    return found


def preset_names() -> list[str]:
    """The names of published spreads."""
    return sorted(presets())


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)


class NormalSpeed(_Block):
    """Normal around 1."""

    cv: Annotated[float, number(ge=0, le=0.3)] = Field(description="standard deviation over the mean")


class LognormalSpeed(_Block):
    """Lognormal with mean 1."""

    sigma: Annotated[float, number(ge=0, le=1)] = Field(description="standard deviation of the logarithm")


class SpeedLaw(_Block):
    """How fast parts are, as a share of what the catalogue says: one law."""

    normal: NormalSpeed | None = Field(default=None, description="normal around 1")
    lognormal: LognormalSpeed | None = Field(default=None, description="lognormal with mean 1")
    values: tuple[Speed, ...] | None = Field(
        default=None, description="each part has one of these, drawn at random", examples=[[1.0, 0.97, 1.01]]
    )
    file: Text | None = Field(
        default=None,
        description="text file with the speed of each part in order, a line each, or after a comma",
    )
    preset: Annotated[str, OneOf(preset_names)] | None = Field(default=None, description="a published spread")

    @model_validator(mode="after")
    def _one(self) -> SpeedLaw:
        given = [name for name in LAWS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"one law is needed, of {', '.join(LAWS)}; there are {len(given)}")
        if self.values is not None and not self.values:
            raise ValueError("values has none")
        return self


class VariationSpec(_Block):
    """How much the parts of the cluster differ; the same draw for the same ``seed``."""

    gpu_speed: SpeedLaw | None = Field(default=None, description="of all kernels of a GPU")
    hbm: SpeedLaw | None = Field(
        default=None, description="of a GPU's memory: of its memory-bound kernels, by their share of its time"
    )
    link: SpeedLaw | None = Field(default=None, description="of a GPU's way into the network")
    per: Literal["gpu", "host", "rack"] = Field(default="gpu", description="whose GPUs are alike")
    seed: CountOrZero = Field(default=1, description="of the draw")
    by_speed: Flag = Field(
        default=False,
        description="replay once more with ranks placed by speed: slow GPUs of a host share tensor-parallel "
        "groups, slow hosts the first stages",
    )
    draws: Annotated[Count, Field(le=1000)] = Field(
        default=1, description="steps with a draw each, by this seed and those after it"
    )

    @model_validator(mode="after")
    def _any(self) -> VariationSpec:
        if self.gpu_speed is None and self.hbm is None and self.link is None:
            raise ValueError("nothing varies: give gpu_speed, hbm or link")
        return self


def speeds(law: SpeedLaw | None, units: int, seed: int, stream: int) -> Speeds:
    """By unit, its speed: ``stream`` tells laws of one seed apart.

    Raises:
        ValueError: a file that cannot be read, or has too few lines.
    """
    if law is None:
        return np.ones(units)
    if law.preset is not None:
        law = SpeedLaw.model_validate(presets()[law.preset]["law"])
    random = np.random.default_rng((seed, stream))
    if law.normal is not None:
        found = 1.0 + law.normal.cv * random.standard_normal(units)
    elif law.lognormal is not None:
        sigma = law.lognormal.sigma
        found = np.exp(sigma * random.standard_normal(units) - sigma**2 / 2)
    elif law.values is not None:
        found = random.choice(np.array(law.values), units)
    else:
        assert law.file is not None
        found = _measured(law.file, units)
    drawn: Speeds = np.clip(found, LEAST, MOST)
    return drawn


def _measured(path: str, units: int) -> Speeds:
    found: list[float] = []
    for number_, line in enumerate(read_text(path).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            speed = float(text.rpartition(",")[2])
        except ValueError:
            if not found:
                continue  # a heading
            raise ValueError(f"{path}: line {number_}: {text[:80]!r} ends with no speed") from None
        if not LEAST <= speed <= MOST:
            raise ValueError(
                f"{path}: line {number_}: a speed of {speed:g}; it lies from {LEAST} to {MOST:g}"
            )
        found.append(speed)
    if len(found) < units:
        raise ValueError(f"{path}: {len(found):,} speeds for {units:,} units; one for each is needed")
    return np.array(found[:units])
