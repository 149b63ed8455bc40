"""Softmax cross entropy: the loss in one pass over the logits, its gradient in another.

A thread block owns a row and walks over the vocabulary in blocks of columns, keeping the running
maximum and the running sum of exponentials in FP32; backward reads the logits again and needs only
the row's log-sum-exp. The torch chain casts the logits to FP32 and keeps their log-softmax.

Sources: Milakov and Gimelshein 2018, arXiv:1805.02867 (maximum and sum in one pass).
"""

from __future__ import annotations

from typing import Any

from ..kernel import ELEMENT_BYTES, Direction, MemoryBound
from .lazy_jit import jit, power_of_two

tl: Any = None

BLOCK = 4096  # columns of one step
_TARGET_BYTES = 8.0  # torch's class indices are int64
_FLOPS = {"forward": 7.0, "backward": 6.0}  # an exponential counts as four


def cross_entropy_cost(rows: int, vocabulary: int, dtype: str, direction: Direction) -> MemoryBound:
    """Forward reads the logits, and one of each row again; backward reads them and writes their gradient.

    Each row adds its target, its loss (forward) or gradient (backward) and its log-sum-exp.
    """
    element, logits = ELEMENT_BYTES[dtype], rows * vocabulary
    per_row = _TARGET_BYTES + 8.0 + (element if direction == "forward" else 0.0)
    passes = 1 if direction == "forward" else 2
    moved = passes * logits * element + per_row * rows
    return MemoryBound(hbm_bytes=moved, flops=_FLOPS[direction] * logits)


def cross_entropy_chain_cost(rows: int, vocabulary: int, dtype: str) -> MemoryBound:
    """Cast (read, write 4), log-softmax (read 4, write 4), and the targets' entries picked."""
    logits = rows * vocabulary
    moved = logits * (ELEMENT_BYTES[dtype] + 12.0) + rows * (_TARGET_BYTES + 8.0)
    return MemoryBound(hbm_bytes=moved, flops=_FLOPS["forward"] * logits, launches=3)


@jit
def _forward(logits, targets, loss, lse, vocabulary, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * vocabulary
    column = tl.arange(0, block)
    top = -float("inf")
    total = 0.0
    for start in range(0, vocabulary, block):
        inside = start + column < vocabulary
        value = tl.load(logits + start + column, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        top = higher
    log_sum = top + tl.log(total)
    picked = tl.load(logits + tl.load(targets + row)).to(tl.float32)
    tl.store(loss + row, log_sum - picked)
    tl.store(lse + row, log_sum)


@jit
def _backward(logits, targets, lse, dloss, dlogits, vocabulary, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    target = tl.load(targets + row)
    log_sum = tl.load(lse + row)
    gradient = tl.load(dloss + row)
    for start in range(0, vocabulary, block):
        inside = start + column < vocabulary
        at = row * vocabulary + start + column
        value = tl.load(logits + at, mask=inside, other=0.0).to(tl.float32)
        probability = tl.exp(value - log_sum)
        hit = tl.where(start + column == target, 1.0, 0.0)
        tl.store(dlogits + at, (probability - hit) * gradient, mask=inside)


def cross_entropy(logits: Any, targets: Any) -> tuple[Any, Any]:
    """Loss and log-sum-exp of each row (FP32), for contiguous logits (rows, vocabulary) and int64 targets."""
    import torch

    rows, vocabulary = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    lse = torch.empty_like(loss)
    block = min(BLOCK, power_of_two(vocabulary))
    _forward[(rows,)](logits, targets, loss, lse, vocabulary, block=block, num_warps=8)
    return loss, lse


def cross_entropy_backward(logits: Any, targets: Any, lse: Any, dloss: Any) -> Any:
    """Gradient of the logits, in their dtype, for each row's gradient ``dloss`` (FP32)."""
    import torch

    rows, vocabulary = logits.shape
    dlogits = torch.empty_like(logits)
    block = min(BLOCK, power_of_two(vocabulary))
    _backward[(rows,)](logits, targets, lse, dloss, dlogits, vocabulary, block=block, num_warps=8)
    return dlogits


def cross_entropy_chain(logits: Any, targets: Any) -> Any:
    """Loss of each row in three torch kernels."""
    import torch

    return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")
