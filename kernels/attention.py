"""Time and HBM traffic of fused attention.

Knows how FlashAttention tiles queries and keys, how its tiles fill the SMs, and how SRAM and L2
set its traffic. Constants are the profile's. The unfused chain is not here: it is GEMMs and
memory-bound kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from ..hardware.gpu import Gpu
from ..hardware.profile import AttentionCurve, GpuProfile
from .blend import blended_s
from .gemm import filled_waves
from .kernel import ELEMENT_BYTES, Attention, CudnnRelease, Direction
from .power import sustained_clock

# One thread block owns 128 rows: queries forward, keys backward (FlashAttention-2, arXiv:2307.08691,
# section 3.2 and the kernels' block sizes for head dimensions to 128).
_BLOCK_ROWS = 128
# Tiles that share the SRAM of an SM: Q, K and V (the output tile is in registers).
_TILES_IN_SRAM = 3
# Backward runs three kernels: row sums of O and dO, the main one, and the cast of dQ from FP32.
_LAUNCHES = {"forward": 1, "backward": 3}

# Rate of 8-bit GEMMs over that of 16-bit ones, both in bursts: cuDNN 9.13 on B200, GB200 and GB300 at
# 8,192 and 16,384 tokens, 128 heads of 128, forward 1.09 to 1.23 and backward 1.04 to 1.35, the mean of six
# each (NVIDIA/cudnn-frontend benchmark/sdpa_benchmark_training/artifacts,
# sdpa_fp8_benchmark_results_NVIDIA_*.csv).
# Where nobody has published such a pair, 8 bits are taken for no faster.
_EIGHT_BITS = {"blackwell": {"forward": 1.18, "backward": 1.22}}


# Rate of the kernels of later releases of cuDNN over those of 9.13.1, which the curves are of: causal, 8,192
# and 16,384 tokens of heads of 128, the mean. 9.17: forward 1.11 and 1.08, backward 1.12 and 1.08 (GB300);
# 9.22: forward 1.04 to 1.10, backward 1.10 to 1.25 (GB300, and GB200 with 9.13 as in fit/published.yaml).
# NVIDIA/cudnn-frontend benchmark/sdpa_benchmark_training: artifacts, and results/llama3.1 of 2026-04-24.
_LATER_RELEASES: Mapping[str, Mapping[CudnnRelease, Mapping[Direction, float]]] = {
    "blackwell": {
        "9.17": {"forward": 1.09, "backward": 1.10},
        "9.22": {"forward": 1.08, "backward": 1.19},
    }
}


HEAD_DIMS = {
    "fa1": (32, 64, 128),
    "fa2": (32, 64, 96, 128, 160, 192, 224, 256),
}
"""Head dimensions that kernels are compiled for: Dao-AILab/flash-attention csrc/flash_attn, fmha_api.cpp of
1.0 (run_fmha_fwd) and src/static_switch.h of 2.0 (HEADDIM_SWITCH)."""


def attention_seconds(kernel: Attention, gpu: Gpu, profile: GpuProfile) -> float:
    """On-GPU seconds. Raises ValueError when the profile lacks the implementation.

    Math and memory time are joined by a power mean, (math^p + memory^p)^(1/p): the loads of Q and
    the store of O at the ends of a tile are not overlapped, which shows at short sequences.
    """
    curve = attention_curve(kernel, profile)
    forward = kernel.direction == "forward"
    memory_s = hbm_bytes(kernel, gpu) / (profile.memory.stream_efficiency * gpu.hbm_bytes_per_s)
    blend = curve.forward_blend if forward else curve.backward_blend
    boosted_s = _math_seconds(kernel, curve, gpu)
    flops_per_s = kernel.flops / blended_s(boosted_s, memory_s, blend)
    clock = profile.clock_fraction * sustained_clock(flops_per_s, kernel.dtype, gpu, profile)
    math_s = boosted_s / clock
    return _LAUNCHES[kernel.direction] * profile.kernel_latency_s + blended_s(math_s, memory_s, blend)


def attention_curve(kernel: Attention, profile: GpuProfile) -> AttentionCurve:
    """The curve of the kernel's implementation. Raises ValueError when the profile has none."""
    for curve in profile.attention:
        if curve.implementation == kernel.implementation:
            return curve
    known = ", ".join(curve.implementation for curve in profile.attention)
    raise ValueError(f"{profile.gpu} has no attention kernel {kernel.implementation!r}; it has {known}")


def _math_seconds(kernel: Attention, curve: AttentionCurve, gpu: Gpu) -> float:
    """Math time at the boost clock, with wave quantisation; causal work adds diagonal and imbalance."""
    points = curve.forward if kernel.direction == "forward" else curve.backward
    computed_dim = kernel_head_dim(kernel)
    flops_per_s = (
        _rate_fraction(points, computed_dim)
        * (kernel.head_dim / computed_dim)
        * gpu.peak_flops["bf16" if kernel.dtype == "fp8" else kernel.dtype]
    )
    if kernel.dtype == "fp8":
        flops_per_s *= _EIGHT_BITS.get(gpu.architecture, {}).get(kernel.direction, 1.0)
    if kernel.implementation == "cudnn":
        later = _LATER_RELEASES.get(gpu.architecture, {}).get(kernel.release, {})
        flops_per_s *= later.get(kernel.direction, 1.0)
    rows = kernel.seq_q if kernel.direction == "forward" else kernel.seq_kv
    waves = kernel.batch * kernel.heads * math.ceil(rows / _BLOCK_ROWS) / gpu.sms
    all_flops = kernel.flops / kernel.visible
    full_s = all_flops / flops_per_s * filled_waves(waves, curve.wave_quantisation) / waves
    if not kernel.causal:
        return full_s
    # A mask leaves tiles half used along its diagonals: the causal one has one, a window two.
    diagonals = 0.5 * curve.diagonal_keys / kernel.seq_kv
    computed = kernel.visible + (diagonals if kernel.visible == 0.5 else min(2 * diagonals, 0.5))
    causal_s = computed * all_flops / flops_per_s * (max(waves, 1.0) + curve.causal_tail) / waves
    # The longest causal tile is a full one, so a mask never costs time.
    return min(causal_s, full_s)


def kernel_head_dim(kernel: Attention) -> int:
    """The head dimension that a kernel is compiled for: the next one, to which it fills up heads of another.

    What is not said here, and heads beyond the largest, are computed as they are.
    """
    compiled = HEAD_DIMS.get(kernel.implementation, ())
    return next((dim for dim in compiled if dim >= kernel.head_dim), kernel.head_dim)


def _rate_fraction(points: tuple[tuple[int, float], ...], head_dim: int) -> float:
    """Fraction of peak at ``head_dim``: linear between the measured dimensions, flat beyond them."""
    if head_dim <= points[0][0]:
        return points[0][1]
    for (low, low_rate), (high, high_rate) in pairwise(points):
        if head_dim <= high:
            return low_rate + (high_rate - low_rate) * (head_dim - low) / (high - low)
    return points[-1][1]


def tile_rows(kernel: Attention, sram_bytes: float) -> int:
    """Rows of the largest tile whose Q, K and V fit in ``sram_bytes``: a power of two, 16 or more."""
    row_bytes = kernel.head_dim * ELEMENT_BYTES[kernel.dtype]
    fitting = max(16, int(sram_bytes / (_TILES_IN_SRAM * row_bytes)))
    return 1 << (fitting.bit_length() - 1)


def hbm_bytes(kernel: Attention, gpu: Gpu) -> float:
    """Bytes at HBM of ``kernel`` on ``gpu``: compulsory traffic plus the re-reads that L2 misses."""
    return tiled_hbm_bytes(
        kernel, sram_bytes=gpu.sram_bytes_per_sm, l2_bytes=gpu.l2_bytes, concurrent_tiles=gpu.sms
    )


def tiled_hbm_bytes(kernel: Attention, *, sram_bytes: float, l2_bytes: float, concurrent_tiles: int) -> float:
    """Bytes at HBM by the memory levels.

    Every tile of queries streams all keys and values of its head (backward: every tile of keys
    streams all queries of its head), so larger tiles mean fewer passes. Tiles of one head of K and V
    that run together share a pass; later passes hit L2 as far as the heads in flight fit in it. With
    one tile at a time and no L2 this is FlashAttention's count, which falls as head_dim^2 N^2 / SRAM
    (Dao 2022, arXiv:2205.14135, theorem 2), and forward it is what kernels/run/attention.py loads and
    stores, byte for byte where tiles divide the sequence.
    """
    rows = tile_rows(kernel, sram_bytes)
    tiles = _tiles(kernel, rows)
    streamed = streamed_bytes(kernel)
    heads = kernel.batch * (kernel.kv_heads if kernel.direction == "forward" else kernel.heads)
    heads_in_flight = min(heads, max(1.0, concurrent_tiles / tiles))
    working_set = streamed * _unmasked(kernel, rows) / heads * heads_in_flight
    missed = max(0.0, 1.0 - l2_bytes / working_set)
    read_again = max(0.0, passes(kernel, rows, concurrent_tiles) - 1.0)
    return kernel.hbm_bytes + read_again * streamed * missed


def passes(kernel: Attention, rows: int, concurrent_tiles: int = 1) -> float:
    """Whole passes over what is streamed, by tiles of ``rows``, ``concurrent_tiles`` of which share one."""
    return math.ceil(_tiles(kernel, rows) / concurrent_tiles) * _unmasked(kernel, rows)


def streamed_bytes(kernel: Attention) -> float:
    """Bytes of a whole pass: forward K and V; backward Q, dO, two FP32 statistics a row, and dQ in FP32,
    read and written back.
    """
    if kernel.direction == "forward":
        return kernel.kv_bytes
    rows = kernel.batch * kernel.heads * kernel.seq_q
    return 2 * kernel.query_bytes + 8.0 * rows * (1 + kernel.head_dim)


def _tiles(kernel: Attention, rows: int) -> int:
    """Tiles of one head of K and V; forward, those of all heads of queries that share it."""
    if kernel.direction == "backward":
        return math.ceil(kernel.seq_kv / rows)
    return kernel.heads // kernel.kv_heads * math.ceil(kernel.seq_q / rows)


def _unmasked(kernel: Attention, rows: int) -> float:
    """Share of a pass that the mean tile makes: under a causal mask 1/T, 2/T, ... 1 of the T tiles.

    A window leaves what it sees, and half a tile more at either end of it.
    """
    tiles = math.ceil((kernel.seq_q if kernel.direction == "forward" else kernel.seq_kv) / rows)
    causal = 0.5 * (1.0 + 1.0 / tiles) if kernel.causal else 1.0
    return causal if kernel.visible in (0.5, 1.0) else min(causal, kernel.visible + 1.0 / tiles)
