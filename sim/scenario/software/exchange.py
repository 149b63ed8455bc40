"""Exchanges inside layers: how tensor, context and expert parallelism communicate, and what steers NCCL."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from ....hardware.fields import whole
from ...network.nccl.choice import check_variable
from ...network.nccl.settings import NcclSettings
from ...network.nccl.versions import parse_version
from .group import SoftwareGroup

TpOverlap = Literal["userbuffers", "local-shard"]
ContextEngine = Literal["transformer-engine", "torch"]
ContextComm = Literal["p2p", "all_gather", "a2a"]
AmaxGroup = Literal["none", "tensor", "replicas"]
AttentionAmax = Literal["none", "rank", "replicas"]
MoeDispatcher = Literal["alltoall", "deepep", "hybridep"]


class ExchangeSoftware(SoftwareGroup):
    """What ranks of one layer send one another, and what of it runs beside kernels."""

    tp_comm_overlap: bool = Field(
        default=False, description="TP collectives split and overlapped with their own GEMMs"
    )
    tp_overlap_style: TpOverlap = Field(
        default="userbuffers",
        description="how, where tp_comm_overlap is on: TransformerEngine's ring of chunks, or nanotron's own"
        " rows during the gather",
    )
    sp_regathers_input: bool = Field(
        default=True,
        description="backward gathers the input of a column-parallel layer again"
        " (arXiv:2205.05198 section 4.2.2)",
    )
    tp_gathers_each: bool = Field(
        default=False,
        description="each column-parallel matrix gathers its own input and reduces its own gradient, queries,"
        " keys and values apart (torch ColwiseParallel with sharded inputs); else those of one input do once",
    )
    heads_distributed: bool = Field(
        default=False,
        description="under tensor parallelism, norms of queries and keys and the rotary embedding behind them"
        " see torch's distributed tensors, as their projections hand them on (torchtitan's Qwen3)",
    )
    tp_async_backward: bool = Field(
        default=True, description="backward TP collectives overlap the other gradient GEMM"
    )
    shared_kv_heads: bool = Field(
        default=False,
        description="more tensor-parallel ranks than key and value heads: these gather queries, keys and"
        " values of all ranks, and several share a head (Megatron core from 0.16 on)",
    )
    collectives_in_turn: bool = Field(
        default=False,
        description="kernels wait for collectives that were issued before them, of TP and of gradients,"
        " though meant to run beside: torch times each with events (TORCH_DISTRIBUTED_DEBUG=DETAIL,"
        " TORCH_NCCL_ENABLE_TIMING=1) in one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1)",
    )
    records_streams: bool = Field(
        default=False,
        description="buffers of TP collectives are freed once their stream has passed them (asynchronous"
        " calls)",
    )
    cp_comm: ContextComm = Field(
        default="p2p", description="how context parallelism brings queries and keys together"
    )
    cp_engine: ContextEngine = Field(
        default="transformer-engine",
        description="whose context parallelism: TransformerEngine's, or torch's, which repeats keys and"
        " values to the heads of queries and merges tiles in 32 bit (_attention.py)",
    )
    amax_group: AmaxGroup = Field(
        default="none",
        description="of 8 bits with delayed scaling: ranks that agree on the largest magnitudes behind each"
        " virtual stage before kernels go on: those of tp and cp (tp_only_amax_red), or of all replicas too",
    )
    attention_amax: AttentionAmax = Field(
        default="none",
        description="of attention in 8 bits beside GEMMs in NVFP4, whose scores are scaled by the largest"
        " magnitudes of the step before: behind each layer, forward and backward, each rank updates scales by"
        " its own, or all replicas agree first (NVTE_DPA_FP8DS_REDUCE_AMAX); none where scales are of blocks",
    )
    moe_dispatcher: MoeDispatcher = Field(
        default="alltoall",
        description="how tokens reach experts: grouped sends, DeepEP's kernels, or NVIDIA's HybridEP",
    )
    arrivals_indexed_by_torch: bool = Field(
        default=False,
        description="with moe_dispatcher deepep: torch's indexing by masks says which rows go to which"
        " expert, and the host waits for a dispatch, and for the experts' backward (torchtitan; Megatron core"
        " without --enable-experimental or --moe-permute-fusion)",
    )
    arrivals_padded: bool = Field(
        default=False,
        description="with weighted_rows and moe_dispatcher alltoall: rows for each expert are padded to a"
        " multiple of 8, each slot by the same row of zeros (torchtitan until April 2026)",
    )
    deepep_elastic: bool = Field(
        default=False,
        description="DeepEP's kernels are those of its second release (ElasticBuffer), not of the first"
        " (Buffer)",
    )
    experts_gather_tokens: bool = Field(
        default=False,
        description="layers of experts gather the tokens of all tensor-parallel ranks before the router and"
        " reduce-scatter their output, so that ranks that share an expert (etp) each exchange and permute the"
        " rows of all (torchtitan); else each routes its own tokens, and those ranks gather rows afterwards",
    )
    router_loss: bool = Field(
        default=False,
        description="routers of experts have Megatron core's auxiliary loss: none in a forward that keeps"
        " nothing for backward, and tensor-parallel ranks add up how many of their tokens go to each expert",
    )
    replays_exchanges: bool = Field(
        default=False,
        description="what a layer's exchanges of experts gave is kept, and a recomputation of the whole layer"
        " takes it in place of exchanging again (Halo's DeepEP layers)",
    )
    moe_shared_expert_overlap: bool = Field(
        default=False, description="shared experts run while tokens travel"
    )
    moe_a2a_overlap: bool = Field(
        default=False, description="exchanges of one microbatch beside the layers of another"
    )
    exchange_sms: Annotated[int, *whole(0, 99)] = Field(
        default=0,
        description="SMs that exchanges of experts have to themselves beside other layers (partitioned, not"
        " shared: arXiv:2412.19437 section 3.2.2)",
    )
    fp8_dispatch: bool = Field(
        default=False,
        description="tokens go to experts in the GEMMs' type, and come back in 16 bit",
    )
    nccl_algo: str | None = Field(
        default=None, description='NCCL_ALGO: algorithms that NCCL may choose, such as "allreduce:Ring"'
    )
    nccl_proto: str | None = Field(
        default=None, description='NCCL_PROTO: protocols that it may choose, such as "^LL128"'
    )
    nccl_version: str | None = Field(
        default=None, description="of NCCL, such as 2.26.2: whose tuning tables choose"
    )

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
