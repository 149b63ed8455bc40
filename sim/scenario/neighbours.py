"""Other jobs on the fabric of a job: which scenario each runs, on which hosts, and when its steps begin.

Knows fields; reads no scenario of a neighbour, and knows no time.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...hardware.fields import Seconds, Text, whole
from ...hardware.limits import MOST_GPUS

Host = Annotated[int, *whole(0, MOST_GPUS - 1)]


class NeighbourSpec(BaseModel):
    """Another job on the same fabric, whose steps follow one another while ours runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always")

    scenario: Text = Field(
        description="its scenario: a file, or a shipped one by name; its fabric and its own neighbours are "
        "not read",
        examples=["other.yaml"],
    )
    hosts: tuple[Host, ...] = Field(
        description="the hosts of the fabric that its GPUs fill, in its order", examples=[[8, 9, 10, 11]]
    )
    offset: Seconds = Field(
        default=0.0, description="after the beginning of our step one of its steps begins", examples=["0.4 s"]
    )

    @model_validator(mode="after")
    def _each_once(self) -> NeighbourSpec:
        if len(self.hosts) < 2:
            raise ValueError("hosts: a job of one host puts nothing on the fabric; name two or more, or none")
        if len(set(self.hosts)) < len(self.hosts):
            raise ValueError("hosts: a host stands there twice")
        return self


def hosts_of_fabric(hosts: int, neighbours: tuple[NeighbourSpec, ...]) -> int:
    """How many hosts the fabric has, where those of the job itself are among the first ``hosts``."""
    return max([hosts, *(1 + max(one.hosts) for one in neighbours)])
