"""FlashAttention forward: scores in tiles, the softmax kept up as they pass, nothing of N x N at HBM.

A thread block owns a tile of queries of one head and walks over its keys and values, causal or not;
heads of queries may share heads of keys (GQA). FLOPs and compulsory bytes are those of
``kernels.kernel.Attention``; what tiles load beyond them ``kernels.attention.tiled_hbm_bytes`` says, by SRAM.
The torch chain writes the scores and the probabilities to HBM.

Sources: Dao et al. 2022, arXiv:2205.14135, algorithm 1; Dao 2023, arXiv:2307.08691, algorithm 1.
"""

from __future__ import annotations

from typing import Any

from ..kernel import Attention
from .attention_tile import AttentionTile
from .lazy_jit import cdiv, interpreted, jit

tl: Any = None

_LOG2_E = 1.4426950408889634


@jit
def _forward(
    q, k, v, o, lse, scale, heads, group, seq_q, seq_kv,
    head_dim: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    causal: tl.constexpr, precision: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    shared = head // heads * (heads // group) + head % heads // group
    row = tile * rows + tl.arange(0, rows)
    dim = tl.arange(0, head_dim)
    own = (head * seq_q + row[:, None]) * head_dim + dim[None, :]
    queries = tl.load(q + own, mask=row[:, None] < seq_q, other=0.0)
    if widen:
        queries = queries.to(tl.float32)
    top = tl.full((rows,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((rows,), dtype=tl.float32)
    weighted = tl.zeros((rows, head_dim), dtype=tl.float32)
    end = tl.minimum(seq_kv, (tile + 1) * rows) if causal else seq_kv
    for start in range(0, end, columns):
        column = start + tl.arange(0, columns)
        at = (shared * seq_kv + column[:, None]) * head_dim + dim[None, :]
        keys = tl.load(k + at, mask=column[:, None] < seq_kv, other=0.0)
        values = tl.load(v + at, mask=column[:, None] < seq_kv, other=0.0)
        if widen:
            keys, values = keys.to(tl.float32), values.to(tl.float32)
        scores = tl.dot(queries, tl.trans(keys), input_precision=precision) * scale
        visible = column[None, :] < seq_kv
        if causal:
            visible = visible & (row[:, None] >= column[None, :])
        scores = tl.where(visible, scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(weights, 1)
        weighted = weighted * fade[:, None]
        weighted = tl.dot(weights.to(values.dtype), values, weighted, input_precision=precision)
        top = higher
    tl.store(o + own, weighted / total[:, None], mask=row[:, None] < seq_q)
    tl.store(lse + head * seq_q + row, top + tl.log2(total), mask=row < seq_q)


def attention(q: Any, k: Any, v: Any, *, causal: bool, tile: AttentionTile) -> tuple[Any, Any]:
    """O, like ``q``, and the log2-sum-exp2 of each row's scaled scores (batch, heads, seq_q), FP32.

    ``q`` is (batch, heads, seq_q, head_dim), ``k`` and ``v`` (batch, kv_heads, seq_kv, head_dim), all
    contiguous. Raises ValueError where a causal mask meets unequal lengths.
    """
    import torch

    batch, heads, seq_q, head_dim = q.shape
    seq_kv = check_causal(q, k, causal)
    o = torch.empty_like(q)
    lse = torch.empty((batch, heads, seq_q), dtype=torch.float32, device=q.device)
    _forward[(cdiv(seq_q, tile.rows), batch * heads)](
        q, k, v, o, lse, head_dim**-0.5 * _LOG2_E, heads, heads // k.shape[1], seq_q, seq_kv,
        head_dim=head_dim, rows=tile.rows, columns=tile.streamed, causal=causal,
        num_warps=tile.warps, num_stages=tile.stages, **arithmetic(q.dtype),
    )  # fmt: skip
    return o, lse


def check_causal(q: Any, k: Any, causal: bool) -> int:
    """Length of the keys. Raises ValueError where a causal mask meets unequal lengths."""
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError(
            f"causal attention of {q.shape[2]} queries over {k.shape[2]} keys: lengths must agree"
        )
    return int(k.shape[2])


def arithmetic(dtype: Any) -> dict[str, Any]:
    """Constants of both directions that say how GEMMs are computed.

    FP32 is not rounded to TF32; the interpreter has no bf16 arithmetic and widens it.
    """
    precision = "ieee" if str(dtype) == "torch.float32" else "tf32"
    return {"precision": precision, "widen": interpreted() and str(dtype) == "torch.bfloat16"}


def shape_of(q: Any, k: Any, *, causal: bool) -> Attention:
    """What the cost models call the forward pass of these tensors."""
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    batch, heads, seq_q, head_dim = q.shape
    return Attention(
        batch=batch, seq_q=seq_q, seq_kv=k.shape[2], heads=heads, kv_heads=k.shape[1], head_dim=head_dim,
        causal=causal, dtype=names[str(q.dtype).removeprefix("torch.")],
    )  # fmt: skip
