"""What a stack's host costs, waits for and keeps: launches, barriers, the allocator.

Only ``host_s_per_kernel``, ``step_fixed_s`` and ``allocator_overhead`` are fitted, once per preset.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ....hardware.fields import number, whole
from .group import Launches, SoftwareGroup


class HostSoftware(SoftwareGroup):
    """The host's side of a step. The last three fields are fitted, docs/step-fit.md and docs/accuracy.md."""

    cuda_graphs: bool = Field(default=False, description="layers are launched as one graph")
    graphs_leave_out_experts: bool = Field(
        default=False,
        description="with cuda_graphs: experts and their exchanges are launched one by one all the same, as"
        " their shapes change (Megatron core's scopes attn, moe_router and moe_preprocess)",
    )
    graphs_leave_out_attention: bool = Field(
        default=False,
        description="with graphs_leave_out_experts: attention is launched kernel by kernel, too, and graphs"
        " hold routers alone (Megatron core's scopes moe_router and moe_preprocess without attn)",
    )
    launch_blocking: bool = Field(
        default=False,
        description="CUDA_LAUNCH_BLOCKING=1: the host waits for each kernel of a layer before it issues the"
        " next",
    )
    launches_per_collective: Annotated[float, number(ge=0, le=10_000)] = Field(
        default=4.0, description="host cost of a collective call, in kernel launches"
    )
    launches_per_product: Annotated[float, number(ge=0, le=10_000)] = Field(
        default=1.0,
        description="host cost of a GEMM of a linear layer, or of a norm that is no part of one's module,"
        " with its module, in kernel launches",
    )
    launches_per_function: Annotated[float, number(ge=0, le=10_000)] = Field(
        default=1.0,
        description="host cost of a function that a layer's forward calls between its modules (heads put in a"
        " row, rotary positions, activation, residual), of one kernel, in kernel launches",
    )
    launches_per_attention: Annotated[float, number(ge=0, le=10_000)] = Field(
        default=1.0,
        description="host cost of a forward of attention without context parallelism, with its module, in"
        " kernel launches",
    )
    python_quantisers: bool = Field(
        default=False,
        description="tensors in 8 bits, but in blocks of 32 or 16, are made by TransformerEngine 2's"
        " quantisers, whose Python is what the host pays for, whatever they launch",
    )
    collective_checks: bool = Field(
        default=False,
        description="TORCH_DISTRIBUTED_DEBUG=DETAIL: hosts compare notes before each collective",
    )
    step_barrier: bool = Field(
        default=False, description="all ranks meet in a barrier before a step's time is taken"
    )
    extra_launches_per_layer: Launches = Field(
        default=0, description="small kernels per layer and direction that move little"
    )
    extra_launches_per_microbatch: Launches = Field(
        default=0, description="the same at the loss: masks, means, bookkeeping"
    )
    host_s_per_kernel: Annotated[float, number(ge=0, le=10)] = Field(
        default=6e-6, description="seconds of the host per kernel launch"
    )
    host_s_per_dtensor: Annotated[float, number(ge=0, le=10)] = Field(
        default=0.0,
        description="the same, beside launches, for an operator on torch's distributed tensors: four to a"
        " GEMM of a linear layer, one to a collective of tensor parallelism; none in compiled layers",
    )
    update_threads: Annotated[int, *whole(1, 10_000)] | None = Field(
        default=None,
        description="threads of each process that update states on the host: OMP_NUM_THREADS, which torchrun"
        " (for several processes) and accelerate launch set to 1; left out: as many as the memory bears",
    )
    step_fixed_s: Annotated[float, number(ge=0, le=3600)] = Field(
        default=0.0, description="seconds of a step in which nothing of it runs: logs, data, the loop itself"
    )
    allocator_overhead: Annotated[float, number(ge=0, lt=1)] = Field(
        default=0.05,
        description="memory that the allocator reserves beyond what comes and goes, as a share of that",
    )
