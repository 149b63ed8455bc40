"""Experts in place of an MLP: router, permutation, dispatch, grouped matrices, combine; shared experts.

A layer's experts run in three parts with an exchange of tokens between each: ``route`` (router, shared
experts, tokens sorted by their target), dispatch, ``work`` (the experts), combine, ``gather`` (back to
the order of tokens). Parts and exchanges are functions of their own, because frameworks overlap the exchanges
of one microbatch with parts of another (pairs.py). Bytes count reads and writes at HBM.

References:
    Megatron-LM transformer/moe: moe_layer.py, router.py, token_dispatcher.py (MoEAlltoAllTokenDispatcher,
    MoEFlexTokenDispatcher with DeepEP), experts.py (TEGroupedMLP), shared_experts.py. DeepSeek-V3,
    arXiv:2412.19437 section 3.2.
"""

from __future__ import annotations

from dataclasses import replace

from ....kernels.kernel import Gemm
from ...scenario.software.software import Software
from .experts import Experts
from .linear import Linear, accumulate_gradient, quantise, row_input_grad, row_weight_grad, transpose
from .mlp import mlp_backward, mlp_forward, mlp_weight_grad
from .pointwise import activation, activation_backward, norm
from .recompute import NOTHING, Recompute
from .shard import Shard
from .tape import Tape

TOKENS = "tokens"
"""Kind of the exchange that brings tokens to experts and back; its payload is one copy of the tokens."""

# Kernels of router and permutation that move little, in number: softmax or sigmoid, top-k, masks, counts,
# cumulative sums, auxiliary loss, index maps (router.py, moe_utils.py, token_dispatcher.preprocess).
_ROUTER_LAUNCHES, _FUSED_ROUTER_LAUNCHES = 24, 8


def moe_forward(tape: Tape, shard: Shard, software: Software) -> None:
    """All of it, one part after the other."""
    route(tape, shard, software, shared=not software.moe_shared_expert_overlap)
    sent = exchange(tape, shard, "dispatch")
    if software.moe_shared_expert_overlap:
        shared_forward(tape, shard, software)
    arrive(tape, sent)
    work(tape, shard, software)
    arrive(tape, exchange(tape, shard, "combine"))
    gather(tape, shard, software)


def moe_backward(
    tape: Tape, shard: Shard, software: Software, *, recompute: Recompute = NOTHING, split: bool = False
) -> None:
    """Gradients of the input and, unless ``split``, of the experts' matrices and the router."""
    if "moe" in recompute:
        moe_forward(tape, shard, software)
    elif "shared_experts" in recompute:
        shared_forward(tape, shard, software)
    gather_backward(tape, shard, software)
    arrive(tape, exchange(tape, shard, "combine backward"))
    work_backward(tape, shard, software, recompute=recompute, split=split)
    sent = exchange(tape, shard, "dispatch backward")
    if software.moe_shared_expert_overlap:
        shared_backward(tape, shard, software, split=split)
    arrive(tape, sent)
    if "layernorm" in recompute:
        norm(tape, shard, software)
    route_backward(tape, shard, software, split=split, shared=not software.moe_shared_expert_overlap)


def moe_weight_grad(tape: Tape, shard: Shard, software: Software) -> None:
    """Gradients of the matrices that were put off."""
    work_weight_grad(tape, shard, software)
    if _held(shard).shared_ffn:
        mlp_weight_grad(tape, _shared(shard), software)
    row_weight_grad(tape, _router(shard), shard.here.plain, software)


# Parts ---------------------------------------------------------------------------------------------


def route(tape: Tape, shard: Shard, software: Software, *, shared: bool = True, counts: bool = True) -> None:
    """Choose experts, run the shared ones, sort copies of the tokens by where they go; await ``counts``."""
    experts = _held(shard)
    if shared:
        shared_forward(tape, shard, software)
    tape.kernel("router", _router(shard).forward(shard.here.plain))
    scores = 4.0 * shard.norm_tokens * experts.total  # FP32
    # logits r, probabilities w, top-k r, map and probabilities w, counts and loss r: six passes
    tape.memory("top-k", 6 * scores, launches=_launches(software))
    if software.moe_dispatcher == "alltoall":
        _move(
            tape, "permute", shard, shard.norm_tokens + experts.sent(shard.norm_tokens)
        )  # r tokens, w copies
        if counts:
            _wait_for_counts(tape, shard, software)


def route_backward(tape: Tape, shard: Shard, software: Software, *, split: bool, shared: bool = True) -> None:
    """Gradients of the copies summed up per token, then of router and shared experts."""
    experts = _held(shard)
    if software.moe_dispatcher == "alltoall":
        _move(tape, "permute backward", shard, shard.norm_tokens + experts.sent(shard.norm_tokens))
    tape.memory("top-k backward", 16.0 * shard.norm_tokens * experts.total, launches=_launches(software) // 2)
    row_input_grad(tape, _router(shard), shard.here.plain, software)
    if not split:
        row_weight_grad(tape, _router(shard), shard.here.plain, software)
    if shared:
        shared_backward(tape, shard, software, split=split)
    tape.memory("input gradient add", 3 * shard.norm_bytes)


def shared_forward(tape: Tape, shard: Shard, software: Software) -> None:
    """The shared experts: an MLP that every token passes."""
    if _held(shard).shared_ffn:
        mlp_forward(tape, _shared(shard), software)


def shared_backward(tape: Tape, shard: Shard, software: Software, *, split: bool) -> None:
    """Its gradients."""
    if _held(shard).shared_ffn:
        mlp_backward(tape, _shared(shard), software, split=split)
        tape.memory("input gradient add", 3 * shard.norm_bytes)


def work(tape: Tape, shard: Shard, software: Software) -> None:
    """The experts on the rows that have arrived."""
    first_half(tape, shard, software)
    _grouped(tape, _matrices(shard)[1], shard, software, "forward")
    _sort(tape, shard, "sort by source")
    _etp(tape, shard, "reduce_scatter")


def first_half(tape: Tape, shard: Shard, software: Software, *, product: bool = True) -> None:
    """Up to the input of the experts' second product; without the first ``product`` where that is kept."""
    _etp(tape, shard, "all_gather")
    _sort(tape, shard, "sort by expert")
    if product:
        _grouped(tape, _matrices(shard)[0], shard, software, "forward")
    activation(tape, _rows(shard), software)


def work_backward(
    tape: Tape, shard: Shard, software: Software, *, recompute: Recompute = NOTHING, split: bool = False
) -> None:
    """Gradients of rows and, unless ``split``, of the experts' matrices."""
    _etp(tape, shard, "all_gather")
    _sort(tape, shard, "sort by source backward")
    first, second = _matrices(shard)
    for linear in (second, first):
        if linear is second and "moe_act" in recompute:
            activation(tape, _rows(shard), software)
        _grouped(tape, linear, shard, software, "dgrad")
        if not split:
            _grouped(tape, linear, shard, software, "wgrad")
        if linear is second:
            activation_backward(tape, _rows(shard), software)
    _sort(tape, shard, "sort by expert backward")
    _etp(tape, shard, "reduce_scatter")


def work_weight_grad(tape: Tape, shard: Shard, software: Software) -> None:
    """Gradients of the experts' matrices alone."""
    first, second = _matrices(shard)
    for linear in (second, first):
        _grouped(tape, linear, shard, software, "wgrad")


def gather(tape: Tape, shard: Shard, software: Software) -> None:
    """Weighted sum of each token's copies; the shared experts' output is added."""
    experts = _held(shard)
    if software.moe_dispatcher == "alltoall":
        _move(tape, "unpermute", shard, shard.norm_tokens + experts.sent(shard.norm_tokens))
    if experts.shared_ffn:
        tape.memory("shared expert add", 3 * shard.norm_bytes)


def gather_backward(tape: Tape, shard: Shard, software: Software) -> None:
    """The gradient of each token goes to all its copies."""
    if software.moe_dispatcher == "alltoall":
        rows = shard.norm_tokens + _held(shard).sent(shard.norm_tokens)
        _move(tape, "unpermute backward", shard, rows)


def exchange(tape: Tape, shard: Shard, name: str, *, after: int | None = None) -> int | None:
    """Post a dispatch or combine; its index, or None where all experts are here."""
    if _held(shard).ep == 1:
        return None
    return tape.collective("ep", name, TOKENS, _payload(shard, name), after=after, wait=False)


def arrive(tape: Tape, index: int | None) -> None:
    """The next kernel awaits an exchange."""
    if index is not None:
        tape.join(index)


# Sizes and kernels -----------------------------------------------------------------------------------


def _held(shard: Shard) -> Experts:
    assert shard.experts is not None
    return shard.experts


def _payload(shard: Shard, name: str) -> float:
    """Bytes of one copy of this rank's tokens; those on their way to experts may be quantised."""
    each = shard.stored_bytes if shard.quantised_dispatch and name == "dispatch" else shard.element_bytes
    return shard.norm_tokens * shard.hidden * each


def _router(shard: Shard) -> Linear:
    return Linear(name="router", inputs=shard.hidden, outputs=_held(shard).total)


def _shared(shard: Shard) -> Shard:
    return replace(shard, ffn=_held(shard).shared_ffn, experts=None)


def _rows(shard: Shard) -> Shard:
    """The shard of the rows that this rank's experts work on."""
    experts = _held(shard)
    rows = experts.rows_each(shard.norm_tokens) * experts.held
    return replace(shard.here, sequence=rows, ffn=experts.ffn)


def _matrices(shard: Shard) -> tuple[Linear, Linear]:
    width = _held(shard).ffn
    first = Linear(name="expert fc1", inputs=shard.hidden, outputs=width * shard.gate)
    return first, Linear(name="expert fc2", inputs=width, outputs=shard.hidden)


def _grouped(tape: Tape, linear: Linear, shard: Shard, software: Software, what: str) -> None:
    """One product for each expert held here, in one kernel or in one for each."""
    experts = _held(shard)
    one = replace(shard.here, sequence=experts.rows_each(shard.norm_tokens))
    gemm: Gemm = {
        "forward": lambda: linear.forward(one),
        "dgrad": lambda: linear.input_grad(one),
        "wgrad": lambda: linear.weight_grad(one, software),
    }[what]()
    calls = experts.held if software.grouped_gemm == "streams" else 1
    name = linear.name if what == "forward" else f"{linear.name} {what}"
    if what != "wgrad":  # rows on the way in, their gradients on the way back: the latter for both products
        width = linear.inputs if what == "forward" else linear.outputs
        quantise(tape, experts.rows(shard.norm_tokens) * width, shard)
        transpose(tape, experts.rows(shard.norm_tokens) * width, shard)
    # A weight of its own for each expert: where its gradient is ready, its hook runs (DDP).
    launches = calls + (experts.held if what == "wgrad" else 0)
    rate = software.fp8_wgrad_rate if shard.recipe and what == "wgrad" else 1.0
    tape.kernel(name, replace(gemm, batch=experts.held, calls=calls), launches=launches, rate=rate)
    if what == "wgrad":
        accumulate_gradient(tape, experts.held * linear.inputs * linear.outputs, shard, software)


def _sort(tape: Tape, shard: Shard, name: str) -> None:
    """Rows arrive by source and are wanted by expert; with one expert there is nothing to do."""
    if _held(shard).held > 1:
        _move(tape, name, shard, 2 * _held(shard).rows(shard.norm_tokens))


def _etp(tape: Tape, shard: Shard, kind: str) -> None:
    """Ranks that share an expert gather its rows, and add up its outputs."""
    experts = _held(shard)
    if experts.etp > 1:
        rows = experts.rows(shard.norm_tokens)
        tape.collective("etp", f"expert {kind}", kind, rows * shard.hidden * shard.element_bytes)


def _move(tape: Tape, name: str, shard: Shard, rows: float) -> None:
    # Maps of rows by two scans, then the rows themselves (TransformerEngine permutation.cu; three kernels).
    tape.memory(name, float(rows * shard.hidden * shard.element_bytes), launches=3)


def _launches(software: Software) -> int:
    return _FUSED_ROUTER_LAUNCHES if software.moe_router_fusion else _ROUTER_LAUNCHES


def _wait_for_counts(tape: Tape, shard: Shard, software: Software) -> None:
    """Without padding, the host must know how many rows each rank sends before it can post the exchange."""
    if software.moe_host_sync_s and _held(shard).ep > 1 and _held(shard).copies == _held(shard).topk:
        tape.idle("token counts to the host", software.moe_host_sync_s)
