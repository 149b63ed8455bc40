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
from typing import Literal

from ....kernels.kernel import Gemm
from ...scenario.software.software import Software
from .expert_biases import add_biases, add_biases_backward
from .experts import Experts
from .layer_builder import LayerBuilder
from .linear import Linear, accumulate_gradient, quantise, row_input_grad, row_weight_grad, transpose
from .local_shape import LocalShape
from .mlp import mlp_backward, mlp_forward, mlp_weight_grad
from .pointwise import activation, activation_backward, norm
from .recompute import NOTHING, Recompute

TOKENS = "tokens"
"""Kind of the exchange that brings tokens to experts and back; its payload is one copy of the tokens."""

# Kernels of router and permutation that move little, in number: softmax or sigmoid, top-k, masks, counts,
# cumulative sums, auxiliary loss, index maps (router.py, moe_utils.py, token_dispatcher.preprocess). Of a
# forward of DeepSeek-V3's router NVIDIA counts 72, 31 with fusion, and 17 with DeepEP's one kernel in place
# of those that make a dropless all-to-all's sizes out of all ranks' counts of tokens and copy them to the
# host; the product is taken to be among them (Megatron-LM docs/discussions/deepseek-v3-gb200-optimization,
# 2.1.4 and 2.2.1). Of the backward nobody has published a number: autograd's operations, counted in the code.
_COUNTS_LAUNCHES, _COUNT_BYTES = 14, 8
_ROUTER_LAUNCHES, _FUSED_ROUTER_LAUNCHES = 72 - _COUNTS_LAUNCHES - 1, 31 - _COUNTS_LAUNCHES - 1
_ROUTER_BACKWARD_LAUNCHES, _FUSED_ROUTER_BACKWARD_LAUNCHES = 12, 4


def moe_forward(builder: LayerBuilder) -> None:
    """Append the forward pass of a layer's experts, one part after the other."""
    _to_experts(builder)
    work(builder)
    arrive(builder, exchange(builder, "combine"))
    gather(builder)


def _to_experts(builder: LayerBuilder) -> None:
    """All up to the rows that have arrived."""
    software = builder.software
    route(builder, shared=not software.exchange.moe_shared_expert_overlap)
    if _held(builder.local).dropless:
        builder.outside_graphs().host_waits()  # for the rows of each expert: all that follows has their shape
    sent = exchange(builder, "dispatch")
    if software.exchange.moe_shared_expert_overlap:
        shared_forward(builder)
    arrive(builder, sent)


def moe_forward_again(builder: LayerBuilder) -> None:
    """Append what a recomputation that stops early runs again of a layer's experts.

    The kernels that put rows back into order keep their map, a tensor, until backward. So what comes behind
    those of NCCL's exchange, which sort last, is all that is left out; DeepEP and HybridEP sort for
    themselves, and keep no tensor of a combine but their own handle (Megatron-LM fused_a2a.py, FusedCombine;
    TransformerEngine permutation.py, _moe_unpermute_mask_map; torch.utils.checkpoint, early_stop).
    """
    by_nccl = builder.software.exchange.moe_dispatcher == "alltoall"
    _to_experts(builder)
    work(builder)
    if by_nccl:
        arrive(builder, exchange(builder, "combine"))
        gather(builder)


def moe_backward(
    builder: LayerBuilder,
    *,
    recompute: Recompute = NOTHING,
    split: bool = False,
) -> None:
    """Gradients of the input and, unless ``split``, of the experts' matrices and the router."""
    software = builder.software
    if "moe" in recompute:
        moe_forward(builder)
    elif "shared_experts" in recompute:
        shared_forward(builder)
    gather_backward(builder)
    arrive(builder, exchange(builder, "combine backward"))
    work_backward(builder, recompute=recompute, split=split)
    sent = exchange(builder, "dispatch backward")
    if software.exchange.moe_shared_expert_overlap:
        shared_backward(builder, split=split)
    arrive(builder, sent)
    if "layernorm" in recompute:
        norm(builder)
    route_backward(builder, split=split, shared=not software.exchange.moe_shared_expert_overlap)


def moe_weight_grad(builder: LayerBuilder) -> None:
    """Gradients of the matrices that were put off."""
    local = builder.local
    work_weight_grad(builder)
    if _held(local).shared_ffn:
        mlp_weight_grad(builder.on(_shared(local)))
    row_weight_grad(builder.on(local.here.plain), _router(local))


# Parts ---------------------------------------------------------------------------------------------


def route(builder: LayerBuilder, *, shared: bool = True, counts: bool = True) -> None:
    """Choose experts, run the shared ones, sort copies of the tokens by where they go; with ``counts`` unless
    they are known."""
    local, software = builder.local, builder.software
    experts = _held(local)
    if shared:
        shared_forward(builder)
    builder.kernel("router", _router(local).forward(local.here.plain))
    scores = 4.0 * local.norm_tokens * experts.total  # FP32
    # logits r, probabilities w, top-k r, map and probabilities w, counts and loss r: six passes
    builder.memory("top-k", 6 * scores, launches=_launches(software))
    if software.exchange.moe_dispatcher == "alltoall":
        if counts:
            _count(builder)
        _move(builder, "permute", local.norm_tokens + experts.sent(local.norm_tokens))  # r tokens, w copies


def route_backward(builder: LayerBuilder, *, split: bool, shared: bool = True) -> None:
    """Gradients of the copies summed up per token, then of router and shared experts."""
    local, software = builder.local, builder.software
    experts = _held(local)
    if software.exchange.moe_dispatcher == "alltoall":
        _move(builder, "permute backward", local.norm_tokens + experts.sent(local.norm_tokens))
    builder.memory(
        "top-k backward", 16.0 * local.norm_tokens * experts.total, launches=_backward_launches(software)
    )
    row_input_grad(builder.on(local.here.plain), _router(local))
    if not split:
        row_weight_grad(builder.on(local.here.plain), _router(local))
    if shared:
        shared_backward(builder, split=split)
    builder.memory("input gradient add", 3 * local.norm_bytes)


def shared_forward(builder: LayerBuilder) -> None:
    """The shared experts: an MLP that every token passes."""
    local = builder.local
    if _held(local).shared_ffn:
        mlp_forward(builder.on(_shared(local)))


def shared_backward(builder: LayerBuilder, *, split: bool) -> None:
    """Gradients of the shared experts, added to that of the layer's input."""
    local = builder.local
    if _held(local).shared_ffn:
        mlp_backward(builder.on(_shared(local)), split=split)
        builder.memory("input gradient add", 3 * local.norm_bytes)


def work(builder: LayerBuilder) -> None:
    """The experts on the rows that have arrived."""
    builder = builder.outside_graphs()
    local = builder.local
    first_half(builder)
    _grouped(builder, _matrices(local)[1], "forward")
    _pad(builder, "unpad rows")
    _biases(builder, _matrices(local)[1], "forward")
    _sort(builder, "sort by source")
    _etp(builder, "reduce_scatter")


def first_half(builder: LayerBuilder, *, product: bool = True) -> None:
    """Up to the input of the experts' second product; without the first ``product`` where that is kept."""
    builder = builder.outside_graphs()
    local = builder.local
    _etp(builder, "all_gather")
    _sort(builder, "sort by expert")
    if product:
        _pad(builder, "pad rows")
        _grouped(builder, _matrices(local)[0], "forward")
        _biases(builder, _matrices(local)[0], "forward")
    if activation_in_products(local, builder.software):
        # The first product's kernel writes the quantised copies beside its own output.
        builder.memory("quantised activation", _activation_elements(local) * _gathered(local), launches=0)
    else:
        activation(_on_rows(builder))


def work_backward(
    builder: LayerBuilder,
    *,
    recompute: Recompute = NOTHING,
    split: bool = False,
) -> None:
    """Gradients of rows and, unless ``split``, of the experts' matrices."""
    builder = builder.outside_graphs()
    local = builder.local
    _etp(builder, "all_gather")
    _sort(builder, "sort by source backward")
    first, second = _matrices(local)
    _biases(builder, second, "backward")
    _pad(builder, "pad rows backward")
    for linear in (second, first):
        if linear is second and "moe_act" in recompute:
            activation(_on_rows(builder))
        if linear is first:
            _biases(builder, first, "backward")
        _grouped(builder, linear, "dgrad")
        if not split:
            _grouped(builder, linear, "wgrad")
        if linear is second and activation_in_products(local, builder.software):
            # In the kernel of the product before: reads what the first one wrote, writes quantised copies of
            # its gradient in place of that of the activation.
            each = local.gate * (local.element_bytes + _gathered(local)) - local.element_bytes
            builder.memory("quantised gradient", _activation_elements(local) * each, launches=0)
        elif linear is second:
            activation_backward(_on_rows(builder))
    _pad(builder, "unpad rows backward")
    _sort(builder, "sort by expert backward")
    _etp(builder, "reduce_scatter")


def work_weight_grad(builder: LayerBuilder) -> None:
    """Gradients of the experts' matrices alone."""
    builder = builder.outside_graphs()
    local = builder.local
    first, second = _matrices(local)
    for linear in (second, first):
        _grouped(builder, linear, "wgrad")


def gather(builder: LayerBuilder) -> None:
    """Weighted sum of each token's copies; the shared experts' output is added."""
    builder = builder.outside_graphs()
    local, software = builder.local, builder.software
    experts = _held(local)
    if software.exchange.moe_dispatcher == "alltoall":
        _move(builder, "unpermute", local.norm_tokens + experts.sent(local.norm_tokens))
    if experts.shared_ffn:
        builder.memory("shared expert add", 3 * local.norm_bytes)


def gather_backward(builder: LayerBuilder) -> None:
    """The gradient of each token goes to all its copies."""
    builder = builder.outside_graphs()
    local, software = builder.local, builder.software
    if software.exchange.moe_dispatcher == "alltoall":
        rows = local.norm_tokens + _held(local).sent(local.norm_tokens)
        _move(builder, "unpermute backward", rows)


def exchange(builder: LayerBuilder, name: str, *, after: int | None = None) -> int | None:
    """Post a dispatch or combine; its index, or None where all experts are here."""
    local = builder.local
    if _held(local).ep == 1:
        return None
    return builder.outside_graphs().collective(
        "ep", name, TOKENS, _payload(local, name), after=after, wait=False
    )


def arrive(builder: LayerBuilder, index: int | None) -> None:
    """The next kernel awaits an exchange."""
    if index is not None:
        builder.join(index)


# Sizes and kernels -----------------------------------------------------------------------------------


def _held(local: LocalShape) -> Experts:
    assert local.experts is not None
    return local.experts


def _payload(local: LocalShape, name: str) -> float:
    """Bytes of one copy of this rank's tokens; those on their way to experts may be quantised."""
    each = local.stored_bytes if local.quantised_dispatch and name == "dispatch" else local.element_bytes
    return local.norm_tokens * local.hidden * each


def _router(local: LocalShape) -> Linear:
    return Linear(name="router", inputs=local.hidden, outputs=_held(local).total)


def _shared(local: LocalShape) -> LocalShape:
    return local.with_(ffn=_held(local).shared_ffn, experts=None)


def _on_rows(builder: LayerBuilder) -> LayerBuilder:
    """A builder for the activation of the rows that this rank's experts work on, which knows nothing of a
    bias that is added apart."""
    local = builder.local
    experts = _held(local)
    rows = experts.rows_each(local.norm_tokens) * experts.held
    biases = local.biases and builder.software.kernels.expert_biases != "apart"
    return builder.on(local.here.with_(sequence=rows, ffn=experts.ffn, biases=biases))


def _matrices(local: LocalShape) -> tuple[Linear, Linear]:
    width = _held(local).ffn
    first = Linear(name="expert fc1", inputs=local.hidden, outputs=width * local.gate)
    return first, Linear(name="expert fc2", inputs=width, outputs=local.hidden)


def _grouped(builder: LayerBuilder, linear: Linear, what: str) -> None:
    """One product for each expert held here, in one kernel or in one for each."""
    local, software = builder.local, builder.software
    experts = _held(local)
    one = local.here.with_(sequence=experts.rows_each(local.norm_tokens))
    gemm: Gemm = {
        "forward": lambda: linear.forward(one),
        "dgrad": lambda: linear.input_grad(one),
        "wgrad": lambda: linear.weight_grad(one, software),
    }[what]()
    calls = experts.held if software.kernels.grouped_gemm == "streams" else 1
    name = linear.name if what == "forward" else f"{linear.name} {what}"
    # between the products, where the activation is
    inner = (linear == _matrices(local)[1]) == (what == "forward")
    if what != "wgrad" and not (inner and activation_in_products(local, software)):
        # rows on the way in, their gradients on the way back: the latter for both products
        width = linear.inputs if what == "forward" else linear.outputs
        rows, apart = experts.rows(local.norm_tokens), _quantised_apart(builder)
        quantise(builder, rows * width, tensors=apart, gradients=what == "dgrad")
        transpose(builder, experts.rows(local.norm_tokens) * width)
    # A weight of its own for each expert: where its gradient is ready, its hook runs (DDP).
    launches = builder.products(calls) + (experts.held if what == "wgrad" else 0)
    rate = software.kernels.fp8_wgrad_rate if local.recipe and what == "wgrad" else 1.0
    builder.kernel(name, replace(gemm, batch=experts.held, calls=calls), launches=launches, rate=rate)
    if what == "wgrad":
        accumulate_gradient(builder, experts.held * linear.inputs * linear.outputs)


def _biases(builder: LayerBuilder, linear: Linear, direction: Literal["forward", "backward"]) -> None:
    """The biases of a product of the experts, or their gradients, where its kernel does not add them."""
    local, kernels = builder.local, builder.software.kernels
    weighted = linear == _matrices(local)[1]
    apart = kernels.expert_biases == "apart" or (weighted and kernels.expert_biases == "second-apart")
    if not local.biases or not apart or activation_in_products(local, builder.software):
        return
    add = add_biases if direction == "forward" else add_biases_backward
    experts = _held(local)
    elements = float(experts.rows_each(local.norm_tokens) * experts.held * linear.outputs)
    add(builder, experts=experts.held, elements=elements, weighted=weighted)


def _quantised_apart(builder: LayerBuilder) -> int:
    """Tensors that the experts' rows are quantised as, one after the other.

    TransformerEngine's one kernel for many tensors knows scales of earlier steps alone; a loop in C++ does
    all others by themselves (pytorch/csrc/extensions/cast.cpp, multi_tensor_quantize_impl). Experts that are
    one kernel are quantised as one tensor.
    """
    recipe, software = builder.local.recipe, builder.software
    fused = software.kernels.grouped_gemm != "streams" or (recipe is not None and recipe.fused_multi)
    return 1 if fused else _held(builder.local).held


def activation_in_products(local: LocalShape, software: Software) -> bool:
    """Whether the kernels of the experts' products apply the activation and quantise."""
    return software.kernels.fused_grouped_mlp and local.recipe is not None


def _activation_elements(local: LocalShape) -> float:
    experts = _held(local)
    return experts.rows_each(local.norm_tokens) * experts.held * experts.ffn


def _gathered(local: LocalShape) -> float:
    assert local.recipe is not None
    return local.recipe.gathered


def _sort(builder: LayerBuilder, name: str) -> None:
    """Rows arrive by source and are wanted by expert; with one expert there is nothing to do."""
    local = builder.local
    if _held(local).held > 1:
        _move(builder, name, 2 * _held(local).rows(local.norm_tokens))


def _pad(builder: LayerBuilder, name: str) -> None:
    """Rows are copied to where each expert's number of them is a multiple of 16 or 32, or back.

    Products of 8 or 4 bits take no other (Megatron-LM experts.py, TEGroupedMLP: Fp8Padding). HybridEP's
    permutation does that as it copies; a capacity is such a multiple by itself.
    """
    local, software = builder.local, builder.software
    experts = _held(local)
    copied = software.kernels.expert_rows_padded and software.exchange.moe_dispatcher != "hybridep"
    if local.recipe and experts.dropless and copied:
        builder.memory(name, 2.0 * experts.rows(local.norm_tokens) * local.hidden * local.element_bytes)


def _count(builder: LayerBuilder) -> None:
    """Tell all ranks how many tokens go to each expert, where no capacity says it beforehand."""
    experts = _held(builder.local)
    if experts.ep > 1 and experts.dropless:
        size = float(_COUNT_BYTES * experts.total * experts.ep)
        builder.collective("ep", "token counts", "all_gather", size)
        builder.memory("token counts", 2 * size, launches=_COUNTS_LAUNCHES)


def _etp(builder: LayerBuilder, kind: str) -> None:
    """Ranks that share an expert gather its rows, and add up its outputs."""
    local = builder.local
    experts = _held(local)
    if experts.etp > 1:
        rows = experts.rows(local.norm_tokens)
        builder.collective("etp", f"expert {kind}", kind, rows * local.hidden * local.element_bytes)


def _move(builder: LayerBuilder, name: str, rows: float) -> None:
    # Maps of rows by two scans, then the rows themselves (TransformerEngine permutation.cu; three kernels).
    local = builder.local
    builder.memory(name, float(rows * local.hidden * local.element_bytes), launches=3)


def _launches(software: Software) -> int:
    return _FUSED_ROUTER_LAUNCHES if software.kernels.moe_router_fusion else _ROUTER_LAUNCHES


def _backward_launches(software: Software) -> int:
    fused = software.kernels.moe_router_fusion
    return _FUSED_ROUTER_BACKWARD_LAUNCHES if fused else _ROUTER_BACKWARD_LAUNCHES
