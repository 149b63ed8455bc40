"""One transformer layer on one rank: every kernel and collective, forward and backward.

Pre-norm blocks as in Megatron-LM and Llama: norm, QKV projection, attention core, output projection,
residual; norm, MLP or experts, residual. A layer of multi-token prediction first joins two streams into one.

Functions ``*_block`` finish a block and return it; all others append to the builder.
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
from .mlp import (
    mlp_backward,
    mlp_forward,
    mlp_in_backward,
    mlp_in_forward,
    mlp_out_backward,
    mlp_out_forward,
    mlp_weight_grad,
)
from .moe import moe_backward, moe_forward, moe_forward_again, moe_weight_grad, replays
from .norms import head_norms, head_norms_backward, norm, norm_backward, norm_quantises
from .operators import operators_again
from .partial_graphs import in_partial_graph, replay_forward
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
from .recompute import FULL, NOTHING, Recompute, by_operators, title, unrecorded
from .shared_heads import gather_shared_heads, scatter_shared_heads


def _qkv(local: LocalShape) -> Linear:
    return Linear(name="qkv", inputs=local.hidden, outputs=local.qkv_columns, joined=3)


def _proj(local: LocalShape) -> Linear:
    return Linear(name="proj", inputs=local.attention_width, outputs=local.hidden)


class Half(Enum):
    """Either half of a layer with experts: attention with all else, or the experts with their router.

    All streams join between the halves, so that the layer takes the sum of both.
    """

    ATTENTION = "attention"
    EXPERTS = "experts"


def forward_block(builder: LayerBuilder, recompute: Recompute, *, half: Half | None = None) -> Block:
    """The block of the layer's forward pass, or of one ``half`` of it. Of what is recomputed later it depends
    on ``seen_by_forward`` alone."""
    write_forward(builder, half=half, records=not unrecorded(recompute))
    return builder.block("layer forward")


def attention_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The first piece of a dense layer's forward: up to the attention core, for which the QKV weights
    suffice."""
    _attention(builder)
    return builder.block("attention forward")


def projection_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The second piece of a dense layer's forward: output projection and residual."""
    _projection(builder)
    return builder.block("projection forward")


def mlp_in_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The third piece of a dense layer's forward: norm, the MLP's first matrix, activation."""
    norm(builder, into_product=True)
    mlp_in_forward(builder, cast=not norm_quantises(builder.local))
    return builder.block("MLP in forward")


def mlp_out_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The last piece of a dense layer's forward: the MLP's second matrix and the residual."""
    mlp_out_forward(builder)
    end_forward(builder)
    return builder.block("MLP out forward")


def backward_block(builder: LayerBuilder, recompute: Recompute, *, half: Half | None = None) -> Block:
    """The block of the layer's backward pass, or of one ``half`` of it, with the operations of the forward
    that run again before it. A ``half`` of a layer does not recompute by operators."""
    return _backward(builder, recompute, name="backward", split=False, half=half)


def mlp_out_backward_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The first piece of a dense layer's backward: up to the gradient of the MLP's second matrix."""
    residual_add_backward(builder, biased=True)
    mlp_out_backward(builder)
    return builder.block("MLP out backward")


def mlp_in_backward_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The second piece of a dense layer's backward: up to the gradients of the MLP's first matrix and of the
    norm in front of it, which are one module's."""
    mlp_in_backward(builder)
    norm_backward(builder)
    return builder.block("MLP in backward")


def projection_backward_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The third piece of a dense layer's backward: up to the gradient of the output projection."""
    _projection_backward(builder)
    return builder.block("projection backward")


def attention_backward_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The last piece of a dense layer's backward: the attention core, the QKV projection and its norm."""
    _attention_backward(builder)
    return builder.block("attention backward")


def input_grad_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The block of the layer's backward pass without the gradients of matrices, which run later (zero-bubble
    schedules)."""
    return _backward(builder, recompute, name="input gradient", split=True)


def weight_grad_block(builder: LayerBuilder, recompute: Recompute) -> Block:
    """The block of the weight gradients of the layer's matrices. The attention core has none, and norms and
    biases got theirs with the input gradient."""
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


def write_forward(
    builder: LayerBuilder, *, half: Half | None, again: bool = False, records: bool = True
) -> None:
    """Append the forward pass to ``builder``, or a ``half`` of it; ``again`` where it is recomputed.
    ``records``: autograd records its experts and their router."""
    local = builder.local
    if half is not Half.EXPERTS:
        attention_part_forward(builder)
    if half is not Half.ATTENTION:
        if local.experts:
            moe_forward(builder, replayed=again and replays(builder), records=records)
        else:
            mlp_forward(builder, cast=not norm_quantises(local))
    if half is not Half.EXPERTS:
        end_forward(builder)


def write_forward_again(builder: LayerBuilder, *, half: Half | None = None) -> None:
    """Append the recomputation of a layer that is recomputed as a whole.

    That is all of it, or, with ``recompute_stops_early``, everything up to the input of its last matrix,
    which is the last thing that backward reads. Backward also reads the experts' output where weights
    multiply it; so experts run as a whole, except for what only brings rows back (moe_forward_again).
    """
    if not builder.software.kernels.recompute_stops_early:
        write_forward(builder, half=half, again=True)
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
    recompute: Recompute,
    split: bool,
    half: Half | None,
) -> None:
    """Append the backward pass, last operator first, or a ``half`` of it. ``split`` leaves out the weight
    gradients of matrices."""
    local = builder.local
    if half is not Half.EXPERTS:
        residual_add_backward(builder, biased=not local.experts)
    if half is not Half.ATTENTION:
        backward = moe_backward if local.experts else mlp_backward
        backward(builder, recompute=recompute, split=split)
    if half is not Half.EXPERTS:
        attention_part_backward(builder, recompute=recompute, split=split)


def attention_part_forward(builder: LayerBuilder) -> None:
    """Append everything up to the MLP or the experts, including the norm in front of these."""
    eager = builder.software.host.graphs_leave_out_attention
    if not eager:
        replay_forward(builder)
    _attention(builder)
    _projection(builder)
    if eager:
        replay_forward(builder)
    norm(builder, into_product=not builder.local.experts)


def _attention(builder: LayerBuilder) -> None:
    """Append everything from the layer's input to the output of the attention core."""
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
    """Append the output projection and the residual."""
    builder = builder.of_attention()
    row_forward(builder, _proj(builder.local))
    residual_add(builder)


def attention_part_backward(builder: LayerBuilder, *, recompute: Recompute, split: bool) -> None:
    """Append the backward pass of the attention part, last operator first. ``split`` leaves out the weight
    gradients of matrices."""
    norm_backward(builder)
    _projection_backward(builder, split=split)
    _attention_backward(builder, recompute=recompute, split=split)


def _projection_backward(builder: LayerBuilder, *, split: bool = False) -> None:
    """Append the backward pass of the residual and the output projection."""
    builder = builder.of_attention()
    residual_add_backward(builder)
    (row_input_grad if split else row_backward)(builder, _proj(builder.local))


def _attention_backward(
    builder: LayerBuilder, *, recompute: Recompute = NOTHING, split: bool = False
) -> None:
    """Append the backward pass of everything from the layer's input to the output of the attention core."""
    builder, local = builder.of_attention(), builder.local
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
    if in_partial_graph(builder):
        builder = builder.outside_graphs()
    residual_add(builder, biased=not builder.local.experts)
    small_kernels(builder)
