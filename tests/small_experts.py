"""Small legal scenarios with experts, for the laws of their layers, groups and exchanges."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from small_scenarios import with_leaves

from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.program.program import Collective, Op, RepeatedBlocks
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schedules import traits_of

LATENT = {
    "kv_lora_rank": 64,
    "q_lora_rank": 128,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
}

BLOCKS = {
    "parallelism": ("tp", "pp", "vpp", "ep", "etp", "zero", "sequence_parallel", "order"),
    "training": ("micro_batch", "seq_length", "recompute", "routing", "precision"),
    "moe": ("num_experts", "topk", "expert_ffn_hidden_size", "shared_expert_ffn_hidden_size",
            "num_dense_layers", "capacity_factor", "layer_freq", "node_limit"),
    "model": ("num_layers", "mla", "mtp_layers", "biases", "clamped_gate", "sliding_window",
              "full_attention_every", "moe"),
    "cluster": ("gpus", "gpus_per_node", "gpu"),
    "schedule_options": ("group",),
}  # fmt: skip


def with_experts(**fields: Any) -> Scenario:
    """A scenario of 4 layers and 16 experts; ``fields`` are leaves by name, schedule, or of the software."""
    document: dict[str, Any] = {
        "model": {
            "num_layers": 4,
            "hidden_size": 256,
            "num_attention_heads": 8,
            "ffn_hidden_size": 1024,
            "vocab_size": 512,
            "mlp": "swiglu",
            "moe": {"num_experts": 16, "topk": 2, "expert_ffn_hidden_size": 512},
        },
        "cluster": {
            "gpu": "H100-SXM5-80GB",
            "gpus": 16,
            "gpus_per_node": 8,
            "interconnect": "ib-ndr400-x8",
        },
        "parallelism": {"tp": 1, "pp": 1, "ep": 8, "zero": 1},
        "training": {"micro_batch": 1, "seq_length": 512, "precision": "bf16"},
        "schedule_options": {},
        "software": {"preset": "megatron-core-2025"},
    }
    microbatches = fields.pop("microbatches", 4)
    for name, value in fields.items():
        if name == "schedule":
            document[name] = value
        elif block := next((b for b, leaves in BLOCKS.items() if name in leaves), None):
            (document["model"]["moe"] if block == "moe" else document[block])[name] = value
        else:
            document["software"] = with_leaves(document["software"], **{name: value})
    par = document["parallelism"]
    par.setdefault("sequence_parallel", par["tp"] > 1)
    replicas = document["cluster"]["gpus"] // (par["tp"] * par["pp"])
    document["training"]["global_batch"] = document["training"]["micro_batch"] * replicas * microbatches
    return scenario_from_document(document, "experts")


@st.composite
def expert_layouts(draw: st.DrawFn, **fixed: Any) -> Scenario:
    """Any legal small scenario with experts; ``fixed`` fields are not drawn."""

    def pick(name: str, *choices: Any) -> Any:
        return fixed[name] if name in fixed else draw(st.sampled_from(choices), label=name)

    tp, pp = pick("tp", 1, 2, 4), pick("pp", 1, 2)
    etp = pick("etp", 1, 2)
    ep = pick("ep", *(size for size in (1, 2, 4, 8) if size * etp <= 16 // pp))
    schedule = pick("schedule", "1f1b", "gpipe", "dualpipe", "zb-h1") if pp > 1 else "none"
    drawn = {
        "tp": tp,
        "pp": pp,
        "ep": ep,
        "etp": etp,
        "schedule": schedule,
        "zero": pick("zero", 0, 1),
        "capacity_factor": pick("capacity_factor", None, 1.0, 1.5),
        "num_dense_layers": pick("num_dense_layers", 0, 1),
        "shared_expert_ffn_hidden_size": pick("shared_expert_ffn_hidden_size", 0, 512),
        "moe_dispatcher": pick("moe_dispatcher", "alltoall", "deepep", "hybridep"),
        "moe_a2a_overlap": traits_of(schedule).overlaps and pick("moe_a2a_overlap", False, True),
        "moe_shared_expert_overlap": pick("moe_shared_expert_overlap", False, True),
        "mla": pick("mla", None, LATENT),
        "mtp_layers": pick("mtp_layers", 0, 1),
        "routing": pick("routing", "balanced", {"kind": "zipf", "exponent": 0.5}),
        "recompute": pick(
            "recompute", "none", "full", {"kind": "modules", "modules": ["moe_act", "layernorm"]}
        ),
        "microbatches": pick("microbatches", 4, 6),
    }
    rest = {name: value for name, value in fixed.items() if name not in drawn}
    return with_experts(**{k: v for k, v in drawn.items() if v is not None}, **rest)


def expert_collectives(lowered: Lowered, axis: str) -> list[Op]:
    """Every collective of that axis that the first class runs in a step, repeated blocks expanded."""
    found = []
    for op in lowered.programs.classes[0].ops:
        if isinstance(op.work, RepeatedBlocks):
            ops = [inner for block in op.work.row for inner in block.ops]
        else:
            ops = [op]
        found += [one for one in ops if isinstance(one.work, Collective) and one.work.communicator == axis]
    return found


def moe_run(recompute: Any, **fields: Any) -> Scenario:
    """Experts in every layer with shared ones, one GPU."""
    return with_experts(recompute=recompute, ep=1, gpus=1, shared_expert_ffn_hidden_size=512, **fields)
