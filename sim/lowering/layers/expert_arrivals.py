"""Which of the rows that DeepEP brings go to which expert, where torch's own indexing says so.

DeepEP names the experts of each token that arrives, -1 where they are other ranks'. Megatron core makes
masks of that: in one kernel with ``--enable-experimental`` and ``--moe-permute-fusion``, else by indexing
with a mask, whose result has as many elements as the mask has hits. torch asks the GPU for that number and
waits: for the dispatch, in the forward, and for the experts' backward, where the gradient of the same
indexing puts probabilities back. So the host has no lead over either.

Kernels are counted in torch (aten/src/ATen/native/cuda: Nonzero.cu; Indexing.cu, index_put_with_sort_kernel),
calls of the host in Megatron core. The indexing of probabilities and ``repeat_interleave`` wait, too, for
kernels that take no longer than their launch: these waits are not told.

References:
    Megatron-LM transformer/moe/token_dispatcher.py, _DeepepManager: get_permuted_hidden_states_by_experts,
    _indices_to_multihot; CHANGELOG.md, 0.12 (the fused kernel).
"""

from __future__ import annotations

from .experts import Experts
from .layer_builder import LayerBuilder
from .local_shape import LocalShape, local_experts

_CALLS_AHEAD = 4  # zeros twice, a comparison, and the first indexing with the mask
_CALLS_BEHIND = 7  # arange, a sum, repeat_interleave, a scatter, an indexing, a scatter, a cast
_CALLS_BACKWARD = 3  # the scatter's gradient, zeros, and a scatter by the mask
_ROW_BYTES = 100.0  # positions of 8 bytes in rows and columns, read and written by each indexing and scatter


def indexed_by_torch(builder: LayerBuilder) -> bool:
    """Whether torch's indexing says which rows of a dispatch are whose."""
    exchange, experts = builder.software.exchange, builder.local.experts
    chosen = exchange.arrivals_indexed_by_torch and exchange.moe_dispatcher == "deepep"
    return chosen and experts is not None and experts.ep > 1


def index_arrivals(builder: LayerBuilder) -> None:
    """Append masks of what has arrived, and the host's wait for it."""
    if not indexed_by_torch(builder):
        return
    experts, tokens, rows = _arrived(builder.local)
    # masks w 8 + 4; comparison r 8 w 1; hits counted r 1
    ahead = tokens * (12.0 * experts.held + 10.0 * experts.topk)
    builder.memory("arrivals counted", ahead, launches=4, counted=_CALLS_AHEAD)
    builder.host_waits()
    # hits of a token r 1; masks to bytes r 8 w 1
    behind = tokens * (experts.topk + 9.0 * experts.held) + _ROW_BYTES * rows
    builder.memory("arrivals indexed", behind, launches=18, counted=_CALLS_BEHIND)


def index_arrivals_backward(builder: LayerBuilder) -> None:
    """Append the gradients of the rows' probabilities, and the host's wait for all before."""
    if not indexed_by_torch(builder):
        return
    experts, tokens, rows = _arrived(builder.local)
    # the scatter's gradient r 20 w 4 a row; zeros w 4; hits counted r 1
    ahead = 24.0 * rows + 5.0 * tokens * experts.topk
    builder.memory("arrivals counted backward", ahead, launches=3, counted=_CALLS_BACKWARD)
    builder.host_waits()
    builder.memory("arrivals indexed backward", _ROW_BYTES * rows, launches=10, counted=0)


def _arrived(local: LocalShape) -> tuple[Experts, float, float]:
    """The experts here, tokens that have arrived for any of them, and the rows that these become."""
    experts = local_experts(local)
    rows = experts.rows(local.norm_tokens)
    return experts, min(rows, float(local.norm_tokens * experts.ep)), rows
