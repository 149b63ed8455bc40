"""What experts do with the rows that have arrived: sorted by expert, multiplied in groups, sorted by source.

Knows the grouped GEMMs, what is between and around them, and the ranks that share an expert. Does not know
how rows arrive or go back (moe.py). Bytes count reads and writes at HBM.

References:
    Megatron-LM transformer/moe: experts.py (TEGroupedMLP), token_dispatcher.py (MoEAlltoAllTokenDispatcher).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ....kernels.kernel import Gemm
from ...scenario.software.software import Software
from .expert_arrivals import index_arrivals, index_arrivals_backward
from .expert_biases import add_biases, add_biases_backward
from .expert_operators import (
    add_rows_biases,
    add_rows_biases_backward,
    gate,
    gate_backward,
    in_a_loop,
    put_weight_gradients,
    uses_torch_operators,
    weights_as_one,
)
from .indexed_rows import (
    indexes_arrivals,
    pad_arrivals,
    pad_arrivals_backward,
    sort_by_expert_backward,
    sort_by_source,
    take_arrivals_backward,
    takes_arrivals,
)
from .layer_builder import LayerBuilder
from .linear import Linear, accumulate_gradient
from .local_shape import LocalShape, local_experts
from .pointwise import activation, activation_backward
from .quantise import quantise, transpose
from .recompute import Recompute
from .weighted_rows import weight_rows_of_experts, weight_rows_of_experts_backward

WEIGHT_BYTES = 4
"""Of the router's weight of a row, in FP32 (``--moe-router-dtype``)."""


def experts_forward(builder: LayerBuilder) -> None:
    """Append the experts' MLP on the rows that have arrived."""
    builder = builder.outside_graphs()
    first_half(builder)
    second_half(builder)


def second_half(builder: LayerBuilder, *, product: bool = True) -> None:
    """From the input of the experts' second GEMM on, up to the rows as they go back; without the second
    ``product`` where that is kept."""
    builder = builder.outside_graphs()
    second_product(builder, product=product)
    weight_rows_of_experts(builder)
    if indexes_arrivals(builder):
        sort_by_source(builder)
    else:
        _sort(builder, "sort by source")
    _etp(builder, "reduce_scatter")


def second_product(builder: LayerBuilder, *, product: bool) -> None:
    """Append the experts' second GEMM and its biases, or these alone where its output is kept."""
    builder = builder.outside_graphs()
    second = _matrices(builder.local)[1]
    if product:
        _grouped(builder, second, "forward")
    _pad(builder, "unpad rows")
    _biases(builder, second, "forward")


def first_half(builder: LayerBuilder, *, product: bool = True) -> None:
    """Append the experts' MLP up to the input of its second GEMM; without the first GEMM (``product``)
    where its output is kept."""
    builder = builder.outside_graphs()
    local = builder.local
    index_arrivals(builder)
    _etp(builder, "all_gather", weights=True)
    pad_arrivals(builder)
    _sort(builder, "sort by expert")
    if product:
        _pad(builder, "pad rows")
        _grouped(builder, _matrices(local)[0], "forward")
        _biases(builder, _matrices(local)[0], "forward")
    if activation_in_products(local, builder.software):
        # The first GEMM's kernel writes the quantised copies beside its own output.
        builder.memory("quantised activation", _activation_elements(local) * _gathered(local), launches=0)
    else:
        _activation(builder)


def experts_backward(
    builder: LayerBuilder,
    *,
    recompute: Recompute,
    split: bool,
) -> None:
    """Append the gradients of the rows that arrived and, unless ``split``, of the experts' matrices. Where
    ``recompute`` names the activation (``moe_act``), it runs once more before the gradients of the second
    matrix, which reads its output."""
    builder = builder.outside_graphs()
    local = builder.local
    _etp(builder, "all_gather")
    _sort(builder, "sort by source backward")
    weight_rows_of_experts_backward(builder)
    first, second = _matrices(local)
    _biases(builder, second, "backward")
    _pad(builder, "pad rows backward")
    for linear in (second, first):
        if linear is second and "moe_act" in recompute:
            _activation(builder)
        if linear is first:
            _biases(builder, first, "backward")
        _grouped(builder, linear, "dgrad")
        if not split:
            _grouped(builder, linear, "wgrad")
        if linear is second and activation_in_products(local, builder.software):
            # In the kernel of the GEMM before: reads what the first one wrote, writes quantised copies of
            # its gradient in place of that of the activation.
            each = local.gate * (local.element_bytes + _gathered(local)) - local.element_bytes
            builder.memory("quantised gradient", _activation_elements(local) * each, launches=0)
        elif linear is second and uses_torch_operators(builder.software):
            gate_backward(builder, local_experts(local))
        elif linear is second:
            activation_backward(_on_rows(builder), weighted=builder.software.kernels.weighted_activation)
            _weights_gradient(builder)
    _pad(builder, "unpad rows backward")
    if indexes_arrivals(builder):
        sort_by_expert_backward(builder)
        pad_arrivals_backward(builder)
    elif takes_arrivals(builder):
        take_arrivals_backward(builder)
    else:
        _sort(builder, "sort by expert backward")
    _etp(builder, "reduce_scatter", weights=True)
    index_arrivals_backward(builder)


def experts_weight_grad(builder: LayerBuilder) -> None:
    """Append the gradients of the experts' matrices, which a split backward left for later."""
    builder = builder.outside_graphs()
    local = builder.local
    first, second = _matrices(local)
    for linear in (second, first):
        _grouped(builder, linear, "wgrad")


def move_rows(builder: LayerBuilder, name: str, rows: float) -> None:
    """Append the kernels that put rows of tokens into another order."""
    # Maps of rows by two scans, then the rows themselves (TransformerEngine permutation.cu; three kernels).
    local = builder.local
    builder.memory(name, float(rows * local.hidden * local.element_bytes), launches=3)


def _activation(builder: LayerBuilder) -> None:
    """Append the activation of the rows, by torch's operators or by the same kernels as a dense MLP."""
    if uses_torch_operators(builder.software):
        gate(builder, local_experts(builder.local))
    else:
        activation(_on_rows(builder))


def _on_rows(builder: LayerBuilder) -> LayerBuilder:
    """A builder for the activation on the rows of this rank's experts. It adds no bias where biases are
    added by kernels of their own."""
    local = builder.local
    experts = local_experts(local)
    rows = experts.rows_each(local.norm_tokens) * experts.held
    biases = local.biases and builder.software.kernels.expert_biases != "apart"
    return builder.on(local.here.with_(sequence=rows, ffn=experts.ffn, biases=biases))


def _matrices(local: LocalShape) -> tuple[Linear, Linear]:
    width = local_experts(local).ffn
    first = Linear(name="expert fc1", inputs=local.hidden, outputs=width * local.gate)
    return first, Linear(name="expert fc2", inputs=width, outputs=local.hidden)


def _grouped(builder: LayerBuilder, linear: Linear, what: str) -> None:
    """Append one GEMM for each expert on this rank, in one grouped kernel or in one kernel each."""
    local, software = builder.local, builder.software
    experts = local_experts(local)
    if in_a_loop(software):
        _in_turn(builder, linear, what)
        return
    one = local.here.with_(sequence=experts.rows_each(local.norm_tokens))
    each, times = linear, 1
    if software.kernels.split_expert_gate and linear == _matrices(local)[0]:
        each, times = replace(linear, outputs=linear.outputs // local.gate), local.gate
    gemm: Gemm = {
        "forward": lambda: each.forward(one),
        "dgrad": lambda: each.input_grad(one),
        "wgrad": lambda: each.weight_grad(one, software),
    }[what]()
    calls = experts.held if software.kernels.grouped_gemm == "streams" else 1
    name = linear.name if what == "forward" else f"{linear.name} {what}"
    # between the GEMMs, where the activation is
    inner = (linear == _matrices(local)[1]) == (what == "forward")
    if what != "wgrad" and not (inner and activation_in_products(local, software)):
        # rows on the way in, their gradients on the way back: the latter for both GEMMs
        width = linear.inputs if what == "forward" else linear.outputs
        rows, apart = experts.rows(local.norm_tokens), _quantised_apart(builder)
        within = builder.issued_with_others() if activation_in_products(local, software) else builder
        quantise(within, rows * width, tensors=apart, gradients=what == "dgrad")
        transpose(within, rows * width, just_cast=True)
    # Where the gradient of a weight is ready its hook runs (DDP): of each expert, unless all are one weight.
    weights = 1 if software.kernels.grouped_gemm == "stacked" else experts.held
    hooks = builder.hook_launches(weights) if what == "wgrad" else 0.0
    launches = times * (_calls(builder, what, calls) + hooks)
    rate = software.kernels.fp8_wgrad_rate if local.recipe and what == "wgrad" else 1.0
    grouped = replace(gemm, batch=experts.held, calls=calls)
    builder.kernel(name, grouped, launches=launches, rate=rate, times=times)
    if what == "dgrad" and times > 1:
        rows = experts.rows(local.norm_tokens)
        builder.memory("row gradient add", 3.0 * rows * local.hidden * local.element_bytes)  # r 2 w 1
    if what == "wgrad":
        accumulate_gradient(builder, experts.held * linear.inputs * linear.outputs)


def _calls(builder: LayerBuilder, what: str, gemms: int) -> float:
    """Host cost, in launches, of what issues a grouped GEMM: a module's call, or a share of the fused MLP's,
    which has two forward and four backward."""
    if activation_in_products(builder.local, builder.software):
        loop = builder.costs.loop
        return loop.fused_forward / 2 if what == "forward" else loop.fused_backward / 4
    return builder.gemm_launches(gemms)


def _in_turn(builder: LayerBuilder, linear: Linear, what: str) -> None:
    """Append the GEMMs of a loop over the experts that have rows, on one stream. Branches that are
    matrices of their own have GEMMs of their own."""
    local, experts = builder.local, local_experts(builder.local)
    each, times = linear, experts.turns
    if local.split_gate and linear == _matrices(local)[0]:
        each, times = replace(linear, outputs=linear.outputs // local.gate), times * local.gate
    rows = max(1, round(experts.rows(local.norm_tokens) / experts.turns))
    one = local.here.with_(sequence=rows)
    gemm = {
        "forward": lambda: each.forward(one),
        "dgrad": lambda: each.input_grad(one),
        "wgrad": lambda: each.weight_grad(one, builder.software),
    }[what]()
    launches = times * (builder.gemm_launches(1) + (what == "wgrad"))  # and the hook of each weight
    name = linear.name if what == "forward" else f"{linear.name} {what}"
    builder.kernel(name, gemm, launches=launches, times=times)
    if what == "wgrad":
        if weights_as_one(builder):
            put_weight_gradients(builder, experts, linear.inputs * linear.outputs)
        accumulate_gradient(builder, experts.held * linear.inputs * linear.outputs)


def _biases(builder: LayerBuilder, linear: Linear, direction: Literal["forward", "backward"]) -> None:
    """Append the biases of the experts' GEMMs, or their gradients, where the GEMM kernels do not add them."""
    local, kernels = builder.local, builder.software.kernels
    if local.biases and uses_torch_operators(builder.software):
        of_rows = add_rows_biases if direction == "forward" else add_rows_biases_backward
        of_rows(builder, local_experts(local), linear.outputs)
        return
    weighted = linear == _matrices(local)[1]
    apart = kernels.expert_biases == "apart" or (weighted and kernels.expert_biases == "second-apart")
    if not local.biases or not apart or activation_in_products(local, builder.software):
        return
    add = add_biases if direction == "forward" else add_biases_backward
    experts = local_experts(local)
    elements = float(experts.rows_each(local.norm_tokens) * experts.held * linear.outputs)
    add(builder, experts=experts.held, elements=elements, weighted=weighted)


def _weights_gradient(builder: LayerBuilder) -> None:
    """Append the sums for the router's gradient where the activation multiplies its rows by the routing
    weights: a kernel of its own reads the inputs of the activation's backward once more (Megatron-LM
    core/fusions/fused_bias_swiglu.py, weighted_swiglu_back)."""
    local, kernels = builder.local, builder.software.kernels
    if kernels.weighted_activation and kernels.has_activation(gated=local.gate == 2):
        read = (local.gate + 1) * local.element_bytes
        builder.memory("weights' gradient", _activation_elements(local) * read)


def _quantised_apart(builder: LayerBuilder) -> int:
    """Tensors that the experts' rows are quantised as, one after the other.

    TransformerEngine's one kernel for many tensors knows scales of earlier steps alone; a loop in C++ does
    all others by themselves (pytorch/csrc/extensions/cast.cpp, multi_tensor_quantize_impl). Experts that are
    one kernel are quantised as one tensor.
    """
    recipe, software = builder.local.recipe, builder.software
    fused = software.kernels.grouped_gemm != "streams" or (recipe is not None and recipe.fused_multi)
    return 1 if fused else local_experts(builder.local).held


def activation_in_products(local: LocalShape, software: Software) -> bool:
    """Whether the kernels of the experts' GEMMs apply the activation and quantise."""
    return software.kernels.fused_grouped_mlp and local.recipe is not None


def _activation_elements(local: LocalShape) -> float:
    experts = local_experts(local)
    return experts.rows_each(local.norm_tokens) * experts.held * experts.ffn


def _gathered(local: LocalShape) -> float:
    assert local.recipe is not None
    return local.recipe.gathered


def _sort(builder: LayerBuilder, name: str) -> None:
    """Rows arrive by source and are wanted by expert; with one expert there is nothing to do, but torch's
    indexing does not ask (torchtitan models/moe/utils.py, _permute)."""
    local = builder.local
    sorts = local_experts(local).held > 1 or indexes_arrivals(builder) or takes_arrivals(builder)
    if sorts and not uses_torch_operators(builder.software):
        move_rows(builder, name, 2 * local_experts(local).rows(local.norm_tokens))


def _pad(builder: LayerBuilder, name: str) -> None:
    """Rows are copied to where each expert's number of them is a multiple of 16 or 32, or back.

    GEMMs of 8 or 4 bits take no other (Megatron-LM experts.py, TEGroupedMLP: Fp8Padding). HybridEP's
    permutation does that as it copies; a capacity is such a multiple by itself.
    """
    local, software = builder.local, builder.software
    experts = local_experts(local)
    copied = software.kernels.expert_rows_padded and software.exchange.moe_dispatcher != "hybridep"
    if local.recipe and experts.dropless and copied:
        builder.memory(name, 2.0 * experts.rows(local.norm_tokens) * local.hidden * local.element_bytes)


def _etp(builder: LayerBuilder, kind: str, *, weights: bool = False) -> None:
    """Ranks that share an expert gather its rows, and add up its outputs, unless all of them have them; and
    the ``weights`` of rows as well, where they travel with these, or their gradients."""
    local = builder.local
    experts = local_experts(local)
    if experts.etp > 1 and experts.gathered == 1:
        rows = experts.rows(local.norm_tokens)
        builder.collective("etp", f"expert {kind}", kind, rows * local.hidden * local.element_bytes)
        if weights and sends_weights(builder.software):
            builder.collective("etp", f"expert weights {kind}", kind, rows * WEIGHT_BYTES)


def sends_weights(software: Software) -> bool:
    """Whether NCCL's exchange of rows has another of their weights, which the experts' activation applies;
    DeepEP and HybridEP carry both."""
    kernels = software.kernels
    own = kernels.expert_operators != "library" or software.exchange.moe_dispatcher != "alltoall"
    return kernels.weighted_activation and not own
