"""What a loop in C++ launches costs its host less than as many launches from Python, and a module of
TransformerEngine more than its GEMM."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import WIDE, lowered, scenario

from stepsim.hardware.node import NODES
from stepsim.schedules.orders.action import ActionKind
from stepsim.sim.lowering.host_prices import (
    FUSED_MLP_BACKWARD_S,
    FUSED_MLP_FORWARD_S,
    KERNEL_IN_LOOP_S,
    PRODUCT_IN_LOOP_S,
    WEIGHT_IN_MODULE_S,
)
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.program.program import Op

LAUNCH_S = 4e-5
GRACE = NODES.get("NVL72 compute tray")
HELD = 4


def plan_of(
    *,
    tp: int = 1,
    precision: str = "bf16",
    gpu: str = "B200-SXM-180GB",
    recompute: str = "none",
    node_limit: int | None = None,
    **software: Any,
) -> StepPlan:
    run = scenario(
        **WIDE | {"num_layers": 2},
        moe={"num_experts": HELD, "topk": 2, "expert_ffn_hidden_size": 2048, "node_limit": node_limit},
        gpu=gpu,
        gpus_per_node=4,
        interconnect="nvlink-only",
        tp=tp,
        ep=1,
        sequence_parallel=tp > 1,
        precision=precision,
        recompute=recompute,
        microbatches=1,
        software={"preset": "megatron-core-2025"} | software,
    )
    return lowered(run).plan


def ops(plan: StepPlan, kind: ActionKind = ActionKind.FORWARD) -> list[Op]:
    (run,) = plan.stages[0].runs
    return list(plan.blocks.layer_of(kind, run).ops)


def launches(plan: StepPlan, name: str, kind: ActionKind = ActionKind.FORWARD) -> list[float]:
    return [op.host_s / LAUNCH_S for op in ops(plan, kind) if op.name == name]


def test_a_module_of_transformer_engine_costs_more_than_its_launch() -> None:
    assert launches(plan_of(), "proj") == pytest.approx([2.9])
    assert launches(plan_of(host={"launches_per_product": 1.0}), "proj") == pytest.approx([1.0])
    assert launches(plan_of(), "router") == pytest.approx([1.0])  # torch's own


def test_attention_of_transformer_engine_costs_many_launches() -> None:
    assert launches(plan_of(), "attention") == pytest.approx([12.0])  # docs/decisions/0179
    assert launches(plan_of(host={"launches_per_attention": 1.0}), "attention") == pytest.approx([1.0])
    assert launches(plan_of(kernels={"attention": "unfused"}), "QK^T") == pytest.approx([12.0])


@pytest.mark.parametrize(("recompute", "again"), [("selective", 1.0), ("full", 12.0)])
def test_attention_that_runs_again_calls_its_module_where_the_whole_layer_does(
    recompute: str, again: float
) -> None:
    """Core attention alone is what the module itself runs again, within its backward."""
    plan = plan_of(recompute=recompute)
    assert launches(plan, "attention", ActionKind.BACKWARD) == pytest.approx([again])


def test_a_router_without_groups_launches_what_its_code_does() -> None:
    assert launches(plan_of(), "top-k") == pytest.approx([33.0])
    assert launches(plan_of(node_limit=1), "top-k") == pytest.approx([57.0])


def test_products_of_experts_are_launched_by_one_call() -> None:
    calls = 2.9 + (HELD - 1) * PRODUCT_IN_LOOP_S / LAUNCH_S
    assert launches(plan_of(), "expert fc1") == pytest.approx([calls])
    # and each weight of theirs has a hook in Python, which launches nothing where the GEMM adds gradients up
    hooks = HELD * WEIGHT_IN_MODULE_S / LAUNCH_S
    found = launches(plan_of(), "expert fc1 wgrad", ActionKind.BACKWARD)
    assert found == pytest.approx([calls + hooks])
    apart = plan_of(kernels={"fused_wgrad_accumulation": False})
    assert launches(apart, "expert fc1 wgrad", ActionKind.BACKWARD) == pytest.approx([calls + HELD])
    one = plan_of(kernels={"grouped_gemm": "one-kernel"})
    assert launches(one, "expert fc1") == pytest.approx([2.9])
    assert launches(one, "expert fc1 wgrad", ActionKind.BACKWARD) == pytest.approx([2.9 + hooks])
    # which are one weight where torch multiplies all of them (docs/decisions/0206-experts-as-one-weight.md)
    stacked = plan_of(kernels={"grouped_gemm": "stacked"})
    assert launches(stacked, "expert fc1") == pytest.approx([2.9])
    assert launches(stacked, "expert fc1 wgrad", ActionKind.BACKWARD) == pytest.approx([2.9 + 1])


def test_a_fused_mlp_of_experts_is_one_call_each_way() -> None:
    """As a GB200's host was timed, quantising included; hooks of weights come on top."""
    fused = plan_of(precision="mxfp8", kernels={"grouped_gemm": "one-kernel", "fused_grouped_mlp": True})
    forward, backward = FUSED_MLP_FORWARD_S / LAUNCH_S / 2, FUSED_MLP_BACKWARD_S / LAUNCH_S / 4
    hooks = HELD * WEIGHT_IN_MODULE_S / LAUNCH_S
    for name in ("expert fc1", "expert fc2"):
        assert launches(fused, name) == pytest.approx([forward])
        assert launches(fused, f"{name} dgrad", ActionKind.BACKWARD) == pytest.approx([backward])
        assert launches(fused, f"{name} wgrad", ActionKind.BACKWARD) == pytest.approx([backward + hooks])
    assert launches(fused, "quantise")[-1] == 0
    apart = plan_of(precision="mxfp8", kernels={"grouped_gemm": "one-kernel"})
    assert launches(apart, "quantise")[-1] > 0


@pytest.mark.parametrize(("precision", "scaling", "first"), [("mxfp8", None, 2), ("fp8", "current", 2.1)])
def test_rows_of_each_expert_are_quantised_by_themselves(
    precision: str, scaling: str | None, first: float
) -> None:
    plan = plan_of(precision=precision, kernels={"fp8_scaling": scaling} if scaling else {})
    wanted = first + 2 * (HELD - 1) * KERNEL_IN_LOOP_S / LAUNCH_S
    assert launches(plan, "quantise")[-1] == pytest.approx(wanted)


def test_scales_of_earlier_steps_are_applied_to_all_experts_at_once() -> None:
    plan = plan_of(precision="fp8", kernels={"fp8_scaling": "delayed"})
    assert launches(plan, "quantise")[-1] == pytest.approx(1.2)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_quantiser_makes_both_layouts_in_one_call_unless_what_it_made_is_gathered(
    sequence_parallel: bool,
) -> None:
    """docs/decisions/0180-quantisers-and-the-host.md."""
    tp = 4 if sequence_parallel else 1
    delayed = {"fp8_scaling": "delayed", "hopper_products": "two-passes"}
    plan = plan_of(gpu="GH200-96GB", tp=tp, precision="fp8", kernels=delayed)
    backward = launches(plan, "transpose quantised", ActionKind.BACKWARD)
    assert 0.0 in backward
    assert any(backward) == sequence_parallel
    apart = plan_of(gpu="GH200-96GB", precision="fp8", kernels=delayed, host={"python_quantisers": False})
    assert all(launches(apart, "transpose quantised", ActionKind.BACKWARD))


def test_userbuffers_are_one_call_and_none_of_torchs() -> None:
    plan = plan_of(tp=4, exchange={"tp_comm_overlap": True})
    ring = [op for op in ops(plan) if op.name == "qkv ring all_gather"]
    chunks = [op for op in ops(plan) if op.name == "qkv"]
    assert len(chunks) == 4
    assert len(ring) == 3
    assert sum(op.host_s for op in chunks) == pytest.approx(2.9 * LAUNCH_S + 3 * PRODUCT_IN_LOOP_S)
    assert all(op.host_s == pytest.approx(3 * KERNEL_IN_LOOP_S) for op in ring)  # copy, signal, wait


def test_a_product_in_a_loop_takes_what_was_measured_of_both_hosts() -> None:
    """torch's Linear forward on x86 and on GH200 (TransformerEngine issue 2053); of eight small GEMMs in a
    loop on Blackwell each takes 33 us (its pull request 3134)."""
    assert pytest.approx(13.48e-6) == PRODUCT_IN_LOOP_S
    assert pytest.approx(33e-6, rel=0.01) == PRODUCT_IN_LOOP_S * GRACE.loop_factor


def test_a_loop_on_grace_has_its_own_factor() -> None:
    forward = [plan_of(gpu=gpu) for gpu in ("B200-SXM-180GB", "GH200-96GB")]
    x86, grace = ([op.host_s for op in ops(plan) if op.name == "expert fc1"] for plan in forward)
    calls = 2.9 * LAUNCH_S * GRACE.launch_factor + (HELD - 1) * PRODUCT_IN_LOOP_S * GRACE.loop_factor
    assert grace == pytest.approx([calls])
    assert x86 == pytest.approx([2.9 * LAUNCH_S + (HELD - 1) * PRODUCT_IN_LOOP_S])


def test_no_loop_costs_more_than_launches_from_python() -> None:
    bare = plan_of(host={"host_s_per_kernel": 6e-6, "launches_per_product": 1.0})
    (found,) = [op.host_s for op in ops(bare) if op.name == "expert fc1"]
    assert found == pytest.approx(HELD * 6e-6)


def test_graphs_take_all_of_it() -> None:
    assert not any(op.host_s for op in ops(plan_of(tp=4, host={"cuda_graphs": True})))


def test_functions_between_modules_cost_more_than_their_launch_forward() -> None:
    """docs/decisions/0179-parts-of-a-layers-host.md."""
    forward, back = plan_of(), ActionKind.BACKWARD
    for name in ("rope", "activation"):
        assert launches(forward, name) == pytest.approx([3.2])
        assert launches(forward, f"{name} backward", back) == pytest.approx([1.0])
    assert launches(forward, "bias, dropout, add") == pytest.approx([3.2, 3.2])
    assert launches(plan_of(host={"launches_per_function": 1.0}), "rope") == pytest.approx([1.0])


def test_a_norm_by_itself_is_a_module_and_one_in_a_products_module_is_not() -> None:
    assert launches(plan_of(), "norm") == pytest.approx([1.0, 2.9])  # ahead of QKV's GEMM, and of experts
