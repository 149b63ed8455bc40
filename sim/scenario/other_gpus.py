"""GPUs of another kind in some hosts of a cluster: which, and where.

Knows fields; which kinds fit one another is checked elsewhere.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ...hardware.fields import Text, whole
from ...hardware.gpus import gpu_key
from ...hardware.limits import MOST_GPUS


class OtherGpus(BaseModel):
    """Hosts whose GPUs are of another kind than ``cluster.gpu``."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always")

    gpu: Annotated[Text, BeforeValidator(gpu_key, json_schema_input_type=str)] = Field(
        description="catalogue key of their GPUs, or a shorter name that only one has",
        examples=["A100-SXM4-80GB"],
    )
    hosts: tuple[Annotated[int, *whole(0, MOST_GPUS - 1)], ...] = Field(
        min_length=1, description="their numbers", examples=[[4, 5, 6, 7]]
    )

    @model_validator(mode="after")
    def _each_once(self) -> OtherGpus:
        if len(set(self.hosts)) < len(self.hosts):
            raise ValueError("hosts: a host stands there twice")
        return self
