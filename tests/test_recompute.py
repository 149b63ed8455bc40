"""Recomputation: what is run again costs its FLOPs once more, and what it gives need not be kept."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refused_at
from small_scenarios import every_op, lowered, scenario

from stepsim.sim.lowering.layers.recompute import OPERATORS, TORCHTITAN, kept_operators
from stepsim.sim.program.program import Compute
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

H, A, S, B, F, LAYERS, MICROBATCHES = 1024, 8, 512, 2, 4096, 4, 3
TOKENS = B * S


def run_of(recompute: Any, **fields: Any) -> Scenario:
    """A Llama-like model on one GPU."""
    sizes = {"hidden_size": H, "num_attention_heads": A, "num_query_groups": 2, "ffn_hidden_size": F}
    work = {"seq_length": S, "micro_batch": B, "microbatches": MICROBATCHES, "num_layers": LAYERS}
    gpu = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8"}
    model = {"mlp": "swiglu", "software": "megatron-core-2025"}
    return scenario(**{**sizes, **work, **gpu, **model, "recompute": recompute, **fields})


def flops(run: Scenario, kind: str = "gemm") -> float:
    ops = every_op(lowered(run).programs.classes[0])
    return sum(n * op.work.flops for op, n in ops if isinstance(op.work, Compute) and op.work.kind == kind)


def activations(run: Scenario) -> float:
    return simulate(run).memory[0].terms["activations"]


MODULES = {
    # FLOPs of matrices that run again, per layer and microbatch; 16-bit elements per token not kept
    "layernorm": (0, 2 * H),
    "mlp": (2 * TOKENS * H * 3 * F, 3 * F),
}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_run_again_and_not_kept(module: str) -> None:
    plain = run_of("none")
    again = run_of({"kind": "modules", "modules": [module]})
    more, fewer = MODULES[module]
    assert flops(again) - flops(plain) == pytest.approx(LAYERS * MICROBATCHES * more)
    dropped = 2.0 * TOKENS * fewer  # of every layer; the one at work makes its own again
    assert activations(plain) - activations(again) == pytest.approx((LAYERS - 1) * dropped)


def test_modules_add_up() -> None:
    both = run_of({"kind": "modules", "modules": ["layernorm", "mlp", "core_attn"]})
    single = [run_of({"kind": "modules", "modules": [name]}) for name in ("layernorm", "mlp", "core_attn")]
    plain = activations(run_of("none"))
    assert plain - activations(both) == pytest.approx(sum(plain - activations(one) for one in single))
    assert flops(both, "attention") > flops(run_of("none"), "attention")


def test_selective_is_the_attention_core() -> None:
    fields = {"software": "megatron-2022-sp"}
    named = simulate(run_of({"kind": "modules", "modules": ["core_attn"]}, **fields))
    assert named.step_time_s == simulate(run_of("selective", **fields)).step_time_s


def test_every_second_product_runs_again() -> None:
    """K, the projection and the second branch are multiplied again."""
    plain, again = run_of("none"), run_of("op_selective")
    keys = 2 * H // A  # two groups of keys
    assert flops(again) - flops(plain) == pytest.approx(
        LAYERS * MICROBATCHES * 2 * TOKENS * H * (keys + H + F)
    )
    assert flops(again, "attention") == flops(plain, "attention")
    assert activations(run_of("full")) < activations(again) < activations(plain)


@pytest.mark.parametrize("recompute", ["op_selective", {"kind": "modules", "modules": ["mlp"]}])
def test_hardware_flops_count_what_runs_again(recompute: Any) -> None:
    plain, again = run_of("none"), run_of(recompute)
    more = simulate(again).hardware_flops - simulate(plain).hardware_flops
    assert more == pytest.approx(flops(again) - flops(plain))


def test_modules_of_other_models_are_refused() -> None:
    with refused_at("training.recompute.modules", "moe_act", "core_attn"):
        lowered(run_of({"kind": "modules", "modules": ["mlp", "moe_act"]}))


def test_lists_of_operators_keep_fused_attention_alone() -> None:
    """torch's lists name the operators of fused kernels; GEMMs and softmax of the chain are others."""
    assert kept_operators(OPERATORS, "fa2") == {*TORCHTITAN}
    assert kept_operators(OPERATORS, "unfused") == {*TORCHTITAN} - {"attention"}
    assert kept_operators(frozenset({"mlp"}), "fa2") is None
