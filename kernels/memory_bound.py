"""Time of kernels that only move data: pointwise, norm, softmax, loss, optimizer.

Knows HBM rates. Does not know which of these kernels a layer has.
"""

from __future__ import annotations

from ..hardware.gpu import Gpu
from ..hardware.profile import GpuProfile
from .kernel import MemoryBound


def memory_bound_seconds(kernel: MemoryBound, gpu: Gpu, profile: GpuProfile) -> float:
    """On-GPU seconds: each launch pays latency and ramp, all bytes pass at the pointwise rate.

    FLOPs run on the vector units at the FP32 peak and matter only for kernels with hundreds of
    operations per element.
    """
    memory = profile.memory
    fixed_s = kernel.launches * (profile.kernel_latency_s + memory.ramp_s)
    traffic_s = kernel.hbm_bytes / (memory.pointwise_efficiency * gpu.hbm_bytes_per_s)
    return fixed_s + max(traffic_s, kernel.flops / gpu.peak_flops["fp32"])


def stream_seconds(hbm_bytes: float, gpu: Gpu, profile: GpuProfile) -> float:
    """Least seconds in which ``hbm_bytes`` pass; the floor of every kernel."""
    return hbm_bytes / (profile.memory.stream_efficiency * gpu.hbm_bytes_per_s)
