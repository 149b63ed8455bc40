"""FlashAttention backward: scores computed again from the log-sum-exp, in three kernels.

The first sums O dO over each row; the main one gives a thread block a tile of keys of one head of K
and V, walks over the queries of every head that shares it, keeps dK and dV in registers and adds into
dQ in FP32 with atomics; the last casts dQ. The five GEMMs are the 2.5 forward passes that
``kernels.kernel.Attention`` counts.

``Attention.hbm_bytes`` counts what reaches HBM where L2 holds dO between the first two kernels and dQ
while it is added to.

Sources: Dao 2023, arXiv:2307.08691, algorithm 2; flash-attention 2, csrc/flash_attn/src (three kernels).
"""

from __future__ import annotations

from typing import Any

from .attention import arithmetic, check_causal
from .attention_tile import AttentionTile
from .lazy_jit import cdiv, jit
from .stream import copy

tl: Any = None

_LOG2_E = 1.4426950408889634
_ROWS = 16  # rows of one thread block of the first kernel


@jit
def _row_sums(o, do, sums, lines, head_dim: tl.constexpr, rows: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    at = row[:, None] * head_dim + tl.arange(0, head_dim)[None, :]
    left = tl.load(o + at, mask=row[:, None] < lines, other=0.0).to(tl.float32)
    right = tl.load(do + at, mask=row[:, None] < lines, other=0.0).to(tl.float32)
    tl.store(sums + row, tl.sum(left * right, 1), mask=row < lines)


@jit
def _main(
    q, k, v, do, lse, sums, dq, dk, dv, scale, log2_e, heads, group, seq_q, seq_kv,
    head_dim: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    causal: tl.constexpr, precision: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    tile, shared = tl.program_id(0), tl.program_id(1).to(tl.int64)
    column = tile * rows + tl.arange(0, rows)
    dim = tl.arange(0, head_dim)
    own = (shared * seq_kv + column[:, None]) * head_dim + dim[None, :]
    keys = tl.load(k + own, mask=column[:, None] < seq_kv, other=0.0)
    values = tl.load(v + own, mask=column[:, None] < seq_kv, other=0.0)
    if widen:
        keys, values = keys.to(tl.float32), values.to(tl.float32)
    key_gradient = tl.zeros((rows, head_dim), dtype=tl.float32)
    value_gradient = tl.zeros((rows, head_dim), dtype=tl.float32)
    first = tile * rows if causal else 0
    for member in range(group):
        head = shared * group + member
        for start in range(first, seq_q, columns):
            row = start + tl.arange(0, columns)
            at = (head * seq_q + row[:, None]) * head_dim + dim[None, :]
            queries = tl.load(q + at, mask=row[:, None] < seq_q, other=0.0)
            outer = tl.load(do + at, mask=row[:, None] < seq_q, other=0.0)
            if widen:
                queries, outer = queries.to(tl.float32), outer.to(tl.float32)
            log_sum = tl.load(lse + head * seq_q + row, mask=row < seq_q, other=0.0)
            row_sum = tl.load(sums + head * seq_q + row, mask=row < seq_q, other=0.0)
            # Transposed, (keys, queries): both gradients of this tile are then plain GEMMs.
            scores = tl.dot(keys, tl.trans(queries), input_precision=precision) * (scale * log2_e)
            visible = (column[:, None] < seq_kv) & (row[None, :] < seq_q)
            if causal:
                visible = visible & (row[None, :] >= column[:, None])
            weights = tl.where(visible, tl.exp2(scores - log_sum[None, :]), 0.0)
            value_gradient = tl.dot(weights.to(outer.dtype), outer, value_gradient, input_precision=precision)
            inner = tl.dot(values, tl.trans(outer), input_precision=precision)
            change = (weights * (inner - row_sum[None, :]) * scale).to(queries.dtype)
            key_gradient = tl.dot(change, queries, key_gradient, input_precision=precision)
            addend = tl.dot(tl.trans(change), keys, input_precision=precision)
            tl.atomic_add(dq + at, addend, mask=row[:, None] < seq_q, sem="relaxed")
    tl.store(dk + own, key_gradient, mask=column[:, None] < seq_kv)
    tl.store(dv + own, value_gradient, mask=column[:, None] < seq_kv)


def attention_backward(
    q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any, *, causal: bool, tile: AttentionTile
) -> tuple[Any, Any, Any]:
    """dQ, dK and dV, like their tensors; ``o`` and ``lse`` are what the forward kernel returned."""
    import torch

    batch, heads, seq_q, head_dim = q.shape
    seq_kv, kv_heads = check_causal(q, k, causal), k.shape[1]
    lines = batch * heads * seq_q
    sums = torch.empty_like(lse)
    _row_sums[(cdiv(lines, _ROWS),)](o, do, sums, lines, head_dim=head_dim, rows=_ROWS)
    wide = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    _main[(cdiv(seq_kv, tile.rows), batch * kv_heads)](
        q, k, v, do, lse, sums, wide, dk, dv,
        head_dim**-0.5, _LOG2_E, heads, heads // kv_heads, seq_q, seq_kv,
        head_dim=head_dim, rows=tile.rows, columns=tile.streamed, causal=causal,
        num_warps=tile.warps, num_stages=tile.stages, **arithmetic(q.dtype),
    )  # fmt: skip
    return copy(wide, torch.empty_like(q)), dk, dv
