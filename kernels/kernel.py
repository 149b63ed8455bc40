"""What one GPU is asked to execute: shapes, data types, FLOPs and the bytes that must move.

Knows the shape of a kernel and its compulsory traffic at HBM. Knows neither a GPU nor seconds;
what caches and SRAM add to attention's traffic is in attention.py, times are in cost.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["forward", "backward"]
Implementation = Literal["fa1", "fa2", "fa3", "cudnn", "aiter", "aiter_fp32"]
CudnnRelease = Literal["9.13", "9.17", "9.22"]
"""Releases of cuDNN that its attention is told apart by."""

ELEMENT_BYTES = {
    "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4.0 / 128,
    "mxfp8": 1.0 + 1.0 / 32, "fp4": 0.5, "nvfp4": 0.5 + 1.0 / 16,
}  # fmt: skip
"""Bytes of one operand element by dtype, its share of a block's scale included (tf32 is stored as fp32).

``fp8`` has one scale a tensor, ``fp8_block`` one for 128 elements (FP32; DeepSeek-V3, arXiv:2412.19437),
``mxfp8`` one for 32 (8 bits; OCP Microscaling 1.0), ``nvfp4`` one for 16 (8 bits)."""


# Flash backward computes S again, then dV, dP, dQ and dK: five GEMMs against the forward's two
# (Dao 2022, arXiv:2205.14135, algorithm 4).
BACKWARD_FLOPS = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """``batch`` independent products of an m x k by a k x n matrix.

    ``out_bytes`` is the size of one output element; ``accumulate`` adds into an output that is
    already there and so reads it (the FP32 main gradient of a weight-gradient GEMM). ``calls`` is the
    number of kernels that a grouped GEMM is issued as: 1, or one for each of the ``batch``. ``precise``
    GEMMs of 8 bit add their partial sums in FP32 every few steps of K (a split accumulator), where tensor
    cores alone would keep fewer bits of them.

    >>> Gemm(m=4096, n=512, k=2048).flops
    8589934592.0
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    batch: int = 1
    out_bytes: int = 2
    accumulate: bool = False
    calls: int = 1
    precise: bool = False

    @property
    def flops(self) -> float:
        """FLOPs of all products; a multiplication and an addition count as two."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def hbm_bytes(self) -> float:
        """Each operand read once, the output written once (and read once when accumulating)."""
        operands = (self.m + self.n) * self.k * ELEMENT_BYTES[self.dtype]
        output = self.m * self.n * self.out_bytes * (2 if self.accumulate else 1)
        return self.batch * (operands + output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Fused attention over ``batch`` sequences, of packs so many as there are in the mean: the score matrix
    never reaches HBM.

    ``kv_heads`` below ``heads`` is grouped-query attention: fewer bytes, the same FLOPs. ``head_dim`` is
    that of queries and keys; ``v_head_dim``, where it is another, that of values and outputs (latent
    attention). With a ``window`` a query sees that many keys at most, itself the last. ``release`` is
    cuDNN's, and says something of its kernels alone.
    """

    batch: float
    seq_q: int
    seq_kv: int
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool
    dtype: str = "bf16"
    implementation: Implementation = "fa2"
    direction: Direction = "forward"
    v_head_dim: int | None = None
    window: int | None = None
    release: CudnnRelease = "9.13"

    @property
    def mean_head_dim(self) -> float:
        """Mean of the two head dimensions: Q and K have one, V and O the other."""
        return (self.head_dim + (self.v_head_dim or self.head_dim)) / 2

    @property
    def visible(self) -> float:
        """Share of all scores that a mask leaves; a causal one half (the field's convention)."""
        if self.window is None or self.window >= self.seq_kv:
            return 0.5 if self.causal else 1.0
        reach = self.window / self.seq_kv
        return reach * (1.0 - reach / 2)

    @property
    def flops(self) -> float:
        """FLOPs of the scores that the mask leaves: two GEMMs forward, and five backward."""
        forward = 4.0 * self.batch * self.heads * self.seq_q * self.seq_kv * self.mean_head_dim
        return forward * self.visible * (BACKWARD_FLOPS if self.direction == "backward" else 1.0)

    @property
    def query_bytes(self) -> float:
        """Bytes of Q, or of O, dO and dQ: the mean where their head dimensions differ."""
        return self.batch * self.heads * self.seq_q * self.mean_head_dim * ELEMENT_BYTES[self.dtype]

    @property
    def kv_bytes(self) -> float:
        """Bytes of K and V together; dK and dV have the same shape."""
        return 2 * self.batch * self.kv_heads * self.seq_kv * self.mean_head_dim * ELEMENT_BYTES[self.dtype]

    @property
    def hbm_bytes(self) -> float:
        """Compulsory traffic: every input read once, every output written once.

        Forward reads Q, K, V and writes O and the FP32 log-sum-exp. Backward reads Q, K, V, O, dO
        and the log-sum-exp, keeps dQ in an FP32 buffer that is written and read once, and writes
        dQ, dK and dV (Dao 2023, arXiv:2307.08691, algorithm 2).
        """
        statistics = 4.0 * self.batch * self.heads * self.seq_q
        if self.direction == "forward":
            return 2 * self.query_bytes + self.kv_bytes + statistics
        fp32_dq = 2 * self.query_bytes * 4.0 / ELEMENT_BYTES[self.dtype]
        return 4 * self.query_bytes + 2 * self.kv_bytes + fp32_dq + 3 * statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBound:
    """A kernel whose time is its traffic: pointwise, norm, softmax, loss, optimizer.

    ``hbm_bytes`` is bytes read plus written; ``launches`` is the number of kernels that it stands
    for, each of which pays the fixed latency on the GPU. ``parts`` are blocks of rows whose partial sums one
    block adds up for each column, of as many as are on the GPU at once. ``instructions``, of single threads,
    are stated for kernels that have so many for each byte that issuing them may take longer than the bytes.
    ``vector_instructions`` are those of the same kernel compiled for AMD's GPUs, without scalar ones,
    branches and accesses of memory, whose units begin theirs beside. ``in_turn`` are reads of one warp, each
    of which waits for the one before. ``numbers`` are launches besides that write one number, by one thread
    or by none: a maximum cleared, copied or made a scale.
    """

    hbm_bytes: float
    flops: float = 0.0
    launches: int = 1
    parts: float = 0.0
    instructions: float = 0.0
    vector_instructions: float = 0.0
    in_turn: float = 0.0
    numbers: int = 0


Kernel = Gemm | Attention | MemoryBound
