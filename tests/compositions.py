"""Scenarios that combine everything: any sizes of every axis, any stage of ZeRO, recipe, schedule, model.

``combinations`` draws documents without asking whether they are legal. Who builds a scenario from one either
gets it, or a refusal that names a field. Models are tiny, layouts have up to 32 ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from small_scenarios import LOOPED

from stepsim.schedules.pipeline import get, names
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schedules import memory_limited, schedule_names
from stepsim.sim.scenario.software import get_software, software_names
from stepsim.sim.scenario.software.software import grouped

GPUS = ("A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM-180GB")
MODULES = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts")
SCHEDULES = (*names(), *memory_limited())
OVERLAPPED = schedule_names(lambda schedule: schedule.overlaps)
COUNTS_FILE = Path(__file__).with_name("router_counts.json")
IDLE_COUNTS_FILE = Path(__file__).with_name("router_counts_idle.json")  # the latter half gets no token


@st.composite
def models(draw: st.DrawFn, layers: int, experts: bool) -> dict[str, Any]:
    """Dense or with experts; with latent attention or not, windows, and more tokens predicted or not."""

    def pick(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    model: dict[str, Any] = {
        "num_layers": layers,
        "hidden_size": 256,
        "num_attention_heads": 8,
        "num_query_groups": pick(4, 8),
        "ffn_hidden_size": 512,
        "vocab_size": 512,
        "mlp": pick("gelu", "swiglu"),
        "tied_embeddings": pick(True, False),
        "mtp_layers": pick(0, 0, 0, 1),
    }
    if experts:
        shared = pick(0, 1)
        model["moe"] = {
            "num_experts": 8,
            "topk": pick(1, 2),
            "expert_ffn_hidden_size": 128,
            "num_shared_experts": shared,
            "shared_expert_ffn_hidden_size": 128 * shared,
            **pick(
                {},
                {},
                {"num_dense_layers": 1},
                {"layer_freq": 2},
                {"layer_freq": [1, 0, 0, 1] * (layers // 4)},
            ),
            "capacity_factor": pick(None, None, 1.25),
            "node_limit": pick(None, None, 1),
        }
    if pick(True, False, False, False):
        model |= {"attention": "mla", "num_query_groups": 8, "kv_channels": 48}
        model["mla"] = {
            "kv_lora_rank": 64,
            "q_lora_rank": pick(None, 96),
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16,
            "v_head_dim": 32,
        }
    if pick(True, False, False, False):
        model |= {"sliding_window": pick(32, 100, 256), "full_attention_every": pick(0, 2)}
    return model


@st.composite
def combinations(draw: st.DrawFn, experts: bool) -> dict[str, Any]:
    """A document that names every axis and mode; legal or not."""

    def pick(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    tp, cp, pp, dp = pick(1, 2, 4), pick(1, 1, 2, 4), pick(1, 2, 4), pick(1, 2, 4)
    cp = cp if tp * cp * pp * dp <= 32 else 1
    schedule = "none" if pp == 1 else pick(*SCHEDULES, *OVERLAPPED[1:], *OVERLAPPED[1:])
    vpp = 1
    if pp > 1 and (schedule in LOOPED or (schedule in names() and get(schedule).chunks == 2)):
        vpp = 2
    model = draw(models(8 if pp * vpp == 8 else pick(4, 8), experts))
    split = {"ep": pick(1, 2, 4), "etp": pick(1, 1, 2)} if experts else {}
    zero = pick(0, 1, 2, 3)
    preset, precision = pick(*software_names()), pick("fp32", "fp16", "bf16", "bf16", "fp8", "mxfp8", "nvfp4")
    micro_batch, microbatches = pick(1, 2), pick(4, 8, 8)
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
            "cp_a2a": pick(None, None, 2) if cp > 1 else None,
            "pp": pp,
            "dp": dp,
            "vpp": vpp,
            **split,
            "zero": zero,
            "fsdp_shard_size": pick(None, None, 1, 2, dp * cp) if zero else None,
            "sequence_parallel": tp > 1 and pick(True, True, False),
            "stage_split": "uniform",
            "order": pick("tp-cp-ep-dp-pp", "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "cp-tp-ep-dp-pp"),
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
                draw(recomputations()),
            ),
            "routing": draw(routings()) if experts else "balanced",
            "cpu_offload": pick(False, False, False, True),
            "nvme_offload": pick(False, False, False, False, True),
            "activation_offload": pick(False, False, False, True),
        },
        "schedule": schedule,
        "software": {"preset": preset, **grouped(draw(switches(preset, schedule, precision, experts, zero)))},
    }


def recomputations() -> st.SearchStrategy[dict[str, Any]]:
    """Some layers by each rule, or all but some operators."""
    return st.sampled_from(
        [
            {"kind": "full", "layers": 1},
            {"kind": "full", "layers": 1, "method": "block"},
            {"kind": "full", "layers": 2, "method": "uniform"},
            {"kind": "full", "every": 2},
            {"kind": "operators", "keep": ["mm"]},
            {"kind": "operators", "keep": ["every_second_mm", "grouped_mm", "attention", "all_to_all"]},
        ]
    )


def routings() -> st.SearchStrategy[Any]:
    """Even, drawn or in turn, by Zipf's law, or as counted in a run."""
    files = [{"kind": "counts", "file": str(file)} for file in (COUNTS_FILE, IDLE_COUNTS_FILE)]
    return st.sampled_from(["balanced", "in_turn", {"kind": "zipf", "exponent": 0.5}, *files])


@st.composite
def switches(
    draw: st.DrawFn, preset: str, schedule: str, precision: str, experts: bool, zero: int
) -> dict[str, Any]:
    """What of a preset may be otherwise, by field; attention is one that every drawn GPU has."""

    def pick(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    own = get_software(preset)
    reduction = pick(own.gradients.reduction, "buckets", "megatron-buckets", "nanotron-buckets")
    implementation = pick(own.sharding.implementation, "fsdp1", "fsdp2", "megatron-fsdp", "xla")
    dispatcher = pick("alltoall", "deepep", "hybridep")
    fused_loss = pick(False, False, True)
    return {
        "attention": pick("fa2" if own.kernels.attention == "fa3" else own.kernels.attention, "fa2"),
        "cp_comm": pick("p2p", "all_gather", "a2a"),
        "cp_engine": pick(own.exchange.cp_engine, "transformer-engine"),
        "tp_comm_overlap": pick(own.exchange.tp_comm_overlap, True, False),
        "tp_overlap_style": pick("userbuffers", "local-shard"),
        "moe_dispatcher": dispatcher,
        "arrivals_indexed_by_torch": experts and dispatcher == "deepep" and pick(True, False),
        "router_loss": experts and pick(own.exchange.router_loss, True, False),
        "moe_a2a_overlap": pick(True, False) if schedule in OVERLAPPED else pick(*[False] * 9, True),
        "moe_shared_expert_overlap": pick(True, False),
        "grouped_gemm": pick("streams", "one-kernel", "stacked"),
        "implementation": implementation,
        "lists": implementation == "deepspeed" and zero == 3 and pick(True, False),
        "reduce": pick("each", "each", "last"),
        "recompute_stops_early": pick(own.kernels.recompute_stops_early, True, False),
        "reshard_after_forward": pick("default", "default", "always", "never"),
        "overlapped_point_to_point": pick(own.pipeline.overlapped_point_to_point, "batched"),
        "overlap_grad_reduce": pick(own.gradients.overlap_grad_reduce, True, False),
        "overlap_param_gather": pick(own.gradients.overlap_param_gather, True, False),
        "reduction": reduction,
        "bucket_elements": pick(own.gradients.bucket_elements, 1e5),
        "nan_check": pick(own.gradients.nan_check, True, False),
        "zero1_reduce_scatters": pick(True, True, False),
        "zero1_broadcasts": reduction != "nanotron-buckets" and pick(False, False, True),
        "reduce_grad_bytes": pick(own.gradients.reduce_grad_bytes, 2, 4),
        "fp8_parameters": pick(True, False),
        "fp8_dispatch": pick(True, False),
        "deepep_elastic": pick(True, False),
        "scatter_gather_p2p": pick(own.pipeline.scatter_gather_p2p, True, False),
        "split_gate": pick(True, False),
        "optimizer_post_validation": pick(False, False, True),
        "exchange_sms": pick(0, 0, 20),
        "fp8_wgrad_rate": pick(1.0, 0.8),
        "collective_checks": pick(False, False, True),
        "step_barrier": pick(False, False, True),
        "persistent_elements": 0.0,  # DeepSpeed's small parameters have a test of their own
        "fused_qkv_rope": pick(True, False),
        "grouped_heads_copied": pick(own.kernels.grouped_heads_copied, True, False),
        "norm_grad_by_columns": own.kernels.norm_grad_apart and pick(True, False),
        "unrolled": own.sharding.implementation == "xla" and pick(True, False),
        "weighted_rows": experts and pick(own.kernels.weighted_rows, True, False),
        **({"cross_entropy": "fused", "metrics_copy_logits": pick(True, False)} if fused_loss else {}),
        **(
            {"fp8_scaling": pick(own.kernels.fp8_scaling, "current", "blockwise")}
            if precision == "fp8"
            else {}
        ),
    }


def build(document: dict[str, Any]) -> Scenario:
    """The scenario; raises ScenarioError where it is not legal."""
    return scenario_from_document(document, "composed")
