"""Kernel cost models beside what others measured on the same GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from stepsim.hardware.calibrated.overlay import load_profile, profile_names
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.kernel import Attention, Gemm, MemoryBound
from stepsim.sim.lowering.layers.quantise import LAYOUT_PASSES


@pytest.mark.parametrize(
    ("name", "implementation", "forward", "backward"),
    [
        ("MI355X", "aiter", 1175.1, 1036.2),
        ("MI355X", "fa2", 834.0, 870.6),
        ("MI350X", "aiter", 915.2, 790.1),
        ("MI350X", "fa2", 663.0, None),
    ],
)
def test_attention_of_cdna_4_runs_as_it_was_measured(
    name: str, implementation: Any, forward: float, backward: float | None
) -> None:
    """TFLOP/s of 16 x 16 heads of 128 under a mask, 8,192 tokens (HipKittens' analysis), at its clock."""
    profile = replace(load_profile(name), clock_fraction=1.0)
    passes: dict[Literal["forward", "backward"], float | None] = {"forward": forward, "backward": backward}
    for direction, measured in passes.items():
        kernel = Attention(
            batch=16, seq_q=8192, seq_kv=8192, heads=16, kv_heads=16, head_dim=128, causal=True,
            implementation=implementation, direction=direction,
        )  # fmt: skip
        if measured is not None:
            told = kernel.flops / kernel_seconds(kernel, get_gpu(name), profile) / 1e12
            assert told == pytest.approx(measured, rel=0.06)


@pytest.mark.parametrize(
    ("implementation", "direction", "causal", "heads", "tflops"),
    [
        ("aiter", "forward", True, (64, 8), 550.67),
        ("aiter", "backward", True, (64, 8), 474.02),
        ("aiter_fp32", "backward", True, (64, 8), 432.72),
        ("aiter", "forward", False, (64, 8), 577.45),
        ("aiter_fp32", "backward", False, (64, 8), 475.07),
        ("fa2", "forward", False, (16, 16), 339.5),
        ("fa2", "backward", False, (16, 16), 202.2),
    ],
)
def test_attention_of_mi300x_runs_as_it_was_measured(
    implementation: Any,
    direction: Literal["forward", "backward"],
    causal: bool,
    heads: tuple[int, int],
    tflops: float,
) -> None:
    """TFLOP/s of 8 x 8,192 tokens by AITER (ROCm/aiter op_tests/cpp/mha/README.md at 0403bcdf), and of 16,384
    by Composable Kernel, the mean of batches of 1 to 8 (ROCm/flash-attention issue 142), at its clock."""
    profile = replace(load_profile("MI300X"), clock_fraction=1.0)
    batch, tokens = (1, 16384) if implementation == "fa2" else (8, 8192)
    kernel = Attention(
        batch=batch, seq_q=tokens, seq_kv=tokens, heads=heads[0], kv_heads=heads[1], head_dim=128,
        causal=causal, implementation=implementation, direction=direction,
    )  # fmt: skip
    told = kernel.flops / kernel_seconds(kernel, get_gpu("MI300X"), profile) / 1e12
    assert told == pytest.approx(tflops, rel=0.08)


def test_a_backward_in_fp32_takes_longer_wherever_aiters_is_known() -> None:
    for name in ("MI300X", "MI325X", "MI350X", "MI355X"):
        curves = {one.implementation: one for one in load_profile(name).attention}
        assert curves["aiter_fp32"].forward == curves["aiter"].forward
        for (_, wide), (_, narrow) in zip(
            curves["aiter_fp32"].backward, curves["aiter"].backward, strict=True
        ):
            assert 0.7 < wide / narrow < 0.9, name


def test_only_those_have_aiters_attention_on_which_it_was_measured() -> None:
    having = {
        n for n in profile_names() if any(c.implementation == "aiter" for c in load_profile(n).attention)
    }
    assert having == {"MI300X", "MI325X", "MI350X", "MI355X"}


@pytest.mark.parametrize("tokens", [8192, 16384, 32768])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_cudnns_attention_on_b200_runs_as_nvidia_measures_it(
    tokens: int, direction: Literal["forward", "backward"]
) -> None:
    """TFLOP/s of 128 heads of 128 under a mask before the power limit acts, in 16 bits and, which no fit saw,
    in 8 (NVIDIA/cudnn-frontend sdpa_fp8_benchmark_results_NVIDIA_B200.csv at 0b1577c8, cuDNN 9.13.1)."""
    measured = {
        ("bf16", "forward"): (1384, 1475, 1515), ("bf16", "backward"): (995, 1152, 1180),
        ("fp8", "forward"): (1502, 1692, 1781), ("fp8", "backward"): (1255, 1469, 1582),
    }  # fmt: skip
    profile = replace(load_profile("B200-SXM-180GB"), clock_fraction=1.0, power_limited=0.0)
    for dtype, within in (("bf16", 0.10), ("fp8", 0.13)):
        kernel = Attention(
            batch=1, seq_q=tokens, seq_kv=tokens, heads=128, kv_heads=8, head_dim=128, causal=True,
            implementation="cudnn", direction=direction, dtype=dtype,
        )  # fmt: skip
        told = kernel.flops / kernel_seconds(kernel, get_gpu("B200-SXM-180GB"), profile) / 1e12
        published = measured[dtype, direction][(8192, 16384, 32768).index(tokens)]
        assert told == pytest.approx(published, rel=within), dtype


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("A100-SXM4-80GB", 235e12, 271.2e12), ("H100-SXM5-80GB", 600e12, 830e12)],
)
def test_large_training_gemms_run_near_the_best_measured_shape(name: str, low: float, high: float) -> None:
    """At the clock of a benchmark: training's own lower one is fitted on step times."""
    profile = replace(load_profile(name), clock_fraction=1.0)

    def flops_per_s(gemm: Gemm) -> float:
        return gemm.flops / kernel_seconds(gemm, get_gpu(name), profile)

    for m in (4096, 8192, 16384):
        for n, k in ((4096, 4096), (12288, 4096), (16384, 16384)):
            assert low <= flops_per_s(Gemm(m=m, n=n, k=k)) <= high
    # Under tensor parallelism the shards are thin.
    thin, wide = Gemm(m=4096, n=512, k=2048), Gemm(m=4096, n=12288, k=4096)
    assert flops_per_s(thin) < 0.9 * flops_per_s(wide)


@pytest.mark.parametrize(
    ("tokens", "causal", "tflops"),
    [
        (4096, False, 517),
        (8192, False, 530),
        (16384, False, 538),
        (4096, True, 444),
        (8192, True, 464),
        (16384, True, 498),
    ],
)
def test_cudnns_backward_on_hopper_is_as_nvidia_measures_it_on_h200(
    tokens: int, causal: bool, tflops: float
) -> None:
    """The curve is of H100 without a mask (arXiv:2407.08608 figure 6). No fit has seen these points of H200
    and cuDNN 9.1: NVIDIA/cudnn-frontend benchmark/benchmark_results.csv at 505fcfeb."""
    name = "H200-SXM-141GB"
    burst = replace(load_profile(name), clock_fraction=1.0, power_limited=0.0)
    kernel = Attention(
        batch=16384 // tokens, seq_q=tokens, seq_kv=tokens, heads=16, kv_heads=16, head_dim=128,
        causal=causal, implementation="cudnn", direction="backward",
    )  # fmt: skip
    predicted = kernel.flops / kernel_seconds(kernel, get_gpu(name), burst) / 1e12
    assert predicted == pytest.approx(tflops, rel=0.055)


TE_LAYER = ((4096, 12288), (4096, 4096), (4096, 16384), (16384, 4096))
TE_ON_B300 = {"bf16": 13.102e-3, "fp8": 6.812e-3, "mxfp8": 7.161e-3, "nvfp4": 3.764e-3}
"""Inputs and outputs of the matrices of a layer, and what their GEMMs of 15,872 tokens take both ways,
quantised before (NVIDIA/TransformerEngine docs/examples/gemm_profiling, NVIDIA B300 SXM6 AC). Watts were
read off the first two, and the ratio of the two in 8 bits."""


def test_four_types_agree_with_a_b300_that_runs_at_its_power_limit() -> None:
    """All within 3 %, and none off by more than another by 4.5 %, though they draw power differently. The
    watts of a B300 are the mean of those of the first two (decision 193), and of no other type. What lays out
    scales of blocks is inside the timing (``tex.generic_gemm``)."""
    gpu, tokens = get_gpu("B300-SXM"), 15872
    profile = replace(load_profile("B300-SXM"), clock_fraction=1.0)
    ratios = []
    for dtype, measured_s in TE_ON_B300.items():
        sizes = [size for k, n in TE_LAYER for size in ((tokens, n, k), (tokens, k, n), (n, k, tokens))]
        products = [Gemm(m=m, n=n, k=k, dtype=dtype) for m, n, k in sizes]
        scales = {"mxfp8": 1 / 32, "nvfp4": 1 / 16}.get(dtype, 0.0)
        laid_out = [
            MemoryBound(hbm_bytes=LAYOUT_PASSES * k * (m + n) * scales, launches=2)
            for m, n, k in sizes
            if scales
        ]
        seconds = sum(kernel_seconds(each, gpu, profile) for each in [*products, *laid_out])
        ratios.append(seconds / measured_s)
    assert min(ratios) > 0.97
    assert max(ratios) < 1.03
    assert max(ratios) - min(ratios) < 0.045
