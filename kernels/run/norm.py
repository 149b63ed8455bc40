"""RMSNorm and LayerNorm: one pass over the rows forward, one backward.

A thread block holds a whole row in registers (FP32) and walks over rows, so that the weight is read
once a block; backward sums the weight's gradient over its rows and leaves the sum over blocks to a
second kernel. The torch chain casts to FP32 and back, with every step a pass over HBM.

Sources: Zhang and Sennrich 2019, arXiv:1910.07467 (RMSNorm); Ba et al. 2016, arXiv:1607.06450
(LayerNorm); the chain is RMSNorm as meta-llama/llama, llama/model.py, writes it.
"""

from __future__ import annotations

from typing import Any

from ..kernel import ELEMENT_BYTES, Direction, MemoryBound
from .lazy_jit import jit, power_of_two

tl: Any = None

EPS = 1e-5
"""Added to the variance: Llama's value (rms_norm_eps), on which no time depends."""
# Blocks of a launch: near two for each SM of today's GPUs (108 to 160), few enough that the partial sums of
# the weight's gradient stay small.
PROGRAMS = 256
# Forward: square, sum, scale, weight. Backward: the normalised value, two products, a sum, the combination.
_FLOPS = {"forward": 5.0, "backward": 12.0}


def norm_cost(
    rows: int, columns: int, dtype: str, direction: Direction, *, centred: bool, programs: int = PROGRAMS
) -> MemoryBound:
    """Cost of the fused kernels for ``rows`` x ``columns``; ``centred`` is LayerNorm.

    Forward reads X and writes Y and the row's statistics; backward reads dY, X and the statistics,
    writes dX, and writes and reads the partial sums of the weight's gradient.
    """
    element, parameters = ELEMENT_BYTES[dtype], 2 if centred else 1
    statistics, programs = 4.0 * rows * parameters, min(programs, rows)
    weights = parameters * columns * element
    if direction == "forward":
        moved = 2 * rows * columns * element + statistics + weights
        return MemoryBound(hbm_bytes=moved, flops=_FLOPS[direction] * rows * columns)
    partial = 2 * parameters * programs * columns * 4.0
    moved = 3 * rows * columns * element + statistics + columns * element + partial + weights
    return MemoryBound(hbm_bytes=moved, flops=_FLOPS[direction] * rows * columns, launches=1 + parameters)


def rms_norm_chain_cost(rows: int, columns: int, dtype: str) -> MemoryBound:
    """Passes of ``rms_norm_chain``: cast, square, mean, scale, cast, weight (and three on the row's mean)."""
    element, elements = ELEMENT_BYTES[dtype], rows * columns
    moved = elements * (4 * element + 28) + 4.0 * rows * (1 + 2 + 2 + 1) + columns * element
    return MemoryBound(hbm_bytes=moved, flops=5.0 * elements, launches=8)


def layer_norm_chain_cost(rows: int, columns: int, dtype: str) -> MemoryBound:
    """Passes of ``layer_norm_chain``: cast, mean, centre, square, mean, scale, cast, weight, bias."""
    element, elements = ELEMENT_BYTES[dtype], rows * columns
    moved = elements * (6 * element + 40) + 4.0 * rows * (1 + 1 + 1 + 2 + 2 + 1) + 2 * columns * element
    return MemoryBound(hbm_bytes=moved, flops=7.0 * elements, launches=11)


@jit
def _forward(x, weight, bias, y, mean, rstd, rows, columns, eps, centred: tl.constexpr, block: tl.constexpr):
    column = tl.arange(0, block)
    inside = column < columns
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if centred:
        shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = tl.cast(row, tl.int64) * columns
        value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
        if centred:
            middle = tl.sum(value, 0) / columns
            value = tl.where(inside, value - middle, 0.0)
            tl.store(mean + row, middle)
        inverse = 1.0 / tl.sqrt(tl.sum(value * value, 0) / columns + eps)
        value = value * inverse * scale
        if centred:
            value += shift
        tl.store(rstd + row, inverse)
        tl.store(y + start + column, value, mask=inside)


@jit
def _backward(
    dy, x, weight, mean, rstd, dx, dweight, dbias, rows, columns, centred: tl.constexpr, block: tl.constexpr
):
    column = tl.arange(0, block)
    inside = column < columns
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    weight_sum = tl.zeros((block,), dtype=tl.float32)
    bias_sum = tl.zeros((block,), dtype=tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = tl.cast(row, tl.int64) * columns
        value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(dy + start + column, mask=inside, other=0.0).to(tl.float32)
        inverse = tl.load(rstd + row)
        if centred:
            value = tl.where(inside, value - tl.load(mean + row), 0.0)
        value *= inverse
        weight_sum += gradient * value
        scaled = gradient * scale
        result = scaled - value * (tl.sum(scaled * value, 0) / columns)
        if centred:
            bias_sum += gradient
            result -= tl.sum(scaled, 0) / columns
        tl.store(dx + start + column, result * inverse, mask=inside)
    partial = tl.program_id(0).to(tl.int64) * columns + column
    tl.store(dweight + partial, weight_sum, mask=inside)
    if centred:
        tl.store(dbias + partial, bias_sum, mask=inside)


def norm(x: Any, weight: Any, bias: Any = None, *, programs: int = PROGRAMS) -> tuple[Any, Any, Any]:
    """Y of the rows of ``x`` (rows, columns), their mean and inverse deviation (FP32).

    With a ``bias`` it is LayerNorm, without RMSNorm, whose mean is not computed.
    """
    import torch

    rows, columns = x.shape
    y, centred = torch.empty_like(x), bias is not None
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    mean = torch.empty_like(rstd) if centred else rstd
    block = power_of_two(columns)
    _forward[(min(rows, programs),)](
        x, weight, bias if centred else weight, y, mean, rstd, rows, columns, EPS,
        centred=centred, block=block, num_warps=_warps(block),
    )  # fmt: skip
    return y, mean, rstd


def norm_backward(
    dy: Any, x: Any, weight: Any, mean: Any, rstd: Any, *, centred: bool, programs: int = PROGRAMS
) -> tuple[Any, Any, Any]:
    """Gradients of x, weight and bias (None without one); the first in x's dtype, the others in weight's."""
    import torch

    rows, columns = x.shape
    programs = min(programs, rows)
    dx = torch.empty_like(x)
    sums = torch.empty((2 if centred else 1, programs, columns), dtype=torch.float32, device=x.device)
    block = power_of_two(columns)
    _backward[(programs,)](
        dy, x, weight, mean, rstd, dx, sums[0], sums[-1], rows, columns,
        centred=centred, block=block, num_warps=_warps(block),
    )  # fmt: skip
    gradients = [one.sum(0).to(weight.dtype) for one in sums]
    return dx, gradients[0], gradients[1] if centred else None


def rms_norm_chain(x: Any, weight: Any) -> Any:
    """RMSNorm in eight torch kernels."""
    import torch

    wide = x.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
    return (wide * inverse).type_as(x) * weight


def layer_norm_chain(x: Any, weight: Any, bias: Any) -> Any:
    """LayerNorm in torch kernels of one operation each."""
    import torch

    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + EPS)
    return (centred * inverse).type_as(x) * weight + bias


def _warps(block: int) -> int:
    return min(32, max(4, block // 512))
