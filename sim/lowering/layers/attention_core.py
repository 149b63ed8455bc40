"""The attention core of one layer, fused or not: scores, softmax and weighted sum.

Knows which kernels run; their costs are the kernel models'. The projections around it are in layer.py.
Unfused, a window is but another mask: all scores are computed, and the fused softmax, which has the causal
mask alone, gives way to torch's (Megatron-LM core/fusions/fused_softmax.py, forward_torch_softmax).
"""

from __future__ import annotations

from ....kernels.kernel import Attention, Direction, Gemm
from ...scenario.software.software import Software
from .context import context_backward, context_forward
from .context_tiles import AttentionKernel, ContextTile
from .issued import NOTHING, Issued, counted_once
from .layer_builder import LayerBuilder
from .local_shape import LocalShape

# Bytes per element of a cast to 8 bits whose scale is the tensor's own maximum: two reads, one write. Output
# and gradients stay in 16 bit (TransformerEngine dot_product_attention.py, NVTE_DPA_FP8CS_O_in_F16).
_CAST = 2 + 2 + 1

_ROW_OF_A_WARP = 1024
"""FP32 scores of a row up to which a warp takes a row of softmax, in registers (ATen/native/cuda/SoftMax.cu,
host_softmax: dispatch_softmax_forward)."""

_SOFTMAX_SCORE, _SOFTMAX_THREAD, _SOFTMAX_THREADS = 36.0, 100.0, 1024
"""Instructions of torch's softmax of a longer row: of each score, which is copied into shared memory (3),
exponentiated for the sum (11), and once more, divided and written (22); and of each of 1,024 threads, whose
maxima and sums are joined. Counted in the machine code of a kernel built alike (SoftMax.cu,
cunn_SoftMaxForwardSmem; nvcc 13.0, Hopper). On an H200 rows of 2,048 keys and more take 16 to 12 bytes' time
a score, where 8 pass; told are 16.2 of 2,048, 11.4 of 4,096 and 9.1 of 8,192."""


def attention_forward(builder: LayerBuilder, *, again: bool = False) -> None:
    """Append the attention core: scores, softmax (with dropout) and weighted sum, by one fused kernel or by
    several.

    The host pays for the module around it, which chooses a backend and sets up its random numbers, unless it
    is the core alone that runs ``again`` (TransformerEngine dot_product_attention.py, what
    checkpoint_core_attention wraps).
    """
    local, software = builder.local, builder.software
    launches = 1.0 if again else software.host.launches_per_attention
    if local.cp > 1:
        context_forward(builder, _tiled("attention", "forward"))
    elif software.kernels.attention == "unfused":
        _unfused_forward(builder, launches)
    else:
        if _in_eight_bits(builder):
            _quantise_qkv(builder)
        _flash_layout(builder, "QKV for FlashAttention")
        builder.kernel("attention", _fused(builder, "forward", _whole(local)), launches=launches)
        if not again:  # the core alone leaves no recipe
            _update_scales(builder)


def attention_backward(builder: LayerBuilder) -> None:
    """Append the gradients of queries, keys and values. A fused kernel computes the scores again by itself;
    the unfused chain reads the ones that forward kept."""
    local, software = builder.local, builder.software
    if local.cp > 1:
        context_backward(builder, _tiled("attention backward", "backward"))
    elif software.kernels.attention == "unfused":
        _unfused_backward(builder)
    else:
        if _in_eight_bits(builder):
            builder.memory("quantise dO", _CAST * local.tokens * local.attention_width, launches=2, numbers=2)
        builder.kernel("attention backward", _fused(builder, "backward", _whole(local)))
        _flash_layout(builder, "gradients from FlashAttention")
        _update_scales(builder)


def _quantise_qkv(builder: LayerBuilder) -> None:
    """Q, K and V to 8 bits, which share one scale unless the recipe has attention's scales in blocks, too.

    For that they are copied into one tensor first, as rotary positions, or what makes them contiguous, leave
    three (TransformerEngine 2.8 to 2.19 pytorch/attention/dot_product_attention/utils.py,
    combine_and_quantize: torch.cat). Beside GEMMs in NVFP4 attention is in FP8 by tensors
    (dot_product_attention.py, init_fp8_metadata); in MXFP8 each of the three is cast by itself (from 2.15 on;
    earlier releases refuse 8-bit attention there).
    """
    local = builder.local
    elements = local.tokens * local.qkv_width
    assert local.recipe is not None
    if local.recipe.gemm_dtype == "nvfp4":
        builder.memory("join QKV", 2.0 * elements * local.element_bytes)  # read, write
    builder.memory("quantise QKV", _CAST * elements, launches=2, numbers=2)


def _update_scales(builder: LayerBuilder) -> None:
    """Scales of attention's scores from their maxima, which amax.py has ranks agree on: some of each layer
    are joined, then one kernel writes all (TransformerEngine pytorch/quantization.py,
    reduce_and_update_fp8_tensors)."""
    recipe = builder.local.recipe
    scaled_later = builder.software.exchange.attention_amax != "none"
    if scaled_later and _in_eight_bits(builder) and recipe is not None and recipe.gemm_dtype == "nvfp4":
        builder.memory("update scales", 0.0, launches=2)


def _flash_layout(builder: LayerBuilder, name: str) -> None:
    """Q, K and V, or their gradients, copied between the layout of their GEMM and FlashAttention's.

    Only where a head of each lies beside one of the others: rotary positions have made queries and keys anew,
    and grouped queries are apart by then. Of these K and V at most are copied, which is not counted.
    """
    local, kernels = builder.local, builder.software.kernels
    beside = local.heads == local.kv_heads and not local.rope and not local.latent
    if kernels.flash_copies_qkv and kernels.attention in ("fa1", "fa2") and beside:
        builder.memory(name, 2.0 * local.tokens * local.qkv_width * local.element_bytes)  # read, write


def _whole(local: LocalShape) -> ContextTile:
    """The one tile of attention on a rank that has all keys of its sequences. A query sees its own document,
    which is a sequence of its own to kernels of variable lengths."""
    length = round(local.sequence / local.documents)
    return ContextTile(queries=length, keys=length, causal=True)


def _tiled(name: str, direction: Direction) -> AttentionKernel:
    def attend(builder: LayerBuilder, tile: ContextTile) -> None:
        builder.kernel(name, _fused(builder, direction, tile))

    return attend


def _fused(builder: LayerBuilder, direction: Direction, tile: ContextTile) -> Attention:
    local, software = builder.local, builder.software
    assert software.kernels.attention != "unfused"
    return Attention(
        batch=local.batch * local.documents,
        seq_q=tile.queries,
        seq_kv=tile.keys,
        heads=local.heads,
        kv_heads=local.kv_heads,
        head_dim=local.head_dim,
        causal=tile.causal,
        dtype="fp8" if _in_eight_bits(builder) else "bf16" if local.dtype == "fp32" else local.dtype,
        implementation=software.kernels.attention,
        direction=direction,
        v_head_dim=None if local.value_dim in (0, local.head_dim) else local.value_dim,
        window=local.window if tile.causal else None,
        release=software.kernels.cudnn,
    )


def _in_eight_bits(builder: LayerBuilder) -> bool:
    local = builder.local
    return (
        builder.software.kernels.fp8_attention
        and bool(local.recipe and local.recipe.blocks)
        and local.cp == 1
    )


def _scores(local: LocalShape, width: int) -> Gemm:
    """The GEMM of every query with every key, or of every output's gradient with every value, which are
    ``width`` wide."""
    s = local.sequence
    return Gemm(
        m=s,
        n=s,
        k=width,
        dtype=local.dtype,
        batch=local.batch * local.heads,
        out_bytes=local.element_bytes,
    )


def _weighted(local: LocalShape, width: int) -> Gemm:
    """The GEMM that adds up values (or queries or keys, in backward), weighted by a matrix of scores,
    ``width`` columns wide."""
    s = local.sequence
    return Gemm(
        m=s,
        n=width,
        k=s,
        dtype=local.dtype,
        batch=local.batch * local.heads,
        out_bytes=local.element_bytes,
    )


def kept_score_bytes(local: LocalShape, software: Software) -> int:
    """Bytes of a score that the backward of unfused attention reads: probabilities as softmax gave them, and
    what weights values where that is another tensor, which a cast back or dropout (with its mask) wrote."""
    e = local.element_bytes
    kernels = software.kernels
    in_one = kernels.softmax_is_one_kernel(windowed=local.window is not None)
    softmax = 4 if kernels.softmax_fp32 and not in_one else e
    if local.dropout:
        return softmax + 1 + e
    return softmax + (e if softmax != e else 0)


def _softmax_instructions(builder: LayerBuilder) -> Issued:
    """Instructions of torch's softmax over all scores: none that take longer than its bytes for rows
    that a warp holds."""
    local = builder.local
    if local.sequence <= _ROW_OF_A_WARP or "softmax" in builder.costs.vectorised:
        return NOTHING
    each = _SOFTMAX_SCORE + _SOFTMAX_THREAD * _SOFTMAX_THREADS / local.sequence
    return counted_once(local.score_elements * each)


def _unfused_forward(builder: LayerBuilder, launches: float) -> None:
    local, software = builder.local, builder.software
    e, scores, values = local.element_bytes, local.score_elements, local.v_head_dim
    builder.kernel("QK^T", _scores(local, local.head_dim), launches=launches)
    if software.kernels.softmax_is_one_kernel(windowed=local.window is not None):
        builder.memory("scale, mask, softmax", 2 * e * scores)  # read scores, write probabilities
    elif not software.kernels.softmax_fp32:
        builder.memory("scale", 2 * e * scores)  # read, write
        builder.memory("softmax", 2 * e * scores, instructions=_softmax_instructions(builder))
        builder.memory("mask", 2 * e * scores, instructions=builder.costs.issued("choose", scores))
    else:
        cast = builder.costs.cast_to_fp32(e)
        # scale (r, w), cast back (r 4, w e); softmax (r 4, w 4)
        builder.memory("scale and cast back", (2 * e + cast.bytes) * scores, launches=1 + cast.launches)
        builder.memory("softmax", 8 * scores, instructions=_softmax_instructions(builder))
        _masked(builder, "mask, cast to FP32")
    if local.dropout:
        builder.memory("attention dropout", (2 * e + 1) * scores)  # read, write, one byte of mask
    builder.kernel("PV", _weighted(local, values))


def _unfused_backward(builder: LayerBuilder) -> None:
    local, software = builder.local, builder.software
    e, scores, values = local.element_bytes, local.score_elements, local.v_head_dim
    builder.kernel("dV", _weighted(local, values))
    builder.kernel("dP", _scores(local, values))
    if local.dropout:
        builder.memory("attention dropout backward", (2 * e + 1) * scores)
    if software.kernels.softmax_is_one_kernel(windowed=local.window is not None):
        builder.memory("softmax backward", 3 * e * scores)  # read probabilities and gradient, write
    elif not software.kernels.softmax_fp32:
        # product of gradient and probabilities, what takes its sum off (r, r, w each), scale (r, w)
        builder.memory("softmax backward", 8 * e * scores, launches=3)
        builder.memory("mask backward", 2 * e * scores, instructions=builder.costs.issued("choose", scores))
    else:
        cast = builder.costs.cast_to_fp32(e)
        # product of gradient and probabilities, and the kernel that takes its sum off (r 4 r 4 w 4 each;
        # ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out), cast back (r 4, w e), scale (r, w)
        size = (24 + 2 * e + cast.bytes) * scores
        builder.memory("softmax backward", size, launches=3 + cast.launches)
        _masked(builder, "mask and cast backward")
    builder.kernel("dQ", _weighted(local, local.head_dim))
    builder.kernel("dK", _weighted(local, local.head_dim))


def _masked(builder: LayerBuilder, name: str) -> None:
    """Append masked_fill of scores or their gradients (r, w), and a cast to FP32 (r e, w 4)."""
    e, scores = builder.local.element_bytes, builder.local.score_elements
    cast = builder.costs.cast_to_fp32(e)
    issued = builder.costs.issued("choose", scores) + cast.instructions * scores
    launches = 1 + cast.launches
    builder.memory(name, (2 * e + cast.bytes) * scores, launches=launches, instructions=issued)
