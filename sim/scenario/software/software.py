"""What a software stack does: which kernels it has, what it overlaps, what its host costs.

A preset (presets.yaml beside this file) is chosen by name; a scenario may override single
fields. Only ``host_s_per_kernel``, ``step_fixed_s`` and ``allocator_overhead`` are fitted on
step times, once per preset; every other field is a fact about the software, with its source.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from ....hardware.fields import NO_BOOL, PositiveShare, number, whole
from ...network.nccl.choice import check_variable
from ...network.nccl.settings import NcclSettings
from ...network.nccl.versions import parse_version

AttentionKernel = Literal["unfused", "fa1", "fa2", "fa3", "cudnn"]
PointToPoint = Literal["async", "blocking", "prefetch", "torch"]
SplitPointToPoint = Literal["async", "torch"]
OverlappedPointToPoint = Literal["async", "batched", "torch"]
CrossEntropy = Literal["vocab-parallel", "fused", "gathered", "eager"]
Fp8Scaling = Literal["delayed", "current", "blockwise"]
HostSync = Literal["never", "receive", "always"]
ContextComm = Literal["p2p", "all_gather", "a2a"]
MoeDispatcher = Literal["alltoall", "deepep"]
GroupedGemm = Literal["streams", "one-kernel"]
TpOverlap = Literal["userbuffers", "local-shard"]
Sharding = Literal["distributed-optimizer", "fsdp1", "fsdp2", "deepspeed", "megatron-fsdp"]
Reshard = Literal["default", "always", "never"]

MOST_ELEMENTS = 1e15
"""Parameters of a model: no model has a thousandth of it."""

Elements = Annotated[float, number(ge=0, le=MOST_ELEMENTS)]
Bucket = Annotated[float, Field(strict=True, ge=1)]
"""From one element on; ``.inf`` is one bucket for all."""
Limit = Annotated[float, Field(strict=True, ge=0)]
"""``.inf`` is no limit."""
Few = Annotated[int, *whole(0, 100)]
Launches = Annotated[int, *whole(0, 100_000)]
"""Small kernels; a layer of a published stack has some dozen."""


class Software(BaseModel):
    """One software stack. All fields are facts of the code named in ``source``, but the last three."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, revalidate_instances="always")

    name: str = "custom"
    title: str = ""
    source: str = ""
    attention: AttentionKernel = "fa2"
    fused_norm: bool = True
    fused_activation: bool = True  # bias+GELU or SwiGLU in one kernel each way
    fused_softmax: bool = True  # scale+mask+softmax of unfused attention in one kernel
    fused_rope: bool = True
    complex_rope: bool = False  # not fused, it is a product of complex numbers; false, or latent: rotate_half
    qkv_copies: Few = 0  # reads and writes of Q, K, V per direction that only change layout
    split_gate: bool = False  # the two input branches of SwiGLU are separate column-parallel layers
    fused_residual: bool = True  # bias+dropout+add in one kernel
    cross_entropy: CrossEntropy = "vocab-parallel"  # how the loss is computed where TP splits the vocabulary
    fused_optimizer: bool = True
    torch_compile: bool = False
    cuda_graphs: bool = False
    fused_wgrad_accumulation: bool = True  # weight-gradient GEMMs add into the main gradient
    fp8_scaling: Fp8Scaling = "delayed"  # of precision fp8 (sim/lowering/layers/precision.py)
    fp8_parameters: bool = False  # weights are kept and gathered in the products' type, not in 16 bit
    fp8_activations: bool = False  # under FP8, inputs of activations wait in 8 bits, attention's output in 12
    fp8_dispatch: bool = False  # tokens go to experts in the products' type, and come back in 16 bit
    fp8_wgrad_rate: PositiveShare = (
        1.0  # of quantised weight-gradient products, over that of other products of their shape
    )
    exchange_sms: Annotated[int, *whole(0, 99)] = (
        0  # SMs that exchanges of experts have to themselves beside other layers (partitioned, not shared)
    )
    moment_bytes: Annotated[Literal[2, 4], NO_BOOL] = 4  # bytes of each of the optimizer's two moments
    logits_fp32: bool = True  # logits are cast to FP32 before the loss
    main_grad_bytes: Annotated[Literal[2, 4], NO_BOOL] = (
        4  # bytes per element of the gradient that is accumulated and reduced
    )
    bf16_main_grad_bytes: Annotated[Literal[0, 2, 4], NO_BOOL] = (
        0  # main_grad_bytes under precision bf16; 0: no other than elsewhere
    )
    # 16-bit buffers for reductions and gathers, beside parameters and gradients, at most all of these
    flat_buffer_elements: Elements = 0.0
    bf16_flat_buffer_elements: Elements = 0.0  # under precision bf16; 0: as many as elsewhere
    fp32_update_gradients: bool = False  # 16-bit gradients are copied to FP32 for the update
    casts_fresh_gradients: bool = (
        False  # to the type of the main gradient, by a kernel of their own, before they are added to it
    )
    reduce_grad_bytes: Annotated[Literal[0, 2, 4], NO_BOOL] = (
        0  # bytes per element on the wire, where gradients are cast to reduce them
    )
    separate_grad_copy: bool = False  # 16-bit gradients are kept beside the FP32 ones (the 20N bill)
    records_streams: bool = (
        False  # buffers of TP collectives are freed once their stream has passed them (asynchronous calls)
    )
    persistent_gradients: bool = (
        True  # one gradient buffer all step long; false: allocated by the first backward
    )
    overlap_grad_reduce: bool = True
    zero1_reduce_scatters: bool = True  # ZeRO-1 reduces by reduce-scatter; false: a plain all-reduce
    bf16_zero1_reduce_scatters: bool = True  # under precision bf16, where ZeRO-1 scatters if both are true
    overlap_param_gather: bool = False
    align_grad_reduce: bool = (
        False  # pipeline ranks start a chunk's reduction in the same slot (Megatron core)
    )
    bucket_elements: Bucket = 40e6  # gradient bucket, in elements; inf is one bucket
    bucket_elements_per_replica: Elements = (
        0.0  # where buckets grow with the data-parallel group: this many elements for each of its ranks
    )
    reduce_scatter_blocks: bool = False  # what is scattered is copied, by a kernel in the one hardware queue
    uncut_parameters: bool = False  # a bucket closes with the parameter that fills it; false: cuts it in two
    tp_comm_overlap: bool = False  # TP collectives split and overlapped with their own GEMMs
    tp_overlap_style: TpOverlap = "userbuffers"  # how, where tp_comm_overlap is on
    sp_regathers_input: bool = (
        True  # backward gathers the input of a column-parallel layer again (Korthikanti 2022)
    )
    tp_async_backward: bool = True  # backward TP collectives overlap the other gradient GEMM
    cp_comm: ContextComm = "p2p"  # how context parallelism brings queries and keys together
    moe_dispatcher: MoeDispatcher = "alltoall"  # how tokens reach experts: grouped sends, or DeepEP's kernels
    moe_shared_expert_overlap: bool = False  # shared experts run while tokens travel
    moe_a2a_overlap: bool = False  # exchanges of one microbatch beside the layers of another
    moe_router_fusion: bool = False  # router and permutation maps in a few kernels
    moe_host_sync_s: Annotated[float, number(ge=0, le=60)] = (
        0.0  # what a rank stands still for while its host reads the counts of a dropless dispatch
    )
    grouped_gemm: GroupedGemm = "streams"  # a GEMM per expert on four streams, or one kernel
    point_to_point: PointToPoint = "blocking"
    split_point_to_point: SplitPointToPoint = (
        "async"  # of schedules with runtimes of their own: split backwards, several chunks not interleaved
    )
    overlapped_point_to_point: OverlappedPointToPoint = (
        "batched"  # of schedules that overlap a forward and a backward (DeepSeek's DualPipe)
    )
    p2p_host_sync: HostSync = (
        "never"  # the host waits for point-to-point calls: for all, or for those that receive
    )
    optimizer_post_validation: bool = (
        False  # where backwards are split, ranks update without waiting for the norm of all gradients
    )
    p2p_messages: Annotated[int, *whole(1, 100)] = 1  # messages in sequence per tensor (shape messages first)
    scatter_gather_p2p: bool = (
        False  # each TP rank sends 1/tp of the activation, all-gathered by the receiver
    )
    launches_per_collective: Annotated[float, number(ge=0, le=10_000)] = (
        4.0  # host cost of a collective call, in kernel launches
    )
    step_barrier: bool = False  # all ranks meet in a barrier before a step's time is taken
    collective_checks: bool = (
        False  # TORCH_DISTRIBUTED_DEBUG=DETAIL: hosts compare notes before each collective
    )
    launch_blocking: bool = (
        False  # CUDA_LAUNCH_BLOCKING=1: the host waits for each kernel of a layer before it issues the next
    )
    head_beside_loss: bool = (
        False  # stage_split flops_balanced: the head is on the last stage, where the loss is
    )
    sharding: Sharding = "fsdp2"  # whose ZeRO-2 and ZeRO-3 (sim/scenario/sharding.py)
    reshard_after_forward: Reshard = (
        "default"  # torch: parameters are freed after forward; by default where there is no pipeline
    )
    prefetch_elements: Elements = 0.0  # layers up to so many parameters are gathered as one
    max_live_elements: Limit = math.inf  # no prefetch beyond so many gathered parameters
    persistent_elements: Elements = 0.0  # smaller parameters are never sharded
    gather_bytes: Annotated[Literal[0, 1, 2, 4], NO_BOOL] = (
        0  # bytes per gathered parameter; 0: those of the matrix products
    )
    extra_launches_per_layer: Launches = 0  # small kernels per layer and direction that move little
    nccl_algo: str | None = None  # NCCL_ALGO: algorithms that NCCL may choose, such as "allreduce:Ring"
    nccl_proto: str | None = None  # NCCL_PROTO: protocols that it may choose, such as "^LL128"
    nccl_version: str | None = None  # of NCCL, such as 2.26.2: whose tuning tables choose
    extra_launches_per_microbatch: Launches = 0  # the same at the loss: masks, means, bookkeeping
    host_s_per_kernel: Annotated[float, number(ge=0, le=10)] = 6e-6
    step_fixed_s: Annotated[float, number(ge=0, le=3600)] = 0.0
    allocator_overhead: Annotated[float, number(ge=0, lt=1)] = 0.05

    @field_validator("nccl_algo", "nccl_proto", "nccl_version")
    @classmethod
    def _as_nccl_reads_it(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Names and versions that NCCL knows; what a group can run of them is seen when it is priced."""
        if value is not None:
            check_variable(str(info.field_name), value)
        return value

    @property
    def nccl(self) -> NcclSettings:
        """What steers NCCL's choice of algorithms."""
        version = None if self.nccl_version is None else parse_version(self.nccl_version)
        return NcclSettings(algo=self.nccl_algo, proto=self.nccl_proto, version=version)

    def gradient_bytes(self, precision: str) -> int:
        """Bytes per element of the gradient that is accumulated and reduced under 16-bit ``precision``."""
        return (precision == "bf16" and self.bf16_main_grad_bytes) or self.main_grad_bytes

    def reduce_scatters(self, precision: str) -> bool:
        """Whether ZeRO-1 under ``precision`` reduces by reduce-scatter."""
        return self.zero1_reduce_scatters and (precision != "bf16" or self.bf16_zero1_reduce_scatters)

    def flat_buffers(self, precision: str) -> float:
        """Elements of the flat buffers under ``precision``."""
        return (precision == "bf16" and self.bf16_flat_buffer_elements) or self.flat_buffer_elements
