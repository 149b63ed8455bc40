"""One measured run, as the case files describe it: the fixed schema, and reading files of it.

Knows which keys there are and what type each has, not what they mean to a simulator; every error
says which file, case and field is wrong. Where a value is a name that a scenario checks anyway (GPU,
schedule, precision, ...), any text is accepted here: a case with an unknown name is refused by
itself, and not its whole file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    with_config,
)

from ...hardware.explain import lines
from ...hardware.fields import Count, CountOrZero, Flag, Text, number, whole
from ...hardware.files import TABLES, load_yaml, read_text
from ...hardware.shown import clipped, listed, value_text
from ...sim.result.step import AXES

SCHEMA = 1
HEAD = ("schema", "source", "cases")

# libyaml: all published cases (3 MB) are read in 2 s. YAML 1.1 rules: the files are written by programs and
# hold no text that YAML 1.2 reads otherwise.

Measure = Annotated[float, number(gt=0, le=2.0**53)]

Trust = Literal["high", "medium", "low"]
MemoryKind = Literal["allocated", "reserved", "nvidia_smi"]
Outcome = Literal["ok", "oom"]


def _word_or_block(value: object) -> object:
    if not isinstance(value, str | Mapping):
        raise ValueError("a word or a block of fields is needed")
    return value


def _as_it_ended(step_time_s: float | None, read: ValidationInfo) -> float | None:
    outcome = read.data.get("outcome")
    if outcome and (outcome == "ok") != (step_time_s is not None):
        raise ValueError(f"outcome is {outcome}, step time {value_text(step_time_s)}")
    return step_time_s


def _with_bytes(kind: str | None, read: ValidationInfo) -> str | None:
    if "memory_bytes" in read.data and (read.data["memory_bytes"] is None) != (kind is None):
        raise ValueError("goes with memory_bytes: both or neither are null")
    return kind


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseHardware:
    """``gpus`` GPUs in hosts of ``gpus_per_node``; ``gpu`` and ``interconnect`` are catalogue keys."""

    gpu: Text
    gpus: Count
    gpus_per_node: Count
    interconnect: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMoe:
    """Sizes of routed experts. ``capacity_factor`` None is dropless."""

    num_experts: Count
    topk: Count
    expert_ffn_hidden_size: Count
    num_shared_experts: CountOrZero
    shared_expert_ffn_hidden_size: CountOrZero
    num_dense_layers: CountOrZero
    capacity_factor: Measure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMla:
    """Sizes of latent attention. ``q_lora_rank`` None or 0: one matrix projects queries, without a latent."""

    q_lora_rank: CountOrZero | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseModel:
    """Shapes in Megatron-LM names; ``vocab_size`` as used, padded where the run padded it."""

    num_layers: Count
    hidden_size: Count
    num_attention_heads: Count
    num_query_groups: Count
    kv_channels: Count
    ffn_hidden_size: Count
    vocab_size: Count
    seq_length: Count
    mlp: Text
    tied_embeddings: Flag
    attention: Text
    moe: CaseMoe | None
    mla: CaseMla | None
    mtp_layers: CountOrZero


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLayout:
    """How the run was laid out over ``gpus = tp * pp * cp * dp``.

    ``recompute`` is a word or a mapping with ``kind``, ``stage_split`` a word or the layers of each chunk, in
    pipeline order; which, the scenario checks.
    """

    tp: Count
    pp: Count
    vpp: Count
    cp: Count
    ep: Count
    etp: Count
    dp: Count
    zero: CountOrZero
    fsdp_shard_size: Count | None
    sequence_parallel: Flag
    schedule: Text
    stage_split: Annotated[
        Annotated[Text, Tag("~rule")] | Annotated[tuple[CountOrZero, ...], Tag("~layers")],
        Discriminator(lambda value: "~rule" if isinstance(value, str) else "~layers"),
    ]
    micro_batch: Count
    global_batch: Count
    recompute: Annotated[object, AfterValidator(_word_or_block)]
    precision: Text
    cpu_offload: Flag


Year = Annotated[int, *whole(2017, 2100)]
"""Year of a software stack; before 2017 there were no transformers to train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSoftware:
    """The software stack. A flag that is None is unknown, or has nothing to apply to."""

    framework: Text
    year: Year
    attention: Text
    fused_kernels: Flag
    torch_compile: Flag
    overlap_grad_reduce: Flag | None
    overlap_param_gather: Flag | None
    tp_comm_overlap: Flag | None
    p2p_overlap: Flag | None
    moe_a2a_overlap: Flag | None
    balanced_routing: Flag | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFigures:
    """What came out. ``step_time_s`` is None exactly when the run ended out of memory."""

    outcome: Outcome
    step_time_s: Annotated[Measure | None, AfterValidator(_as_it_ended)]
    memory_bytes: Measure | None
    memory_kind: Annotated[MemoryKind | None, AfterValidator(_with_bytes)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseNetwork:
    """Bus bandwidth in GB/s that the job measured before training."""

    all_reduce_gbps: Measure
    all_gather_gbps: Measure
    reduce_scatter_gbps: Measure
    all_reduce_intra_gbps: Measure
    all_gather_intra_gbps: Measure
    reduce_scatter_intra_gbps: Measure


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured run. ``assumed`` names the fields that its source does not state."""

    id: Text
    family: Text
    trust: Trust
    hardware: CaseHardware
    model: CaseModel
    layout: CaseLayout
    software: CaseSoftware
    measured: MeasuredFigures
    measured_network: CaseNetwork | None
    assumed: tuple[Text, ...]
    notes: Text

    @property
    def regime(self) -> str:
        """What kind of run it is, by configuration alone, never by outcome: GPU, dense or MoE, and the kinds
        of parallelism in use, as ``A100-SXM4-80GB dense tp+pp+dp``."""
        kinds = [axis for axis in AXES if getattr(self.layout, axis) > 1]
        return f"{self.hardware.gpu} {'moe' if self.model.moe else 'dense'} {'+'.join(kinds) or 'one GPU'}"


def build(document: object) -> Case:
    """The case in a document. Raises pydantic's ValidationError with everything that does not fit."""
    return _schema().validate_python(document)


@cache
def _schema() -> TypeAdapter[Case]:
    return TypeAdapter(Case)


def read_cases(path: str | Path) -> tuple[Case, ...]:
    """Every case of the file, in its order.

    Raises:
        ValueError: no file, not a file of cases, or cases that do not follow the schema: a line for each
            mistake with the file, the case and the field.
    """
    path = Path(path)
    document = _load(path)
    _check_frame(path, document)
    cases, problems = [], []
    for index, entry in enumerate(document["cases"]):
        name = entry.get("id") if isinstance(entry, Mapping) else None
        where = f"{path}: case {clipped(name) if isinstance(name, str) else f'number {index + 1}'}"
        try:
            cases.append(build(entry))
        except ValidationError as failure:
            problems += lines(where, failure, Case)
    if problems:
        raise ValueError(listed(problems))
    _check_ids(path, cases)
    return tuple(cases)


def _load(path: Path) -> Any:
    return load_yaml(read_text(path), path, TABLES)


def _check_frame(path: Path, document: Any) -> None:
    if not isinstance(document, Mapping) or set(document) != set(HEAD):
        found = value_text(document) if document else "nothing in it"
        if isinstance(document, Mapping) and document:
            found = clipped(", ".join(map(str, list(document)[:20])))
        raise ValueError(
            f"{path}: a file of cases has the keys {', '.join(HEAD)}, and one of a run of "
            f"your own has scenario, or run, and measured; this one has {found}"
        )
    if type(document["schema"]) is not int or document["schema"] != SCHEMA:
        raise ValueError(f"{path}: schema: must be {SCHEMA}, is {value_text(document['schema'])}")
    if not isinstance(document["cases"], list):
        raise ValueError(f"{path}: cases: must be a list")
    if not document["cases"]:
        raise ValueError(f"{path}: cases: the list is empty; give one measured run at least")


def _check_ids(path: Path, cases: Iterable[Case]) -> None:
    seen = set()
    for case in cases:
        if case.id in seen:
            raise ValueError(f"{path}: case {case.id}: id: occurs twice")
        seen.add(case.id)
