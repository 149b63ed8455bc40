"""Eight- and four-bit recipes: what is multiplied in which type, what is quantised, and what is then held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from autocast_runs import COSTS
from precision_runs import LAYERS, B, F, H, S, bytes_of, run_of
from small_scenarios import every_op, lowered, payloads

from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.kernels.kernel import Kernel, MemoryBound
from stepsim.kernels.memory_bound import NUMBER_S
from stepsim.sim.lowering.layers.attention_core import attention_backward, attention_forward
from stepsim.sim.lowering.layers.layer_builder import LayerBuilder
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.quantise import LAYOUT_PASSES
from stepsim.sim.lowering.weight_casts import weight_cast_kernels
from stepsim.sim.program.program import Compute
from stepsim.sim.scenario.software import get_software
from stepsim.sim.simulate import simulate

TOKENS = B * S
LAYER = 4 * H * H + 2 * H * F
"""Weights of a layer without norms and biases."""

PRECISIONS = ("fp8", "mxfp8", "nvfp4")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_same_products_in_fewer_bits_are_faster(precision: str) -> None:
    wide, narrow = (simulate(run_of(p)) for p in ("bf16", precision))
    assert narrow.step_time_s < wide.step_time_s
    assert narrow.model_flops == wide.model_flops
    assert narrow.peak_flops_per_gpu > wide.peak_flops_per_gpu


@pytest.mark.parametrize(
    ("precision", "software", "gpu", "per_element"),
    [
        # both layouts of what four matrices read, and of the gradients of what they write
        ("fp8", {"fp8_scaling": "delayed"}, "B200-SXM-180GB", 3),
        ("fp8", {"fp8_scaling": "current"}, "B200-SXM-180GB", 5),
        ("fp8", {"fp8_scaling": "blockwise"}, "H100-SXM5-80GB", 4),
        ("mxfp8", {}, "B200-SXM-180GB", 2 + 2 * (1 + 1 / 32)),
        ("mxfp8", {"norm_casts_blocks": True}, "B200-SXM-180GB", 2 + 2 * (1 + 1 / 32)),
        ("nvfp4", {}, "B200-SXM-180GB", 4 + 2 * (0.5 + 1 / 16)),
    ],
)
def test_every_input_and_output_gradient_is_quantised_once(
    precision: str, software: dict[str, Any], gpu: str, per_element: float
) -> None:
    run = run_of(precision, software, gpu=gpu)
    from_norms = 0 if lowered(run).plan.local.recipe.fused_norm else 2 * H  # type: ignore[union-attr]
    inputs = from_norms + H + F  # of QKV and the first matrix; of the projection and the second
    gradients = 3 * H + H + F + H
    quantised = TOKENS * (inputs + gradients) * LAYERS * 2
    assert bytes_of(run, "quantise") == pytest.approx(per_element * quantised)


@pytest.mark.parametrize(("precision", "scaling"), [("fp8", {"fp8_scaling": "current"}), ("nvfp4", {})])
def test_a_norm_that_takes_the_maximum_saves_its_pass(precision: str, scaling: dict[str, Any]) -> None:
    apart, fused = (run_of(precision, {**scaling, "fused_amax": flag}) for flag in (False, True))
    saved = 2 * TOKENS * 2 * H * LAYERS * 2  # 16 bit of what two norms of a layer wrote
    assert bytes_of(apart, "quantise") - bytes_of(fused, "quantise") == pytest.approx(saved)
    assert bytes_of(apart, "norm") == bytes_of(fused, "norm")


def test_a_norm_of_cudnn_that_writes_blocks_needs_no_cast() -> None:
    """Else the norm writes 16 bit, and a cast to MXFP8 reads that (TransformerEngine normalization.cpp)."""
    apart, fused = (run_of("mxfp8", {"norm_casts_blocks": flag}) for flag in (False, True))
    elements, copies = TOKENS * 2 * H * LAYERS * 2, 2 * (1 + 1 / 32)
    assert bytes_of(apart, "quantise") - bytes_of(fused, "quantise") == pytest.approx((2 + copies) * elements)
    assert bytes_of(fused, "norm") - bytes_of(apart, "norm") == pytest.approx((copies - 2) * elements)


@pytest.mark.parametrize("gpu", ["B200-SXM-180GB", "H100-SXM5-80GB"])
def test_an_activation_that_writes_quantised_needs_no_cast(gpu: str) -> None:
    apart, fused = (
        run_of("fp8", {"fp8_scaling": "delayed", "fused_quantise": flag}, gpu=gpu) for flag in (False, True)
    )
    wide, layers = TOKENS * F, LAYERS * 2
    assert bytes_of(apart, "quantise") - bytes_of(fused, "quantise") == pytest.approx(3 * 2 * wide * layers)
    assert bytes_of(apart, "activation") - bytes_of(fused, "activation") == pytest.approx(wide * layers)
    # Backward it writes both layouts where GEMMs want two, and nothing transposes its gradient then.
    second = gpu.startswith("H100")
    written = (2 if second else 1) * wide * layers
    saved = bytes_of(apart, "activation backward") - bytes_of(fused, "activation backward")
    assert saved == pytest.approx(2 * wide * layers - written)
    transposed = bytes_of(apart, "transpose quantised") - bytes_of(fused, "transpose quantised")
    assert transposed == pytest.approx(2 * wide * layers if second else 0)


def test_an_activation_whose_scale_is_its_own_maximum_takes_that_alone() -> None:
    apart, fused = (
        run_of("fp8", {"fp8_scaling": "current", "fused_quantise": flag}) for flag in (False, True)
    )
    assert bytes_of(apart, "quantise") - bytes_of(fused, "quantise") == pytest.approx(
        2 * 2 * TOKENS * F * LAYERS * 2
    )
    assert bytes_of(apart, "activation") == bytes_of(fused, "activation")


def test_attention_runs_in_eight_bits_beside_products_of_blocks_alone() -> None:
    def attention_s(precision: str, flag: bool, **fields: Any) -> float:
        run = run_of(precision, {"fp8_attention": flag, "attention": "cudnn"}, **fields)
        ops = every_op(lowered(run).programs.classes[0])
        return sum(
            n * op.work.seconds
            for op, n in ops
            if isinstance(op.work, Compute) and op.name.startswith("attention")
        )

    for precision in ("mxfp8", "nvfp4"):
        assert attention_s(precision, True) < attention_s(precision, False)
        assert attention_s(precision, True, cp=2) == attention_s(precision, False, cp=2)
    for precision in ("bf16", "fp8"):
        assert attention_s(precision, True) == attention_s(precision, False)
    # Nobody has published how much faster it is elsewhere.
    assert attention_s("fp8", True, gpu="H100-SXM5-80GB") == attention_s("fp8", False, gpu="H100-SXM5-80GB")


@pytest.mark.parametrize(("precision", "copies"), [("nvfp4", 1), ("mxfp8", 0)])
def test_what_shares_a_scale_is_copied_into_one_before_attention_in_eight_bits(
    precision: str, copies: int
) -> None:
    """TransformerEngine's combine_and_quantize: read and written once in 16 bit; blocks share no scale."""
    run, without = (
        run_of(precision, {"fp8_attention": flag, "attention": "cudnn"}) for flag in (True, False)
    )
    passes, element_bytes, microbatches = 2 * copies, 2, 2
    assert bytes_of(run, "join QKV") == passes * element_bytes * TOKENS * 3 * H * LAYERS * microbatches
    assert bytes_of(without, "join QKV") == 0


@pytest.mark.parametrize(("precision", "names"), [("nvfp4", ["join QKV"]), ("mxfp8", [])])
def test_a_cast_for_attention_is_two_kernels_and_two_numbers(precision: str, names: list[str]) -> None:
    """Its maximum and the cast, with a maximum cleared and made a scale; of the gradient of outputs too."""
    run, seen = run_of(precision, {"fp8_attention": True, "attention": "cudnn"}), list[Kernel]()

    def seconds(kernel: Kernel) -> float:
        seen.append(kernel)
        return 1.0

    builder = LayerBuilder(
        costs=replace(COSTS, seconds=seconds), local=local_shape_of(run), software=run.software
    )
    attention_forward(builder)
    assert [op.name for op in builder.ops] == [*names, "quantise QKV", "attention"]
    attention_backward(builder)
    assert [op.name for op in builder.ops][-2:] == ["quantise dO", "attention backward"]
    casts = [kernel for kernel in seen if isinstance(kernel, MemoryBound) and kernel.numbers]
    assert [(one.launches, one.numbers) for one in casts] == [(2, 2), (2, 2)]


def test_only_hopper_transposes() -> None:
    blackwell, hopper = run_of("fp8"), run_of("fp8", gpu="H100-SXM5-80GB")
    assert bytes_of(blackwell, "transpose quantised") == 0
    elements = TOKENS * ((H + H + H + F) + (3 * H + H + F + H)) * LAYERS * 2
    assert bytes_of(hopper, "transpose quantised") == 2 * elements


@pytest.mark.parametrize(("precision", "wire"), [("bf16", 2.0), ("fp8", 1.0), ("mxfp8", 1 + 1 / 32)])
def test_activations_are_gathered_quantised_and_reduced_in_16_bit(precision: str, wire: float) -> None:
    run = run_of(precision, tp=4, sequence_parallel=True)
    held, layers = TOKENS * H, LAYERS * 2
    ends = 2 * held * 3 + 2 * held * 1  # of the head forward and again, of the embedding; in 16 bit
    gathers = 2 + 2  # forward of both columns, and again of their inputs backward
    both = 2 if precision == "mxfp8" else 1  # dY for two GEMMs
    expected = layers * held * wire * (gathers + 2 * both)
    found = payloads(lowered(run).programs.classes[0], "tp")
    assert found["all_gather"] == pytest.approx(expected + 2 * ends - 2 * held * 2)
    assert found["reduce_scatter"] == pytest.approx(layers * 4 * held * 2 + 2 * 2 * held * 2)


@pytest.mark.parametrize(
    ("precision", "gpu", "kept_16_bit", "quantised_only"),
    [
        ("fp8", "B200-SXM-180GB", 2 + 1, 1),
        ("fp8", "H100-SXM5-80GB", 2 + 2, 2),  # its GEMMs want the transpose too
        ("mxfp8", "B200-SXM-180GB", 2 + 2 * (1 + 1 / 32), 2 * (1 + 1 / 32)),
    ],
)
def test_weights_are_held_in_16_bit_or_not(
    precision: str, gpu: str, kept_16_bit: float, quantised_only: float
) -> None:
    for flag, per_weight in ((False, kept_16_bit), (True, quantised_only)):
        weights = [
            simulate(run_of(precision, {"fp8_parameters": flag}, gpu=gpu, num_layers=n))
            .memory[0]
            .terms["weights"]
            for n in (2, 3)
        ]
        layer = weights[1] - weights[0]
        assert layer == pytest.approx(per_weight * LAYER, rel=1e-2)  # norms and biases besides


def test_deepseeks_bill() -> None:
    """arXiv:2412.19437, section 3.3.3: FP32 masters and gradients, BF16 moments: 4 + 4 + 2 + 2."""
    assert get_software("deepseek-hai-2024").gradients.moment_bytes == 2
    run = run_of("fp8", preset="deepseek-hai-2024", gpu="H800-SXM5-80GB")
    terms = simulate(run).memory[0].terms
    held = lowered(run).plan.held_parameters(0)
    assert terms["optimizer"] == pytest.approx(8 * held)
    assert terms["gradients"] == pytest.approx(4 * held)


def test_quantised_inputs_are_kept_in_fewer_bits() -> None:
    wide, narrow = (simulate(run_of(p)).memory[0].terms["activations"] for p in ("bf16", "fp8"))
    # two norm outputs and the activation's at one byte; the projection's own copy besides attention's
    saved = LAYERS * TOKENS * (2 * H + F - H)
    assert wide - narrow == pytest.approx(saved, rel=1e-6)


def test_the_head_stays_in_16_bit() -> None:
    def logits_s(precision: str) -> set[float]:
        ops = every_op(lowered(run_of(precision)).programs.classes[0])
        return {op.work.seconds for op, _ in ops if op.name == "logits" and isinstance(op.work, Compute)}

    assert logits_s("fp8") == logits_s("bf16")


def test_a_gpu_without_the_type_says_so() -> None:
    with pytest.raises(ValueError, match=r"training\.precision: H100.*only fp8"):
        lowered(run_of("mxfp8", gpu="H100-SXM5-80GB"))
    with pytest.raises(ValueError, match=r"training\.precision: A100-SXM4-80GB has no fp8"):
        lowered(run_of("fp8", gpu="A100-SXM4-80GB"))


@pytest.mark.parametrize("microbatches", [1, 3])
def test_weights_that_no_first_microbatch_keeps_are_quantised_in_each_forward(microbatches: int) -> None:
    """Those of MLPs; the others once a step. A step of one microbatch quantises the same either way."""
    kept, again = (
        run_of(
            "nvfp4",
            {"fp8_parameters": False, "caches_mlp_weights": caches},
            microbatches=microbatches,
        )
        for caches in (True, False)
    )
    made = lowered(kept).plan.local.weights.made
    mlps = LAYERS * 2 * H * F
    once = bytes_of(kept, "quantise weights")
    assert once == pytest.approx(LAYERS * LAYER * made, rel=1e-3)
    assert bytes_of(again, "quantise weights") - once == pytest.approx((microbatches - 1) * mlps * made)


@pytest.mark.parametrize(
    ("precision", "software", "kernels"),
    [
        ("nvfp4", {"fp8_parameters": False}, 2),  # a maximum and a cast
        ("mxfp8", {"fp8_parameters": False}, 1),
        ("fp8", {"fp8_parameters": False, "fp8_scaling": "current"}, 2),
    ],
)
def test_each_weight_is_cast_by_kernels_of_its_own(
    precision: str, software: dict[str, Any], kernels: int
) -> None:
    """Which start one after another, and whose calls are those of the modules."""
    matrices = LAYERS * 4  # queries, keys and values in one; the projection; two of the MLP
    run = run_of(precision, software)
    plan = lowered(run).plan
    assert weight_cast_kernels(plan, (0,)) == kernels * matrices
    in_forward = run_of(precision, software | {"caches_mlp_weights": False})
    assert weight_cast_kernels(lowered(in_forward).plan, (0,)) == kernels * matrices / 2
    (cast,) = [op for op, _ in every_op(lowered(run).programs.classes[0]) if op.name == "quantise weights"]
    moved = MemoryBound(hbm_bytes=LAYERS * LAYER * plan.local.weights.made, launches=kernels * matrices)
    assert isinstance(cast.work, Compute)
    assert cast.work.seconds == pytest.approx(plan.costs.of_update().seconds(moved), rel=1e-3)
    assert cast.host_s == pytest.approx(2 * plan.costs.of_update().host_s)  # the modules' calls have the rest


def test_each_expert_is_cast_by_itself_and_the_router_is_not() -> None:
    experts = {"num_experts": 8, "topk": 2, "expert_ffn_hidden_size": F}
    run = run_of("mxfp8", {"fp8_parameters": False}, moe=experts)
    assert weight_cast_kernels(lowered(run).plan, (0,)) == LAYERS * (2 + 8 * 2)


def test_casts_that_one_kernel_makes_of_many_weights_are_two() -> None:
    run = run_of("fp8", {"fp8_parameters": False, "fp8_scaling": "delayed"})
    assert weight_cast_kernels(lowered(run).plan, (0,)) == 2
    assert weight_cast_kernels(lowered(run_of("bf16")).plan, (0,)) == 0


def test_weights_in_square_blocks_take_longer_to_cast_than_rows() -> None:
    """By a sixth, of TransformerEngine's kernels of NVFP4; in MXFP8 weights have rows like all else."""
    four, eight = (
        lowered(run_of(precision, {"fp8_parameters": False})).plan.local for precision in ("nvfp4", "mxfp8")
    )
    assert four.recipe is not None
    assert eight.recipe is not None
    assert four.weights.made == pytest.approx(1.168 * (four.recipe.cast + four.recipe.second), rel=1e-3)
    assert eight.weights.made == eight.recipe.cast + eight.recipe.second


def test_weights_that_exist_in_fewer_bits_are_never_quantised_again() -> None:
    kept, again = (
        run_of("fp8", {"fp8_parameters": True, "caches_mlp_weights": caches}) for caches in (True, False)
    )
    assert bytes_of(kept, "quantise weights") == bytes_of(again, "quantise weights") == 0


def scale_bytes(operands: int) -> float:
    """Of so many elements' scales in NVFP4, laid out anew for the GEMMs of a step."""
    return LAYOUT_PASSES * operands / 16 * LAYERS * 2


def test_scales_of_both_operands_are_laid_out_in_front_of_each_product() -> None:
    """Each of a layer's weights, inputs and gradients is an operand of two GEMMs."""
    inputs, outputs = TOKENS * (3 * H + F), TOKENS * (3 * H + H + F + H)
    operands = 2 * (LAYER + inputs + outputs)
    each = run_of("nvfp4", {"scales_laid_out": "each"})
    assert bytes_of(each, "lay out scales") == pytest.approx(scale_bytes(operands))
    # GEMMs that read them as they were written have nothing in front of them.
    assert bytes_of(run_of("nvfp4", {"scales_laid_out": "in-products"}), "lay out scales") == 0
    # One scale a tensor has no layout.
    assert bytes_of(run_of("fp8", {"scales_laid_out": "each"}), "lay out scales") == 0


def test_later_releases_lay_out_only_scales_of_weights_in_mxfp8() -> None:
    every, weights = (run_of("mxfp8", {"scales_laid_out": flag}) for flag in ("each", "weights"))
    of_weights = LAYOUT_PASSES * 2 * LAYER / 32 * LAYERS * 2
    assert bytes_of(weights, "lay out scales") == pytest.approx(of_weights)
    assert bytes_of(every, "lay out scales") > 2 * of_weights
    both, in_four_bits = (run_of("nvfp4", {"scales_laid_out": flag}) for flag in ("each", "weights"))
    assert bytes_of(in_four_bits, "lay out scales") == bytes_of(both, "lay out scales")


def test_scales_of_a_product_in_chunks_are_laid_out_once() -> None:
    """Beside userbuffers' exchange too, whose chunks are parts of one GEMM."""
    whole, chunks = (
        run_of("mxfp8", {"tp_comm_overlap": flag}, tp=2, sequence_parallel=True) for flag in (False, True)
    )
    assert bytes_of(whole, "lay out scales") == pytest.approx(bytes_of(chunks, "lay out scales")) != 0


def test_a_product_in_four_bits_has_a_kernel_more_for_scales_of_tensors() -> None:
    def shortest_s(precision: str) -> float:
        run = run_of(precision, {"scales_laid_out": "each"}, seq_length=16, micro_batch=1, hidden_size=256)
        ops = every_op(lowered(run).programs.classes[0])
        return min(op.work.seconds for op, _ in ops if op.name == "lay out scales")  # type: ignore[union-attr]

    profile = load_profile("B200-SXM-180GB")
    more = profile.kernel_latency_s + NUMBER_S
    assert shortest_s("nvfp4") - shortest_s("mxfp8") == pytest.approx(more, rel=1e-3)


def test_a_transform_of_its_own_reads_what_is_quantised_again() -> None:
    """Activations and gradients, for the copies of weight gradients; weights are not transformed."""
    fused, apart = (run_of("nvfp4", {"hadamard_apart": flag}) for flag in (False, True))
    quantised = TOKENS * (2 * H + H + F + 3 * H + H + F + H) * LAYERS * 2
    assert bytes_of(apart, "quantise") - bytes_of(fused, "quantise") == pytest.approx(2 * quantised)
    assert bytes_of(apart, "quantise weights") == bytes_of(fused, "quantise weights")


def test_the_earlier_kernel_for_both_copies_slows_all_casts_but_those_of_weights() -> None:
    """By what the kernel of squares, which shares its tiles, is slower than the tuned one."""
    tuned, untuned = (run_of("nvfp4", {"untuned_casts": flag}) for flag in (False, True))
    quantised = TOKENS * (2 * H + H + F + 3 * H + H + F + H) * LAYERS * 2
    more = bytes_of(untuned, "quantise") - bytes_of(tuned, "quantise")
    assert more == pytest.approx(3.125 * (6.4 / 4.22 - 1) * quantised)
    assert bytes_of(untuned, "quantise weights") == bytes_of(tuned, "quantise weights")
    assert bytes_of(run_of("mxfp8", {"untuned_casts": True}), "quantise") == bytes_of(
        run_of("mxfp8"), "quantise"
    )


def test_random_numbers_slow_the_cast_of_gradients_alone() -> None:
    nearest, random = (run_of("nvfp4", {"stochastic_casts": flag}) for flag in (False, True))
    gradients = TOKENS * (3 * H + H + F + H) * LAYERS * 2
    longer = 3.125 * (6.4 / 4.5 - 1)
    more = bytes_of(random, "quantise") - bytes_of(nearest, "quantise")
    assert more == pytest.approx(longer * gradients)
    assert bytes_of(run_of("mxfp8", {"stochastic_casts": True}), "quantise") == bytes_of(
        run_of("mxfp8"), "quantise"
    )
