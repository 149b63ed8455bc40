"""What a scenario says: the job and the machine, resolved, frozen and consistent.

Knows every field, its type and its default. A document goes through ``load.py``, which also fills
in what follows from other fields (dp, schedule, interconnect); here those fields are required.
Inside, quantities are SI floats with the unit in the name; in a document they carry their unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    model_validator,
)

from ...hardware.fields import (
    MOST_GPUS,
    Count,
    CountOrZero,
    Flag,
    Gpus,
    Layers,
    LayersOrZero,
    Price,
    Ratio,
    SecondsAboveZero,
    Stages,
    Text,
    Ways,
    number,
    whole,
)
from ..network.measured import MeasuredNetwork
from .checks import findings
from .faults.detection import Detection
from .faults.faults import Faults
from .faults.recovery import Checkpoint, Recovery, Run
from .finding import Finding, Inconsistent
from .loss_scale import LossScale
from .machine import gpu_key
from .model.model import Model
from .optimizers import OptimizerSpec
from .read_from import READ_FROM, Checked
from .schedules import is_table
from .software.software import Software
from .tree import TreeNode

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

Sequences = Annotated[int, *whole(1, 10**8)]
Tokens = Annotated[int, *whole(1, 10**9)]
"""Of one sequence; contexts of 10^8 have been announced."""

SCHEDULE_NAMES: tuple[str, ...] = get_args(ScheduleName)
RANK_AXES = ("tp", "cp", "ep", "dp", "pp")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always")


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


class PlacementSpec(_Part):
    """Which GPU each rank runs on (``hardware/placement.py``)."""

    kind: PlacementKind = "contiguous"
    group: Gpus | None = Field(default=None, description="rail-aware: ranks that stay together, such as tp")
    seed: CountOrZero | None = Field(default=None, description="scattered: of the random order of hosts")
    gpus: tuple[Annotated[int, *whole(0, MOST_GPUS - 1)], ...] | None = Field(
        default=None, description="explicit: the GPU of each rank"
    )


class ClusterSpec(_Part):
    """The GPUs and what connects them, by catalogue keys.

    GPUs, hosts and racks are numbered as the job has them: where it leaves some of a rack idle, those have no
    number, and cost nothing.
    """

    gpu: Annotated[Text, BeforeValidator(gpu_key, json_schema_input_type=str)] = Field(
        description="catalogue key of the GPU, or a shorter name that only one has",
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
    interconnect: Text = Field(
        description="catalogue key of the network between hosts; may be left out on one NVLink domain",
        examples=["ib-ndr400-x8"],
    )
    fabric: FabricSpec = FabricSpec()
    placement: PlacementSpec | None = None
    measured_network: MeasuredNetwork | None = None
    price_per_gpu_hour: Price | None = Field(default=None, description="in US dollars", examples=[2.5])


class Parallelism(_Part):
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
    layers: Layers | None = Field(
        default=None,
        description="full: layers of each stage; by method block of each virtual stage, by uniform in one go",
    )
    method: Literal["uniform", "block"] | None = Field(
        default=None,
        description="full: uniform keeps the input of every so many layers; block recomputes the first ones",
    )
    every: Layers | None = Field(
        default=None, description="full: each layer of that number (2: every second)"
    )
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
    exponent: Annotated[float, number(ge=0, le=100)] | None = None
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

    global_batch: Sequences = Field(description="sequences per step", examples=[2048])
    micro_batch: Sequences = Field(
        description="sequences per microbatch and data-parallel rank", examples=[1]
    )
    seq_length: Tokens = Field(description="tokens per sequence", examples=[8192])
    precision: Precision = Field(description="type of the matrix products", examples=["bf16"])
    recompute: Annotated[
        Annotated[RecomputeKind, Tag("~kind")] | Annotated[RecomputeSpec, Tag("~spec")],
        Discriminator(lambda value: "~kind" if isinstance(value, str) else "~spec"),
    ] = Field(default="none", description="what backward runs again: docs/memory.md")
    routing: Annotated[
        Annotated[Literal["balanced"], Tag("~name")] | Annotated[RoutingSpec, Tag("~spec")],
        Discriminator(lambda value: "~name" if isinstance(value, str) else "~spec"),
    ] = Field(default="balanced", description="how tokens spread over experts")
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


class PublishedFigures(_Part):
    """What the run took in print."""

    step_time_s: SecondsAboveZero | None = None
    mfu: Annotated[float, number(gt=0, le=1)] | None = None
    source: Text = ""
    note: Text = ""


class Scenario(_Part):
    """One training step on one cluster: all that a prediction depends on."""

    name: Text
    title: Text = ""
    published: PublishedFigures | None = None
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

    _checked: Checked = PrivateAttr(default_factory=Checked)

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Scenario:
        wrong = findings(
            model=self.model,
            cluster=self.cluster,
            parallelism=self.parallelism,
            training=self.training,
            schedule=self.schedule,
            options=self.schedule_options,
            faults=self.faults,
            software=self.software,
        )
        rows = self.model.embedding_rows
        if rows % self.parallelism.tp and not wrong:
            message = f"{rows} rows cannot be split over tp {self.parallelism.tp}"
            wrong = [Finding(path=("model", "vocab_size"), message=message)]
        if wrong:
            raise Inconsistent(wrong)
        document = info.context.get(READ_FROM) if isinstance(info.context, dict) else None
        self._checked = Checked(parts=tuple(self.__dict__.values()), document=document)
        return self

    @property
    def is_checked(self) -> bool:
        """Whether its parts are the very ones that were checked: copies with changes are not."""
        now, then = self.__dict__.values(), self._checked.parts
        return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))

    @property
    def document(self) -> TreeNode | None:
        """What it was read from, if it was and nothing has changed since."""
        return self._checked.document if self.is_checked else None

    def with_(self, changes: Mapping[str, Any] | Sequence[str]) -> Scenario:
        """This scenario with other fields, and all that follows from them, checked: what ``--set`` does.

        ``changes`` are dotted fields and their values, ``{"parallelism.tp": 4}``, or lines as on the
        command line, ``["parallelism.tp=4"]``; None takes back what was said. Other names of fields are
        understood, fields that were left out follow anew, and a title and published figures are dropped
        where the job is another.

        Raises:
            ScenarioError: with every problem found.
        """
        from .load import changed_scenario

        return changed_scenario(self, changes)

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
