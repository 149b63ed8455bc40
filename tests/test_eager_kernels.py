"""Traffic of chains of small kernels: eager RMSNorm, rotary embedding, casts of fresh gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from eager_costs import COSTS
from small_scenarios import lowered, scenario

from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.kernel import MemoryBound
from stepsim.kernels.memory_bound import memory_bound_seconds
from stepsim.sim.lowering.layers.attention_core import attention_backward, attention_forward
from stepsim.sim.lowering.layers.layer_builder import LayerBuilder
from stepsim.sim.lowering.layers.linear import accumulate_gradient
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.loss import loss_backward
from stepsim.sim.lowering.layers.norms import norm, norm_backward
from stepsim.sim.lowering.layers.pointwise import activation, activation_backward, rearrange_backward, rope
from stepsim.sim.program.program import Collective, Compute
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.software import get_software
from stepsim.sim.scenario.software.software import Software

LLAMA = scenario(mlp="swiglu", software="aleph-alpha-2023")
LOCAL = local_shape_of(LLAMA)


def written(write: Any, software: Software, **options: Any) -> tuple[float, float]:
    """Bytes and launches of what ``write`` appends under its first name, with the parts of that."""
    builder = LayerBuilder(costs=COSTS, local=LOCAL, software=software)
    write(builder, **options)
    first = builder.ops[0].name.split(",")[0]
    ops = [(op.work, op.host_s) for op in builder.ops if op.name.split(",")[0] == first]
    return sum(work.bytes for work, _ in ops if isinstance(work, Compute)), sum(host_s for _, host_s in ops)


def preset(name: str = "aleph-alpha-2023", **fields: Any) -> Software:
    return get_software(name).with_fields(**fields)


def test_eager_rmsnorm_moves_every_intermediate_of_the_chain_and_of_its_gradient() -> None:
    elements = LOCAL.norm_tokens * LOCAL.hidden
    assert written(norm, preset(fused_norm=False))[0] == 36 * elements
    assert written(norm_backward, preset(fused_norm=False))[0] == 92 * elements
    assert written(norm_backward, preset(fused_norm=True))[0] == 6 * elements


@pytest.mark.parametrize(("write", "bytes_an_element"), [(norm, 4), (norm_backward, 6)])
def test_eager_layernorm_is_an_operator_of_torch_with_one_kernel_each_way(
    write: Any, bytes_an_element: int
) -> None:
    local = local_shape_of(scenario(mlp="gelu", software="generic-fsdp"))
    builder = LayerBuilder(costs=COSTS, local=local, software=preset("generic-fsdp"))
    write(builder)
    work = builder.ops[0].work
    assert isinstance(work, Compute)
    assert (work.bytes, builder.ops[0].host_s) == (bytes_an_element * local.norm_tokens * local.hidden, 1.0)
    assert written(write, preset("generic-fsdp"))[1] > 1  # of RMSNorm


def kernels_of_norm_backward(model: str = "gelu", **fields: Any) -> list[tuple[str, float, MemoryBound]]:
    """Name, launches and work of each kernel of a norm's backward, without the residual's gradient."""
    priced: list[MemoryBound] = []

    def seconds(kernel: Any) -> float:
        priced.append(kernel)
        return 1.0

    local = local_shape_of(scenario(mlp=model, software="aleph-alpha-2023"))
    builder = LayerBuilder(costs=replace(COSTS, seconds=seconds), local=local, software=preset(**fields))
    norm_backward(builder)
    names = [(op.name, op.host_s) for op in builder.ops[:-1]]
    return [(*name, kernel) for name, kernel in zip(names, priced[:-1], strict=True)]


def test_a_norms_weight_gradient_by_itself_reads_both_inputs_again() -> None:
    size = LOCAL.norm_tokens * LOCAL.hidden * LOCAL.element_bytes
    together, apart = (kernels_of_norm_backward(norm_grad_apart=way) for way in (False, True))
    assert [(host_s, work.hbm_bytes) for _, host_s, work in together] == [(1, 3 * size)]
    assert [(host_s, work.hbm_bytes) for _, host_s, work in apart] == [(1, 3 * size), (1, 2 * size)]
    assert all(not work.in_turn for _, _, work in apart)


def test_torchs_layernorm_sums_its_weight_gradient_column_by_column_however_many_rows_there_are() -> None:
    """9 ns a row: what is left of PyTorch's own table of an A100 (sim/lowering/layers/norms.py)."""
    ways: dict[str, Any] = {"norm_grad_apart": True, "norm_grad_by_columns": True}
    _, (name, _, work) = kernels_of_norm_backward(**ways)
    assert name == "norm weight gradient"
    assert work.in_turn == 2 * LOCAL.norm_tokens / 32
    gpu, profile = get_gpu("H100-SXM5-80GB"), load_profile("H100-SXM5-80GB")
    narrow, wide = (
        memory_bound_seconds(MemoryBound(hbm_bytes=4.0 * 32_768 * columns, in_turn=2_048.0), gpu, profile)
        for columns in (1_536, 16_384)
    )
    assert narrow / 32_768 == pytest.approx(9e-9, rel=0.05)  # 7 times what its bytes take
    assert wide > 2 * narrow  # bytes are the longer ones again

    of_rms_norm = kernels_of_norm_backward("swiglu", **ways)  # torch has none with such kernels
    compiled = kernels_of_norm_backward(torch_compile=True, **ways)
    assert not any(work.in_turn for _, _, work in (*of_rms_norm, *compiled))


def test_torchs_layernorm_has_two_kernels_and_a_compilers_one() -> None:
    """Whatever norm_grad_apart says of a library: no library has the norm."""
    size = LOCAL.norm_tokens * LOCAL.hidden * LOCAL.element_bytes
    eager = kernels_of_norm_backward(fused_norm=False)
    assert [work.hbm_bytes for _, _, work in eager] == [3 * size, 2 * size]
    (_, _, work), (_, _, columns) = kernels_of_norm_backward(fused_norm=False, norm_grad_by_columns=True)
    assert (work.in_turn, columns.in_turn) == (0.0, 2 * LOCAL.norm_tokens / 32)
    assert len(kernels_of_norm_backward(fused_norm=False, torch_compile=True)) == 1
    chain = kernels_of_norm_backward("swiglu", fused_norm=False)  # torch's, in two parts
    assert [name for name, _, _ in chain] == ["norm backward", "norm backward, by element"]


def test_columns_are_summed_apart_or_not_at_all() -> None:
    with pytest.raises(ScenarioError, match=r"norm_grad_apart is false"):
        scenario(
            mlp="gelu",
            software={"preset": "aleph-alpha-2023", "kernels": {"norm_grad_by_columns": True}},
        )


def test_gradients_of_q_k_and_v_are_copied_together_and_summed_for_their_biases() -> None:
    software = get_software("megatron-2022-sp")
    local = local_shape_of(scenario(mlp="gelu", software="megatron-2022-sp"))
    size = local.tokens * local.qkv_width * local.element_bytes
    wide = local.tokens * local.ffn * local.element_bytes

    def traffic(write: Any, **fields: Any) -> list[float]:
        builder = LayerBuilder(costs=COSTS, local=local, software=software.with_fields(**fields))
        write(builder)
        return [op.work.bytes for op in builder.ops if isinstance(op.work, Compute)]

    assert traffic(rearrange_backward) == [2 * size, size]
    assert traffic(rearrange_backward, bias_grad_apart=False) == [2 * size]
    assert traffic(rearrange_backward, bias_grad_apart=False, qkv_grad_joined=False) == []
    assert traffic(activation_backward) == [3 * wide, wide]
    assert traffic(activation_backward, bias_grad_apart=False) == [3 * wide]


@pytest.mark.parametrize(
    ("mlp", "attention", "copied"), [("gelu", "fa2", 1), ("gelu", "cudnn", 0), ("swiglu", "fa2", 0)]
)
def test_flash_attention_of_transformer_engine_wants_q_k_and_v_apart(
    mlp: str, attention: str, copied: int
) -> None:
    """Before the forward, and behind the backward; rotary positions have made queries and keys anew."""
    software = get_software("nemo-2024").with_fields(attention=attention)
    local = local_shape_of(scenario(mlp=mlp, software="nemo-2024"))
    moved = 2 * local.tokens * local.qkv_width * local.element_bytes
    forward, backward = (LayerBuilder(costs=COSTS, local=local, software=software) for _ in range(2))
    attention_forward(forward)
    attention_backward(backward)
    kernels = [[op.work for op in one.ops if isinstance(op.work, Compute)] for one in (forward, backward)]
    assert [work.bytes for work in kernels[0][:-1]] == copied * [moved]
    assert [work.bytes for work in kernels[1][1:]] == copied * [moved]
    assert kernels[0][-1].kind == kernels[1][0].kind == "attention"


@pytest.mark.parametrize("write", [activation, activation_backward])
def test_megatron_deepspeed_fuses_gelu_and_leaves_swiglu_to_torch(write: Any) -> None:
    """bias_gelu_fusion is of GELU; SwiGLU is torch.chunk, F.silu and a product (model/transformer.py)."""
    deepspeed = preset("megatron-deepspeed-2022")
    assert written(write, deepspeed) == written(write, preset(fused_activation=False))
    gelu = LayerBuilder(costs=COSTS, local=local_shape_of(scenario(mlp="gelu")), software=deepspeed)
    write(gelu)
    assert gelu.ops[0].host_s == 1.0
    assert written(write, deepspeed.with_fields(fused_gate=True)) == written(
        write, preset(fused_activation=True)
    )


@pytest.mark.parametrize("preset_name", ["megatron-deepspeed-2022", "bigscience-2022"])
def test_megatron_deepspeed_turns_heads_with_torch(preset_name: str) -> None:
    """megatron/model/rotary_pos_embedding.py, apply_rotary_pos_emb."""
    assert written(rope, preset(preset_name))[0] == 10.0 * LOCAL.query_bytes


def test_rotate_half_costs_half_as_much_again_backward() -> None:
    size = LOCAL.tokens * (LOCAL.heads + LOCAL.kv_heads) * LOCAL.head_dim * LOCAL.element_bytes
    assert written(rope, preset())[0] == 10 * size
    assert written(rope, preset(), backward=True)[0] == 15 * size


def test_products_of_complex_numbers_cost_the_same_both_ways() -> None:
    ways = [written(rope, preset("torchtitan-2024"), backward=way) for way in (False, True)]
    assert ways[0] == ways[1]
    assert ways[0][0] == written(rope, preset())[0]  # 20 bytes an element, as rotate_half forward


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_loss_for_metrics_casts_the_logits_and_writes_their_log_softmax(times: int) -> None:
    """2 bytes r, 4 w; 4 r, 4 w, and what outgrows the second cache is read twice more: behind the gradient of
    the loss that is trained on."""
    software = preset("llm-foundry-2023", logged_losses=times)
    builder = LayerBuilder(costs=COSTS, local=LOCAL, software=software)
    loss_backward(builder)
    found = [(op.work.bytes, op.host_s) for op in builder.ops[1:] if isinstance(op.work, Compute)]
    logits = times * LOCAL.tokens * LOCAL.vocabulary
    again = 8.0 * LOCAL.vocabulary / 50_000
    expected = [(6.0 * logits, times), (pytest.approx((8.0 + again) * logits), 5 * times)]
    assert found == (expected if times else [])


@pytest.mark.parametrize(("precision", "per_parameter", "launches"), [("bf16", 18, 2), ("fp16", 6, 1)])
def test_a_fresh_gradient_is_cast_where_its_type_is_another(
    precision: str, per_parameter: int, launches: int
) -> None:
    software = get_software("megatron-deepspeed-2022")
    local = local_shape_of(scenario(precision=precision, software="megatron-deepspeed-2022"))
    builder = LayerBuilder(costs=COSTS, local=local, software=software)
    accumulate_gradient(builder, 100.0)
    works = [op.work for op in builder.ops if isinstance(op.work, Compute)]
    assert sum(work.bytes for work in works) == 100 * per_parameter
    assert sum(op.host_s for op in builder.ops) == len(works) == launches


@pytest.mark.parametrize(("precision", "kind"), [("bf16", "all_reduce"), ("fp16", "reduce_scatter")])
def test_deepspeeds_bf16_optimizer_all_reduces_what_it_shards(precision: str, kind: str) -> None:
    given = scenario(dp=2, zero=1, precision=precision, software="megatron-deepspeed-2022")
    program = lowered(given).programs.classes[0]
    reduced = [op.work for op in program.ops if op.name.startswith("gradient ") and op.stream == "dp"]
    assert {work.kind for work in reduced if isinstance(work, Collective)} == {kind}


def test_a_gate_that_nothing_fuses_sums_its_biases_gradients_by_itself() -> None:
    """As an activation that nothing fuses does."""
    fields: dict[str, Any] = {"fused_activation": True, "bias_grad_apart": False}

    def sums(mlp: str, **more: bool) -> int:
        run = scenario(mlp=mlp, biases=True, software="aleph-alpha-2023")
        software = preset(**fields | more)
        builder = LayerBuilder(costs=COSTS, local=local_shape_of(run), software=software)
        activation_backward(builder)
        return sum(op.name == "bias gradient" for op in builder.ops)

    assert sums("swiglu", fused_gate=False) == sums("gelu", fused_activation=False) == 1
    assert sums("swiglu") == sums("gelu", fused_gate=False) == 0
