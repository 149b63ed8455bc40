"""The attention core of one layer, fused or not: scores, softmax and weighted sum.

Knows which kernels run; their costs are the kernel models'. The projections around it are in layer.py.
Unfused, a window is but another mask: all scores are computed, and the fused softmax, which has the causal
mask alone, gives way to torch's (Megatron-LM core/fusions/fused_softmax.py, forward_torch_softmax).
"""

from __future__ import annotations

from ....kernels.kernel import Attention, Direction, Gemm
from ...scenario.software.software import Software
from .context import AttentionKernel, Tile, context_backward, context_forward
from .shard import Shard
from .tape import Tape


def attention_forward(tape: Tape, shard: Shard, software: Software) -> None:
    """Scores, softmax (and dropout), weighted sum."""
    if shard.cp > 1:
        context_forward(tape, shard, software, _tiled("attention", software, "forward"))
    elif software.attention == "unfused":
        _unfused_forward(tape, shard, software)
    else:
        tape.kernel("attention", _fused(shard, software, "forward", _whole(shard)))


def attention_backward(tape: Tape, shard: Shard, software: Software) -> None:
    """Gradients of Q, K and V; a fused kernel recomputes the scores itself."""
    if shard.cp > 1:
        context_backward(tape, shard, software, _tiled("attention backward", software, "backward"))
    elif software.attention == "unfused":
        _unfused_backward(tape, shard, software)
    else:
        tape.kernel("attention backward", _fused(shard, software, "backward", _whole(shard)))


def _whole(shard: Shard) -> Tile:
    return Tile(queries=shard.sequence, keys=shard.sequence, causal=True)


def _tiled(name: str, software: Software, direction: Direction) -> AttentionKernel:
    def attend(tape: Tape, shard: Shard, tile: Tile) -> None:
        tape.kernel(name, _fused(shard, software, direction, tile))

    return attend


def _fused(shard: Shard, software: Software, direction: Direction, tile: Tile) -> Attention:
    assert software.attention != "unfused"
    return Attention(
        batch=shard.batch,
        seq_q=tile.queries,
        seq_kv=tile.keys,
        heads=shard.heads,
        kv_heads=shard.kv_heads,
        head_dim=shard.head_dim,
        causal=tile.causal,
        dtype="bf16" if shard.dtype == "fp32" else shard.dtype,
        implementation=software.attention,
        direction=direction,
        v_head_dim=None if shard.value_dim in (0, shard.head_dim) else shard.value_dim,
        window=shard.window if tile.causal else None,
    )


def _scores(shard: Shard, width: int) -> Gemm:
    """Every query with every key, or every output's gradient with every value, ``width`` wide."""
    s = shard.sequence
    return Gemm(
        m=s,
        n=s,
        k=width,
        dtype=shard.dtype,
        batch=shard.batch * shard.heads,
        out_bytes=shard.element_bytes,
    )


def _weighted(shard: Shard, width: int) -> Gemm:
    """Sums of values, or of queries or keys, weighted by a matrix of scores."""
    s = shard.sequence
    return Gemm(
        m=s,
        n=width,
        k=s,
        dtype=shard.dtype,
        batch=shard.batch * shard.heads,
        out_bytes=shard.element_bytes,
    )


def _unfused_forward(tape: Tape, shard: Shard, software: Software) -> None:
    e, scores, values = shard.element_bytes, shard.score_elements, shard.value_dim or shard.head_dim
    tape.kernel("QK^T", _scores(shard, shard.head_dim))
    if software.fused_softmax and shard.window is None:
        tape.memory("scale, mask, softmax", 2 * e * scores)  # read scores, write probabilities
    else:
        # scale (r, w), masked_fill (r, w), cast to FP32 (r e, w 4), softmax (r 4, w 4), cast back (r 4, w e)
        tape.memory("scale, mask, softmax", (6 * e + 16) * scores, launches=5)
    if shard.dropout:
        tape.memory("attention dropout", (2 * e + 1) * scores)  # read, write, one byte of mask
    tape.kernel("PV", _weighted(shard, values))


def _unfused_backward(tape: Tape, shard: Shard, software: Software) -> None:
    e, scores, values = shard.element_bytes, shard.score_elements, shard.value_dim or shard.head_dim
    tape.kernel("dV", _weighted(shard, values))
    tape.kernel("dP", _scores(shard, values))
    if shard.dropout:
        tape.memory("attention dropout backward", (2 * e + 1) * scores)
    if software.fused_softmax and shard.window is None:
        tape.memory("softmax backward", 3 * e * scores)  # read probabilities and gradient, write
    else:
        # casts around an FP32 softmax backward (r 4+4, w 4), masked_fill and scale (r, w each)
        tape.memory("softmax backward", (6 * e + 20) * scores, launches=5)
    tape.kernel("dQ", _weighted(shard, shard.head_dim))
    tape.kernel("dK", _weighted(shard, shard.head_dim))
