"""Small legal dense scenarios for the laws of lowering, memory and whole steps, and walks over their programs.

The models are tiny, so that a step takes milliseconds, but their layouts are not: every combination
of tensor, pipeline (with chunks), sequence and data parallelism up to 4 x 4 x 4. All sizes are
multiples of what splits them, so that laws hold exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from stepsim.sim.engine.replay import replay
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate
from stepsim.sim.software import software_names
from stepsim.sim.step.lower import Lowered, lower
from stepsim.sim.step.program import Op, Program, Segment

__all__ = ["every_op", "layouts", "lowered", "replay", "scenario", "simulate"]

BLOCKS = ("model", "cluster", "parallelism", "training")


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
        document[next(b for b in BLOCKS if name in FIELDS[b])][name] = value
    par, training = document["parallelism"], document["training"]
    document["cluster"].setdefault("gpus", par["tp"] * par["pp"] * par["dp"])
    training["global_batch"] = training["micro_batch"] * par["dp"] * microbatches
    return scenario_from_document(document, "small")


FIELDS = {
    "model": (
        "num_layers hidden_size num_attention_heads num_query_groups ffn_hidden_size vocab_size mlp"
        " tied_embeddings dropout biases norm position"
    ).split(),
    "cluster": "gpu gpus gpus_per_node interconnect measured_network".split(),
    "parallelism": "tp pp vpp dp zero sequence_parallel stage_split".split(),
    "training": "micro_batch seq_length precision recompute".split(),
}


@st.composite
def layouts(draw: st.DrawFn, **fixed: Any) -> Scenario:
    """Any legal small dense scenario; ``fixed`` fields are not drawn."""

    def pick(name: str, *choices: Any) -> Any:
        return fixed[name] if name in fixed else draw(st.sampled_from(choices), label=name)

    tp, pp = pick("tp", 1, 2, 4), pick("pp", 1, 2, 4)
    schedule = pick("schedule", "gpipe", "1f1b", "interleaved") if pp > 1 else "none"
    interleaved = schedule == "interleaved"
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
        "software": pick("software", *software_names()),
        "mlp": pick("mlp", "gelu", "swiglu", "relu2"),
        "num_query_groups": pick("num_query_groups", 4, 8),
        "num_attention_heads": 8,
        "tied_embeddings": pick("tied_embeddings", False, True),
        "micro_batch": pick("micro_batch", 1, 2),
        "gpu": pick("gpu", "A100-SXM4-80GB", "H100-SXM5-80GB"),
        "gpus_per_node": pick("gpus_per_node", 4, 8),
        "interconnect": "ib-ndr400-x8",
    }
    taken = {"groups", *drawn}
    return scenario(**drawn, **{name: value for name, value in fixed.items() if name not in taken})


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
