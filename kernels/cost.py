"""Seconds of a kernel on a GPU.

Knows which cost model prices which kernel, and remembers the answers: a step has some 10,000
kernels but few distinct ones. Time is on the GPU and alone on it: the host's launch cost belongs
to the host stream, and sharing to the engine.
"""

from __future__ import annotations

from functools import lru_cache

from ..hardware.gpu import Gpu
from ..hardware.profile import GpuProfile, Provenance
from ..hardware.provenance import Beyond
from .attention import attention_curve, attention_seconds
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


def range_quantities(kernel: Kernel) -> dict[str, float]:
    """What a measured range of kernels is stated in, and what ``kernel`` has of it."""
    match kernel:
        case Gemm():
            return {"narrow": min(kernel.m, kernel.n), "k": kernel.k, "flops": kernel.flops}
        case Attention():
            return {"seq": kernel.seq_kv, "head_dim": kernel.head_dim}
        case MemoryBound():
            return {"bytes": kernel.hbm_bytes}


def curve_provenance(kernel: Kernel, profile: GpuProfile) -> Provenance:
    """Where the curve that prices ``kernel`` comes from."""
    match kernel:
        case Gemm():
            return profile.gemm.provenance
        case Attention():
            return attention_curve(kernel, profile).provenance
        case MemoryBound():
            return profile.memory.provenance


def in_range(kernel: Kernel, profile: GpuProfile) -> bool:
    """Whether ``kernel`` lies inside the measured range of the curve that prices it.

    A carried curve keeps the range of the GPU it was measured on; its provenance says so.
    """
    return curve_provenance(kernel, profile).covers(**range_quantities(kernel))


def beyond_range(kernel: Kernel, profile: GpuProfile) -> Beyond | None:
    """How far ``kernel`` lies outside that range; None inside it, or where the curve has none."""
    return curve_provenance(kernel, profile).beyond(**range_quantities(kernel))
