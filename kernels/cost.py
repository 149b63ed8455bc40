"""Seconds of a kernel on a GPU.

Knows which cost model prices which kernel, and remembers the answers: a step has some 10,000
kernels but few distinct ones. Time is on the GPU and alone on it: the host's launch cost belongs
to the host stream, and sharing to the engine.
"""

from __future__ import annotations

from functools import lru_cache

from ..hardware.gpu import Gpu
from ..hardware.profile import GpuProfile
from .attention import attention_curve, attention_seconds, hbm_bytes
from .gemm import gemm_seconds
from .kernel import Attention, Gemm, Kernel, MemoryBound
from .memory_bound import memory_bound_seconds


@lru_cache(maxsize=65536)
def kernel_seconds(kernel: Kernel, gpu: Gpu, profile: GpuProfile) -> float:
    """On-GPU seconds of ``kernel``. Raises ValueError for what the GPU cannot run."""
    match kernel:
        case Gemm():
            return gemm_seconds(kernel, gpu, profile)
        case Attention():
            return attention_seconds(kernel, gpu, profile)
        case MemoryBound():
            return memory_bound_seconds(kernel, gpu, profile)


def kernel_hbm_bytes(kernel: Kernel, gpu: Gpu) -> float:
    """Bytes that ``kernel`` moves at HBM on this GPU, with the re-reads that its caches miss."""
    return hbm_bytes(kernel, gpu) if isinstance(kernel, Attention) else kernel.hbm_bytes


def in_range(kernel: Kernel, profile: GpuProfile) -> bool:
    """Whether ``kernel`` lies inside the measured range of the curve that prices it.

    A carried curve keeps the range of the GPU it was measured on; its provenance says so.
    """
    match kernel:
        case Gemm():
            narrow = min(kernel.m, kernel.n)
            return profile.gemm.provenance.covers(narrow=narrow, k=kernel.k, flops=kernel.flops)
        case Attention():
            provenance = attention_curve(kernel, profile).provenance
            return provenance.covers(seq=kernel.seq_kv, head_dim=kernel.head_dim)
        case MemoryBound():
            return profile.memory.provenance.covers(bytes=kernel.hbm_bytes)
