"""Layers of experts against those that NVIDIA measured: Megatron-LM's own benchmark of them on eight H100.

NVIDIA/Megatron-LM tests/functional_tests/test_cases/common/moe_perf, baseline.json at 57a0267: milliseconds
of a forward and a backward of one ``MoELayer`` over 4,096 tokens a rank, EP8, routers forced to balance,
behind a GEMM that gives the host a lead. Its activation is a chain of small kernels that multiplies by
the router's probabilities in FP32; ``CHAIN`` are the bytes of an element that no recipe moves.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from stepsim.hardware.calibrated.overlay import calibrated_profile
from stepsim.sim.lowering.layers import moe
from stepsim.sim.lowering.layers.layer_builder import LayerBuilder
from stepsim.sim.lowering.lower import make_plan
from stepsim.sim.program.program import Collective, Compute, Op
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.machine import cluster_of

SHAPES = {"mixtral": (4096, 14336, 8, 2), "deepseek": (7168, 2048, 32, 8)}
"""Width of the model and of an expert, experts, and how many a token visits."""

MEASURED = {
    ("mixtral", "alltoall", "bf16"): (4.327, 7.684),
    ("mixtral", "deepep", "bf16"): (4.636, 7.854),
    ("mixtral", "hybridep", "bf16"): (4.343, 7.741),
    ("deepseek", "alltoall", "bf16"): (7.119, 10.483),
    ("deepseek", "deepep", "bf16"): (5.682, 9.055),
    ("deepseek", "hybridep", "bf16"): (5.391, 8.795),
    ("mixtral", "deepep", "fp8"): (4.101, 6.827),
    ("mixtral", "hybridep", "fp8"): (3.701, 6.572),
    ("deepseek", "deepep", "fp8"): (6.035, 8.602),
    ("deepseek", "hybridep", "fp8"): (5.143, 7.687),
}
CHAIN = (12, 34)
"""GELU, product and cast: 16 bytes forward where 4 are counted; backward 40 where 6 are."""


@cache
def blocks(shape: str, dispatcher: str, precision: str) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """Forward and backward of one layer's experts, op by op."""
    hidden, ffn, experts, topk = SHAPES[shape]
    scenario = scenario_from_document(_document(hidden, ffn, experts, topk, dispatcher, precision), shape)
    cluster = cluster_of(scenario.cluster)
    plan = make_plan(scenario, cluster, calibrated_profile(cluster.gpu, scenario.calibration))
    local = plan.local.of(plan.stages[0].runs[0].kind)
    found = []
    for direction in (moe.moe_forward, moe.moe_backward):
        builder = LayerBuilder(costs=plan.costs, local=local, software=scenario.software)
        direction(builder)
        found.append(tuple(builder.ops))
    return found[0], found[1]


def _document(
    hidden: int, ffn: int, experts: int, topk: int, dispatcher: str, precision: str
) -> dict[str, Any]:
    routed = {"num_experts": experts, "topk": topk, "expert_ffn_hidden_size": ffn}
    return {
        "model": {
            "num_layers": 1, "hidden_size": hidden, "num_attention_heads": 8, "ffn_hidden_size": 4 * hidden,
            "vocab_size": 128, "mlp": "gelu", "biases": False, "moe": routed,
        },
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 8, "gpus_per_node": 8, "interconnect": "nvlink-only"},
        "parallelism": {"ep": 8, "dp": 8},
        "training": {"seq_length": 4096, "global_batch": 8, "micro_batch": 1, "precision": precision},
        "schedule": "none",
        "software": {
            "preset": "megatron-core-2025",
            "kernels": {"moe_router_fusion": True, "fused_activation": False}
            | ({"fp8_scaling": "blockwise"} if precision == "fp8" else {}),
            "exchange": {"moe_dispatcher": dispatcher},
        },
    }  # fmt: skip


def seconds(op: Op) -> float:
    work = op.work
    if isinstance(work, Compute):
        return work.seconds
    assert isinstance(work, Collective)
    return work.transfer.solo_s


def chain_s(shape: str, direction: int) -> float:
    _, ffn, _, topk = SHAPES[shape]
    return CHAIN[direction] * 4096 * topk * ffn / 2.9e12


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("case", [case for case in MEASURED if case[2] == "bf16"])
def test_a_layer_of_experts_takes_what_nvidia_measured(case: tuple[str, str, str], direction: int) -> None:
    predicted_s = sum(map(seconds, blocks(*case)[direction])) + chain_s(case[0], direction)
    assert predicted_s * 1e3 == pytest.approx(MEASURED[case][direction], rel=0.15)


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_rows_of_few_bits_are_padded_unless_the_permutation_does_it(shape: str, direction: int) -> None:
    """What DeepEP's layer takes longer than HybridEP's under FP8 alone are two copies of the rows."""

    def longer_ms(precision: str) -> float:
        return (
            MEASURED[shape, "deepep", precision][direction]
            - MEASURED[shape, "hybridep", precision][direction]
        )

    padded = [op for op in blocks(shape, "deepep", "fp8")[direction] if "pad rows" in op.name]
    assert len(padded) == 2
    assert 1e3 * sum(map(seconds, padded)) == pytest.approx(longer_ms("fp8") - longer_ms("bf16"), rel=0.4)
    for other in (("hybridep", "fp8"), ("deepep", "bf16")):
        assert not [op for op in blocks(shape, *other)[direction] if "pad rows" in op.name]
