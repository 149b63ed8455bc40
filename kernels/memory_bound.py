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
(tiberiuiancu/Simulon experiments/nsys_tp2-1140757.log at c5c0969e, Qwen3 1.7B). A read of memory in a warp's
turn takes no less."""

NUMBER_S = 1.34e-6
"""Seconds of a kernel that writes one number: TransformerEngine's ``zero_amax_kernel``, of one thread, on a
GB200 (kernel self-time with TransformerEngine 2.19, a benchmark of torchao's NVFP4 kernels: 1.34 us beside
5.40 of the maximum itself). Where a whole kernel is known to ramp faster, it takes no longer."""

ISSUED_A_CYCLE = {"NVIDIA": 128, "AMD": 64}
"""Instructions of single threads that an SM begins in a cycle, by the maker of its GPU: four schedulers, each
one of a warp of 32 threads (CUDA C++ programming guide, compute capabilities 7.x to 10.x); the four SIMDs of
a compute unit 16 threads each (AMD CDNA 3 ISA guide, chapter 1). These are AMD's vector instructions alone:
scalar ones, branches and accesses of memory have pipelines of their own beside them (ROCm Compute Profiler's
documentation, conceptual/cdna/compute-unit and pipeline-descriptions)."""

ISSUED = 0.80
"""Share of that which a kernel issues whose bytes take less long. The backward of SwiGLU as torch compiles it
has 44.5 instructions for each of 8,192 x 28,672 outputs and took an H200 495 to 502 us at 1.54 to 1.62 GHz
(docs/kernels.md): 0.77 to 0.80. Rotary kernels there show 0.75 (counts of both: sim/lowering/layers/
pointwise.py). On B200 8,192 x 26,624 outputs take 336 to 350 us (nsys of three stages of Llama 3.1 405B under
NeMo 26.02), where this share tells 326 at the boost clock and 388 at that of training, and bytes 177."""


def memory_bound_seconds(kernel: MemoryBound, gpu: Gpu, profile: GpuProfile) -> float:
    """On-GPU seconds: each launch pays latency and ramp, all bytes pass at the pointwise rate, and partial
    sums are added up one after another.

    FLOPs run on the vector units at the FP32 peak and matter only for kernels with hundreds of
    operations per element. Instructions are issued at the clock that GEMMs leave a GPU under load, which a
    board's controller does not raise for a kernel of less than a millisecond.
    """
    memory = profile.memory
    fixed_s = kernel.launches * (profile.kernel_latency_s + memory.ramp_s)
    fixed_s += kernel.numbers * (profile.kernel_latency_s + min(NUMBER_S, memory.ramp_s))
    traffic_s = kernel.hbm_bytes / (memory.pointwise_efficiency * gpu.hbm_bytes_per_s)
    parts = min(kernel.parts, gpu.sms * BLOCKS_ON_SM) / ADDERS
    instructions = kernel.vector_instructions if gpu.vendor == "AMD" else kernel.instructions
    issued_s = instructions / issued_per_s(gpu, profile) if instructions else 0.0
    longest_s = max(traffic_s, issued_s, kernel.flops / gpu.peak_flops["fp32"], kernel.in_turn * PART_S)
    return fixed_s + parts * PART_S + longest_s


def issued_per_s(gpu: Gpu, profile: GpuProfile) -> float:
    """Instructions of single threads that ``gpu`` issues a second while it trains."""
    a_cycle = gpu.sms * ISSUED_A_CYCLE[gpu.vendor]
    return ISSUED * a_cycle * gpu.boost_hz * profile.clock_fraction


def stream_seconds(hbm_bytes: float, gpu: Gpu, profile: GpuProfile) -> float:
    """Least seconds in which ``hbm_bytes`` pass; the floor of every kernel."""
    return hbm_bytes / (profile.memory.stream_efficiency * gpu.hbm_bytes_per_s)
