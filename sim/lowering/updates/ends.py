"""The two ends of the model: the embedding on the first stage, the head (final norm and logits) on the last.

The vocabulary is split over the TP group, so that the embedding's output is reduced over it. The
loss is in loss.py.
"""

from __future__ import annotations

from ....kernels.kernel import Gemm
from ...program.program import Block
from ..layers.autocast import cast_row_gradients, cast_rows, cast_weights
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
    """Append the look-up of the tokens, its reduction over TP, the addition of positions, and dropout.
    Returns the block."""
    local = builder.local
    if builder.software.kernels.one_hot_embedding:
        builder.memory("one-hot rows", local.tokens * local.vocabulary * local.element_bytes)
        builder.kernel("embedding", _table(local).forward(local))
    else:
        rows = local.tokens * local.hidden * local.stream_bytes
        builder.memory("embedding", 2.0 * rows, launches=3)  # read rows, write
    if local.tp > 1:
        builder.tp(f"embedding {local.reduction}", local.reduction, local.hidden_bytes)
    if not local.rope:
        builder.memory("position add", 3 * local.norm_bytes)
    if local.dropout:
        builder.memory("embedding dropout", 2 * local.norm_bytes + local.norm_tokens * local.hidden)
    return builder.block("embedding forward")


def embedding_backward(builder: LayerBuilder) -> Block:
    """Append what scatters the gradients of rows into a dense gradient of the table, and adds that to the
    main gradient. Returns the block."""
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
    moved = (table + 3 * local.tokens * local.hidden) * local.stream_bytes
    builder.memory("embedding gradient", moved, launches=4)
    # It is no GEMM: its gradient is always added by a kernel of its own.
    accumulate_gradient(builder, table, fused=False, fresh_bytes=local.stream_bytes)
    return builder.block("embedding backward")


def head_forward(builder: LayerBuilder) -> Block:
    """Append the final norm and the GEMM of the logits. Returns the block."""
    norm(builder)
    if (chunks := _chunks(builder)) > 1:
        cast_weights(builder, builder.local.hidden * builder.local.vocabulary, 1)
        cast_rows(builder, 1)
        _in_chunks(builder, "logits", _head(builder).forward(_chunk(builder)), chunks)
    else:
        column_forward(builder, (_head(builder),))
    return builder.block("head forward")


def head_backward(builder: LayerBuilder) -> Block:
    """Append the gradients of the head, of its input and of the final norm. Returns the block."""
    if (chunks := _chunks(builder)) > 1:
        _chunks_input_grad(builder, chunks)
        _chunks_weight_grad(builder, chunks)
    else:
        column_backward(builder, (_head(builder),))
    norm_backward(builder)
    return builder.block("head backward")


def head_input_grad(builder: LayerBuilder) -> Block:
    """Append the gradients of the head's input and of the final norm, without the head's weight gradient."""
    if (chunks := _chunks(builder)) > 1:
        _chunks_input_grad(builder, chunks)
    else:
        column_input_grad(builder, (_head(builder),))
    norm_backward(builder)
    return builder.block("head input gradient")


def head_weight_grad(builder: LayerBuilder) -> Block:
    """Append the gradient of the head's own weight. Returns the block."""
    if (chunks := _chunks(builder)) > 1:
        _chunks_weight_grad(builder, chunks)
    else:
        column_weight_grad(builder, (_head(builder),))
    return builder.block("head weight gradient")


def _chunks(builder: LayerBuilder) -> int:
    """The chunks of tokens that the head takes one after another. TP communication happens once around all
    of them; with TP chunks are not modelled."""
    chunks = builder.software.kernels.loss_chunks
    return min(chunks, builder.local.tokens) if builder.local.tp == 1 else 1


def _chunk(builder: LayerBuilder) -> LocalShape:
    """The local shape of the rows of one chunk."""
    local = builder.local
    return local.here.with_(sequence=-(-local.tokens // _chunks(builder)))


def _in_chunks(builder: LayerBuilder, name: str, product: Gemm, chunks: int) -> None:
    """Append a GEMM of the head for each chunk; each reads the whole matrix, or writes its whole gradient."""
    builder.kernel(name, product, launches=chunks * builder.gemm_launches(1), times=chunks)


def _chunks_input_grad(builder: LayerBuilder, chunks: int) -> None:
    """Append the gradients of the rows of each chunk."""
    _in_chunks(builder, "logits dgrad", _head(builder).input_grad(_chunk(builder)), chunks)
    cast_row_gradients(builder, 1, 0)


def _chunks_weight_grad(builder: LayerBuilder, chunks: int) -> None:
    """Append the gradient of the head's matrix by each chunk, added to that of the chunks before: two tensors
    as large as the matrix are read and one is written.

    linkedin/Liger-Kernel ops/fused_linear_cross_entropy.py, grad_weight; autograd's accumulation in
    torchtitan's ChunkedCELoss and TRL's chunked_nll.
    """
    head, rows, software = _head(builder), _chunk(builder), builder.software
    _in_chunks(builder, "logits wgrad", head.weight_grad(rows, software), chunks)
    table = float(head.inputs * head.outputs)
    passes = 0 if software.kernels.fused_wgrad_accumulation else 3 * (chunks - 1)
    if passes:
        builder.memory("head gradient add", passes * table * builder.local.element_bytes, launches=chunks - 1)
    accumulate_gradient(builder, table)


def _table(local: LocalShape) -> Linear:
    """The embedding's table as the matrix of a GEMM with one-hot rows."""
    return Linear(name="embedding", inputs=local.vocabulary, outputs=local.hidden)


def _head(builder: LayerBuilder) -> Linear:
    local = builder.local
    dtype = "tf32" if builder.software.kernels.head_fp32 else ""
    return Linear(name="logits", inputs=local.hidden, outputs=local.vocabulary, dtype=dtype)
