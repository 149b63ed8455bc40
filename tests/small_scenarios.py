"""Small legal dense scenarios for the laws of lowering, memory and whole steps, and walks over programs.

The models are tiny, so that a step takes milliseconds, but their layouts are not: every combination
of tensor, pipeline (with chunks), sequence and data parallelism up to 4 x 4 x 4. All sizes are
multiples of what splits them, so that laws hold exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel

from stepsim.schedules.orders.schedule import Shape
from stepsim.schedules.pipeline import get, names
from stepsim.sim.lowering.layers.local_shape import ELEMENT_BYTES
from stepsim.sim.lowering.lower import Lowered, lower
from stepsim.sim.program.program import Collective, Op, Program, RepeatedBlocks
from stepsim.sim.scenario.blocks import ClusterSpec, Parallelism, Training
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.model.model import Model
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schedules import schedule_named
from stepsim.sim.scenario.software import get_software, software_names
from stepsim.sim.scenario.software.rules import rules_of
from stepsim.sim.scenario.software.software import grouped
from stepsim.sim.simulate import build_cluster

LOOPED = ("interleaved", "interleaved-zb", "looped-bfs")
"""Schedules with several chunks on a rank, as many as one likes."""

RULES = {
    "dualpipe": {"pipeline": {"overlapped_point_to_point": "batched"}},  # torch has none
}
"""Software fields without which some presets refuse a schedule."""

QUICK_HOST = {"preset": "megatron-2022-sp", "host": {"host_s_per_kernel": 6e-6}}
"""With the preset's own host, kernels of models this small would wait for nothing else."""

BARE_HOST = {"launches_per_attention": 1, "launches_per_product": 1, "launches_per_function": 1}
"""With what Megatron core's modules and functions cost its hosts, layers this small would wait for those."""

WIDE: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "ffn_hidden_size": 8192,
    "vocab_size": 32000,
    "mlp": "swiglu",
    "micro_batch": 1,
    "seq_length": 4096,
}
"""Leaves of a model whose kernels take as long as those of a real one, so that intervals are of that size."""

BLOCKS: dict[str, type[BaseModel]] = {
    "model": Model,
    "cluster": ClusterSpec,
    "parallelism": Parallelism,
    "training": Training,
}


def scenario(**fields: Any) -> Scenario:
    """A small scenario; ``fields`` are leaves by their last name (tp, mlp, ...), schedule, or software."""
    document: dict[str, Any] = {
        "model": {
            "num_layers": 8,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "ffn_hidden_size": 1024,
            "vocab_size": 512,
            "mlp": "gelu",
        },
        "cluster": {"gpu": "A100-SXM4-80GB", "interconnect": "ib-hdr200-x8", "gpus_per_node": 8},
        "parallelism": {
            "tp": 1,
            "pp": 1,
            "dp": 1,
            "vpp": 1,
            "zero": 0,
            "stage_split": "uniform",
        },
        "training": {"micro_batch": 2, "seq_length": 128, "precision": "bf16", "recompute": "none"},
        "software": QUICK_HOST,
    }
    microbatches = fields.pop("microbatches", 4)
    for name, value in fields.items():
        if name in ("schedule", "software"):
            document[name] = value
            continue
        document[next(b for b, kind in BLOCKS.items() if name in kind.model_fields)][name] = value
    par, training, software = document["parallelism"], document["training"], document["software"]
    preset = software["preset"] if isinstance(software, dict) else software
    par.setdefault("sequence_parallel", par["tp"] > 1 and shards_always(preset))
    document["cluster"].setdefault("gpus", par["tp"] * par["pp"] * par["dp"] * par.get("cp", 1))
    training["global_batch"] = training["micro_batch"] * par["dp"] * microbatches
    return scenario_from_document(document, "small")


def presets_for(gpu: str) -> list[str]:
    """Software that runs: FlashAttention-3 is Hopper's."""
    return [n for n in software_names() if get_software(n).kernels.attention != "fa3" or gpu.startswith("H")]


@st.composite
def layouts(draw: st.DrawFn, **fixed: Any) -> Scenario:
    """Any legal small dense scenario; ``fixed`` fields are not drawn."""

    def pick(name: str, *choices: Any) -> Any:
        return fixed[name] if name in fixed else draw(st.sampled_from(choices), label=name)

    tp, pp = pick("tp", 1, 2, 4), pick("pp", 1, 2, 4)
    schedule = pick("schedule", *(n for n in names() if fits(n, pp))) if pp > 1 else "none"
    vpp = 2 if schedule in LOOPED or (pp > 1 and get(schedule).chunks == 2) else 1
    gpu = pick("gpu", "A100-SXM4-80GB", "H100-SXM5-80GB")
    software = pick("software", *presets_for(gpu))
    drawn = {
        "tp": tp,
        "pp": pp,
        "schedule": schedule,
        "vpp": vpp,
        "microbatches": fitting(schedule, pp, vpp, pick("microbatches", 1, 2, 4, 5)),
        "dp": 1 if schedule == "pipedream" else pick("dp", 1, 2, 4),
        "zero": pick("zero", 0, 1),
        "sequence_parallel": tp > 1 and (shards_always(software) or pick("sequence_parallel", False, True)),
        "recompute": pick("recompute", "none", "selective", "full"),
        "precision": pick("precision", "fp32", "fp16", "bf16"),
        "software": {"preset": software, **RULES.get(schedule, {})},
        "mlp": pick("mlp", "gelu", "swiglu", "relu2"),
        "num_query_groups": pick("num_query_groups", 4, 8),
        "num_attention_heads": 8,
        "tied_embeddings": pick("tied_embeddings", False, True),
        "micro_batch": pick("micro_batch", 1, 2),
        "gpu": gpu,
        "gpus_per_node": pick("gpus_per_node", 4, 8),
        "interconnect": "ib-ndr400-x8",
    }
    return scenario(**drawn, **{name: value for name, value in fixed.items() if name not in drawn})


def shards_always(preset: str) -> bool:
    """Whether the framework has no tensor parallelism without sequence parallelism."""
    return any(
        rule.path == "parallelism.sequence_parallel" and rule.severity == "error" for rule in rules_of(preset)
    )


def fits(schedule: str, pp: int) -> bool:
    """Whether the schedule is defined for that many stages, with some number of microbatches."""
    vpp = 2 if schedule in LOOPED else get(schedule).chunks
    return any(accepts(schedule, pp, vpp, m) for m in (pp, 4 * pp))


def fitting(schedule: str, pp: int, vpp: int, wanted: int) -> int:
    """The number of microbatches that is wanted, or else the next that the schedule is defined for."""
    if schedule == "none":
        return wanted
    return next(m for m in range(wanted, 100) if accepts(schedule, pp, vpp, m))


def accepts(schedule: str, pp: int, vpp: int, microbatches: int) -> bool:
    try:
        get(schedule).check(Shape(ranks=pp, microbatches=microbatches, chunks=vpp))
    except ValueError:
        return False
    # Scenarios take Megatron's word for interleaving: groups of pp, without a remainder.
    return schedule != "interleaved" or microbatches % pp == 0


def with_leaves(software: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The block ``software`` with other fields, by their names alone."""
    return {**software, **{group: {**software.get(group, {}), **f} for group, f in grouped(fields).items()}}


def changed(given: Scenario, **blocks: dict[str, Any]) -> Scenario:
    """The scenario with some fields of some blocks replaced; those of the software by their names alone."""
    document = given.to_document()
    for block, fields in blocks.items():
        if block == "software":
            document[block] = with_leaves(document[block], **fields)
        else:
            document[block] = {**document[block], **fields}
    return scenario_from_document(document, given.name)


def lowered(given: Scenario) -> Lowered:
    """The programs of a scenario, before any time passes."""
    return lower(given, build_cluster(given))


def every_op(program: Program) -> Iterator[tuple[Op, int]]:
    """All ops with how often they run: repeated blocks are expanded into their blocks' ops."""
    for op in program.ops:
        if isinstance(op.work, RepeatedBlocks):
            for block, count in op.work.blocks:
                for inner in block.ops:
                    yield inner, count
        else:
            yield op, 1


def payloads(program: Program, category: str) -> Counter[str]:
    """Payload bytes by kind of collective."""
    found: Counter[str] = Counter()
    for op, count in every_op(program):
        if op.category == category and isinstance(op.work, Collective):
            found[op.work.kind] += count * op.work.transfer.bytes
    return found


def layer_parameters(model: Model, tp: int) -> float:
    """Of one layer on one tensor-parallel rank: matrices and column biases are split, all else is whole."""
    h, width = model.hidden_size, model.num_attention_heads * model.kv_channels
    qkv = width + 2 * model.num_query_groups * model.kv_channels
    wide = model.ffn_hidden_size * (2 if model.mlp == "swiglu" else 1)
    split = h * qkv + width * h + h * wide + model.ffn_hidden_size * h
    split += (qkv + wide) if model.biases else 0
    whole = 2 * h * (1 if model.norm == "rmsnorm" else 2) + (2 * h if model.biases else 0)
    return split / tp + whole


def microbatches_of(run: Scenario, r: int) -> Counter[int]:
    """How many microbatches of each virtual stage a pipeline rank runs."""
    rank_of, shape = schedule_named(run.schedule).rank_of, run.pipeline_shape
    return Counter(
        s for s in range(shape.stages) for k in range(shape.microbatches) if rank_of(s, k, shape) == r
    )


def parameters_of_ranks(run: Scenario) -> list[float]:
    """Parameters of one GPU of each pipeline rank: layers, the ends, and a tied table once a rank."""
    model, par = run.model, run.parallelism
    h, table = model.hidden_size, model.embedding_rows * model.hidden_size / par.tp
    last, held = par.pp * par.vpp - 1, []
    for r in range(par.pp):
        stages = microbatches_of(run, r)
        tables = (0 in stages) + (last in stages)
        parameters = len(stages) * model.num_layers / (last + 1) * layer_parameters(model, par.tp)
        parameters += run.training.seq_length * h if 0 in stages and model.position == "learned" else 0
        parameters += h * (1 if model.norm == "rmsnorm" else 2) if last in stages else 0
        held.append(parameters + table * (min(1, tables) if model.tied_embeddings else tables))
    return held


def main_gradient_bytes(run: Scenario) -> int:
    """Bytes of an accumulated gradient: as the software has it, and FP32 where everything is."""
    return max(
        run.software.gradients.gradient_bytes(run.training.precision), ELEMENT_BYTES[run.training.precision]
    )


def ops_of(run: Scenario, r: int = 0) -> tuple[Op, ...]:
    """The ops that class ``r`` of a run is lowered to."""
    return lowered(run).programs.classes[r].ops
