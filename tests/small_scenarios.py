"""Small legal dense scenarios for the laws of lowering, memory and whole steps, and walks over programs.

The models are tiny, so that a step takes milliseconds, but their layouts are not: every combination
of tensor, pipeline (with chunks), sequence and data parallelism up to 4 x 4 x 4. All sizes are
multiples of what splits them, so that laws hold exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from stepsim.sim.model.model import Model
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import ClusterSpec, Parallelism, Scenario, Training
from stepsim.sim.simulate import build_cluster
from stepsim.sim.software import get_software, software_names
from stepsim.sim.step.lower import Lowered, lower
from stepsim.sim.step.program import Op, Program, Segment
from stepsim.sim.step.shard import ELEMENT_BYTES

BLOCKS = {"model": Model, "cluster": ClusterSpec, "parallelism": Parallelism, "training": Training}


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
        "parallelism": {"tp": 1, "pp": 1, "dp": 1, "vpp": 1, "zero": 0, "sequence_parallel": False},
        "training": {"micro_batch": 2, "seq_length": 128, "precision": "bf16", "recompute": "none"},
        "software": "megatron-2022-sp",
    }
    microbatches = fields.pop("microbatches", 4)
    for name, value in fields.items():
        if name in ("schedule", "software"):
            document[name] = value
            continue
        document[next(b for b, kind in BLOCKS.items() if name in kind.model_fields)][name] = value
    par, training = document["parallelism"], document["training"]
    document["cluster"].setdefault("gpus", par["tp"] * par["pp"] * par["dp"])
    training["global_batch"] = training["micro_batch"] * par["dp"] * microbatches
    return scenario_from_document(document, "small")


def presets_for(gpu: str) -> list[str]:
    """Software that runs: FlashAttention-3 is Hopper's."""
    return [n for n in software_names() if get_software(n).attention != "fa3" or gpu.startswith("H")]


@st.composite
def layouts(draw: st.DrawFn, **fixed: Any) -> Scenario:
    """Any legal small dense scenario; ``fixed`` fields are not drawn."""

    def pick(name: str, *choices: Any) -> Any:
        return fixed[name] if name in fixed else draw(st.sampled_from(choices), label=name)

    tp, pp = pick("tp", 1, 2, 4), pick("pp", 1, 2, 4)
    schedule = pick("schedule", "gpipe", "1f1b", "interleaved") if pp > 1 else "none"
    interleaved = schedule == "interleaved"
    gpu = pick("gpu", "A100-SXM4-80GB", "H100-SXM5-80GB")
    microbatches = pp * pick("groups", 1, 2) if interleaved else pick("microbatches", 1, 2, 4, 5)
    drawn = {
        "tp": tp,
        "pp": pp,
        "schedule": schedule,
        "vpp": 2 if interleaved else 1,
        "microbatches": microbatches,
        "dp": pick("dp", 1, 2, 4),
        "zero": pick("zero", 0, 1),
        "sequence_parallel": tp > 1 and pick("sequence_parallel", False, True),
        "recompute": pick("recompute", "none", "selective", "full"),
        "precision": pick("precision", "fp32", "fp16", "bf16"),
        "software": pick("software", *presets_for(gpu)),
        "mlp": pick("mlp", "gelu", "swiglu", "relu2"),
        "num_query_groups": pick("num_query_groups", 4, 8),
        "num_attention_heads": 8,
        "tied_embeddings": pick("tied_embeddings", False, True),
        "micro_batch": pick("micro_batch", 1, 2),
        "gpu": gpu,
        "gpus_per_node": pick("gpus_per_node", 4, 8),
        "interconnect": "ib-ndr400-x8",
    }
    taken = {"groups", *drawn}
    return scenario(**drawn, **{name: value for name, value in fixed.items() if name not in taken})


def changed(given: Scenario, **blocks: dict[str, Any]) -> Scenario:
    """The scenario with some fields of some blocks replaced."""
    document = given.to_document()
    for block, fields in blocks.items():
        document[block] = {**document[block], **fields}
    return scenario_from_document(document, given.name)


def lowered(given: Scenario) -> Lowered:
    """The programs of a scenario, before any time passes."""
    return lower(given, build_cluster(given))


def every_op(program: Program) -> Iterator[tuple[Op, int]]:
    """All ops with how often they run: segments are spelled out into their blocks' ops."""
    for op in program.ops:
        if isinstance(op.work, Segment):
            for block, count in op.work.blocks:
                for inner in block.ops:
                    yield inner, count
        else:
            yield op, 1


def layer_parameters(model: Model, tp: int) -> float:
    """Of one layer on one tensor-parallel rank: matrices and column biases are split, all else is whole."""
    h, width = model.hidden_size, model.num_attention_heads * model.kv_channels
    qkv = width + 2 * model.num_query_groups * model.kv_channels
    wide = model.ffn_hidden_size * (2 if model.mlp == "swiglu" else 1)
    split = h * qkv + width * h + h * wide + model.ffn_hidden_size * h
    split += (qkv + wide) if model.biases else 0
    whole = 2 * h * (1 if model.norm == "rmsnorm" else 2) + (2 * h if model.biases else 0)
    return split / tp + whole


def parameters_of_ranks(run: Scenario) -> list[float]:
    """Parameters of one GPU of each pipeline rank: layers, the ends, and a tied table at both."""
    model, par = run.model, run.parallelism
    h, table = model.hidden_size, model.vocab_size * model.hidden_size / par.tp
    held = [model.num_layers / par.pp * layer_parameters(model, par.tp)] * par.pp
    held[0] += table + (run.training.seq_length * h if model.position == "learned" else 0)
    held[-1] += h * (1 if model.norm == "rmsnorm" else 2)
    held[-1] += 0 if model.tied_embeddings and par.pp == 1 else table
    return held


def main_gradient_bytes(run: Scenario) -> int:
    """Bytes of an accumulated gradient: as the software has it, and FP32 where everything is."""
    return max(run.software.main_grad_bytes, ELEMENT_BYTES[run.training.precision])
