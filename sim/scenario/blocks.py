"""The blocks of a scenario: every field, its type and its default.

A document goes through ``build.py``, which also fills in what follows from other fields (dp,
interconnect); here those fields are required. Inside, quantities are SI floats with the unit in the name;
in a document they carry their unit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
)

from ...hardware.fabric import fabric_kinds
from ...hardware.fields import (
    Count,
    CountOrZero,
    Flag,
    Gpus,
    LayersOrZero,
    OneOf,
    Power,
    PowerOrZero,
    Price,
    Ratio,
    SecondsAboveZero,
    Size,
    Stages,
    Text,
    Ways,
    number,
    whole,
)
from ...hardware.gpus import gpu_key
from ...hardware.interconnect import interconnect_called
from ...hardware.limits import MOST_GPUS
from ...hardware.own_gpu import OwnGpu
from ...hardware.own_interconnect import OwnInterconnect
from ...hardware.own_node import OwnNode
from ...hardware.prices import providers
from ..network.measured import MeasuredNetwork
from .loss_scale import LossScale
from .neighbours import NeighbourSpec
from .optimizers import OptimizerSpec
from .other_gpus import OtherGpus
from .recompute import RecomputeKind, RecomputeSpec
from .routing import RoutingSpec
from .schedules import is_plain, is_table, schedule_names
from .variation import VariationSpec

FabricKind = Annotated[str, OneOf(fabric_kinds)]
PlacementKind = Literal["contiguous", "rail-aware", "scattered", "explicit"]
Precision = Literal["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
SplitRule = Literal["uniform", "embedding_and_loss_as_layers", "flops_balanced", "uneven_unspecified"]


ScheduleChoice = Annotated[
    Annotated[str, OneOf(schedule_names, is_plain), Tag("~name")]
    | Annotated[str, Field(strict=True, pattern=r"\.csv$", examples=["my-schedule.csv"]), Tag("~table")],
    Discriminator(lambda value: "~table" if is_table(value) else "~name"),
]
"""A schedule by name, or a table of actions in a file."""

Sequences = Annotated[int, *whole(1, 10**8)]
Tokens = Annotated[int, *whole(1, 10**9)]
"""Tokens of one sequence; contexts of 10^8 tokens have been announced."""

RANK_AXES = ("tp", "cp", "ep", "dp", "pp")


class ScenarioBlock(BaseModel):
    """What all blocks of a scenario are: frozen, and refusing unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)


class FabricSpec(ScenarioBlock):
    """How the switches between hosts are wired.

    ``oversubscription`` 7 means that a seventh of the hosts' bandwidth goes on above the leaf switches.
    A list of two is that of the leaves and that of the spines. A document that leaves ``kind`` out gets the
    usual one of its interconnect.
    """

    kind: FabricKind = Field(
        default="rail-optimized",
        description="which topology, or a published cluster's; default: by the network",
    )
    oversubscription: Annotated[
        Annotated[Ratio, Tag("~ratio")] | Annotated[tuple[Ratio, Ratio], Tag("~levels")],
        Discriminator(lambda value: "~levels" if isinstance(value, list | tuple) else "~ratio"),
    ] = Field(
        default=1.0,
        description="hosts' bandwidth over what goes on above the leaves; a list: of leaves, of spines",
    )
    levels: Annotated[int, *whole(2, 3)] | None = Field(
        default=None, description="tiers of switches; default: as many as the ports demand"
    )
    nodes_per_leaf: Gpus | None = Field(default=None, description="hosts that share leaf switches")
    pxn: Flag | None = Field(default=None, description="forward over NVLink to the target's rail")
    ecmp: Literal["spread", "hashed"] | None = Field(
        default=None, description="equal-cost links: all evenly, or one of them by hash"
    )
    seed: CountOrZero | None = Field(default=None, description="of the hash")
    dimensions: tuple[Gpus, Gpus, Gpus] | None = Field(
        default=None, description="torus: hosts along each axis"
    )
    routers_per_group: Gpus | None = Field(default=None, description="dragonfly")
    global_links: Gpus | None = Field(default=None, description="dragonfly: global cables per router")
    file: Text | None = Field(default=None, description="custom: a graph in GraphML or YAML")


class PlacementSpec(ScenarioBlock):
    """Which GPU each rank runs on (``hardware/placement.py``)."""

    kind: PlacementKind = Field(
        default="contiguous",
        description="contiguous: in order; scattered: hosts at random; explicit: by gpus",
    )
    group: Gpus | None = Field(default=None, description="rail-aware: ranks that stay together, such as tp")
    seed: CountOrZero | None = Field(default=None, description="scattered: of the random order of hosts")
    gpus: tuple[Annotated[int, *whole(0, MOST_GPUS - 1)], ...] | None = Field(
        default=None, description="explicit: the GPU of each rank"
    )


Times = Annotated[float, number(ge=0.01, le=100)]


class WhatIf(ScenarioBlock):
    """Other hardware than there is: how many times as fast, or as late, as the catalogue says."""

    nic: Times = Field(default=1.0, description="times the rate of every NIC, and of the links above it")
    nvlink: Times = Field(default=1.0, description="times the rate of NVLink")
    hbm: Times = Field(default=1.0, description="times the rate of a GPU's memory")
    peak: Times = Field(default=1.0, description="times the FLOP/s of every data type")
    latency: Times = Field(default=1.0, description="times the latency of every communication")


def interconnect_key(value: Any) -> Any:
    """The catalogue key that another name of a network means; a value that names none is returned as it is,
    and checks.py reports it."""
    try:
        return interconnect_called(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _named_or_described(value: Any) -> str:
    return "~described" if isinstance(value, dict | BaseModel) else "~named"


class PowerSpec(ScenarioBlock):
    """What the cluster may draw, and what is counted beside its GPUs (docs/energy.md)."""

    limit: Power | None = Field(
        default=None, description="of each GPU, as nvidia-smi -pl sets it; default: its maker's"
    )
    measured_products: Annotated[float, number(ge=0.5, le=1.5)] | None = Field(
        default=None,
        description="rate of long GEMMs on these very GPUs, over the one that their type is "
        "taken to sustain; default: 1",
        examples=[0.93],
    )
    host: PowerOrZero | None = Field(
        default=None, description="of a host beside its GPUs; default: by measured hosts", examples=["2.4 kW"]
    )
    network_per_host: PowerOrZero = Field(
        default=0.0, description="of switches and storage, for each host", examples=["900 W"]
    )
    pue: Annotated[float, number(ge=1, le=5)] | None = Field(
        default=None, description="what the site draws over what its machines do; default: not counted"
    )
    carbon_g_per_kwh: Annotated[float, number(ge=0, le=2000)] | None = Field(
        default=None, description="grams of CO2 of a kWh of the grid", examples=[350]
    )


class ClusterSpec(ScenarioBlock):
    """The GPUs and what connects them, by catalogue keys.

    GPUs, hosts and racks are numbered as the job has them: where it leaves some of a rack idle, those have no
    number, and cost nothing.
    """

    gpu: Annotated[
        Annotated[Text, BeforeValidator(gpu_key, json_schema_input_type=str), Tag("~named")]
        | Annotated[OwnGpu, Tag("~described")],
        Discriminator(_named_or_described),
    ] = Field(
        description="catalogue key of the GPU, or a shorter name that only one has; or a GPU of your own, "
        "or a YAML file that has it under `gpu`",
        examples=["H100-SXM5-80GB"],
    )
    gpus: Gpus = Field(description="GPUs in the job", examples=[64])
    gpus_per_node: Gpus = Field(
        description="GPUs of one host; default 8, or 4 for the NVL72 racks", examples=[8]
    )
    gpus_per_domain: Count | None = Field(
        default=None,
        description="GPUs of each NVLink domain that the job uses, whole hosts; default: all, 72 of NVL72",
        examples=[64],
    )
    interconnect: Annotated[
        Annotated[Text, BeforeValidator(interconnect_key, json_schema_input_type=str), Tag("~named")]
        | Annotated[OwnInterconnect, Tag("~described")],
        Discriminator(_named_or_described),
    ] = Field(
        description="catalogue key of the network between hosts; may be left out on one NVLink domain; or "
        "a network of your own, or a YAML file that has it under `interconnect`",
        examples=["ib-ndr400-x8"],
    )
    message_chunk: Size | None = Field(
        default=None,
        description="how NCCL cuts a message between hosts (NCCL_P2P_NET_CHUNKSIZE); default: what the "
        "network's plugin sets, else NCCL's own 128 KiB",
        examples=["2 MiB"],
    )
    node: OwnNode | None = Field(
        default=None, description="a host of your own; default: the one that the GPU is sold in"
    )
    fabric: FabricSpec = Field(
        default=FabricSpec(), description="how the switches between hosts are wired; default: by the network"
    )
    placement: PlacementSpec | None = Field(
        default=None, description="which GPU each rank runs on; default: in order"
    )
    measured_network: MeasuredNetwork | None = Field(
        default=None, description="what nccl-tests reached on this very cluster"
    )
    price_per_gpu_hour: Price | None = Field(default=None, description="in `currency`", examples=[2.5])
    currency: Annotated[str, Field(strict=True, pattern=r"^[A-Z]{3}$")] = Field(
        default="USD", description="of the price: three letters (ISO 4217)", examples=["EUR"]
    )
    price_list: Annotated[str, OneOf(providers)] | None = Field(
        default=None, description="whose published price counts where none is stated; in US dollars"
    )
    what_if: WhatIf | None = Field(default=None, description="other hardware than there is")
    variation: VariationSpec | None = Field(
        default=None, description="how much the GPUs differ from one another; default: not at all"
    )
    power: PowerSpec | None = Field(default=None, description="power limit, and what energy is counted with")
    other_gpus: tuple[OtherGpus, ...] | None = Field(
        default=None, description="hosts whose GPUs are of another kind than `gpu`"
    )
    neighbours: tuple[NeighbourSpec, ...] | None = Field(
        default=None, description="other jobs on the same fabric, on hosts that are none of ours"
    )

    @property
    def nodes(self) -> int:
        """Hosts of the job; the last one may not be full."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def gpu_name(self) -> str:
        """The GPU's catalogue key, or how results call one of the user's own."""
        return self.gpu if isinstance(self.gpu, str) else self.gpu.called

    @property
    def interconnect_name(self) -> str:
        """The catalogue key of the network between hosts, or how results call one of the user's own."""
        return self.interconnect if isinstance(self.interconnect, str) else self.interconnect.called


class Parallelism(ScenarioBlock):
    """The layout. ``gpus = tp * pp * cp * dp``; expert parallelism lies inside dp, cp and tp."""

    tp: Ways = Field(default=1, description="tensor parallel size")
    pp: Stages = Field(default=1, description="pipeline stages")
    vpp: Stages = Field(default=1, description="model chunks per pipeline stage")
    cp: Ways = Field(default=1, description="context parallel size")
    cp_a2a: Ways | None = Field(
        default=None,
        description="ranks of a cp group that exchange heads (Ulysses); default: as the software does",
    )
    ep: Ways = Field(default=1, description="expert parallel size")
    etp: Ways = Field(default=1, description="tensor parallel size of the experts")
    dp: Gpus = Field(description="data parallel size; default: gpus / (tp * pp * cp)")
    zero: Annotated[int, *whole(0, 3)] = Field(
        default=0,
        description="0: none; 1: optimizer state sharded; 2: gradients too; 3: parameters too (FSDP)",
    )
    fsdp_shard_size: Gpus | None = Field(default=None, description="shard group; default: all of dp * cp")
    sequence_parallel: Flag = Field(default=False, description="shard norms and residuals over tp")
    stage_split: Annotated[
        Annotated[SplitRule, Tag("~rule")] | Annotated[tuple[LayersOrZero, ...], Tag("~layers")],
        Discriminator(lambda value: "~rule" if isinstance(value, str) else "~layers"),
    ] = Field(
        default="uniform",
        description="which chunk has which layers: a rule, or the layers of each of the pp * vpp chunks in "
        "pipeline order (see below)",
    )
    order: Text = Field(default="-".join(RANK_AXES), description="axes of the rank grid, fastest first")

    @property
    def shards_sequence(self) -> bool:
        """Whether several ranks of tensor parallelism shard norms and residuals."""
        return self.sequence_parallel and self.tp > 1

    @property
    def virtual_stages(self) -> int:
        """Stages of the model: ``vpp`` chunks on each of ``pp`` pipeline ranks."""
        return self.pp * self.vpp

    @property
    def shard_ranks(self) -> int:
        """Ranks over which ZeRO shards: ``fsdp_shard_size``, or all of dp * cp."""
        return self.fsdp_shard_size or self.dp * self.cp


class ScheduleOptions(ScenarioBlock):
    """What some schedules may be told besides their name."""

    group: Count | None = Field(
        default=None,
        description="interleaved: microbatches that a rank runs on one chunk before it turns to the next",
    )
    memory_limit: Count | None = Field(
        default=None, description="zb, zb-v-greedy: activations (of one chunk) that a rank may hold"
    )


class Training(ScenarioBlock):
    """The work of one step. Batches count sequences."""

    global_batch: Sequences = Field(description="sequences per step", examples=[2048])
    micro_batch: Sequences = Field(
        description="sequences per microbatch and data-parallel rank", examples=[1]
    )
    seq_length: Tokens = Field(description="tokens per sequence", examples=[8192])
    document_length: Tokens | None = Field(
        default=None,
        description="tokens of a document, where sequences are packs that attend within each alone",
    )
    precision: Precision = Field(description="type of the GEMMs", examples=["bf16"])
    recompute: Annotated[
        Annotated[RecomputeKind, Tag("~kind")] | Annotated[RecomputeSpec, Tag("~spec")],
        Discriminator(lambda value: "~kind" if isinstance(value, str) else "~spec"),
    ] = Field(default="none", description="what backward runs again: docs/memory.md")
    routing: Annotated[
        Annotated[Literal["balanced", "forced", "in_turn"], Tag("~name")]
        | Annotated[RoutingSpec, Tag("~spec")],
        Discriminator(lambda value: "~name" if isinstance(value, str) else "~spec"),
    ] = Field(
        default="balanced",
        description="how tokens spread over experts; forced: evenly, as a benchmark makes its router do;"
        " in_turn: evenly, each token to the experts that follow those of the token before",
    )
    optimizer: OptimizerSpec = Field(
        default=OptimizerSpec(), description="what updates the weights: docs/memory.md"
    )
    loss_scale: LossScale | None = Field(
        default=None, description="fp16: report what steps that overflow and are skipped cost"
    )
    cpu_offload: Flag = Field(default=False, description="optimizer state on the host (ZeRO-Offload)")
    nvme_offload: Flag = Field(default=False, description="and there on disks (ZeRO-Infinity)")
    activation_offload: Flag = Field(
        default=False, description="activations of layers on the host between forward and backward"
    )
    tokens: Annotated[float, number(ge=1, le=1e18)] | None = Field(
        default=None, description="token budget of the whole run", examples=[15.6e12]
    )

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one step, all data-parallel ranks together."""
        return self.global_batch * self.seq_length

    @property
    def attended_length(self) -> int:
        """Tokens among which attention is: a document's where sequences are packs, else a sequence's."""
        return self.document_length or self.seq_length

    @property
    def offloads_state(self) -> bool:
        """Whether optimizer state is on the host or on its disks."""
        return self.cpu_offload or self.nvme_offload


class PublishedFigures(ScenarioBlock):
    """What the run took in print."""

    step_time_s: SecondsAboveZero | None = Field(default=None, description="time of one step")
    mfu: Annotated[float, number(gt=0, le=1)] | None = Field(
        default=None, description="model FLOP/s over peak, as a share of one"
    )
    source: Text = Field(default="", description="where it is printed")
    note: Text = Field(default="", description="what is different there")
