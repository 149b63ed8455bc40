"""One transformer layer on one rank: every kernel and collective, forward and backward.

Pre-norm blocks as Megatron-LM, Llama and their kin have them: norm, projections, attention core,
projection, residual; norm, MLP or experts, residual. A layer of multi-token prediction first makes its
stream of two.
"""

from __future__ import annotations

from ...program.program import Block
from ...scenario.software.software import Software
from .attention_core import attention_backward, attention_forward
from .latent import latent_backward, latent_forward, latent_weight_grad, up_projections
from .layer_builder import KernelPricing, LayerBuilder
from .linear import (
    Linear,
    column_backward,
    column_forward,
    column_input_grad,
    column_weight_grad,
    row_backward,
    row_forward,
    row_input_grad,
    row_weight_grad,
)
from .local_shape import LocalShape
from .mlp import mlp_backward, mlp_forward, mlp_weight_grad
from .moe import moe_backward, moe_forward, moe_weight_grad
from .operators import operators_again
from .pointwise import (
    norm,
    norm_backward,
    norm_quantises,
    rearrange,
    residual_add,
    residual_add_backward,
    rope,
    small_kernels,
)
from .prediction import join_backward, join_forward, join_weight_grad
from .recompute import FULL, NOTHING, Recompute, by_operators, title


def _qkv(local: LocalShape) -> Linear:
    return Linear(name="qkv", inputs=local.hidden, outputs=local.qkv_width)


def _proj(local: LocalShape) -> Linear:
    return Linear(name="proj", inputs=local.attention_width, outputs=local.hidden)


def forward_block(local: LocalShape, software: Software, costs: KernelPricing, recompute: Recompute) -> Block:
    """The layer's forward pass: the same whatever of it ``recompute`` runs again later."""
    builder = LayerBuilder(costs)
    write_forward(builder, local, software)
    return builder.block("layer forward")


def backward_block(
    local: LocalShape, software: Software, costs: KernelPricing, recompute: Recompute
) -> Block:
    """The layer's backward pass, with what of the forward pass it runs again."""
    return _backward(local, software, costs, recompute, name="backward", split=False)


def input_grad_block(
    local: LocalShape, software: Software, costs: KernelPricing, recompute: Recompute
) -> Block:
    """The layer's backward pass without the weight gradients, which are put off."""
    return _backward(local, software, costs, recompute, name="input gradient", split=True)


def weight_grad_block(
    local: LocalShape, software: Software, costs: KernelPricing, recompute: Recompute
) -> Block:
    """The weight gradients of the layer's matrices. Attention has none; norms and biases have theirs in I."""
    builder = LayerBuilder(costs)
    (moe_weight_grad if local.experts else mlp_weight_grad)(builder, local, software)
    row_weight_grad(builder, _proj(local), local, software)
    if local.latent:
        latent_weight_grad(builder, local, software)
    else:
        column_weight_grad(builder, (_qkv(local),), local, software)
    if local.prediction:
        join_weight_grad(builder, local, software)
    return builder.block("layer weight gradient")


def _backward(
    local: LocalShape,
    software: Software,
    costs: KernelPricing,
    recompute: Recompute,
    *,
    name: str,
    split: bool,
) -> Block:
    builder = LayerBuilder(costs)
    if recompute == FULL:
        write_forward(builder, local, software)
    elif by_operators(recompute):
        operators_again(builder, local, software, recompute)
    write_backward(builder, local, software, recompute=recompute, split=split)
    return builder.block(f"layer {name} ({title(recompute)} recompute)")


def write_forward(builder: LayerBuilder, local: LocalShape, software: Software) -> None:
    """Append the forward pass to ``builder``."""
    attention_part_forward(builder, local, software)
    if local.experts:
        moe_forward(builder, local, software)
    else:
        mlp_forward(builder, local, software, cast=not norm_quantises(local))
    end_forward(builder, local, software)


def write_backward(
    builder: LayerBuilder,
    local: LocalShape,
    software: Software,
    *,
    recompute: Recompute = NOTHING,
    split: bool = False,
) -> None:
    """Append the backward pass, last operator first; ``split`` leaves out the matrices' weight gradients."""
    residual_add_backward(builder, local, software)
    backward = moe_backward if local.experts else mlp_backward
    backward(builder, local, software, recompute=recompute, split=split)
    attention_part_backward(builder, local, software, recompute=recompute, split=split)


def attention_part_forward(builder: LayerBuilder, local: LocalShape, software: Software) -> None:
    """All up to the MLP or the experts, the norm before these included."""
    if local.prediction:
        join_forward(builder, local, software)
    norm(builder, local, software, into_product=not local.latent)
    if local.latent:
        latent_forward(builder, local, software)
    else:
        column_forward(builder, (_qkv(local),), local, software, cast=not norm_quantises(local))
    rearrange(builder, local, software)
    rope(builder, local, software)
    attention_forward(builder, local, software)
    row_forward(builder, _proj(local), local, software)
    residual_add(builder, local, software)
    norm(builder, local, software, into_product=not local.experts)


def attention_part_backward(
    builder: LayerBuilder, local: LocalShape, software: Software, *, recompute: Recompute, split: bool
) -> None:
    """Append the backward pass of the attention part, last operator first; ``split`` leaves out the matrices'
    weight gradients.
    """
    norm_backward(builder, local, software)
    residual_add_backward(builder, local, software)
    (row_input_grad if split else row_backward)(builder, _proj(local), local, software)
    if "mla_up_proj" in recompute:
        up_projections(builder, local, software)
    if "core_attn" in recompute:
        attention_forward(builder, local, software)
    attention_backward(builder, local, software)
    rope(builder, local, software, backward=True)
    rearrange(builder, local, software)
    if "layernorm" in recompute:
        norm(builder, local, software)
    if local.latent:
        latent_backward(builder, local, software, split=split)
    else:
        (column_input_grad if split else column_backward)(builder, (_qkv(local),), local, software)
    norm_backward(builder, local, software)
    if local.prediction:
        join_backward(builder, local, software, split=split)
    small_kernels(builder, software)


def end_forward(builder: LayerBuilder, local: LocalShape, software: Software) -> None:
    """Append what follows the MLP or the experts: the residual, and the framework's small kernels."""
    residual_add(builder, local, software)
    small_kernels(builder, software)
