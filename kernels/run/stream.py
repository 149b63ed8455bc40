"""Copy and triad: what HBM sustains, and nothing else.

Copy reads and writes each element once; triad, c = a + s b, reads two arrays and writes one. torch
copies in one kernel too; its triad is a multiplication and an addition. Elements pass through
registers: no shared memory is used.

Sources: STREAM, https://www.cs.virginia.edu/stream/ref.html (what counts as moved: the reads and
writes of the arrays, no write-allocate).
"""

from __future__ import annotations

from typing import Any

from ..kernel import ELEMENT_BYTES, MemoryBound
from .lazy_jit import cdiv, jit

tl: Any = None

BLOCK = 1024  # elements of one thread block


def copy_cost(elements: int, dtype: str) -> MemoryBound:
    """Read and written once."""
    return MemoryBound(hbm_bytes=2 * elements * ELEMENT_BYTES[dtype])


def triad_cost(elements: int, dtype: str) -> MemoryBound:
    """Two arrays read, one written; a multiplication and an addition an element."""
    return MemoryBound(hbm_bytes=3 * elements * ELEMENT_BYTES[dtype], flops=2.0 * elements)


def triad_chain_cost(elements: int, dtype: str) -> MemoryBound:
    """s b: read, write; a + that: read twice, write."""
    return MemoryBound(hbm_bytes=5 * elements * ELEMENT_BYTES[dtype], flops=2.0 * elements, launches=2)


@jit
def _copy(source, target, elements, block: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = where < elements
    tl.store(target + where, tl.load(source + where, mask=inside), mask=inside)


@jit
def _copy_by_few(source, target, elements, block: tl.constexpr):
    stride = tl.num_programs(0).to(tl.int64) * block
    for start in range(tl.program_id(0).to(tl.int64) * block, elements, stride):
        where = start + tl.arange(0, block)
        inside = where < elements
        tl.store(target + where, tl.load(source + where, mask=inside), mask=inside)


@jit
def _triad(a, b, c, scale, elements, block: tl.constexpr):
    where = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = where < elements
    left = tl.load(a + where, mask=inside).to(tl.float32)
    right = tl.load(b + where, mask=inside).to(tl.float32)
    tl.store(c + where, left + scale * right, mask=inside)


def copy(source: Any, target: Any) -> Any:
    """``target`` = ``source``, cast to its dtype; both contiguous and of one shape."""
    elements = source.numel()
    _copy[(cdiv(elements, BLOCK),)](source, target, elements, block=BLOCK)
    return target


def copy_by_few(source: Any, target: Any, blocks: int) -> Any:
    """``target`` = ``source`` by only ``blocks`` thread blocks, as a collective has few channels."""
    _copy_by_few[(blocks,)](source, target, source.numel(), block=8 * BLOCK, num_warps=16)
    return target


def triad(a: Any, b: Any, scale: float) -> Any:
    """a + scale b, for contiguous tensors of one shape and dtype."""
    import torch

    c = torch.empty_like(a)
    _triad[(cdiv(a.numel(), BLOCK),)](a, b, c, scale, a.numel(), block=BLOCK)
    return c


def triad_chain(a: Any, b: Any, scale: float) -> Any:
    """The triad in two torch kernels."""
    return a + b * scale
