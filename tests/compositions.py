"""Scenarios that combine everything: any sizes of every axis, any stage of ZeRO, recipe, schedule, model.

``combinations`` draws documents without asking whether they are legal. Who builds a scenario from one either
gets it, or a refusal that names a field. Models are tiny, layouts have up to 32 ranks.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from small_scenarios import LOOPED

from stepsim.schedules.pipeline import get, names
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.software import get_software, software_names

GPUS = ("A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM-180GB")
MODULES = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts")


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    """Dense or with experts, with latent attention or not, with or without more tokens predicted."""
    model: dict[str, Any] = {
        "num_layers": 8,
        "hidden_size": 256,
        "num_attention_heads": 8,
        "num_query_groups": draw(st.sampled_from([4, 8])),
        "ffn_hidden_size": 512,
        "vocab_size": 512,
        "mlp": draw(st.sampled_from(["gelu", "swiglu"])),
        "tied_embeddings": draw(st.booleans()),
    }
    if draw(st.booleans()):
        shared = draw(st.sampled_from([0, 1]))
        model["moe"] = {
            "num_experts": 8,
            "topk": draw(st.sampled_from([1, 2])),
            "expert_ffn_hidden_size": 128,
            "num_shared_experts": shared,
            "shared_expert_ffn_hidden_size": 128 * shared,
            "num_dense_layers": draw(st.sampled_from([0, 1])),
            "capacity_factor": draw(st.sampled_from([None, 1.25])),
        }
    if draw(st.integers(0, 3)) == 0:
        model |= {"attention": "mla", "num_query_groups": 8, "kv_channels": 48}
        model["mla"] = {
            "kv_lora_rank": 64,
            "q_lora_rank": draw(st.sampled_from([None, 96])),
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16,
            "v_head_dim": 32,
        }
    return model


@st.composite
def combinations(draw: st.DrawFn) -> dict[str, Any]:
    """A document that names every axis and mode; legal or not."""

    def pick(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    tp, cp, pp, dp = pick(1, 2, 4), pick(1, 1, 2), pick(1, 2, 4), pick(1, 2, 4)
    model, experts = draw(models()), {}
    if "moe" in model:
        experts = {"ep": pick(1, 2, 4), "etp": pick(1, 1, 2)}
    schedule = "none" if pp == 1 else pick(*names())
    zero = pick(0, 1, 2, 3)
    preset, precision = pick(*software_names()), pick("fp32", "fp16", "bf16", "bf16", "fp8", "mxfp8", "nvfp4")
    vpp = 1
    if pp > 1 and (schedule in LOOPED or get(schedule).chunks == 2):
        vpp = 2
    microbatches = pick(4, 8, 8)
    micro_batch = pick(1, 2)
    return {
        "model": model,
        "cluster": {
            "gpu": "B200-SXM-180GB" if precision in ("mxfp8", "nvfp4") else pick(*GPUS),
            "gpus": tp * cp * pp * dp,
            "gpus_per_node": pick(4, 8),
            "interconnect": "ib-ndr400-x8",
        },
        "parallelism": {
            "tp": tp,
            "cp": cp,
            "pp": pp,
            "dp": dp,
            "vpp": vpp,
            **experts,
            "zero": zero,
            "fsdp_shard_size": pick(None, None, 2) if zero else None,
            "sequence_parallel": tp > 1 and pick(True, False),
        },
        "training": {
            "global_batch": micro_batch * dp * microbatches,
            "micro_batch": micro_batch,
            "seq_length": 256,
            "precision": precision,
            "recompute": pick(
                "none",
                "none",
                "selective",
                "full",
                "op_selective",
                {"kind": "modules", "modules": [pick(*MODULES)]},
                {"kind": "full", "layers": 1},
            ),
            "cpu_offload": pick(False, False, False, True),
        },
        "schedule": schedule,
        "software": {"preset": preset, **_kernels(preset, pick)},
    }


def _kernels(preset: str, pick: Any) -> dict[str, Any]:
    """Attention that every drawn GPU has, and how context parallelism exchanges."""
    attention = get_software(preset).attention
    return {
        "attention": "fa2" if attention == "fa3" else attention,
        "cp_comm": pick("p2p", "all_gather", "a2a"),
    }


def build(document: dict[str, Any]) -> Scenario:
    """The scenario; raises ScenarioError where it is not legal."""
    return scenario_from_document(document, "composed")
