"""Time of kernels that only move data: pointwise, norm, softmax, loss, optimizer.

Knows HBM rates. Does not know which of these kernels a layer has.
"""

from __future__ import annotations

from ..hardware.gpu import Gpu
from ..hardware.profile import GpuProfile
from .kernel import MemoryBound

BLOCKS_ON_SM = 16
"""Blocks of 128 threads that an SM holds of its 2,048: so many parts for each SM are rows cut into."""

ADDERS = 4
"""Warps that share a column's parts between them, one a turn (TransformerEngine
common/normalization/rmsnorm/rmsnorm_bwd_kernels.cuh, rmsnorm_bwd_finalize_general_kernel)."""

PART_S = 75.8e-6 / (132 * BLOCKS_ON_SM / ADDERS)
"""Seconds of one part: a read of the second cache that the next one waits for, 144 ns. That kernel takes
75.8 us on a GH200 in the mean of 54,850 (71.9 to 82.3), over 32,768 rows as over 16,384
(tiberiuiancu/Simulon experiments/nsys_tp2-1140757.log at c5c0969e, Qwen3 1.7B)."""


def memory_bound_seconds(kernel: MemoryBound, gpu: Gpu, profile: GpuProfile) -> float:
    """On-GPU seconds: each launch pays latency and ramp, all bytes pass at the pointwise rate, and partial
    sums are added up one after another.

    FLOPs run on the vector units at the FP32 peak and matter only for kernels with hundreds of
    operations per element.
    """
    memory = profile.memory
    fixed_s = kernel.launches * (profile.kernel_latency_s + memory.ramp_s)
    traffic_s = kernel.hbm_bytes / (memory.pointwise_efficiency * gpu.hbm_bytes_per_s)
    in_turn = min(kernel.parts, gpu.sms * BLOCKS_ON_SM) / ADDERS
    return fixed_s + in_turn * PART_S + max(traffic_s, kernel.flops / gpu.peak_flops["fp32"])


def stream_seconds(hbm_bytes: float, gpu: Gpu, profile: GpuProfile) -> float:
    """Least seconds in which ``hbm_bytes`` pass; the floor of every kernel."""
    return hbm_bytes / (profile.memory.stream_efficiency * gpu.hbm_bytes_per_s)
