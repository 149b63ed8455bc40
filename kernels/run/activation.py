"""SwiGLU and GELU: one pass forward, one backward.

SwiGLU takes the two branches side by side, (rows, 2 width): silu(gate) * up; GELU is the exact one,
x Phi(x). Elements pass through registers. Costs count passes over arrays of rows x width.

Sources: Shazeer 2020, arXiv:2002.05202 (SwiGLU); Hendrycks and Gimpel 2016, arXiv:1606.08415 (GELU).
"""

from __future__ import annotations

from typing import Any

from ..kernel import ELEMENT_BYTES, Direction, MemoryBound
from .lazy_jit import cdiv, jit

tl: Any = None

BLOCK = 1024  # elements of one thread block
# Operations an element, an exponential or error function counted as four.
_SWIGLU_FLOPS = {"forward": 8.0, "backward": 14.0}
_GELU_FLOPS = {"forward": 8.0, "backward": 16.0}


def swiglu_cost(rows: int, width: int, dtype: str, direction: Direction) -> MemoryBound:
    """Forward reads both branches and writes one; backward reads them and dY and writes both."""
    passes = 3 if direction == "forward" else 5
    return _passes(rows * width, dtype, passes, flops=_SWIGLU_FLOPS[direction])


def gelu_cost(rows: int, width: int, dtype: str, direction: Direction) -> MemoryBound:
    """Forward reads and writes; backward reads x and dY and writes dX."""
    passes = 2 if direction == "forward" else 3
    return _passes(rows * width, dtype, passes, flops=_GELU_FLOPS[direction])


def swiglu_chain_cost(rows: int, width: int, dtype: str) -> MemoryBound:
    """silu: read, write; product: read twice, write."""
    return _passes(rows * width, dtype, 5, flops=_SWIGLU_FLOPS["forward"], launches=2)


def _passes(elements: int, dtype: str, passes: int, *, flops: float, launches: int = 1) -> MemoryBound:
    moved = passes * elements * ELEMENT_BYTES[dtype]
    return MemoryBound(hbm_bytes=moved, flops=flops * elements, launches=launches)


@jit
def _swiglu(x, y, elements, width, block: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = where < elements
    gate_at = where // width * (2 * width) + where % width
    gate = tl.load(x + gate_at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + gate_at + width, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + where, gate / (1.0 + tl.exp(-gate)) * up, mask=inside)


@jit
def _swiglu_backward(x, dy, dx, elements, width, block: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = where < elements
    gate_at = where // width * (2 * width) + where % width
    gate = tl.load(x + gate_at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + gate_at + width, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(dy + where, mask=inside, other=0.0).to(tl.float32)
    sigmoid = 1.0 / (1.0 + tl.exp(-gate))
    tl.store(dx + gate_at, gradient * up * sigmoid * (1.0 + gate * (1.0 - sigmoid)), mask=inside)
    tl.store(dx + gate_at + width, gradient * gate * sigmoid, mask=inside)


@jit
def _gelu(x, y, elements, block: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = where < elements
    value = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    below = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))  # share of a normal distribution below x
    tl.store(y + where, value * below, mask=inside)


@jit
def _gelu_backward(x, dy, dx, elements, block: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = where < elements
    value = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(dy + where, mask=inside, other=0.0).to(tl.float32)
    below = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
    density = 0.3989422804014327 * tl.exp(-0.5 * value * value)
    tl.store(dx + where, gradient * (below + value * density), mask=inside)


def swiglu(x: Any) -> Any:
    """silu(x[:, :width]) * x[:, width:], (rows, width), for a contiguous x of (rows, 2 width)."""
    rows, width = x.shape[0], x.shape[1] // 2
    y = x.new_empty((rows, width))
    _swiglu[(cdiv(y.numel(), BLOCK),)](x, y, y.numel(), width, block=BLOCK)
    return y


def swiglu_backward(x: Any, dy: Any) -> Any:
    """Gradient of x, (rows, 2 width)."""
    import torch

    dx, elements = torch.empty_like(x), dy.numel()
    _swiglu_backward[(cdiv(elements, BLOCK),)](x, dy, dx, elements, dy.shape[1], block=BLOCK)
    return dx


def gelu(x: Any) -> Any:
    """x Phi(x), for a contiguous x of any shape."""
    import torch

    y = torch.empty_like(x)
    _gelu[(cdiv(x.numel(), BLOCK),)](x, y, x.numel(), block=BLOCK)
    return y


def gelu_backward(x: Any, dy: Any) -> Any:
    """Gradient of x."""
    import torch

    dx = torch.empty_like(x)
    _gelu_backward[(cdiv(x.numel(), BLOCK),)](x, dy, dx, x.numel(), block=BLOCK)
    return dx


def swiglu_chain(x: Any) -> Any:
    """SwiGLU in two torch kernels."""
    import torch

    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def gelu_chain(x: Any) -> Any:
    """GELU in one torch kernel."""
    import torch

    return torch.nn.functional.gelu(x)
