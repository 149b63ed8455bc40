"""Multi-token prediction: what a layer has before it that predicts a further token.

The stream of the layer before and the embedding of the next token are normed, set side by side, and
projected to one stream again (DeepSeek-AI 2024, arXiv:2412.19437 section 2.2; Megatron-LM
multi_token_prediction.py, ``eh_proj``: column-parallel, its output gathered).
"""

from __future__ import annotations

from .issued import NOTHING
from .layer_builder import LayerBuilder
from .linear import Linear, column_backward, column_forward, column_input_grad, column_weight_grad
from .local_shape import LocalShape
from .norms import norm, norm_backward


def join_forward(builder: LayerBuilder) -> None:
    """Look the next tokens up, norm both streams, and project."""
    local = builder.local
    builder.memory("embedding", 2 * local.hidden_bytes, launches=3)  # read rows, write
    norm(builder)
    norm(builder)
    builder.memory("concatenate streams", 4 * local.norm_bytes)  # read both, write both
    column_forward(builder.on(_wide(local)), (_joint(local),))
    if local.tp > 1:
        builder.tp("joined stream all_gather", "all_gather", local.hidden_bytes)


def join_backward(builder: LayerBuilder, *, split: bool) -> None:
    """The backward pass of ``join_forward``, with the rows of the embedding's gradient."""
    local = builder.local
    if local.tp > 1:
        builder.tp("joined stream reduce_scatter", "reduce_scatter", local.hidden_bytes)
    (column_input_grad if split else column_backward)(builder.on(_wide(local)), (_joint(local),))
    norm_backward(builder)
    norm_backward(builder)
    table = float(local.vocabulary * local.hidden)
    # As at the embedding itself: the table is filled with zeros, rows are added, all goes to the gradient.
    builder.memory("embedding gradient", table * local.element_bytes + 3 * local.hidden_bytes, launches=4)
    wider = local.element_bytes < local.grad_bytes
    mixed = builder.costs.issued("FP32 plus 16 bits", table) if wider else NOTHING
    added = table * (local.element_bytes + 2 * local.grad_bytes)
    builder.memory("accumulate gradient", added, instructions=mixed)


def join_weight_grad(builder: LayerBuilder) -> None:
    """Append the gradient of the projection, which a split backward left for later."""
    local = builder.local
    column_weight_grad(builder.on(_wide(local)), (_joint(local),))


def _joint(local: LocalShape) -> Linear:
    return Linear(name="joint", inputs=2 * local.hidden, outputs=local.hidden // local.tp)


def _wide(local: LocalShape) -> LocalShape:
    return local.with_(hidden=2 * local.hidden)
