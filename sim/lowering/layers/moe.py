"""Experts in place of an MLP: router, permutation, dispatch, grouped GEMMs, combine; shared experts.

A layer's experts run in three parts with an exchange of tokens between each: ``route`` (router, shared
experts, tokens sorted by their destination), dispatch, ``experts_forward`` (expert_work.py), combine,
``unpermute`` (back to the order of tokens). Parts and exchanges are functions of their own, because
frameworks overlap the exchanges of one microbatch with parts of another (pairs.py). Bytes count reads and
writes at HBM.

References:
    Megatron-LM transformer/moe: moe_layer.py, router.py, token_dispatcher.py (MoEAlltoAllTokenDispatcher,
    MoEFlexTokenDispatcher with DeepEP), shared_experts.py. DeepSeek-V3, arXiv:2412.19437 section 3.2.
"""

from __future__ import annotations

from ...scenario.software.software import Software
from .expert_operators import (
    return_rows,
    return_rows_backward,
    take_rows,
    take_rows_backward,
    uses_torch_operators,
)
from .expert_work import (
    WEIGHT_BYTES,
    experts_backward,
    experts_forward,
    experts_weight_grad,
    move_rows,
    sends_weights,
)
from .indexed_rows import add_rows, indexes_rows, permute_backward
from .layer_builder import LayerBuilder
from .linear import Linear, row_input_grad, row_weight_grad
from .local_shape import LocalShape, local_experts
from .mlp import mlp_backward, mlp_forward, mlp_weight_grad
from .norms import norm
from .partial_graphs import replay_backward
from .recompute import NOTHING, Recompute
from .weighted_rows import weight_rows_at_home, weight_rows_at_home_backward

TOKENS = "tokens"
"""Kind of the exchange that brings tokens to experts and back; its payload is one copy of the tokens."""

# Kernels of router and permutation that move little, in number: softmax or sigmoid, top-k, masks, counts,
# cumulative sums, auxiliary loss, index maps (router.py, moe_utils.py, token_dispatcher.preprocess). Of a
# forward of DeepSeek-V3's router NVIDIA counts 72, 31 with fusion, and 17 with DeepEP's one kernel in place
# of those that make a dropless all-to-all's sizes out of all ranks' counts of tokens and copy them to the
# host; the GEMM is taken to be among them (Megatron-LM docs/discussions/deepseek-v3-gb200-optimization,
# 2.1.4 and 2.2.1). Of the backward nobody has published a number: autograd's operations, counted in the code.
_COUNTS_LAUNCHES, _COUNT_BYTES = 14, 8
_ROUTER_LAUNCHES, _FUSED_ROUTER_LAUNCHES = 72 - _COUNTS_LAUNCHES - 1, 31 - _COUNTS_LAUNCHES - 1
_ROUTER_BACKWARD_LAUNCHES, _FUSED_ROUTER_BACKWARD_LAUNCHES = 12, 4
# Of a model's own router (Transformers models/qwen3_moe, Qwen3MoeTopKRouter): a softmax in FP32, top-k in
# two, their sum, division and cast; backward a cast, what a division does (four), the sum expanded and added,
# zeros and scatter of top-k, the softmax.
_MODEL_ROUTER_LAUNCHES, _MODEL_ROUTER_BACKWARD_LAUNCHES = 6, 10
# Of the 57, what a softmax over all experts does without (Megatron-LM moe_utils.py, router.py): groups are
# scored, chosen and masked by 12 (group_limited_topk); a sigmoid with biases normalises, gathers and scales
# by 7 more than a softmax, and by 3 for the auxiliary loss; 2 count tokens of each expert for the bias. A
# Qwen3's router and the 14 of the counts take a host 1.87 ms (docs/decisions/0164).
_GROUPS_LAUNCHES = 12 + 7 + 3 + 2
# Of a router's, those of its auxiliary loss (router.py, compute_routing_scores_for_aux_loss; moe_utils.py,
# switch_load_balancing_loss_func, save_to_aux_losses_tracker): a softmax, top-k, zeros in two, a scatter, a
# cast and its sum; a sum of scores, a product, its sum and a factor; the factor taken out and added up. Fused
# (TransformerEngine fused_compute_score_for_moe_aux_loss, fused_moe_aux_loss): scores, a sum, the loss, two.
_LOSS_LAUNCHES, _FUSED_LOSS_LAUNCHES = 13, 5


def moe_forward(builder: LayerBuilder, *, replayed: bool = False, records: bool = True) -> None:
    """Append the forward pass of a layer's experts, one part after the other. ``replayed``: what exchanges
    gave is there, so that none runs, and no sizes are awaited. ``records``: as in ``route``."""
    _to_experts(builder, replayed=replayed, records=records)
    experts_forward(builder)
    if not replayed:
        await_exchange(builder, exchange(builder, "combine"))
    unpermute(builder)


def _to_experts(builder: LayerBuilder, *, replayed: bool, records: bool = True) -> None:
    """Append everything up to the arrival of rows: router, permutation, dispatch, and shared experts
    beside it."""
    software = builder.software
    route(
        builder,
        shared=not software.exchange.moe_shared_expert_overlap,
        counts=not replayed,
        records=records,
    )
    if not replayed:
        await_rows(builder)
    sent = None if replayed else exchange(builder, "dispatch")
    if software.exchange.moe_shared_expert_overlap:
        shared_forward(builder.outside_graphs())  # as the exchanges are that they run beside
    await_exchange(builder, sent)


def moe_forward_again(builder: LayerBuilder) -> None:
    """Append the recomputation of a layer's experts that stops early.

    The kernels that restore the order of tokens save their map, a tensor, for backward. So with NCCL's
    exchange, where they come last, only what follows them is left out. DeepEP and HybridEP restore the order
    themselves, and save no tensor of a combine but their own handle (Megatron-LM fused_a2a.py, FusedCombine;
    TransformerEngine permutation.py, _moe_unpermute_mask_map; torch.utils.checkpoint, early_stop).
    """
    by_nccl, replayed = builder.software.exchange.moe_dispatcher == "alltoall", replays(builder)
    _to_experts(builder, replayed=replayed)
    experts_forward(builder)
    if by_nccl:
        if not replayed:
            await_exchange(builder, exchange(builder, "combine"))
        unpermute(builder)


def replays(builder: LayerBuilder) -> bool:
    """Whether a recomputation of the layer takes what its exchanges gave in the forward."""
    return builder.software.exchange.replays_exchanges and local_experts(builder.local).ep > 1


def moe_backward(
    builder: LayerBuilder,
    *,
    recompute: Recompute = NOTHING,
    split: bool = False,
) -> None:
    """Append the gradients of the layer's input and, unless ``split``, of the matrices of experts and router;
    first, as far as ``recompute`` says, the forward once more."""
    software = builder.software
    if "moe" in recompute:
        moe_forward(builder)
    elif "shared_experts" in recompute:
        shared_forward(builder)
    unpermute_backward(builder)
    await_exchange(builder, exchange(builder, "combine backward"))
    experts_backward(builder, recompute=recompute, split=split)
    sent = exchange(builder, "dispatch backward")
    if software.exchange.moe_shared_expert_overlap:
        shared_backward(builder.outside_graphs(), split=split)
    await_exchange(builder, sent)
    if "layernorm" in recompute:
        norm(builder)
    route_backward(builder, split=split, shared=not software.exchange.moe_shared_expert_overlap)


def moe_weight_grad(builder: LayerBuilder) -> None:
    """Append the gradients of the matrices of experts and router, which a split backward left for later."""
    local = builder.local
    experts_weight_grad(builder)
    if local_experts(local).shared_ffn:
        mlp_weight_grad(builder.on(_shared(local)))
    row_weight_grad(builder.on(_seen(local).plain), _router(local))


# Parts ---------------------------------------------------------------------------------------------


def route(builder: LayerBuilder, *, shared: bool = True, counts: bool = True, records: bool = True) -> None:
    """Append router, shared experts, and the permutation of token copies by destination. ``counts``: ranks
    exchange how many tokens go to each expert. ``records``: autograd records the router, and so there is a
    loss of its own where the software has one (Megatron-LM router.py: ``torch.is_grad_enabled()``)."""
    local, software = builder.local, builder.software
    experts = local_experts(local)
    if shared:
        shared_forward(builder)
    _gather_tokens(builder, "token all_gather")
    seen = _seen(local)
    builder.kernel("router", _router(local).forward(seen.plain))
    scores = 4.0 * seen.tokens * experts.total  # FP32
    # logits r, probabilities w, top-k r, map and probabilities w, counts and loss r: six passes
    builder.memory("top-k", 6 * scores, launches=_launches(builder, records=records))
    if experts.loss_ranks > 1 and records:
        # moe_utils.py, tokens_per_expert over tp_cp_group; those of context parallelism are left out
        builder.tp("token counts of the loss", "all_reduce", float(_COUNT_BYTES * experts.total))
    if uses_torch_operators(software):
        take_rows(builder, experts)
    elif software.exchange.moe_dispatcher == "alltoall":
        if counts:
            _count(builder)
        # r tokens, w copies
        move_rows(builder, "permute", _permuted(local))


def route_backward(builder: LayerBuilder, *, split: bool, shared: bool = True) -> None:
    """Append the gradients of token copies, summed per token, then those of the router and the shared
    experts."""
    local, software = builder.local, builder.software
    experts = local_experts(local)
    replay_backward(builder)
    if uses_torch_operators(software):
        take_rows_backward(builder, experts)
    elif indexes_rows(builder):
        permute_backward(builder)
    elif software.exchange.moe_dispatcher == "alltoall":
        move_rows(builder, "permute backward", _permuted(local))
    seen = _seen(local)
    builder.memory(
        "top-k backward", 16.0 * seen.tokens * experts.total, launches=_backward_launches(software)
    )
    row_input_grad(builder.on(seen.plain), _router(local))
    if not split:
        row_weight_grad(builder.on(seen.plain), _router(local))
    _scatter_tokens(builder, "token gradient reduce_scatter")
    if shared:
        shared_backward(builder, split=split)
    builder.memory("input gradient add", 3 * local.norm_bytes)


def shared_forward(builder: LayerBuilder) -> None:
    """Append the shared experts: an MLP that every token passes, whatever its router says."""
    local = builder.local
    if local_experts(local).shared_ffn:
        mlp_forward(builder.on(_shared(local)))


def shared_backward(builder: LayerBuilder, *, split: bool) -> None:
    """Append the gradients of the shared experts, added to that of the layer's input."""
    local = builder.local
    if local_experts(local).shared_ffn:
        mlp_backward(builder.on(_shared(local)), split=split)
        builder.memory("input gradient add", 3 * local.norm_bytes)


def unpermute(builder: LayerBuilder) -> None:
    """Append the weighted sum of each token's copies, and the addition of the shared experts' output."""
    builder = builder.outside_graphs()
    local, software = builder.local, builder.software
    experts = local_experts(local)
    if uses_torch_operators(software):
        return_rows(builder, experts)
    elif indexes_rows(builder):
        weight_rows_at_home(builder)
        add_rows(builder)
    elif software.exchange.moe_dispatcher == "alltoall":
        move_rows(builder, "unpermute", _permuted(local))
    _scatter_tokens(builder, "token reduce_scatter")
    if experts.shared_ffn:
        builder.memory("shared expert add", 3 * local.norm_bytes)


def unpermute_backward(builder: LayerBuilder) -> None:
    """Append the copies of each token's gradient to all its rows."""
    builder = builder.outside_graphs()
    local, software = builder.local, builder.software
    _gather_tokens(builder, "token gradient all_gather")
    if uses_torch_operators(software):
        return_rows_backward(builder, local_experts(local))
    elif software.exchange.moe_dispatcher == "alltoall":
        move_rows(builder, "unpermute backward", _permuted(local))
        weight_rows_at_home_backward(builder)


def _gather_tokens(builder: LayerBuilder, name: str) -> None:
    """Append the gather of what all tensor-parallel ranks have, where the layer gathers it for its router;
    the matrices of shared experts gather and reduce the same tokens themselves."""
    if _gathers(builder.local):
        builder.tp(name, "all_gather", builder.local.hidden_bytes)


def _scatter_tokens(builder: LayerBuilder, name: str) -> None:
    if _gathers(builder.local):
        builder.tp(name, "reduce_scatter", builder.local.hidden_bytes)


def _gathers(local: LocalShape) -> bool:
    experts = local_experts(local)
    return experts.gathered > 1 and not experts.shared_ffn


def _seen(local: LocalShape) -> LocalShape:
    """The shape of operations on the tokens that the router sees."""
    return local.here.with_(sequence=local.norm_tokens * local_experts(local).gathered)


def _permuted(local: LocalShape) -> float:
    """Tokens, and the rows that they become."""
    experts = local_experts(local)
    return experts.senders * local.norm_tokens + experts.sent(local.norm_tokens)


def exchange(builder: LayerBuilder, name: str, *, after: int | None = None) -> int | None:
    """Append a dispatch or combine, or gradients of one. Returns the index of its last op, or None where all
    experts are on this rank.

    Where the experts' activation weights rows, their weights travel, too: NCCL's dispatcher sends them behind
    the rows, and their gradients ahead of the rows' (Megatron-LM token_dispatcher.py, token_dispatch).
    """
    local = builder.local
    if local_experts(local).ep == 1:
        return None
    backward = name == "dispatch backward"
    parts = [(name, _payload(local, name))]
    if sends_weights(builder.software) and (name == "dispatch" or backward):
        tokens = local_experts(local).senders * local.norm_tokens
        parts.append((f"{name} weights", float(WEIGHT_BYTES * tokens)))
    outside, index = builder.outside_graphs(), -1
    for part, payload in reversed(parts) if backward else parts:
        index = outside.collective("ep", part, TOKENS, payload, after=after, wait=False)
    return index


def await_rows(builder: LayerBuilder) -> None:
    """Make the host wait for the number of rows of each expert, which sets the shapes of all that follows,
    unless a capacity fixes it.

    NCCL's dispatcher waits for these sizes before the exchange, DeepEP and HybridEP in their dispatch
    (Megatron-LM token_dispatcher.py, _maybe_dtoh_and_synchronize; DeepEP csrc/deep_ep.cpp, moe_recv_counter).
    """
    if local_experts(builder.local).dropless:
        builder.outside_graphs().host_waits()


def await_exchange(builder: LayerBuilder, index: int | None) -> None:
    """Make the next kernel wait for an exchange."""
    if index is not None:
        builder.join(index)


# Sizes and kernels -----------------------------------------------------------------------------------


def _payload(local: LocalShape, name: str) -> float:
    """Bytes of one copy of the tokens that this rank sends. A dispatch may send them quantised."""
    each = local.stored_bytes if local.quantised_dispatch and name == "dispatch" else local.element_bytes
    return local_experts(local).senders * local.norm_tokens * local.hidden * each


def _router(local: LocalShape) -> Linear:
    return Linear(name="router", inputs=local.hidden, outputs=local_experts(local).total)


def _shared(local: LocalShape) -> LocalShape:
    return local.with_(ffn=local_experts(local).shared_ffn, experts=None)


def _count(builder: LayerBuilder) -> None:
    """Append the exchange of how many tokens go to each expert, where no capacity fixes that."""
    experts = local_experts(builder.local)
    if experts.ep > 1 and experts.dropless:
        size = float(_COUNT_BYTES * experts.total * experts.ep)
        builder.collective("ep", "token counts", "all_gather", size)
        builder.memory("token counts", 2 * size, launches=_COUNTS_LAUNCHES)


def _launches(builder: LayerBuilder, *, records: bool) -> int:
    if uses_torch_operators(builder.software):
        return _MODEL_ROUTER_LAUNCHES
    without_loss = builder.software.exchange.router_loss and not records
    if builder.software.kernels.moe_router_fusion:
        return _FUSED_ROUTER_LAUNCHES - (_FUSED_LOSS_LAUNCHES if without_loss else 0)
    found = _ROUTER_LAUNCHES - (0 if local_experts(builder.local).in_groups else _GROUPS_LAUNCHES)
    return found - (_LOSS_LAUNCHES if without_loss else 0)


def _backward_launches(software: Software) -> int:
    if uses_torch_operators(software):
        return _MODEL_ROUTER_BACKWARD_LAUNCHES
    fused = software.kernels.moe_router_fusion
    return _FUSED_ROUTER_BACKWARD_LAUNCHES if fused else _ROUTER_BACKWARD_LAUNCHES
