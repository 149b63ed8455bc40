"""The two ends of the model: the embedding on the first stage, the head (final norm and logits) on the last.

The vocabulary is split over the TP group, so that the embedding's output is reduced over it. The
loss is in loss.py.
"""

from __future__ import annotations

from ...program.program import Block
from ..layers.layer_builder import LayerBuilder
from ..layers.linear import (
    Linear,
    accumulate_gradient,
    column_backward,
    column_forward,
    column_input_grad,
    column_weight_grad,
)
from ..layers.local_shape import LocalShape
from ..layers.norms import norm, norm_backward


def embedding_forward(builder: LayerBuilder) -> Block:
    """Look the tokens up, reduce over TP, add positions, drop out."""
    local = builder.local
    if builder.software.kernels.one_hot_embedding:
        builder.memory("one-hot rows", local.tokens * local.vocabulary * local.element_bytes)
        builder.kernel("embedding", _table(local).forward(local))
    else:
        builder.memory("embedding", 2 * local.hidden_bytes, launches=3)  # read rows, write
    if local.tp > 1:
        builder.tp(f"embedding {local.reduction}", local.reduction, local.hidden_bytes)
    if not local.rope:
        builder.memory("position add", 3 * local.norm_bytes)
    if local.dropout:
        builder.memory("embedding dropout", 2 * local.norm_bytes + local.norm_tokens * local.hidden)
    return builder.block("embedding forward")


def embedding_backward(builder: LayerBuilder) -> Block:
    """Scatter the gradients into a dense table gradient and add that to the main gradient."""
    local = builder.local
    if local.dropout:
        builder.memory("embedding dropout backward", 2 * local.norm_bytes + local.norm_tokens * local.hidden)
    if local.sequence_parallel:
        builder.tp("embedding all_gather", "all_gather", local.hidden_bytes)
    if builder.software.kernels.one_hot_embedding:
        builder.memory("one-hot rows", local.tokens * local.vocabulary * local.element_bytes)
        builder.kernel("embedding wgrad", _table(local).weight_grad(local, builder.software))
        return builder.block("embedding backward")
    table = float(local.vocabulary * local.hidden)
    # torch's embedding_dense_backward fills the whole table with zeros, then adds the tokens' rows.
    builder.memory("embedding gradient", table * local.element_bytes + 3 * local.hidden_bytes, launches=4)
    # It is no GEMM: its gradient is always added by a kernel of its own.
    accumulate_gradient(builder, table, fused=False)
    return builder.block("embedding backward")


def head_forward(builder: LayerBuilder) -> Block:
    """Final norm and logits."""
    norm(builder)
    column_forward(builder, (_head(builder),))
    return builder.block("head forward")


def head_backward(builder: LayerBuilder) -> Block:
    """Gradients of the head and of the final norm."""
    column_backward(builder, (_head(builder),))
    norm_backward(builder)
    return builder.block("head backward")


def head_input_grad(builder: LayerBuilder) -> Block:
    """Gradients of the head's input and of the final norm; the head's own is put off."""
    column_input_grad(builder, (_head(builder),))
    norm_backward(builder)
    return builder.block("head input gradient")


def head_weight_grad(builder: LayerBuilder) -> Block:
    """The head's own gradient."""
    column_weight_grad(builder, (_head(builder),))
    return builder.block("head weight gradient")


def _table(local: LocalShape) -> Linear:
    """The embedding's table as the matrix of a product with one-hot rows."""
    return Linear(name="embedding", inputs=local.vocabulary, outputs=local.hidden)


def _head(builder: LayerBuilder) -> Linear:
    local = builder.local
    dtype = "tf32" if builder.software.kernels.head_fp32 else ""
    return Linear(name="logits", inputs=local.hidden, outputs=local.vocabulary, dtype=dtype)
