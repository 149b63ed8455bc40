"""What collectives of a job were measured to reach on its own network, as a scenario may state it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ...hardware.fields import Rate


class MeasuredNetwork(BaseModel):
    """Bus bandwidth that collectives of the job reached, over all ranks and inside one host (``intra``)."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always")

    all_reduce_bytes_per_s: Rate | None = None
    all_gather_bytes_per_s: Rate | None = None
    reduce_scatter_bytes_per_s: Rate | None = None
    all_reduce_intra_bytes_per_s: Rate | None = None
    all_gather_intra_bytes_per_s: Rate | None = None
    reduce_scatter_intra_bytes_per_s: Rate | None = None
