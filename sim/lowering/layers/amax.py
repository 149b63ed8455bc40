"""The reduction of the maxima that scale 8-bit GEMMs or attention: who takes part, and its block.

Under delayed scaling TransformerEngine keeps the largest magnitude (amax) of each tensor that it quantises.
It reduces those of all layers of a virtual stage in one call, behind its forward and behind its backward:
ranks that hold parts of one tensor, and replicas that hold the same weights, must scale alike. The compute
stream waits for it. Releases before 1.6 did so as well, or beside what follows (NVTE_ASYNC_AMAX_REDUCTION).

Attention in 8 bits with a scale a tensor scales its scores and their gradients so, whatever scales GEMMs.
Beside NVFP4 Megatron core enters the recipe for each layer. TransformerEngine updates the scales of all
layers whenever one layer is left, and behind the backward of its first module: by the maxima of all replicas,
where ``exchange.attention_amax`` says so. Not told where layers of two microbatches overlap.

References:
    TransformerEngine v0.8 pytorch/fp8.py, global_amax_reduction (async_op=False).
    TransformerEngine v1.6, reduce_and_update_fp8_tensors (pull request 575): torch.cat, the all-reduce,
    fused_amax_and_scale_update_after_reduction (one kernel: pull request 593).
    NeMo pull request 4833: one fp8_autocast around all layers.
    Megatron core parallel_state.py, get_amax_reduction_group.
    TransformerEngine pytorch/attention/dot_product_attention/dot_product_attention.py, init_fp8_metadata
    (NVFP4 with Float8CurrentScaling: DelayedScaling for S and dP); pytorch/quantization.py, autocast_exit;
    pytorch/module/layernorm_linear.py, reduce_and_update_bwd_fp8_tensors.
    Megatron core transformer/transformer_block.py (use_inner_quantization_context where config.fp4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layer_builder import LayerBuilder

if TYPE_CHECKING:
    from ...program.program import Block
    from ...scenario.models import Scenario

AMAX_GROUPS = {"tensor": "amax.tp", "replicas": "amax"}
"""By ``exchange.amax_group`` or ``exchange.attention_amax``, the process group that reduces."""

_BYTES = 512.0  # some FP32 maxima a layer and direction: it is the latency that counts

_LAUNCHES = 2
"""Kernels beside the reduction, of some KB each, which count for the host alone: all maxima are joined before
it, their histories and scales written behind."""


def amax_group(scenario: Scenario) -> str | None:
    """The group over which maxima of 8-bit tensors are reduced; None where they are not, or by one rank."""
    software, par = scenario.software, scenario.parallelism
    attention = attention_scales_later(scenario)
    delayed = scenario.training.precision == "fp8" and software.kernels.fp8_scaling == "delayed"
    among = software.exchange.attention_amax if attention else software.exchange.amax_group
    ranks = par.tp * par.cp * (par.dp if among == "replicas" else 1)
    return AMAX_GROUPS.get(among) if (delayed or attention) and ranks > 1 else None


def attention_scales_later(scenario: Scenario) -> bool:
    """Whether attention runs in 8 bits whose scales are of maxima of the step before, beside NVFP4."""
    kernels, four_bits = scenario.software.kernels, scenario.training.precision == "nvfp4"
    eight_bits = kernels.fp8_attention and kernels.attention != "unfused" and scenario.parallelism.cp == 1
    return four_bits and eight_bits and scenario.software.exchange.attention_amax != "none"


def amax_reduction(builder: LayerBuilder) -> Block:
    """The reduction behind the layers of a virtual stage, forward or backward."""
    return _reduction(builder, builder.software.exchange.amax_group)


def attention_amax_reduction(builder: LayerBuilder) -> Block:
    """The reduction of attention's maxima behind one layer, forward or backward."""
    return _reduction(builder, builder.software.exchange.attention_amax)


def _reduction(builder: LayerBuilder, among: str) -> Block:
    category = "dp" if among == "replicas" else "tp"
    launches = builder.software.host.launches_per_collective + _LAUNCHES
    builder.collective(
        AMAX_GROUPS[among], "amax all_reduce", "all_reduce", _BYTES, category=category, launches=launches
    )
    return builder.block("amax reduction")
