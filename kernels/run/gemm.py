"""Matrix multiplication: one tile of the output a thread block, K in steps through shared memory.

Computes C = A B, or C += A B in FP32 as a fused weight gradient does, for bf16, fp16, fp32 and, where
the GPU has it, fp8 (e4m3) with one scale for both operands. Tiles are walked in groups of rows so
that tiles which run together share operands in L2. FLOPs and HBM bytes are those of
``kernels.kernel.Gemm``; here stands what a tile holds on chip and what all tiles load.

Sources: NVIDIA, Matrix Multiplication Background User's Guide, section 3 (tiles); CUTLASS,
media/docs/efficient_gemm.md (threadblock rasterization in groups).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..kernel import ELEMENT_BYTES, Gemm
from .lazy_jit import cdiv, interpreted, jit, power_of_two

tl: Any = None

# Largest first: 128 KiB of FP32 accumulators is what eight warps hold in registers without spilling on
# compute capability 9.0 and 10.0 (Triton 3.7.1; 40 bytes a thread on 8.0).
_TILES = ((128, 256), (128, 128), (128, 64), (64, 64), (32, 32), (16, 16))
_K_BYTES = 128  # of K in one step: one cache line, the widest swizzle of shared memory
_GROUP_ROWS = 8


@dataclass(frozen=True, kw_only=True)
class GemmTile:
    """An output tile of ``m`` x ``n``, computed in steps of ``k`` with ``stages`` steps in flight."""

    m: int
    n: int
    k: int
    stages: int
    warps: int

    def sram_bytes(self, dtype: str) -> float:
        """Shared memory of one thread block: the operands of every step in flight."""
        return self.stages * (self.m + self.n) * self.k * ELEMENT_BYTES[dtype]


def gemm_tile(gemm: Gemm, sram_bytes: float) -> GemmTile:
    """The largest tile that the matrix fills and whose steps fit in ``sram_bytes`` at least two deep.

    Raises ValueError where not even the smallest fits.
    """
    k = min(power_of_two(gemm.k), int(_K_BYTES / ELEMENT_BYTES[gemm.dtype]))
    for m, n in _TILES:
        fills = m <= max(16, power_of_two(gemm.m)) and n <= max(16, power_of_two(gemm.n))
        for stages in (4, 3, 2):
            tile = GemmTile(m=m, n=n, k=max(16, k), stages=stages, warps=8 if m * n > 8192 else 4)
            if fills and tile.sram_bytes(gemm.dtype) <= sram_bytes:
                return tile
    raise ValueError(f"sram_bytes={sram_bytes:g}: no tile of a {gemm.dtype} matrix multiplication fits")


@jit
def _gemm(
    a,
    b,
    c,
    scale,
    m,
    n,
    k,
    a_batch,
    a_row,
    a_column,
    b_batch,
    b_row,
    b_column,
    c_batch,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    group: tl.constexpr,
    accumulate: tl.constexpr,
    precision: tl.constexpr,
    widen: tl.constexpr,
):
    tiles_m, tiles_n = tl.cdiv(m, tile_m), tl.cdiv(n, tile_n)
    tile, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first = tile // (group * tiles_n) * group
    height = tl.minimum(tiles_m - first, group)
    row = (first + tile % (group * tiles_n) % height) * tile_m + tl.arange(0, tile_m).to(tl.int64)
    column = tile % (group * tiles_n) // height * tile_n + tl.arange(0, tile_n).to(tl.int64)
    depth = tl.arange(0, tile_k)
    a += batch * a_batch + row[:, None] * a_row
    b += batch * b_batch + column[None, :] * b_column
    total = tl.zeros((tile_m, tile_n), dtype=tl.float32)
    for start in range(0, k, tile_k):
        inside = start + depth < k
        step = (start + depth).to(tl.int64)
        left = tl.load(a + step[None, :] * a_column, mask=(row[:, None] < m) & inside[None, :], other=0.0)
        right = tl.load(b + step[:, None] * b_row, mask=inside[:, None] & (column[None, :] < n), other=0.0)
        if widen:
            left, right = left.to(tl.float32), right.to(tl.float32)
        total = tl.dot(left, right, total, input_precision=precision)
    total *= scale
    target = c + batch * c_batch + row[:, None] * n + column[None, :]
    inside = (row[:, None] < m) & (column[None, :] < n)
    if accumulate:
        total += tl.load(target, mask=inside, other=0.0)
    tl.store(target, total, mask=inside)


def gemm(a: Any, b: Any, out: Any, *, tile: GemmTile, accumulate: bool = False, scale: float = 1.0) -> Any:
    """``out`` (+)= scale a b, for a (batch, m, k), b (batch, k, n) of any strides and a contiguous ``out``.

    fp8 operands are plain float8_e4m3fn tensors; ``scale`` is the product of their scales.
    """
    batch, m, k = a.shape
    n = b.shape[2]
    dtype = str(a.dtype)
    _gemm[(cdiv(m, tile.m) * cdiv(n, tile.n), batch)](
        a,
        b,
        out,
        scale,
        m,
        n,
        k,
        *a.stride(),
        *b.stride(),
        out.stride(0),
        tile_m=tile.m,
        tile_n=tile.n,
        tile_k=tile.k,
        group=_GROUP_ROWS,
        accumulate=accumulate,
        precision="ieee" if dtype == "torch.float32" else "tf32",
        # The interpreter has no bf16 arithmetic (Triton's documentation, debugging, limitations).
        widen=interpreted() and dtype == "torch.bfloat16",
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


def gemm_chain(a: Any, b: Any, out: Any, *, accumulate: bool) -> Any:
    """The same GEMM by torch: cuBLAS, and an addition of its own where it accumulates."""
    import torch

    return out.add_(a @ b) if accumulate else torch.bmm(a, b, out=out)
