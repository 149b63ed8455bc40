"""Kernels of a layer that only move data: rotary positions, activation, residual; norms are in norms.py.

Bytes count reads and writes at HBM. A comment beside a figure says which: ``r 2 w 1`` reads two tensors and
writes one; ``r e w 4`` reads elements of the model's type (``element_bytes``) and writes FP32. Knows which
kernels a software stack fuses; layer.py says where in a layer they stand.
"""

from __future__ import annotations

from ...scenario.software.software import Software
from .autocast import cast_branch_gradient
from .gelu import gelu, gelu_backward
from .issued import NOTHING, Issued, counted_once
from .layer_builder import LayerBuilder
from .local_shape import LocalShape
from .norms import operators_on_heads, several_groups
from .quantise import activation_quantises
from .strided import STRIDED

JOINED = Issued(44.5, 70.7)
"""Instructions of a thread for each element of a gated activation's gradient that torch.cat joined. torch
makes one kernel of the join and of both gradients, which works out either for every element and keeps one:
five loads for two elements and a sigmoid for each gradient of each, where three and one would do
(torch/_inductor/lowering.py, pointwise_cat, from 2.2 on; pytorch pull request 184999 names the fault). Loads
of the same row come soon enough to find it in the second cache, so that bytes at HBM stay those of one read.
Counted in its machine code for Hopper; 43.6 for Ampere, 42 for Blackwell. For AMD compiled by Triton 3.9 from
the same text in blocks of 1,024 by four warps, as torch makes them there (torch/_inductor/runtime/
triton_heuristics.py, triton_config and _num_warps): 61.2 vector instructions on gfx942, 4 of them of quarter
rate (LLVM's SISchedule.td, WriteTrans32), and 56.2 on gfx950, which rounds to 16 bits at once: 73.2 and
68.2."""

GATED = Issued(amd=34.5)
"""The same of the activation itself for each output: 31 and 26 vector instructions, 37 and 32 with their
rates. The 20 of Hopper take less than the bytes of all of NVIDIA's GPUs that were measured: left out."""

WEIGHTED = Issued(51.0, 74.5)
"""JOINED where each row has a weight, for rows whose number the compiler does not know (77 and 72)."""

_ROPE_FORWARD, _ROPE_BACKWARD = (64.5, 20.0), (95.0, 22.0)
"""Instructions of a thread for each angle, and for each element that it turns, in TransformerEngine's
rotary kernels (common/fused_rope/fused_rope.cu; Apex's are built alike): a thread takes the sine and cosine
of an angle (backward of two) and turns that element of each of its warp's heads, 2 bytes at a time. Counted
in their machine code for Hopper (NVRTC 12.9), on the path of angles below 105,615."""


_IN_PRODUCT_FORWARD, _IN_PRODUCT_BACKWARD, _IN_PRODUCT_HEAD, _CARRIED, _IN_PRODUCT_ANGLE = 29, 38, 22, 14, 45
"""The same of the kernel that turns queries and keys inside the GEMM of all three: for each element that
it turns, forward and backward; for each head of a thread, which takes every 32nd of its elements in a loop;
for each element of a value, which it carries; and for each angle, of which a token's block takes those of
queries and those of keys once. Counted in the machine code for Blackwell of TransformerEngine's own wheel
(transformer_engine_cu12 2.8.0, fused_qkv_rope_forward_kernel and _backward_kernel, rows not interleaved)."""


def rearrange(builder: LayerBuilder) -> None:
    """Append the copies of Q, K and V into the layout that the attention kernel reads, or of their
    gradients back."""
    local, software = builder.local, builder.software
    if software.kernels.qkv_copies:
        size = float(local.tokens * local.qkv_width * local.element_bytes)
        builder.memory(
            "rearrange QKV",
            software.kernels.qkv_copies * size,
            launches=(software.kernels.qkv_copies + 1) // 2,
        )


def split_heads(builder: LayerBuilder) -> None:
    """The GEMM of Q, K and V as three. Each group has its queries, its key and its value there, so that
    queries which share a key are not evenly apart: a reshape copies them (Megatron-LM
    core/transformer/attention.py, get_query_key_value_tensors). Those of a single group are, and stay."""
    local, copied = builder.local, builder.software.kernels.grouped_heads_copied
    if copied and not local.latent and several_groups(local) and not _turned_in_product(builder):
        size = float(local.tokens * local.heads * local.head_dim * local.element_bytes)
        builder.function("queries in a row", 2 * size)  # read, write


def _grouped(local: LocalShape) -> bool:
    return local.heads != local.kv_heads


def _joins_gradients(builder: LayerBuilder) -> bool:
    """Whether the gradients of Q, K and V are copied into one tensor.

    TransformerEngine's attention writes gradients of interleaved heads into one tensor in that layout, which
    the backward of its split passes on without a copy; gradients of any other layout are joined
    (TransformerEngine pytorch/attention.py, _SplitAlongDim.backward: noop_ok).
    """
    local, kernels = builder.local, builder.software.kernels
    apart = kernels.grouped_heads_copied and (_grouped(local) or local.rope)
    return (kernels.qkv_grad_joined or apart) and not local.latent and not _turned_in_product(builder)


def _turned_in_product(builder: LayerBuilder) -> bool:
    """Whether one kernel reads the GEMM of Q, K and V and writes all three, queries and keys turned, which
    it can where nothing norms heads in between (Megatron core attention.py: split_qkv)."""
    local = builder.local
    able = local.rope and not local.latent and not local.qk_norm
    return builder.software.kernels.fused_qkv_rope and able


def rearrange_backward(builder: LayerBuilder) -> None:
    """Append the backward of ``rearrange``: copies of the gradients, their join into one tensor, and the
    sum over rows for the bias gradient."""
    local, kernels = builder.local, builder.software.kernels
    rearrange(builder)
    size = float(local.tokens * local.qkv_width * local.element_bytes)
    if _joins_gradients(builder):
        builder.memory("join gradients of QKV", 2 * size)  # read, write
    if kernels.bias_grad_apart and local.has_qkv_biases:
        builder.memory("bias gradient", size)


def rope(builder: LayerBuilder, *, backward: bool = False) -> None:
    """Rotary embedding of Q and K, or its gradient."""
    local, software = builder.local, builder.software
    if not local.rope:
        return
    if local.latent:
        _latent_rope(builder, backward=backward)
        return
    name = "rope backward" if backward else "rope"
    size = local.query_bytes
    if _turned_in_product(builder):
        moved = 2.0 * local.tokens * local.qkv_width * local.element_bytes  # read, write
        append = builder.memory if backward else builder.function
        append(name, moved, instructions=_instructions_in_product(local, backward=backward))
    elif software.kernels.fused_rope or software.kernels.torch_compile:
        sines = software.kernels.fused_rope and software.kernels.rope_takes_sines
        issued = _rope_instructions(local, backward=backward) if sines else NOTHING
        append = builder.memory if backward else builder.function
        append(name, 2.0 * size, instructions=issued)  # read, write
    elif software.kernels.complex_rope and not local.qk_norm:  # torchtitan's Qwen3 turns real halves
        _complex_rope(builder, name)
    else:
        _halves_rope(builder, name, backward=backward)


def _complex_rope(builder: LayerBuilder, name: str) -> None:
    """Rotary embedding as a product of complex numbers, of queries and of keys; its gradient is one, too.

    Cast up (r e w 4), which takes one element at a time (strided.py), product (r 4 w 4), cast back (r 4 w e).
    """
    e = builder.local.element_bytes
    elements = builder.local.query_bytes / e
    cast = builder.costs.cast_to_fp32(e)
    if cast.launches:
        issued = cast.instructions * elements
        builder.memory(f"{name}, to FP32", cast.bytes * elements, launches=2, instructions=issued)
    builder.memory(name, (8 + cast.bytes) * elements, launches=2 + 2 * cast.launches)


def _halves_rope(builder: LayerBuilder, name: str, *, backward: bool) -> None:
    """Rotary embedding by torch's operators, or its gradient.

    For queries and for keys: products with cosines and sines, which all heads share; half of each head is
    negated and joined with the other half; a sum. The backward of models' own slices puts each half into
    zeros and adds these up; that of Megatron core's chunk is a join, too. In Megatron core without
    TransformerEngine's kernel channels without rotation, here none, are a slice that forward joins: its
    gradient is zeros as large as the whole, and one more sum (core/models/common/embeddings/rope_utils.py,
    _apply_rotary_pos_emb_bshd: t_pass; PyTorch torch/csrc/autograd/FunctionsManual.cpp, slice_backward).
    """
    size, elements = builder.local.query_bytes, builder.local.query_bytes / builder.local.element_bytes
    joined = STRIDED["negation"] / 2 + STRIDED["join of halves"]
    halves, total = (3.0, 4, joined), (3.0, 2)  # r w of a half, r w; r 2 w 1
    if builder.software.kernels.rope_takes_sines:
        total = (7.0, 6) if backward else (5.0, 4)  # r 2 w 1; w 1, r 2 w 1, r w
    elif backward:
        # r w of a half; each half into zeros (w, r w of a half); two additions of what comes together
        halves, total = (5.0, 10, STRIDED["negation"] / 2 + STRIDED["copy"]), (6.0, 4)
    for what, passes, launches, issued in (
        (name, 4.0, 4, 2 * STRIDED["product by head"]),  # r w each
        (f"{name}, halves", *halves),
        (f"{name}, sum", *total, NOTHING),
    ):
        operators = operators_on_heads(builder, launches)
        builder.memory(
            what, passes * size, launches=launches, operators=operators, instructions=issued * elements
        )


def _rope_instructions(local: LocalShape, *, backward: bool) -> Issued:
    """Instructions of the two fused kernels, one for queries and one for keys."""
    angle, element = _ROPE_BACKWARD if backward else _ROPE_FORWARD
    each = sum(element * heads + angle * _rope_warps(heads) for heads in (local.heads, local.kv_heads))
    return counted_once(each * local.tokens * local.head_dim)


def _instructions_in_product(local: LocalShape, *, backward: bool) -> Issued:
    """Instructions of the kernel that turns queries and keys inside the GEMM."""
    element = _IN_PRODUCT_BACKWARD if backward else _IN_PRODUCT_FORWARD
    turned = (local.heads + local.kv_heads) * (element * local.head_dim + 32 * _IN_PRODUCT_HEAD)
    carried = _CARRIED * local.kv_heads * local.v_head_dim
    return counted_once(float(local.tokens * (turned + carried + 2 * _IN_PRODUCT_ANGLE * local.head_dim)))


def _rope_warps(heads: float) -> int:
    """Warps that share the heads of a token; each computes all sines for itself."""
    return 4 if heads < 16 else 8


def _latent_rope(builder: LayerBuilder, *, backward: bool) -> None:
    """Latent attention: rotates the rotary part of Q in place, and joins each K of its head's own part and
    the rotary part that all heads share.

    Megatron-LM multi_latent_attention.py; fused_mla_yarn_rope_apply.py where fused.
    """
    local, software = builder.local, builder.software
    latent = local.latent
    assert latent is not None
    turned = 2 * latent.qk_rope_head_dim  # r w
    made = latent.qk_nope_head_dim + latent.v_head_dim + local.head_dim + latent.v_head_dim  # r w
    size = float(local.tokens * local.heads * local.element_bytes)
    if software.kernels.fused_rope or software.kernels.torch_compile:
        functions = None if backward else 2 * software.host.launches_per_function  # of queries, and of keys
        builder.memory("rope", size * (turned + made), launches=2, counted=functions)
    else:
        _latent_rope_apart(builder, made=made, backward=backward)


def _latent_rope_apart(builder: LayerBuilder, *, made: int, backward: bool) -> None:
    """Rotary positions of latent attention by torch's operators: Q is split and joined again, K joined, V
    made contiguous (r w each).

    The rotary part is reordered from interleaved pairs to halves (backward: into zeros), multiplied twice,
    joined of halves, one of them negated, and summed. In forward, Q and K are joined of strided parts, except
    for the rotated part of Q, and V is copied; in backward the gradients of Q and of KV are each joined of a
    strided and a contiguous part.
    """
    local = builder.local
    latent = local.latent
    assert latent is not None
    turned, strided, row = (
        latent.qk_rope_head_dim,
        STRIDED["join of what is strided"],
        STRIDED["join of rows"],
    )
    each = turned * (2 * STRIDED["product by head"] + STRIDED["negation"] / 2 + STRIDED["join of halves"])
    each += latent.qk_nope_head_dim * strided + turned * row  # Q
    if backward:
        each += turned * STRIDED["copy"]  # of halves, into zeros
        each += latent.qk_nope_head_dim * strided + latent.v_head_dim * row
    else:
        each += turned * strided  # halves by two strides
        each += local.head_dim * strided + latent.v_head_dim * STRIDED["copy"]
    heads = float(local.tokens * local.heads)
    moved = heads * local.element_bytes * (10 * turned + 2 * local.head_dim + 2 * made)
    builder.memory("rope", moved, launches=16, instructions=each * heads)


def _clamp(builder: LayerBuilder) -> None:
    """Each branch of a gate clamped by a kernel of its own, and both joined again."""
    local = builder.local
    elements = float(local.tokens * local.ffn)
    size = elements * local.element_bytes
    builder.memory(
        "clamp gate",
        2 * local.gate * size,  # read, write
        launches=local.gate,
        instructions=STRIDED["clamp"] * local.gate * elements,
    )
    builder.memory("join clamped gate", 2 * local.gate * size)  # read, write


def _clamp_backward(builder: LayerBuilder) -> None:
    """The clamps' backward: masks of elements within the limits (a byte each), gradients or zeros chosen by
    them, joined.

    One branch has one limit, the other has two. torch/csrc/autograd/FunctionsManual.cpp, clamp_backward.
    """
    local = builder.local
    e, elements = local.element_bytes, float(local.tokens * local.ffn)
    compared, chosen = STRIDED["compare"] * elements, STRIDED["choose"] * elements
    # comparisons (r e w 1) read branches that lie beside each other
    builder.memory("clamp gate masks", 3 * (e + 1) * elements, launches=3, instructions=3 * compared)
    builder.memory("clamp gate mask of both", 3 * elements)  # r 1 r 1 w 1
    # choices (r 1 r e w e), each with a zero to choose that a launch makes
    builder.memory("clamp gate backward", 2 * (2 * e + 1) * elements, launches=4, instructions=2 * chosen)
    builder.memory("join clamped gradients", 4 * e * elements)  # read, write of both


def clamps_apart(local: LocalShape, software: Software) -> bool:
    """Whether the inputs of a gated activation are clamped by operators of their own."""
    return local.clamped_gate and software.kernels.clamps_gate_apart and not software.kernels.torch_compile


def activation(builder: LayerBuilder) -> None:
    """Append the activation of an MLP, with the product of both branches where it is gated."""
    local, software = builder.local, builder.software
    wide = float(local.tokens * local.ffn * local.element_bytes)
    if clamps_apart(local, software):
        _clamp(builder)
        # The fused function's offset is made a tensor in each call, by a copy from memory that is not pinned:
        # torch.tensor on a GPU ends with cudaStreamSynchronize (pytorch issues 190217 and 120996).
        builder.host_waits()
    if software.kernels.fuses_activation(gated=local.gate == 2):
        written = 1.0  # of 16 bit; quantised, what a gather would bring
        if activation_quantises(builder) and local.recipe:
            written = local.recipe.gathered / local.element_bytes
        moved = (local.gate + written) * wide  # read every branch, write one
        builder.function("activation", moved, instructions=_instructions(builder, GATED))
    elif local.gate == 2:
        builder.function("activation", 5 * wide, launches=2)  # SiLU: r 1 w 1; multiply: r 2 w 1
    elif software.kernels.gelu_by_operators:
        gelu(builder)
    else:
        builder.function("activation", (4 if local.biases else 2) * wide, launches=2 if local.biases else 1)


def activation_backward(builder: LayerBuilder, *, weighted: bool = False) -> None:
    """Append the gradients of the activation's inputs; ``weighted``: the activation also multiplied each
    row by its routing weight."""
    local, software = builder.local, builder.software
    wide = float(local.tokens * local.ffn * local.element_bytes)
    if software.kernels.fuses_activation(gated=local.gate == 2):
        written = 1.0  # of 16 bit; quantised, both layouts where there are two
        if activation_quantises(builder) and local.recipe:
            written = local.recipe.stored * (2 if local.recipe.second else 1) / local.element_bytes
        # read inputs and dY, write dX
        moved = (local.gate + 1 + local.gate * written) * wide
        builder.memory(
            "activation backward",
            moved,
            instructions=_instructions(builder, local.gate * (WEIGHTED if weighted else JOINED)),
        )
    elif local.gate == 2:
        # multiply: r 3 w 2; SiLU: r 2 w 1; joining the two branches: r 2 w 2
        builder.memory("activation backward", 12 * wide, launches=5)
    elif software.kernels.gelu_by_operators:
        gelu_backward(builder)
    else:
        builder.memory("activation backward", 3 * wide, launches=1)
    if local.biases and (
        software.kernels.bias_grad_apart or not software.kernels.has_activation(gated=local.gate == 2)
    ):
        builder.memory("bias gradient", wide)
    if clamps_apart(local, software):
        _clamp_backward(builder)


def _instructions(builder: LayerBuilder, each: Issued) -> Issued:
    """Instructions of a gated activation that torch compiles, or of its backward, which writes both branches'
    gradients into one tensor: ``each`` an element that it writes. None of all others, whose time is set by
    their bytes."""
    local, kernels = builder.local, builder.software.kernels
    if not kernels.activation_grad_joined or local.gate != 2 or kernels.fused_quantise:
        return NOTHING
    return each * local.tokens * local.ffn


def residual_add(builder: LayerBuilder, *, biased: bool = True) -> None:
    """Append bias, dropout and residual addition after a row-parallel layer. ``biased=False``: the bias
    has been added already."""
    local, software = builder.local, builder.software
    biases = local.biases and biased
    mask = local.norm_tokens * local.hidden if local.dropout else 0
    if software.kernels.fused_residual or software.kernels.torch_compile:
        size = 2 * local.norm_bytes + local.branch_bytes + mask  # read both, write one
        builder.function("bias, dropout, add", size)
        return
    apart = ((2 if biases else 0) + (2 if local.dropout else 0)) * local.branch_bytes + mask
    size = 2 * local.norm_bytes + local.branch_bytes
    kernels = biases + local.dropout
    if local.branch_bytes < local.norm_bytes:  # of torch.autocast: FP32 plus 16 bits
        issued = builder.costs.issued("FP32 plus 16 bits", float(local.norm_tokens * local.hidden))
        if kernels:
            builder.memory("bias, dropout", apart, launches=kernels)
        builder.function("bias, dropout, add", size, instructions=issued)
        return
    builder.function("bias, dropout, add", size + apart, launches=1 + kernels)


def residual_add_backward(builder: LayerBuilder, *, biased: bool = True) -> None:
    """Append the gradients of dropout and, if ``biased``, of the bias. A plain residual addition has no
    kernel in backward."""
    local = builder.local
    cast_branch_gradient(builder)
    if local.dropout:
        builder.memory("dropout backward", 2 * local.branch_bytes + local.norm_tokens * local.hidden)
    if local.biases and biased:
        builder.memory("bias gradient", local.branch_bytes)


def small_kernels(builder: LayerBuilder) -> None:
    """Append kernels that move almost nothing but are launched all the same (views, offsets, masks,
    hooks)."""
    software = builder.software
    if software.host.extra_launches_per_layer:
        builder.memory("small kernels", 0.0, launches=software.host.extra_launches_per_layer)
