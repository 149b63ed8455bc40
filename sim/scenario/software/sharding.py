"""Whose ZeRO-2 and ZeRO-3 a software stack runs, and their options that are read off its configuration."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from .group import Elements, SoftwareGroup

Implementation = Literal["distributed-optimizer", "fsdp1", "fsdp2", "deepspeed", "megatron-fsdp", "xla"]
Reshard = Literal["default", "always", "never"]
Reduce = Literal["each", "last"]
Combined = Annotated[float, Field(strict=True, ge=1)]
"""Most bytes of a combined collective, at least one; ``.inf`` combines all of a layer."""

COMBINED_BYTES = 31_457_287.0
"""Bytes up to which XLA combines collectives by default, the same for each kind of collective (openxla/xla
xla/service/collective_utils.h: 30 MiB + 7)."""

Limit = Annotated[float, Field(strict=True, ge=0)]
"""A limit in elements; ``.inf`` sets none."""


class ShardingSoftware(SoftwareGroup):
    """Sharded parameters; sim/scenario/sharding.py has the rule of each implementation and its source."""

    implementation: Implementation = Field(default="fsdp2", description="whose ZeRO-2 and ZeRO-3")
    reshard_after_forward: Reshard = Field(
        default="default",
        description="torch: parameters are freed after forward; by default where there is no pipeline",
    )
    experts_whole: bool = Field(
        default=False,
        description="experts' parameters, gradients and moments are not sharded over the ranks that hold the"
        " same experts, which sum their gradients (trainers that leave experts out of FSDP)",
    )
    reduce: Reduce = Field(
        default="each",
        description="torch without a pipeline: each microbatch reduces its gradients, or the last"
        " what all have left whole (FSDP's no_sync, set_requires_gradient_sync of fully_shard)",
    )
    gathers_ahead: bool = Field(
        default=True,
        description="torch: the next layer's parameters are gathered beside the layer before it; false: in"
        " the layer's own turn, its first matrix before it and the others beside it, as in a loop over layers"
        " that XLA was not told to pipeline (xla_gpu_enable_pipelined_all_gather)",
    )
    profile_guided: bool = Field(
        default=False,
        description="xla: the scheduler is given what collectives and kernels were measured to take"
        " (xla_gpu_pgle_profile_file_or_directory_path); else it counts GEMMs",
    )
    combine_gather_bytes: Combined = Field(
        default=COMBINED_BYTES,
        description="xla: gathers of a layer's matrices become one up to so many bytes"
        " (xla_gpu_all_gather_combine_threshold_bytes)",
    )
    combine_scatter_bytes: Combined = Field(
        default=COMBINED_BYTES,
        description="xla: reduce-scatters likewise (xla_gpu_reduce_scatter_combine_threshold_bytes)",
    )
    combine_reduce_bytes: Combined = Field(
        default=COMBINED_BYTES,
        description="xla: all-reduces likewise (xla_gpu_all_reduce_combine_threshold_bytes)",
    )
    unrolled: bool = Field(
        default=False,
        description="xla: layers are no loop (MaxText scan_layers false), so that all-reduces of several"
        " become one as well",
    )
    prefetch_elements: Elements = Field(
        default=0.0,
        description="layers up to so many parameters are gathered as one (DeepSpeed prefetch_bucket_size)",
    )
    max_live_elements: Limit = Field(
        default=math.inf,
        description="no prefetch beyond so many gathered parameters (DeepSpeed max_live_parameters)",
    )
    lists: bool = Field(
        default=False,
        description="deepspeed: each matrix is gathered into a list of a tensor a rank, and reduced from one,"
        " which Python makes while nothing runs, and nothing is fetched ahead (DeepSpeed of 2021)",
    )
    persistent_elements: Elements = Field(
        default=0.0,
        description="smaller parameters are never sharded (DeepSpeed param_persistence_threshold)",
    )
