"""What a scenario says: the job and the machine, resolved, frozen and consistent.

Knows every field, its type and its default. A document goes through ``load.py``, which also fills
in what follows from other fields (dp, schedule, interconnect); here those fields are required.
Inside, quantities are SI floats with the unit in the name; in a document they carry their unit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    model_validator,
)

from ...hardware.quantities import Dimension, parse_quantity
from ..faults.spec.detection import Detection
from ..faults.spec.faults import Faults
from ..faults.spec.fields import SecondsAboveZero
from ..faults.spec.recovery import Checkpoint, Recovery, Run
from ..model.model import Count, CountOrZero, Model
from ..model.whole import WholeNumber
from ..software.software import Software
from .checks import findings
from .loss_scale import LossScale
from .schedules import is_table

FabricKind = Literal[
    "rail-optimized", "fat-tree", "nvlink", "dragonfly", "torus", "custom",
    "selene", "eos", "meta-24k-roce", "meta-24k-infiniband", "megascale", "alibaba-hpn",
]  # fmt: skip
PlacementKind = Literal["contiguous", "rail-aware", "scattered", "explicit"]
Precision = Literal["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
RecomputeKind = Literal["none", "selective", "full", "op_selective"]
RecomputeModule = Literal[
    "core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts"
]  # fmt: skip
RecomputeOperator = Literal[
    "mm", "every_second_mm", "grouped_mm", "attention", "reduce_scatter", "all_to_all"
]  # fmt: skip
SplitRule = Literal["uniform", "embedding_and_loss_as_layers", "flops_balanced", "uneven_unspecified"]
ScheduleName = Literal[
    "none", "gpipe", "1f1b", "pipedream", "interleaved", "looped-bfs", "interleaved-zb",
    "zb-h1", "zb-h2", "zb-1p", "zb-2p", "zb", "zb-v", "zb-v-greedy", "v-half", "v-min", "v-1f1b",
    "dualpipe", "dualpipev",
]  # fmt: skip

ScheduleChoice = Annotated[
    Annotated[ScheduleName, Tag("~name")]
    | Annotated[str, Field(strict=True, pattern=r"\.csv$", examples=["my-schedule.csv"]), Tag("~table")],
    Discriminator(lambda value: "~table" if is_table(value) else "~name"),
]
"""A schedule by name, or a table of actions in a file."""

SCHEDULE_NAMES: tuple[str, ...] = get_args(ScheduleName)
RANK_AXES = ("tp", "cp", "ep", "dp", "pp")

FROM_DOCUMENT = {"document": True}
"""Validation context under which a quantity must be text with a unit; Python callers give SI numbers."""


def _quantity(dimension: Dimension) -> BeforeValidator:
    def parse(value: Any, info: ValidationInfo) -> Any:
        python_caller = info.context != FROM_DOCUMENT and not isinstance(value, str)
        return value if value is None or python_caller else parse_quantity(value, dimension)

    return BeforeValidator(parse, json_schema_input_type=str)


Rate = Annotated[float | None, _quantity("bytes_per_s"), Field(gt=0, examples=["224 GB/s"])]
Duration = Annotated[float | None, _quantity("seconds"), Field(gt=0, examples=["13.75 s"])]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Ratio = Annotated[float, Field(strict=True, ge=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FabricSpec(_Part):
    """How the switches between hosts are wired.

    ``oversubscription`` 7 means that a seventh of the hosts' bandwidth goes on above the leaf switches.
    A list of two is that of the leaves and that of the spines. A document that leaves ``kind`` out gets the
    usual one of its interconnect.
    """

    kind: FabricKind = "rail-optimized"
    oversubscription: Annotated[
        Annotated[Ratio, Tag("~ratio")] | Annotated[tuple[Ratio, Ratio], Tag("~levels")],
        Discriminator(lambda value: "~levels" if isinstance(value, list | tuple) else "~ratio"),
    ] = 1.0
    levels: Annotated[int, WholeNumber, Field(ge=2, le=3)] | None = Field(
        default=None, description="tiers of switches; default: as many as the ports demand"
    )
    nodes_per_leaf: Count | None = Field(default=None, description="hosts that share leaf switches")
    pxn: Flag | None = Field(default=None, description="forward over NVLink to the target's rail")
    ecmp: Literal["spread", "hashed"] | None = Field(
        default=None, description="equal-cost links: all evenly, or one of them by hash"
    )
    seed: CountOrZero | None = Field(default=None, description="of the hash")
    dimensions: tuple[Count, Count, Count] | None = Field(
        default=None, description="torus: hosts along each axis"
    )
    routers_per_group: Count | None = Field(default=None, description="dragonfly")
    global_links: Count | None = Field(default=None, description="dragonfly: global cables per router")
    file: Text | None = Field(default=None, description="custom: a graph in GraphML or YAML")


class MeasuredNetwork(_Part):
    """Bus bandwidth that collectives of the job reached, over all ranks and inside one host (``intra``)."""

    all_reduce_bytes_per_s: Rate = None
    all_gather_bytes_per_s: Rate = None
    reduce_scatter_bytes_per_s: Rate = None
    all_reduce_intra_bytes_per_s: Rate = None
    all_gather_intra_bytes_per_s: Rate = None
    reduce_scatter_intra_bytes_per_s: Rate = None


class PlacementSpec(_Part):
    """Which GPU each rank runs on (``hardware/placement.py``)."""

    kind: PlacementKind = "contiguous"
    group: Count | None = Field(default=None, description="rail-aware: ranks that stay together, such as tp")
    seed: CountOrZero | None = Field(default=None, description="scattered: of the random order of hosts")
    gpus: tuple[CountOrZero, ...] | None = Field(default=None, description="explicit: the GPU of each rank")


class ClusterSpec(_Part):
    """The GPUs and what connects them, by catalogue keys.

    GPUs, hosts and racks are numbered as the job has them: where it leaves some of a rack idle, those have no
    number, and cost nothing.
    """

    gpu: Text = Field(description="catalogue key of the GPU", examples=["H100-SXM5-80GB"])
    gpus: Count = Field(description="GPUs in the job", examples=[64])
    gpus_per_node: Count = Field(
        description="GPUs of one host; default 8, or 4 for the NVL72 racks", examples=[8]
    )
    gpus_per_domain: Count | None = Field(
        default=None,
        description="GPUs of each NVLink domain that the job uses, whole hosts; default: all, 72 of NVL72",
        examples=[64],
    )
    interconnect: Text = Field(
        description="catalogue key of the network between hosts; may be left out on one NVLink domain",
        examples=["ib-ndr400-x8"],
    )
    fabric: FabricSpec = FabricSpec()
    placement: PlacementSpec | None = None
    measured_network: MeasuredNetwork | None = None
    price_per_gpu_hour: Positive | None = None


class Parallelism(_Part):
    """The layout. ``gpus = tp * pp * cp * dp``; expert parallelism lies inside dp, cp and tp."""

    tp: Count = Field(default=1, description="tensor parallel size")
    pp: Count = Field(default=1, description="pipeline stages")
    vpp: Count = Field(default=1, description="model chunks per pipeline stage")
    cp: Count = Field(default=1, description="context parallel size")
    cp_a2a: Count | None = Field(
        default=None,
        description="ranks of a cp group that exchange heads (Ulysses); default: as the software does",
    )
    ep: Count = Field(default=1, description="expert parallel size")
    etp: Count = Field(default=1, description="tensor parallel size of the experts")
    dp: Count = Field(description="data parallel size; default: gpus / (tp * pp * cp)")
    zero: Annotated[int, WholeNumber, Field(ge=0, le=3)] = Field(
        default=0,
        description="0: none; 1: optimizer state sharded; 2: gradients too; 3: parameters too (FSDP)",
    )
    fsdp_shard_size: Count | None = Field(default=None, description="shard group; default: all of dp * cp")
    sequence_parallel: Flag = Field(default=False, description="shard norms and residuals over tp")
    stage_split: Annotated[
        Annotated[SplitRule, Tag("~rule")] | Annotated[tuple[CountOrZero, ...], Tag("~layers")],
        Discriminator(lambda value: "~rule" if isinstance(value, str) else "~layers"),
    ] = Field(
        default="uniform",
        description="a rule, or the layers of each of the pp * vpp chunks in pipeline order",
    )
    order: Text = Field(default="-".join(RANK_AXES), description="axes of the rank grid, fastest first")


class ScheduleOptions(_Part):
    """What some schedules may be told besides their name."""

    group: Count | None = Field(
        default=None,
        description="interleaved: microbatches that a rank runs on one chunk before it turns to the next",
    )
    memory_limit: Count | None = Field(
        default=None, description="zb, zb-v-greedy: activations (of one chunk) that a rank may hold"
    )


class RecomputeSpec(_Part):
    """Recomputation of a part: whole layers, ``modules`` of each layer, or all but operators to ``keep``."""

    kind: Literal["full", "modules", "operators"]
    layers: Count | None = Field(
        default=None,
        description="full: layers of each stage; by method block of each virtual stage, by uniform in one go",
    )
    method: Literal["uniform", "block"] | None = Field(
        default=None,
        description="full: uniform keeps the input of every so many layers; block recomputes the first ones",
    )
    every: Count | None = Field(default=None, description="full: each layer of that number (2: every second)")
    modules: tuple[RecomputeModule, ...] = ()
    keep: tuple[RecomputeOperator, ...] = Field(
        default=(), description="operators: whose outputs stay; all else of a layer runs again"
    )

    @model_validator(mode="after")
    def _says_what(self) -> RecomputeSpec:
        full = self.layers, self.method, self.every
        if self.kind == "full" and (
            (self.layers is None) == (self.every is None) or self.modules or self.keep
        ):
            raise ValueError(
                "kind full takes layers per stage, or every, as in 2; for all of them write recompute: full"
            )
        if self.kind == "full" and self.method and self.layers is None:
            raise ValueError(f"method {self.method} takes layers, as in layers: 2")
        if self.kind == "modules" and (full != (None,) * 3 or not self.modules or self.keep):
            raise ValueError("kind modules takes modules, a list such as [layernorm, mlp]")
        if self.kind == "operators" and (full != (None,) * 3 or not self.keep or self.modules):
            raise ValueError("kind operators takes keep, a list such as [every_second_mm, attention]")
        if {"mm", "every_second_mm"} <= set(self.keep):
            raise ValueError("keep has both mm and every_second_mm: give one of them")
        return self


class RoutingSpec(_Part):
    """How tokens spread over experts: ``zipf`` by an ``exponent``, or ``counts`` of a run from a ``file``."""

    kind: Literal["zipf", "counts"]
    exponent: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None = None
    file: Text | None = None

    @model_validator(mode="after")
    def _says_how(self) -> RoutingSpec:
        if self.kind == "zipf" and (self.exponent is None or self.file is not None):
            raise ValueError("kind zipf takes an exponent, as in 0.5, and no file")
        if self.kind == "counts" and (self.file is None or self.exponent is not None):
            raise ValueError("kind counts takes a file with the tokens of each expert, and no exponent")
        return self


class Training(_Part):
    """The work of one step. Batches count sequences."""

    global_batch: Count = Field(description="sequences per step", examples=[2048])
    micro_batch: Count = Field(description="sequences per microbatch and data-parallel rank", examples=[1])
    seq_length: Count = Field(description="tokens per sequence", examples=[8192])
    precision: Precision = Field(description="type of the matrix products", examples=["bf16"])
    recompute: Annotated[
        Annotated[RecomputeKind, Tag("~kind")] | Annotated[RecomputeSpec, Tag("~spec")],
        Discriminator(lambda value: "~kind" if isinstance(value, str) else "~spec"),
    ] = Field(default="none", description="what backward runs again: docs/memory.md")
    routing: Annotated[
        Annotated[Literal["balanced"], Tag("~name")] | Annotated[RoutingSpec, Tag("~spec")],
        Discriminator(lambda value: "~name" if isinstance(value, str) else "~spec"),
    ] = Field(default="balanced", description="how tokens spread over experts")
    loss_scale: LossScale | None = Field(
        default=None, description="fp16: report what steps that overflow and are skipped cost"
    )
    cpu_offload: Flag = Field(default=False, description="optimizer state on the host (ZeRO-Offload)")
    nvme_offload: Flag = Field(default=False, description="and there on disks (ZeRO-Infinity)")
    activation_offload: Flag = Field(
        default=False, description="activations of layers on the host between forward and backward"
    )
    tokens: Positive | None = Field(default=None, description="token budget of the whole run")


class Published(_Part):
    """What the run took in print."""

    step_time_s: Duration = None
    mfu: Annotated[float, Field(strict=True, gt=0, le=1)] | None = None
    source: Text = ""
    note: Text = ""


class Scenario(_Part):
    """One training step on one cluster: all that a prediction depends on."""

    name: Text
    title: Text = ""
    published: Published | None = None
    model: Model
    cluster: ClusterSpec
    parallelism: Parallelism
    training: Training
    schedule: ScheduleChoice
    schedule_options: ScheduleOptions = ScheduleOptions()
    software: Software
    calibration: tuple[Text, ...] = Field(
        default=(),
        description="shipped profiles by name, and profile files; a later one overrides an earlier one",
        examples=[["h100-sxm", "my.profile.yaml"]],
    )
    step_time: SecondsAboveZero | None = Field(
        default=None, description="stepsim faults: take this step time in place of the predicted one"
    )
    faults: Faults | None = None
    detection: Detection | None = None
    recovery: Recovery | None = None
    checkpoint: Checkpoint | None = None
    run: Run | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        wrong = findings(
            model=self.model,
            cluster=self.cluster,
            parallelism=self.parallelism,
            training=self.training,
            schedule=self.schedule,
            options=self.schedule_options,
            faults=self.faults,
        )
        if wrong:
            raise ValueError("; ".join(str(finding) for finding in wrong))
        return self

    @property
    def num_microbatches(self) -> int:
        """Microbatches of one data-parallel rank per step."""
        return self.training.global_batch // (self.training.micro_batch * self.parallelism.dp)

    @property
    def world_size(self) -> int:
        """GPUs in the job."""
        return self.cluster.gpus

    def to_document(self) -> dict[str, Any]:
        """A plain document that loads to this scenario again."""
        from .document import document_of

        return document_of(self)
