"""Casts of what GEMMs read: to a recipe's type, into the other layout, and the scales' own layout.

Knows the launches and the bytes at HBM of the kernels around GEMMs, by the recipe (precision.py). Does not
know which GEMMs a layer has (linear.py, expert_work.py).
"""

from __future__ import annotations

from typing import Literal

from ....kernels.kernel import Gemm
from .layer_builder import LayerBuilder

LAYOUT_PASSES = 3.0
"""Reads and writes of scales, at the rate of other kernels, that laying them out anew takes as long as.

On a B200 a kernel takes 5.5 us for the 3.7 MB of 8,192 x 7,168 elements in NVFP4 (YigongQin/TransformerEngine
benchmarks/linear/README_nvfp4_quant_overhead.md at 60803143), of which 4.5 are any kernel's: as long as 1.8
passes. Two take some 25 us for a tensor of Llama's size (NVIDIA/TransformerEngine pull request 3011), about
3.6, and 9.0 us for 9 MB (docs/decisions/0145-scales-laid-out-for-each-product.md) are 3.3."""

CALLS_OF_A_QUANTISER = {"delayed": 1.2, "current": 2.1, "blockwise": 1.5}
"""What a tensor in 8 bits costs a host with ``host.python_quantisers``, in launches, by how it is scaled:
both layouts, all kernels of it together.

Linear modules take an H200's host 178, 384 and 243 us longer forward, each for its input and its weight, of
3,724 us that are 42 launches: 1.0, 2.1 and 1.4 a tensor. By what attention takes in the same runs, as they
scatter by a third, it is 1.4, 2.0 and 1.6. A tensor with its own maximum has four kernels (zero, maximum,
scale, cast), others one (tests/data/h200_megatron_layers.yaml;
docs/decisions/0180-quantisers-and-the-host.md)."""

Maker = Literal["norm", "activation", "other"]
"""The kernel that made what a GEMM reads: some take maxima with them, or write quantised."""


def quantise(
    builder: LayerBuilder,
    elements: float,
    *,
    maker: Maker = "other",
    tensors: int = 1,
    gradients: bool = False,
) -> None:
    """Append the cast from 16 bit to the recipe's type, into both layouts where the second needs the 16-bit
    original.

    ``maker`` is the operation that wrote the original; it may have quantised it, or found its maximum. The
    original may be several ``tensors``. ``gradients`` may be rounded stochastically. With 0 elements (experts
    without tokens) the kernels are launched all the same, so that ranks that meet have the same ops.
    """
    recipe, kernels = builder.local.recipe, builder.software.kernels
    if not recipe or (maker == "activation" and activation_quantises(builder)):
        return
    per_element = recipe.cast + (recipe.second if recipe.early else 0)
    per_element += recipe.transformed + recipe.untuned + (recipe.stochastic if gradients else 0.0)
    launches = recipe.launches + bool(recipe.transformed)
    takes_maximum = {"norm": kernels.fused_amax, "activation": kernels.fused_quantise, "other": False}
    if recipe.maximum and takes_maximum[maker]:
        per_element, launches = per_element - recipe.maximum, launches - 1
    first = calls_of_quantiser(builder)
    called = launches + recipe.blocks * bool(recipe.numbers)  # of what writes numbers, one as before
    others = called * (tensors - 1) * builder.costs.loop.kernel
    builder.memory(
        "quantise",
        elements * per_element,
        launches=launches * tensors,
        counted=(called if first is None else first) + others,
        numbers=(recipe.numbers + (recipe.random_state and gradients)) * tensors,
    )


def calls_of_quantiser(builder: LayerBuilder) -> float | None:
    """Host cost, in launches, of quantising a tensor into all its copies. None: each kernel is launched by
    itself, as for block scales (MXFP8, NVFP4), for which nobody measured the quantiser's call."""
    recipe, software = builder.local.recipe, builder.software
    if recipe is None or recipe.blocks or not software.host.python_quantisers:
        return None
    return CALLS_OF_A_QUANTISER[software.kernels.fp8_scaling]


def activation_quantises(builder: LayerBuilder) -> bool:
    """Whether an MLP's activation writes its output in the GEMMs' type, which requires scales that are
    known beforehand."""
    recipe = builder.local.recipe
    return recipe is not None and recipe.fused_activation and builder.software.kernels.fused_quantise


def transpose(builder: LayerBuilder, elements: float, *, just_cast: bool = False) -> None:
    """Append the copy in the other layout, which the weight gradient reads. ``just_cast``: the tensor was
    cast here and not gathered since, so that the quantiser's one call writes both copies."""
    local = builder.local
    if local.recipe and local.recipe.second and not local.recipe.early:
        counted = 0.0 if just_cast and calls_of_quantiser(builder) is not None else None
        builder.memory("transpose quantised", elements * local.recipe.second, counted=counted)


def lay_out_scales(builder: LayerBuilder, gemm: Gemm, *, weight: bool) -> None:
    """Append the kernels in front of a GEMM with block scales: scales in cuBLAS's layout, and one scale for
    both tensors.

    TransformerEngine quantises into another layout than cuBLAS reads, and converts each operand of each GEMM
    (pytorch/csrc/extensions/gemm.cpp, ``swizzle_scaling_factors``); no result is used twice. From 2.12 on
    activations and gradients in MXFP8 are quantised into the right layout (pull request 2486), which leaves
    the ``weight``. In NVFP4 a one-thread kernel multiplies the maxima of both operands
    (common/gemm/cublaslt_gemm.cu, ``nvte_nvfp4_compute_per_tensor_scale``). The GEMM's own call launches them
    all. Experts are not counted: one kernel converts the scales of many tensors, or the GEMMs do.
    """
    recipe, laid_out = builder.local.recipe, builder.software.kernels.scales_laid_out
    if recipe is None or not recipe.scales or gemm.dtype != recipe.gemm_dtype or laid_out == "in-products":
        return
    elements, launches = gemm.k * (gemm.m + gemm.n), 2
    if laid_out == "weights" and not recipe.joins_scales:
        elements, launches = (gemm.k * gemm.n, 1) if weight else (0, 0)
    if called := launches + recipe.joins_scales:
        builder.memory(
            "lay out scales",
            LAYOUT_PASSES * elements * recipe.scales,
            launches=launches,
            counted=called * builder.costs.loop.kernel,
            numbers=recipe.joins_scales,
        )
