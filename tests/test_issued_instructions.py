"""Kernels that move bytes and are bound by the instructions that they issue: which, and for how long."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from small_experts import LATENT, with_experts
from small_scenarios import lowered, scenario

from stepsim.calibration.cases.framework_text import fields_of_words
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.kernel import Kernel, MemoryBound
from stepsim.kernels.memory_bound import issued_per_s
from stepsim.schedules.orders.action import ActionKind
from stepsim.sim.lowering.layers.attention_core import attention_backward, attention_forward
from stepsim.sim.lowering.layers.expert_biases import add_biases, add_biases_backward
from stepsim.sim.lowering.layers.layer_builder import KernelPricing, LayerBuilder
from stepsim.sim.lowering.layers.local_shape import LocalShape, local_shape_of
from stepsim.sim.lowering.layers.pointwise import (
    GATED,
    JOINED,
    WEIGHTED,
    activation,
    activation_backward,
    rope,
)
from stepsim.sim.lowering.layers.strided import STRIDED
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Compute
from stepsim.sim.scenario.software import get_software


def instructions(
    write: Any, local: LocalShape, *, preset: str = "megatron-core-2025", **fields: Any
) -> float:
    """Those of the one kernel that ``write`` appends."""
    ((_, kernel),) = written(write, local, preset=preset, **fields).items()
    return kernel.instructions


def written(
    write: Any, local: LocalShape, *, preset: str = "megatron-core-2025", **fields: Any
) -> dict[str, MemoryBound]:
    """By name, the kernels that ``write`` appends."""
    priced: list[Kernel] = []

    def seconds(kernel: Kernel) -> float:
        priced.append(kernel)
        return 1.0

    costs = KernelPricing(
        seconds=seconds,
        transfer=lambda axis, kind, size: Transfer(latency_s=0.0, bytes=size, ceiling_bytes_per_s=1.0),
        host_s=1.0,
        host_collective_s=1.0,
    )
    builder = LayerBuilder(costs=costs, local=local, software=get_software(preset).with_fields(**fields))
    write(builder)
    names = [op.name for op in builder.ops]
    return {
        name: kernel for name, kernel in zip(names, priced, strict=True) if isinstance(kernel, MemoryBound)
    }


@pytest.mark.parametrize("name", ["A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM-180GB", "MI300X"])
def test_a_kernel_takes_the_longer_of_its_bytes_and_its_instructions(name: str) -> None:
    gpu, profile = get_gpu(name), load_profile(name)
    moved = MemoryBound(hbm_bytes=1e9)
    if gpu.vendor == "AMD":
        few, many = (replace(moved, vector_instructions=count) for count in (1e9, 1e12))
    else:
        few, many = (replace(moved, instructions=count) for count in (1e9, 1e12))
    fixed_s = kernel_seconds(MemoryBound(hbm_bytes=0.0), gpu, profile)
    assert kernel_seconds(few, gpu, profile) == kernel_seconds(moved, gpu, profile)
    assert kernel_seconds(many, gpu, profile) - fixed_s == pytest.approx(1e12 / issued_per_s(gpu, profile))


def test_amds_vector_units_take_longer_for_a_joined_gradient() -> None:
    """A step of GPT-OSS 20B on an MI355X, two sequences of 8,192 tokens through 24 layers of four experts
    2,880 wide, has 30.6 ms of it, which NVIDIA's instructions would be 16 of (AMD's notes on GPT-OSS 20B;
    docs/decisions/0267-amds-own-instructions-and-attention.md). Its clamps were not counted."""
    gpu, profile = get_gpu("MI355X"), load_profile("MI355X")
    outputs = 2.0 * 8192 * 24 * 4 * 2 * 2880
    issued = WEIGHTED * outputs
    joined = MemoryBound(
        hbm_bytes=outputs * 5, instructions=issued.nvidia, vector_instructions=issued.amd, launches=24
    )
    assert 0.70 < kernel_seconds(joined, gpu, profile) / 30.6e-3 < 1.0


def test_each_makers_gpus_issue_their_own_code() -> None:
    local = local_shape_of(scenario(mlp="swiglu"))
    ((_, kernel),) = written(activation_backward, local).items()
    outputs = 2.0 * local.tokens * local.ffn
    assert (kernel.instructions, kernel.vector_instructions) == pytest.approx(
        (JOINED.nvidia * outputs, JOINED.amd * outputs)
    )
    for name, count in (("H100-SXM5-80GB", kernel.instructions), ("MI300X", kernel.vector_instructions)):
        gpu, profile = get_gpu(name), load_profile(name)
        alone = replace(kernel, hbm_bytes=0.0)
        fixed_s = kernel_seconds(MemoryBound(hbm_bytes=0.0), gpu, profile)
        assert kernel_seconds(alone, gpu, profile) - fixed_s == pytest.approx(
            count / issued_per_s(gpu, profile)
        )


def test_a_compiled_activation_is_bound_by_issuing_on_cdna_4_alone() -> None:
    """Vector units of an MI300X keep up with its bytes; fewer of an MI350X, beside more bytes, do not."""
    local = local_shape_of(scenario(mlp="swiglu"))
    ((_, kernel),) = written(activation, local).items()
    assert (kernel.instructions, kernel.vector_instructions) == (
        0.0,
        pytest.approx(GATED.amd * local.tokens * local.ffn),
    )
    for name, longer in (("MI300X", 1.0), ("MI350X", 1.2)):
        gpu, profile = get_gpu(name), load_profile(name)
        large = replace(
            kernel, hbm_bytes=1000 * kernel.hbm_bytes, vector_instructions=1000 * kernel.vector_instructions
        )
        bytes_s = kernel_seconds(replace(large, vector_instructions=0.0), gpu, profile)
        assert kernel_seconds(large, gpu, profile) / bytes_s == pytest.approx(longer, abs=0.1), name


def test_torchs_casts_and_masks_pass_by_bytes_on_amds_gpus() -> None:
    """ROCm's torch has kernels of its own for them (strided.py)."""
    for name in ("MI300X", "MI325X", "MI350X", "MI355X"):
        gpu, profile = get_gpu(name), load_profile(name)
        for what, size in (("cast to FP32", 6), ("choose", 4)):
            moved = MemoryBound(hbm_bytes=size * 1e9)
            issued = replace(moved, vector_instructions=STRIDED[what].amd * 1e9)
            assert kernel_seconds(issued, gpu, profile) == pytest.approx(
                kernel_seconds(moved, gpu, profile), rel=0.12
            ), (name, what)


def test_issuing_follows_the_clock() -> None:
    gpu, profile = get_gpu("H200-SXM-141GB"), load_profile("H200-SXM-141GB")
    half = replace(profile, clock_fraction=profile.clock_fraction / 2)
    assert issued_per_s(gpu, half) == pytest.approx(issued_per_s(gpu, profile) / 2)


def test_the_backward_of_llama_405bs_activation_takes_what_a_b200_took() -> None:
    """8,192 tokens, 53,248 / 4 columns: 336, 337 and 350 us in three stages (kernels/memory_bound.py,
    ISSUED). Its clock is not known; bytes alone would take 177."""
    gpu = get_gpu("B200-SXM-180GB")
    profile = replace(load_profile(gpu.name), clock_fraction=0.9)
    local = local_shape_of(scenario(mlp="swiglu", ffn_hidden_size=13312, seq_length=8192, micro_batch=1))
    issued = instructions(activation_backward, local)
    assert issued == pytest.approx(44.5 * 2 * 8192 * 13312)
    took_s = kernel_seconds(MemoryBound(hbm_bytes=5 * 8192 * 13312 * 2, instructions=issued), gpu, profile)
    assert 0.95 < took_s / 341e-6 < 1.15


@pytest.mark.parametrize(
    ("mlp", "fields"),
    [
        ("gelu", {}),  # one input, nothing to join
        ("swiglu", {"preset": "torchtitan-2025"}),  # autograd's, of two matrices
        ("swiglu", {"fused_quantise": True}),  # TransformerEngine's own kernel
        ("swiglu", {"activation_grad_joined": False}),
    ],
)
def test_only_a_joined_gradient_is_bound_by_issuing(mlp: str, fields: dict[str, Any]) -> None:
    local = local_shape_of(scenario(mlp=mlp))
    assert instructions(activation_backward, local, **fields) == 0.0
    assert instructions(activation, local, **fields) == 0.0
    assert instructions(activation_backward, local_shape_of(scenario(mlp="swiglu"))) > 0.0


@pytest.mark.parametrize(
    ("fields", "sums"),
    [
        ({}, 1),
        ({"weighted_activation": False}, 0),
        ({"fused_activation": False}, 0),
        ({"fused_gate": False}, 0),
    ],  # an eager chain has its own
)
def test_a_routers_gradient_reads_again_what_the_activations_backward_read(
    fields: dict[str, Any], sums: int
) -> None:
    run = with_experts(**fields)
    plan = lowered(run).plan
    layer = plan.blocks.layer_of(ActionKind.BACKWARD, plan.stages[0].runs[0])
    found = {op.name: op.work.bytes for op in layer.ops if isinstance(op.work, Compute)}
    assert ("weights' gradient" in found) == bool(sums)
    if sums:  # both inputs and the output's gradient, without the inputs' gradients
        assert found["weights' gradient"] / found["activation backward"] == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("heads", "groups", "warps"), [(32, 8, 8 + 4), (16, 16, 8 + 8), (8, 2, 4 + 4), (8, 1, 4 + 4)]
)
@pytest.mark.parametrize(("backward", "angle", "element"), [(False, 64.5, 20), (True, 95, 22)])
def test_each_warp_takes_the_sines_of_a_token_for_itself(
    heads: int, groups: int, warps: int, backward: bool, angle: float, element: float
) -> None:
    """So that few heads cost nearly what many do: four warps, or eight from sixteen heads on."""
    local = local_shape_of(scenario(mlp="swiglu", num_attention_heads=heads, num_query_groups=groups))
    issued = instructions(partial(rope, backward=backward), local)
    turned = local.tokens * local.head_dim
    assert issued == pytest.approx(turned * (element * (heads + groups) + angle * warps))


@pytest.mark.parametrize(("backward", "element"), [(False, 29), (True, 38)])
def test_heads_turned_in_their_product_take_turns_and_values_and_each_angle_twice(
    backward: bool, element: int
) -> None:
    """For 8 queries and 4 keys of 32 elements: each by element, and 22 for each of 32 threads; 4 values at 14
    an element; 45 for each angle of queries and of keys."""
    local = local_shape_of(scenario(mlp="swiglu", num_attention_heads=8, num_query_groups=4))
    assert local.head_dim == 32
    issued = instructions(partial(rope, backward=backward), local, fused_qkv_rope=True)
    assert issued == local.tokens * (12 * 32 * (element + 22) + 4 * 32 * 14 + 2 * 32 * 45)


def test_a_compiled_rotary_embedding_is_bound_by_its_bytes() -> None:
    local = local_shape_of(scenario(mlp="swiglu"))
    assert instructions(rope, local, preset="torchtitan-2025", torch_compile=True) == 0.0


@pytest.mark.parametrize("backward", [False, True])
def test_megatron_cores_own_rotary_embedding_passes_heads_element_by_element(backward: bool) -> None:
    """Two products, a negation and a join of halves each way, and a sum: ten passes. What is not turned,
    which is nothing, takes two more forward, a join, and four backward, the zeros of its gradient and a sum.
    All but the last kernels know where each element lies by two or three divisions."""
    local = local_shape_of(scenario(mlp="swiglu"))
    kernels = written(partial(rope, backward=backward), local, fused_rope=False)
    elements = local.query_bytes / local.element_bytes
    assert [kernel.instructions / elements for kernel in kernels.values()] == pytest.approx([132, 87.5, 0])
    passes = sum(kernel.hbm_bytes for kernel in kernels.values()) / local.query_bytes
    assert passes == (14 if backward else 12)
    assert sum(kernel.launches for kernel in kernels.values()) == (14 if backward else 12)


@pytest.mark.parametrize(
    ("write", "issued"),
    [(activation, 2 * 51), (activation_backward, 3 * 50 + 2 * 60)],
)
def test_halves_of_a_row_are_clamped_element_by_element(write: Any, issued: float) -> None:
    """Two clamps forward; three masks and two choices backward. Joins, and the mask of two masks, are of what
    lies in a row."""
    local = replace(local_shape_of(scenario(mlp="swiglu")), clamped_gate=True)
    kernels = written(write, local, clamps_gate_apart=True)
    clamps = {name: kernel for name, kernel in kernels.items() if "clamp" in name}
    of_rows = {name for name, kernel in clamps.items() if not kernel.instructions}
    assert all("join" in name or "of both" in name for name in of_rows)
    each = sum(kernel.instructions for kernel in clamps.values()) / (local.tokens * local.ffn)
    assert each == pytest.approx(issued)


def test_half_a_row_takes_a_b200_twice_what_its_bytes_take() -> None:
    """For 4 bytes a B200's memory takes less than half as long as its SMs take for the instructions; an
    H100's takes more than half."""
    times = {}
    for name in ("B200-SXM-180GB", "H100-SXM5-80GB"):
        gpu, profile = get_gpu(name), load_profile(name)
        moved = MemoryBound(hbm_bytes=4e9)
        clamped = replace(moved, instructions=STRIDED["clamp"].nvidia * 1e9)
        times[name] = kernel_seconds(clamped, gpu, profile) / kernel_seconds(moved, gpu, profile)
    assert times["B200-SXM-180GB"] > 2.0 > times["H100-SXM5-80GB"] > 1.2


@pytest.mark.parametrize(("backward", "products"), [(False, 1), (True, 2)])
def test_a_bias_by_a_rows_probability_is_a_product_element_by_element(backward: bool, products: int) -> None:
    local = local_shape_of(scenario(mlp="swiglu"))
    add = add_biases_backward if backward else add_biases
    write = partial(add, experts=2, elements=1000.0, weighted=True)
    issued = [kernel.instructions for kernel in written(write, local).values()]
    assert issued == pytest.approx([products * 53 * 1000, 0])


@pytest.mark.parametrize("backward", [False, True])
def test_latent_heads_without_their_kernel_are_joined_element_by_element(backward: bool) -> None:
    """What is turned: two products, a negation and a join of halves, and the order of its elements; Q's join;
    forward K's join and V's copy, backward the join of their gradients. DeepSeek's heads."""
    sizes = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    local = local_shape_of(with_experts(mla=LATENT | sizes))
    (kernel,) = written(partial(rope, backward=backward), local, fused_rope=False).values()
    turned = 64 * (2 * 66 + 22.5 + 65 + (43 if backward else 84))
    queries = 128 * 84 + 64 * 47
    keys_and_values = 128 * 84 + 128 * 47 if backward else 192 * 84 + 128 * 43
    each = kernel.instructions / (local.tokens * local.heads)
    assert each == pytest.approx(turned + queries + keys_and_values)
    # ten passes of what is turned; Q's own part and K's join, and K and V put together, each read and written
    passes = 10 * 64 + 2 * 192 + 2 * (128 + 128 + 192 + 128)
    assert kernel.hbm_bytes == passes * local.tokens * local.heads * local.element_bytes
    (fused,) = written(partial(rope, backward=backward), local).values()
    assert not fused.instructions


def test_a_kernel_outside_of_layers_has_the_instructions_of_each_maker() -> None:
    """Casts of gradients that are reduced or updated issue what casts of layers do."""
    cast = STRIDED["cast to FP32"]
    assert cast.nvidia != cast.amd
    kernel = (5 * cast).kernel(30.0, launches=2)
    assert (kernel.hbm_bytes, kernel.launches) == (30.0, 2)
    assert (kernel.instructions, kernel.vector_instructions) == (5 * cast.nvidia, 5 * cast.amd)


def test_a_softmax_of_16_bits_casts_nothing() -> None:
    """Scale, mask, softmax and their gradients pass scores of 16 bits: 12 bytes an element forward (read,
    write each) and 20 backward, where torch multiplies gradient and probabilities first."""
    local = local_shape_of(scenario(micro_batch=4))

    def passed(write: Any, **fields: Any) -> float:
        fields |= {"attention": "unfused", "fused_softmax": False}
        kernels = written(write, local, preset="generic-fsdp", **fields)
        named = [one for name, one in kernels.items() if name.startswith(("scale", "softmax", "mask"))]
        return sum(one.hbm_bytes for one in named) / local.score_elements

    assert passed(attention_forward, softmax_fp32=False) == 12.0
    assert passed(attention_backward, softmax_fp32=False) == 20.0
    assert (passed(attention_forward), passed(attention_backward)) == (28.0, 44.0)
    assert passed(attention_forward, softmax_fp32=False, torch_compile=True) == 4.0


def test_a_case_says_that_its_softmax_is_of_16_bits() -> None:
    assert fields_of_words("16-bit softmax") == {"softmax_fp32": False}
