"""Norms: over the residual stream, and of each head's queries and keys.

Bytes count reads and writes at HBM; a comment beside a figure says which. Knows which norms are one kernel
of a software stack; not where in a layer they stand (layer.py).
"""

from __future__ import annotations

from collections.abc import Callable

from .issued import NOTHING
from .layer_builder import LayerBuilder
from .local_shape import LocalShape
from .strided import STRIDED

_ROWS_OF_BLOCK = 4
"""Rows of 128 columns that a block of TransformerEngine's norms has at once, one for each of its warps
(common/normalization/rmsnorm/rmsnorm_bwd_semi_cuda_kernel.cu, hidden size 128)."""

_WARPS_OF_COLUMNS = 32
"""Warps that share all rows of 32 columns between them, where torch's LayerNorm makes the gradient of its
weight: a block of 32 x 32 threads for 32 columns, and no more blocks for more rows (ATen
native/cuda/layer_norm_kernel.cu until torch 2.7, GammaBetaBackwardCUDAKernel_32x32; pytorch pull request
147773: "only using few SMs in the GPU")."""

_TURNS_OF_ROW = 2
"""Reads in turn, of dY and of X, that a row takes such a warp: 9.0 ns for each of all rows, however wide.

Forward and backward on an A100 grow by 15.9 and 19.7 ns for each row of 1,024 and 1,536 columns of FP16
(pull request 87445, 6,144 to 8,192 rows). The bytes of the other two kernels are 5.9 and 8.9 of these with
80 GB of memory, 7.7 and 11.6 with 40 GB, so that 8 to 11 ns are left
(docs/decisions/0239-what-one-own-run-leaves.md)."""


def norm_quantises(local: LocalShape) -> bool:
    """Whether the norm before a quantised GEMM writes its output in the GEMM's type (precision.py)."""
    return local.recipe is not None and local.recipe.fused_norm


def _normed_bytes(builder: LayerBuilder) -> int:
    """Bytes per element of a norm's output. Under autocast it is FP32, which its readers cast, unless a
    compiler fuses these casts into the norm."""
    local = builder.local
    return local.element_bytes if builder.software.kernels.torch_compile else local.stream_bytes


def _distributed(builder: LayerBuilder, operators: int) -> int:
    """How many of ``operators`` work on distributed tensors: all under sequence parallelism, which splits
    a norm's rows."""
    return operators if builder.local.sequence_parallel else 0


def _by_operators(
    builder: LayerBuilder,
    name: str,
    elements: float,
    distributed: Callable[[LayerBuilder, int], int],
    *,
    backward: bool = False,
    times: int = 1,
) -> None:
    """Append RMSNorm of ``elements`` as models write it by torch's operators, or its gradient: ``times``
    tensors, of which ``distributed`` says how many operators work on distributed ones.

    Forward: cast to FP32 (r e w 4), square (r 4 w 4), mean (r 4), product with rsqrt (r 4 w 4), cast back
    (r 4 w e), product with the weight (r e w e). Backward, as autograd makes it of that: gradient of the
    weight (r e r e w e, r e), times weight (r e w e), cast up (r e w 4), times rsqrt (r 4 w 4), by rsqrt
    (r 4 r 4 w 4, r 4), mean (w 4), square (r 4 w 4, r 4 w 4, r 4 r 4 w 4), sum of both ways (r 4 r 4 w 4),
    cast back (r 4 w e); rsqrt itself is small. In FP32, as under autocast, nothing is cast. The cast up and
    both products take one element at a time (strided.py).
    """
    e = builder.local.element_bytes
    products = STRIDED["FP32 product by row"]
    if builder.local.autocast or e == 4:
        moved, launches = (92, 14) if backward else (28, 6)
        singly, kernels, issued = 16, 2, 2 * products
    else:
        moved, launches = (8 * e + 76, 16) if backward else (4 * e + 28, 8)
        singly, kernels = 3 * e + 12, 3
        issued = builder.costs.issued("cast to FP32") + products + STRIDED["product by row"]
    for what, each, count, instructions in (
        (name, moved - singly, launches - kernels, NOTHING),
        (f"{name}, by element", singly, kernels, issued),
    ):
        builder.memory(
            what,
            each * elements,
            launches=times * count,
            operators=distributed(builder, times * count),
            instructions=instructions * elements,
        )


def norm(builder: LayerBuilder, *, into_product: bool = False) -> None:
    """Append LayerNorm or RMSNorm over the residual stream. ``into_product``: only matrices read its
    output, so that it is part of their module (TransformerEngine LayerNormLinear) and no call of its own."""
    local, software = builder.local, builder.software
    if software.kernels.norm_is_one_kernel(rms_norm=local.rms_norm):
        # read the stream; write that, 16 bit or quantised copies
        elements, written = local.norm_tokens * local.hidden, float(_normed_bytes(builder))
        if into_product and local.recipe and norm_quantises(local):
            written = local.recipe.gathered
        builder.memory(
            "norm",
            elements * (local.stream_bytes + written),
            operators=_distributed(builder, 1),
            counted=1.0 if into_product else builder.gemm_launches(1),
        )
    else:
        _by_operators(builder, "norm", local.norm_tokens * local.hidden, _distributed)


def norm_backward(builder: LayerBuilder) -> None:
    """Append the gradient of the norm, and the kernel that adds the residual's gradient."""
    local, software = builder.local, builder.software
    if software.kernels.norm_is_one_kernel(rms_norm=local.rms_norm):
        of_dy = float(local.norm_tokens * local.hidden * _normed_bytes(builder))
        # read dY and X, write dX
        builder.memory("norm backward", of_dy + 2 * local.norm_bytes, operators=_distributed(builder, 1))
        if software.kernels.has_norm_grad_apart(rms_norm=local.rms_norm):
            by_columns = software.kernels.sums_norm_by_columns(rms_norm=local.rms_norm)
            turns = _TURNS_OF_ROW * local.norm_tokens / _WARPS_OF_COLUMNS if by_columns else 0.0
            # read dY and X once more
            builder.memory("norm weight gradient", of_dy + local.norm_bytes, in_turn=turns)
    else:
        _by_operators(builder, "norm backward", local.norm_tokens * local.hidden, _distributed, backward=True)
    builder.memory("residual gradient add", 3 * local.norm_bytes)  # read both, write one


def operators_on_heads(builder: LayerBuilder, operators: int) -> int:
    """How many of ``operators`` on queries and keys work on distributed tensors: norms of heads leave them
    distributed."""
    distributed = builder.local.qk_norm and builder.software.exchange.heads_distributed
    return operators if distributed else 0


def head_norms(builder: LayerBuilder) -> None:
    """Append RMSNorm of each head's queries and keys, if the model has it.

    A compiler fuses it with the rotary positions, which read and write the same tensors. A norm kernel needs
    contiguous rows: keys are a slice of the QKV output and are copied first; so are queries of a single
    group, whereas those of several groups have been copied already (Megatron-LM
    core/transformer/attention.py, where a reshape copies these; TransformerEngine
    pytorch/ops/basic/rmsnorm.py, op_forward; NVIDIA/Megatron-LM pull request 6459).
    """
    local, kernels = builder.local, builder.software.kernels
    if not local.qk_norm or local.latent or kernels.torch_compile:
        return
    if not kernels.norm_is_one_kernel(rms_norm=True):
        _by_operators(builder, "norms of heads", _heads_normed(local), operators_on_heads, times=2)
        return
    queries = 0 if several_groups(local) else local.heads
    copied = 2.0 * local.tokens * (queries + local.kv_heads) * local.head_dim * local.element_bytes
    builder.memory("keys in a row", copied, launches=2 if queries else 1)
    moved = 2.0 * _heads_normed(local) * local.element_bytes
    builder.memory("norms of heads", moved, launches=2, counted=2 * builder.gemm_launches(1))


def head_norms_backward(builder: LayerBuilder) -> None:
    """Gradients of ``head_norms``: one kernel each for queries and keys, and one for each weight."""
    local, kernels = builder.local, builder.software.kernels
    if not local.qk_norm or local.latent:
        return
    e, elements = local.element_bytes, _heads_normed(local)
    if kernels.torch_compile:
        builder.memory("norms of heads backward", e * elements)  # the inputs, beside what positions read
    elif not kernels.norm_is_one_kernel(rms_norm=True):
        _by_operators(
            builder, "norms of heads backward", elements, operators_on_heads, backward=True, times=2
        )
    else:
        builder.memory("norms of heads backward", 3.0 * e * elements, launches=2)  # read dY and X, write dX
        if kernels.norm_parts_in_turn:
            for heads in (local.heads, local.kv_heads):
                parts = local.tokens * heads / _ROWS_OF_BLOCK
                builder.memory("weight gradient of heads' norm", 0.0, counted=0, parts=parts)


def _heads_normed(local: LocalShape) -> float:
    return float(local.tokens * (local.heads + local.kv_heads) * local.head_dim)


def several_groups(local: LocalShape) -> bool:
    """Whether this rank has more than one group of queries that share a key."""
    return local.heads != local.kv_heads and local.kv_heads > 1
