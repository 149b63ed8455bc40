"""Which tile an attention kernel takes: the largest that SRAM holds and registers can work on.

Three tiles of ``rows`` x head dimension share the SRAM of a thread block, as ``kernels.attention``
counts them. Forward they are Q and two stages of K and V of half the rows; backward K, V and one
stage of Q and dO of half the rows. Knows no kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..attention import tile_rows
from ..kernel import ELEMENT_BYTES, Attention

HEAD_DIMS = (16, 32, 64, 128, 256)
"""Head dimensions that the kernels take (a power of two: tiles of tensor cores)."""

# Accumulators live in registers, 64 K of 4 bytes an SM (CUDA programming guide, compute capabilities 8 and
# 9): forward one FP32 tile of rows x head dimension beside the scores, backward two beside three GEMMs.
# With these limits Triton 3.7.1 spills under 100 bytes a thread on compute capabilities 8.0, 9.0 and 10.0.
_MAX_ROWS = 128
_BACKWARD_ELEMENTS = 128 * 64


@dataclass(frozen=True, kw_only=True)
class AttentionTile:
    """``rows`` that a thread block owns, and ``streamed`` rows that it takes in a step."""

    rows: int
    streamed: int
    stages: int
    warps: int


def attention_tile(kernel: Attention, sram_bytes: float) -> AttentionTile:
    """The tile for ``sram_bytes`` of SRAM a thread block.

    Raises ValueError for a head dimension without kernel, and where even 16 rows do not fit.
    """
    if kernel.head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim={kernel.head_dim}: the kernels take {', '.join(map(str, HEAD_DIMS))}")
    if attention_sram_bytes(kernel, 16) > sram_bytes:
        raise ValueError(
            f"sram_bytes={sram_bytes:g}: tiles of 16 rows need {attention_sram_bytes(kernel, 16):g}"
        )
    forward = kernel.direction == "forward"
    most = _MAX_ROWS if forward else min(_MAX_ROWS, _BACKWARD_ELEMENTS // kernel.head_dim)
    rows = min(most, tile_rows(kernel, sram_bytes))
    return AttentionTile(
        rows=rows,
        streamed=max(16, rows // 2),
        stages=2 if forward else 1,
        warps=8 if rows * kernel.head_dim >= (128 * 128 if forward else 64 * 64) else 4,
    )


def attention_sram_bytes(kernel: Attention, rows: int) -> float:
    """Shared memory of one thread block: three tiles of ``rows`` x head dimension."""
    return 3 * rows * kernel.head_dim * ELEMENT_BYTES[kernel.dtype]
