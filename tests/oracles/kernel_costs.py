"""What kernels of kernels/run load, keep in registers and cost unfused, counted beside their code.

Models price a kernel by kernels/; these are what the runs themselves are held against.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepsim.kernels.attention import passes, streamed_bytes
from stepsim.kernels.kernel import ELEMENT_BYTES, Attention, Direction, Gemm, Kernel, MemoryBound
from stepsim.kernels.run.cross_entropy import BLOCK
from stepsim.kernels.run.gemm import GemmTile
from stepsim.kernels.run.lazy_jit import cdiv, power_of_two


def attention_chain_cost(kernel: Attention) -> tuple[Kernel, ...]:
    """The unfused forward pass: QK^T, scale, mask, softmax in FP32, cast, PV."""
    element = ELEMENT_BYTES[kernel.dtype]
    batch, size = kernel.batch * kernel.heads, int(element)
    scores = float(batch * kernel.seq_q * kernel.seq_kv)
    # Scale: read, write; mask: read, write; softmax with casts: read, write 4, read 4, write.
    softmax = MemoryBound(hbm_bytes=scores * (6 * element + 8), flops=7 * scores, launches=4)
    common = {"dtype": kernel.dtype, "batch": batch, "out_bytes": size}
    return (
        Gemm(m=kernel.seq_q, n=kernel.seq_kv, k=kernel.head_dim, **common),  # type: ignore[arg-type]
        softmax,
        Gemm(m=kernel.seq_q, n=kernel.head_dim, k=kernel.seq_kv, **common),  # type: ignore[arg-type]
    )


def attention_chain(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    """The same in torch, the scores of all heads at HBM."""
    import torch

    group = q.shape[1] // k.shape[1]
    k, v = (one.repeat_interleave(group, 1) if group > 1 else one for one in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, -1, dtype=torch.float32).type_as(v) @ v


def backward_of(kernel: Attention) -> Attention:
    """The backward pass of the same tensors."""
    return replace(kernel, direction="backward")


def backward_loaded_bytes(kernel: Attention, rows: int) -> float:
    """Bytes that the three kernels load and store with tiles of ``rows``; an atomic addition counts 8.

    Outside the passes over the queries: O and dO read and their sums written; K and V read, dK and dV
    written; dQ read in FP32 and written.
    """
    assert kernel.direction == "backward"
    elements = kernel.batch * kernel.heads * kernel.seq_q * kernel.head_dim
    outside = 3 * kernel.query_bytes + 4.0 * elements / kernel.head_dim + 4.0 * elements + 2 * kernel.kv_bytes
    return outside + passes(kernel, rows) * streamed_bytes(kernel)


def cross_entropy_sram_bytes(vocabulary: int) -> float:
    """Registers of one thread block: one step of logits in FP32 and its exponentials."""
    return 2 * 4.0 * min(BLOCK, power_of_two(vocabulary))


def gemm_loaded_bytes(gemm: Gemm, tile: GemmTile) -> float:
    """Bytes that all tiles load and store: A once for each column of tiles, B once for each row.

    What of this reaches HBM is up to L2; ``Gemm.hbm_bytes`` is the case in which it holds every re-read.
    """
    element = ELEMENT_BYTES[gemm.dtype]
    a = gemm.m * gemm.k * element * cdiv(gemm.n, tile.n)
    b = gemm.n * gemm.k * element * cdiv(gemm.m, tile.m)
    c = gemm.m * gemm.n * gemm.out_bytes * (2 if gemm.accumulate else 1)
    return gemm.batch * (a + b + c)


def accumulate_chain_cost(gemm: Gemm) -> tuple[Gemm, MemoryBound]:
    """Unfused weight gradient: the GEMM in 16 bits, then added into the FP32 gradient."""
    element = ELEMENT_BYTES[gemm.dtype]
    product = Gemm(m=gemm.m, n=gemm.n, k=gemm.k, dtype=gemm.dtype, batch=gemm.batch, out_bytes=int(element))
    elements = gemm.batch * gemm.m * gemm.n
    return product, MemoryBound(hbm_bytes=elements * (element + 8), flops=float(elements))


def norm_sram_bytes(columns: int, direction: Direction) -> float:
    """Registers of one thread block: the FP32 rows that are alive together, and the weight's sums."""
    return 4.0 * power_of_two(columns) * (2 if direction == "forward" else 4)
