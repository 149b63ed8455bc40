"""One measured run, as the case files describe it: the fixed schema, and reading files of it.

Knows which keys there are and what type each has, not what they mean to a simulator; every error
says which file, case and field is wrong. Where a value is a name that a scenario checks anyway (GPU,
schedule, precision, ...), any text is accepted here: a case with an unknown name is refused by
itself, and not its whole file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from ...hardware.files import TABLES, load_yaml, read_text
from ...hardware.shown import clipped, value_text
from .strict import AtLeast, WrongField, build

SCHEMA = 1
HEAD = ("schema", "source", "cases")

# libyaml: all published cases (3 MB) are read in 2 s. YAML 1.1 rules: the files are written by programs and
# hold no text that YAML 1.2 reads otherwise.

Positive = Annotated[int, AtLeast(1)]
Natural = Annotated[int, AtLeast(0)]
Measure = Annotated[float, AtLeast(0, exclusive=True)]

Trust = Literal["high", "medium", "low"]
MemoryKind = Literal["allocated", "reserved", "nvidia_smi"]
Outcome = Literal["ok", "oom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseHardware:
    """``gpus`` GPUs in hosts of ``gpus_per_node``; ``gpu`` and ``interconnect`` are catalogue keys."""

    gpu: str
    gpus: Positive
    gpus_per_node: Positive
    interconnect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMoe:
    """Sizes of routed experts. ``capacity_factor`` None is dropless."""

    num_experts: Positive
    topk: Positive
    expert_ffn_hidden_size: Positive
    num_shared_experts: Natural
    shared_expert_ffn_hidden_size: Natural
    num_dense_layers: Natural
    capacity_factor: Measure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMla:
    """Sizes of latent attention."""

    q_lora_rank: Positive
    kv_lora_rank: Positive
    qk_nope_head_dim: Positive
    qk_rope_head_dim: Positive
    v_head_dim: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseModel:
    """Shapes in Megatron-LM names; ``vocab_size`` as used, padded where the run padded it."""

    num_layers: Positive
    hidden_size: Positive
    num_attention_heads: Positive
    num_query_groups: Positive
    kv_channels: Positive
    ffn_hidden_size: Positive
    vocab_size: Positive
    seq_length: Positive
    mlp: str
    tied_embeddings: bool
    attention: str
    moe: CaseMoe | None
    mla: CaseMla | None
    mtp_layers: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLayout:
    """How the run was laid out over ``gpus = tp * pp * cp * dp``.

    ``recompute`` is a word or a mapping with ``kind``; which, the scenario checks.
    """

    tp: Positive
    pp: Positive
    vpp: Positive
    cp: Positive
    ep: Positive
    etp: Positive
    dp: Positive
    zero: Natural
    fsdp_shard_size: Positive | None
    sequence_parallel: bool
    schedule: str
    stage_split: str
    micro_batch: Positive
    global_batch: Positive
    recompute: object
    precision: str
    cpu_offload: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSoftware:
    """The software stack. A flag that is None is unknown, or has nothing to apply to."""

    framework: str
    year: Positive
    attention: str
    fused_kernels: bool
    torch_compile: bool
    overlap_grad_reduce: bool | None
    overlap_param_gather: bool | None
    tp_comm_overlap: bool | None
    p2p_overlap: bool | None
    moe_a2a_overlap: bool | None
    balanced_routing: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFigures:
    """What came out. ``step_time_s`` is None exactly when the run ended out of memory."""

    step_time_s: Measure | None
    memory_bytes: Measure | None
    memory_kind: MemoryKind | None
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseNetwork:
    """Bus bandwidth in GB/s that the job measured before training."""

    all_reduce_gbps: Measure
    all_gather_gbps: Measure
    reduce_scatter_gbps: Measure
    all_reduce_intra_gbps: Measure
    all_gather_intra_gbps: Measure
    reduce_scatter_intra_gbps: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured run. ``assumed`` names the fields that its source does not state."""

    id: str
    family: str
    trust: Trust
    hardware: CaseHardware
    model: CaseModel
    layout: CaseLayout
    software: CaseSoftware
    measured: MeasuredFigures
    measured_network: CaseNetwork | None
    assumed: tuple[str, ...]
    notes: str


def read_cases(path: str | Path) -> tuple[Case, ...]:
    """Every case of the file, in its order.

    Raises:
        ValueError: no file, not a file of cases, or a case that does not follow the schema; the message
            starts with the file, and names the case and the field.
    """
    path = Path(path)
    document = _load(path)
    _check_frame(path, document)
    cases = []
    for index, entry in enumerate(document["cases"]):
        name = entry.get("id") if isinstance(entry, Mapping) else None
        if not isinstance(name, str):
            name = f"number {index + 1}"
        try:
            case = build(Case, entry)
            _check_measured(case)
        except WrongField as wrong:
            raise ValueError(f"{path}: case {name}: {wrong}") from None
        cases.append(case)
    _check_ids(path, cases)
    return tuple(cases)


def _load(path: Path) -> Any:
    return load_yaml(read_text(path), path, TABLES)


def _check_frame(path: Path, document: Any) -> None:
    if not isinstance(document, Mapping) or set(document) != set(HEAD):
        found = type(document).__name__
        if isinstance(document, Mapping):
            found = clipped(", ".join(map(str, list(document)[:20])))
        raise ValueError(f"{path}: a file of cases has the keys {', '.join(HEAD)}; this one has {found}")
    if type(document["schema"]) is not int or document["schema"] != SCHEMA:
        raise ValueError(f"{path}: schema: must be {SCHEMA}, is {value_text(document['schema'])}")
    if not isinstance(document["cases"], list):
        raise ValueError(f"{path}: cases: must be a list")


def _check_measured(case: Case) -> None:
    """What a comparison needs besides the right types."""
    measured = case.measured
    if not isinstance(case.layout.recompute, str | Mapping):
        shown = value_text(case.layout.recompute)
        raise WrongField("layout.recompute", f"must be a word or a block, is {shown}")
    if (measured.outcome == "ok") != (measured.step_time_s is not None):
        raise WrongField(
            "measured.step_time_s", f"outcome is {measured.outcome}, step time {measured.step_time_s}"
        )
    if (measured.memory_bytes is None) != (measured.memory_kind is None):
        raise WrongField("measured.memory_kind", "goes with memory_bytes: both or neither are null")


def _check_ids(path: Path, cases: Iterable[Case]) -> None:
    seen = set()
    for case in cases:
        if case.id in seen:
            raise ValueError(f"{path}: case {case.id}: id: occurs twice")
        seen.add(case.id)
