"""One transformer layer on one rank: every kernel and collective, forward and backward.

Pre-norm blocks as Megatron-LM, Llama and their kin have them: norm, projections, attention core,
projection, residual; norm, MLP or experts, residual. A layer of multi-token prediction first makes its
stream of two.
"""

from __future__ import annotations

from enum import Enum

from ...program.program import Block
from .attention_core import attention_backward, attention_forward
from .latent import latent_backward, latent_forward, latent_weight_grad, up_projections
from .layer_builder import LayerBuilder
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
from .mlp import mlp_backward, mlp_forward, mlp_in_forward, mlp_out_forward, mlp_weight_grad
from .moe import moe_backward, moe_forward, moe_forward_again, moe_weight_grad
from .norms import head_norms, head_norms_backward, norm, norm_backward, norm_quantises
from .operators import operators_again
from .pointwise import (
    rearrange,
    rearrange_backward,
    residual_add,
    residual_add_backward,
    rope,
    small_kernels,
    split_heads,
)
from .prediction import join_backward, join_forward, join_weight_grad
from .recompute import FULL, NOTHING, Recompute, by_operators, title
from .shared_heads import gather_shared_heads, scatter_shared_heads


def _qkv(local: LocalShape) -> Linear:
    return Linear(name="qkv", inputs=local.hidden, outputs=local.qkv_columns, joined=3)


def _proj(local: LocalShape) -> Linear:
    return Linear(name="proj", inputs=local.attention_width, outputs=local.hidden)


class Half(Enum):
    """A layer with experts in two: they with their router, and all else. Whatever one of them has issued has
    ended when the other begins, so that the layer takes the sum of both."""

    ATTENTION = "attention"
    EXPERTS = "experts"


def forward_block(builder: LayerBuilder, recompute: Recompute, *, half: Half | None = None) -> Block:
    """The layer's forward pass: the same whatever of it ``recompute`` runs again later."""
    write_forward(builder, half=half)
    return builder.block("layer forward")


def attention_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """Of the forward pass of a dense layer, what its first matrix is enough for."""
    _attention(builder)
    return builder.block("attention forward")


def projection_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """Of the forward pass of a dense layer, what comes with the projection back."""
    _projection(builder)
    return builder.block("projection forward")


def mlp_in_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """Of the forward pass of a dense layer, the norm, the MLP's first matrix and its activation."""
    norm(builder, into_product=True)
    mlp_in_forward(builder, cast=not norm_quantises(builder.local))
    return builder.block("MLP in forward")


def mlp_out_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """Of the forward pass of a dense layer, the MLP's last matrix and all after it."""
    mlp_out_forward(builder)
    end_forward(builder)
    return builder.block("MLP out forward")


def backward_block(builder: LayerBuilder, recompute: Recompute, *, half: Half | None = None) -> Block:
    """The layer's backward pass, with what of the forward pass it runs again: no operators, of a ``half``."""
    return _backward(builder, recompute, name="backward", split=False, half=half)


def input_grad_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The layer's backward pass without the weight gradients, which are put off."""
    return _backward(builder, recompute, name="input gradient", split=True)


def weight_grad_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The weight gradients of the layer's matrices. Attention has none; norms and biases have theirs in I."""
    local = builder.local
    (moe_weight_grad if local.experts else mlp_weight_grad)(builder)
    attention = builder.of_attention()
    row_weight_grad(attention, _proj(local))
    if local.latent:
        latent_weight_grad(attention)
    else:
        column_weight_grad(attention, (_qkv(local),))
    if local.prediction:
        join_weight_grad(builder)
    return builder.block("layer weight gradient")


def _backward(
    builder: LayerBuilder,
    recompute: Recompute,
    *,
    name: str,
    split: bool,
    half: Half | None = None,
) -> Block:
    if recompute == FULL:
        write_forward_again(builder, half=half)
    elif by_operators(recompute):
        assert half is None, "operators are run again across halves"
        operators_again(builder, recompute)
    write_backward(builder, recompute=recompute, split=split, half=half)
    return builder.block(f"layer {name} ({title(recompute)} recompute)")


def write_forward(builder: LayerBuilder, *, half: Half | None = None) -> None:
    """Append the forward pass to ``builder``, or a ``half`` of it."""
    local = builder.local
    if half is not Half.EXPERTS:
        attention_part_forward(builder)
    if half is not Half.ATTENTION:
        if local.experts:
            moe_forward(builder)
        else:
            mlp_forward(builder, cast=not norm_quantises(local))
    if half is not Half.EXPERTS:
        end_forward(builder)


def write_forward_again(builder: LayerBuilder, *, half: Half | None = None) -> None:
    """Append what runs again of a layer that is recomputed as a whole: all of it, or up to the input of its
    last product, which is the last thing that backward reads. The weights of experts may multiply the output
    of theirs, which backward then reads too: they run as a whole, but for what only brings rows back
    (moe_forward_again).
    """
    if not builder.software.kernels.recompute_stops_early:
        write_forward(builder, half=half)
        return
    if builder.local.experts:
        if half is not Half.EXPERTS:
            attention_part_forward(builder)
        if half is not Half.ATTENTION:
            moe_forward_again(builder)
        if half is not Half.EXPERTS:
            small_kernels(builder)
        return
    attention_part_forward(builder)
    mlp_in_forward(builder, cast=not norm_quantises(builder.local))
    small_kernels(builder)


def write_backward(
    builder: LayerBuilder,
    *,
    recompute: Recompute = NOTHING,
    split: bool = False,
    half: Half | None = None,
) -> None:
    """Append the backward pass, last operator first, or a ``half`` of it; ``split`` leaves out the matrices'
    weight gradients.
    """
    local = builder.local
    if half is not Half.EXPERTS:
        residual_add_backward(builder, biased=not local.experts)
    if half is not Half.ATTENTION:
        backward = moe_backward if local.experts else mlp_backward
        backward(builder, recompute=recompute, split=split)
    if half is not Half.EXPERTS:
        attention_part_backward(builder, recompute=recompute, split=split)


def attention_part_forward(builder: LayerBuilder) -> None:
    """All up to the MLP or the experts, the norm before these included."""
    _attention(builder)
    _projection(builder)
    norm(builder, into_product=not builder.local.experts)


def _attention(builder: LayerBuilder) -> None:
    """From the layer's input to the attention core's output."""
    builder, local = builder.of_attention(), builder.local
    if local.prediction:
        join_forward(builder)
    norm(builder, into_product=not local.latent)
    if local.latent:
        latent_forward(builder)
    else:
        column_forward(builder, (_qkv(local),), cast=not norm_quantises(local))
        gather_shared_heads(builder)
    rearrange(builder)
    split_heads(builder)
    head_norms(builder)
    rope(builder)
    attention_forward(builder)


def _projection(builder: LayerBuilder) -> None:
    """The projection back, and the residual."""
    builder = builder.of_attention()
    row_forward(builder, _proj(builder.local))
    residual_add(builder)


def attention_part_backward(builder: LayerBuilder, *, recompute: Recompute, split: bool) -> None:
    """Append the backward pass of the attention part, last operator first; ``split`` leaves out the matrices'
    weight gradients.
    """
    norm_backward(builder)
    builder, local = builder.of_attention(), builder.local
    residual_add_backward(builder)
    (row_input_grad if split else row_backward)(builder, _proj(local))
    if "mla_up_proj" in recompute:
        up_projections(builder)
    if "core_attn" in recompute:
        attention_forward(builder, again=True)
    attention_backward(builder)
    rope(builder, backward=True)
    head_norms_backward(builder)
    rearrange_backward(builder)
    if "layernorm" in recompute:
        norm(builder)
    if local.latent:
        latent_backward(builder, split=split)
    else:
        scatter_shared_heads(builder)
        (column_input_grad if split else column_backward)(builder, (_qkv(local),))
    norm_backward(builder)
    if local.prediction:
        join_backward(builder, split=split)
    small_kernels(builder)


def end_forward(builder: LayerBuilder) -> None:
    """Append what follows the MLP or the experts: the residual, and the framework's small kernels."""
    residual_add(builder, biased=not builder.local.experts)
    small_kernels(builder)
