"""What collectives of a job were measured to reach on its own network, as a scenario may state it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from ...hardware.fields import Rate


class MeasuredNetwork(BaseModel):
    """Bus bandwidth that collectives of the job reached, over all ranks and inside one host (``intra``)."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)

    all_reduce_bytes_per_s: Rate | None = Field(
        default=None, description="bus bandwidth of an all-reduce over all ranks"
    )
    all_gather_bytes_per_s: Rate | None = Field(
        default=None, description="bus bandwidth of an all-gather over all ranks"
    )
    reduce_scatter_bytes_per_s: Rate | None = Field(
        default=None, description="bus bandwidth of a reduce-scatter over all ranks"
    )
    all_reduce_intra_bytes_per_s: Rate | None = Field(
        default=None, description="bus bandwidth of an all-reduce inside one host"
    )
    all_gather_intra_bytes_per_s: Rate | None = Field(
        default=None, description="bus bandwidth of an all-gather inside one host"
    )
    reduce_scatter_intra_bytes_per_s: Rate | None = Field(
        default=None, description="bus bandwidth of a reduce-scatter inside one host"
    )
