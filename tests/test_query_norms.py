"""Norms of queries and keys: their parameters, what distributed heads cost, and which models have them."""

from __future__ import annotations

from typing import Any

import pytest
from importing import scenario as imported_scenario

from stepsim.calibration.cases.model_facts import known_facts
from stepsim.schedules.orders.action import ActionKind
from stepsim.sim.lowering.lower import lower
from stepsim.sim.lowering.parameters import attention_parameters
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.program.program import Op
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.model.catalogue import get_model
from stepsim.sim.simulate import build_cluster

DTENSOR_S, LAUNCH_S = 9e-5, 6e-6
MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8"
    " --seq-length 2048 --max-position-embeddings 2048 --vocab-size 32000 --micro-batch-size 1"
    " --global-batch-size 8 --bf16 --swiglu"
)


def run(*, normed: bool, tp: int = 1, preset: str = "megatron-core-2025", **software: Any) -> Any:
    document: dict[str, Any] = {
        "model": {
            "num_layers": 4,
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "num_query_groups": 4,
            "kv_channels": 128,
            "ffn_hidden_size": 4096,
            "vocab_size": 32000,
            "mlp": "swiglu",
            "qk_norm": normed,
        },
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": tp, "gpus_per_node": 8, "interconnect": "nvlink-only"},
        "parallelism": {"tp": tp, "dp": 1, "sequence_parallel": tp > 1},
        "training": {"seq_length": 2048, "global_batch": 4, "micro_batch": 1, "precision": "bf16"},
        "software": {"preset": preset} | software,
    }
    return scenario_from_document(document, "norms of heads")


def plan_of(**options: Any) -> StepPlan:
    found = run(**options)
    return lower(found, build_cluster(found)).plan


def ops(plan: StepPlan, kind: ActionKind, name: str) -> list[Op]:
    (layer,) = plan.stages[0].runs
    return [op for op in plan.blocks.layer_of(kind, layer).ops if op.name == name]


def test_their_weights_are_parameters() -> None:
    added = [one for one in attention_parameters(plan_of(normed=True).local) if one.name.endswith(" norm")]
    assert [one.shape for one in added] == [(128,), (128,)]


def test_torchtitan_norms_and_turns_heads_that_are_distributed() -> None:
    titan, plain = (
        plan_of(normed=True, tp=4, preset=preset) for preset in ("torchtitan-2025", "generic-fsdp")
    )
    (norms,) = ops(titan, ActionKind.FORWARD, "norms of heads")
    assert norms.host_s == pytest.approx(16 * (DTENSOR_S + LAUNCH_S))
    (turned,) = ops(titan, ActionKind.FORWARD, "rope")
    assert turned.host_s == pytest.approx(10 * (DTENSOR_S + LAUNCH_S))
    (local,) = ops(plain, ActionKind.FORWARD, "norms of heads")
    assert local.host_s < norms.host_s / 2
    (llama,) = ops(plan_of(normed=False, tp=4, preset="torchtitan-2025"), ActionKind.FORWARD, "rope")
    assert llama.host_s == pytest.approx(6 * LAUNCH_S)


def test_a_case_of_the_shape_of_qwen3_has_them() -> None:
    for name in ("qwen3-8b", "qwen3-32b", "qwen3-30b-a3b"):
        shape = get_model(name).model_dump() | {"qk_norm": False}
        assert known_facts(shape)["qk_norm"]
    llama = get_model("llama3.1-8b").model_dump()
    assert known_facts(llama) == llama


def test_megatrons_flag_is_read() -> None:
    given = {"gpus": "8"}
    assert imported_scenario({"pretrain.sh": f"{MEGATRON} --qk-layernorm"}, given).model.qk_norm
    assert not imported_scenario({"pretrain.sh": MEGATRON}, given).model.qk_norm
