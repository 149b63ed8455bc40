"""What all groups of a software stack have in common: frozen, and without fields that nobody knows."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from ....hardware.fields import number, whole

MOST_ELEMENTS = 1e15
"""Most parameters of a model: a thousand times as many as any model has."""

Elements = Annotated[float, number(ge=0, le=MOST_ELEMENTS)]
Launches = Annotated[int, *whole(0, 100_000)]
"""Launches of small kernels; a layer of a published stack has a few dozen."""


class SoftwareGroup(BaseModel):
    """Fields of a stack that one part of a step reads."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, revalidate_instances="always", defer_build=True
    )
