"""Time of a matrix multiplication by its shape.

Knows how a GEMM is cut into output tiles and K splits, and how those fill the SMs. Constants are
the profile's. Does not know what the GEMM is for.

A tile of the output is computed by one SM; tiles run in waves over all SMs. Three effects keep
small or odd shapes from the best rate (NVIDIA, Matrix Multiplication Background User's Guide,
sections 2.3, 3.1, 3.2): edges of tiles beyond the matrix are computed and thrown away, the last
wave is partly filled, and small tiles run at a lower rate. Filling and draining a tile's pipeline
costs a fixed time, so shallow K is slow. Blackwell's SMs bring one tile's outputs out of tensor memory while
they compute the next, which takes no longer than the longer of both (CUTLASS, Blackwell persistent kernels:
two accumulator stages). Part of the output's store is not hidden behind math. What an output of FP32 moves
beyond one of 16 bit is not hidden at all, so that weight gradients that are added to a main gradient in FP32
are slower, the more so the fewer tokens they sum over.
The library's choice of tile and of a K split is taken to be the fastest of the candidates.

A split's partial sums are added by another kernel, which is launched when the last one is written.

All of this but the output's store runs at the SMs' clock: that of the power limit (power.py) times the
fitted one.

Where the operands that a wave walks through outgrow half of L2 (an SM is near to one half of it), math is a
few percent slower for each doubling.

Constants of the shape are those of the library that runs the type, where its profile has them (rate_of): a
block-scaled GEMM is another kernel than a 16-bit one, of other tiles, pipelines and persistence.

HBM traffic is the compulsory one: a wave of tiles together covers a square of some thousand rows
and columns, whose operands are read about once per 1,000 FLOPs a byte; L2 holds the re-reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from ..hardware.gpu import PEAK_OF, Gpu
from ..hardware.profile import GemmCurve, GpuProfile, Rate
from .blend import blended_s
from .kernel import ELEMENT_BYTES, Gemm
from .memory_bound import stream_seconds
from .power import sustained_clock

# Partial sums of a K split are written and read again in FP32.
PARTIAL_BYTES = 8.0
NARROW_BYTES = 2
"""Of an output's element: all tables of kernels have outputs of 16 bit, and ``store_exposed`` is of these.

What FP32 has beyond, read and written, moves while no math is done. Were the share that does so fitted on
weight gradients of SimuMax's sweeps, it would be 0.95 on A100 (27 GEMMs of 4,096 to 24,640 tokens) and
1.13 on B200 (87); those added in 16 bit (B200, 48) take as long as GEMMs that are added to nothing.
"""
SPLITS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
# Splitting K pays while tiles leave SMs idle; beyond this many waves libraries do not offer it.
SPLIT_WAVES = 4

# Elements of the tile of which a profile's epilogue is the time.
EPILOGUE_TILE = 256 * 128

# Math rate where a row starts off the 16-byte boundary that vector loads need, by the boundary in
# bytes. That smaller is slower: NVIDIA's guide, section 2.2; the values are unverified.
_MISALIGNED = {8: 0.75, 4: 0.55, 2: 0.4, 1: 0.3}

# Math and memory time are joined by a power mean: at the ridge neither hides the other wholly. 2 to 5
# fit the sweeps of A100 and B200 alike; 3 has the least error on DeepGEMM's memory-bound shapes.
BLEND = 3.0

# Streams on which the kernels of a grouped GEMM run side by side (Transformer Engine 2,
# common/include/transformer_engine/multi_streams.h: num_streams).
# A GEMM beside others is not split over K: a split is for SMs that would idle, and the others fill them
# (B200's grouped GEMMs: median error 7.8 % without splits, 8.4 % with them).
# The host issues one kernel while others run, and neither hides the other wholly: power means of 1.5 to 2 fit
# B200's 84 points alike (median error 7.7 to 7.9 %; 8.3 % were they added); A100's three, not fitted, go from
# 23 to 7 %. 2 is taken.
_STREAMS = 4

# Ada's and Hopper's tensor cores keep some 14 bits of the sums of 8-bit GEMMs (DeepSeek-V3,
# arXiv:2412.19437, section 3.3.2); Blackwell's keep FP32's. Sums that are split so as to lose less are 1.1 to
# 1.2 times slower (github.com/pytorch/ao/issues/2377); the least is taken.
_FEW_BITS = ("ada", "hopper")
_SPLIT_SUMS = 1.1

IN_TWO_PASSES = 0.5
"""Speed of a GEMM that has dealt its tiles out to all SMs, while some of these are held: their tiles come
when the others are through. GEMMs of FSDP on H100 "take 2x as long to complete when they are overlapped
with a NCCL kernel" (github.com/pytorch/pytorch/issues/143988); "2x slower" (NVIDIA/cutlass issue 2471)."""

LEAST_SMS = 0.1
"""Share of a GPU's SMs that its kernels keep beside all collectives that hold some. Those of several streams
can ask for more than a small GPU has (58 on L4): blocks of threads that run are not preempted, and those of
NCCL that find no SM wait for one. The share itself is an assumption."""

# Whose libraries have dealt the tiles of a 16-bit GEMM out to all SMs before it began (has_static_schedule).
_DEALT_BEFORE = ("hopper",)

# Where no rate was measured for a dtype, the fraction of peak of the one that it runs like.
_LIKE = {
    "fp16": "bf16", "tf32": "bf16", "fp8_block": "fp8", "mxfp8": "fp8", "nvfp4": "fp4", "fp4": "fp8",
}  # fmt: skip

_MXFP8_RATE = ((7.161 - 0.111) / 6.812) ** -1.5
"""Of the rate of GEMMs with one scale a tensor, those with one for 32 elements, where no table has them:
twelve of a layer take 7.161 and 6.812 ms on a B300, quantised before (NVIDIA/TransformerEngine
docs/examples/gemm_profiling), of which 0.111 ms are what lays out the scales of both operands before each
(``tex.generic_gemm`` of benchmarks/gemm/benchmark_gemm.py gets scales as quantising kernels write them;
priced as sim/lowering/layers/quantise.py does). That is under its power limit, where time goes with the rate
to the power of two thirds (power.py)."""


@dataclass(frozen=True, slots=True)
class HeldSms:
    """What has ``sms`` SMs to itself for ``seconds`` from when a GEMM begins."""

    sms: int
    seconds: float


def gemm_seconds(gemm: Gemm, gpu: Gpu, profile: GpuProfile) -> float:
    """On-GPU seconds of ``gemm``. Raises ValueError for a dtype that the GPU lacks."""
    if gemm.calls > 1:
        side_by_side = min(_STREAMS, gemm.calls)
        together = replace(gemm, batch=gemm.batch * side_by_side // gemm.calls, calls=1)
        rounds = gemm.batch / together.batch
        running_s = rounds * _kernel_seconds(together, gpu, _side_by_side(profile), (1,))
        return math.hypot(running_s, gemm.calls * profile.gemm.call_s)
    return _kernel_seconds(gemm, gpu, profile, SPLITS)


def tail_seconds(
    gemm: Gemm, seconds: float, beside: HeldSms, gpu: Gpu, profile: GpuProfile, *, static_schedule: bool
) -> float:
    """How much later ``gemm``, ``seconds`` long on all SMs, ends for its last tiles, where it begins
    ``beside`` what has SMs to itself.

    Its tiles were chosen to fill waves over all SMs. Those of the SMs that are taken begin when these are
    free, or when the others are done with theirs: the GEMM ends later by as long as the SMs were taken,
    but by no more than one tile. What is lost on average, a share of the rate, or half of it where the
    GEMM has a ``static_schedule``, is the engine's, and not counted here. Tiles that fit on the SMs that
    are left are not late.

    A GEMM of [2560, 5120] x [5120, 27648] on H100 takes twice as long beside an all-gather of 24 SMs
    (forums.developer.nvidia.com/t/337991, "tail effect"). So cuBLAS takes a number of SMs to choose tiles for
    (CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET), which PyTorch does not set.
    """
    share = beside.sms / gpu.sms
    waves = waves_of(gemm, gpu, profile)
    if gemm.calls > 1 or waves <= 1.0 - share:
        return 0.0
    tile_s = seconds / max(1.0, waves)
    speed = max(LEAST_SMS, 1.0 - share)
    if static_schedule:
        speed = min(speed, IN_TWO_PASSES)
    on_average_s = (1.0 - speed) * min(beside.seconds, seconds / speed)
    return max(0.0, min(beside.seconds, tile_s) - on_average_s)


def has_static_schedule(gemm: Gemm, least_held: int, gpu: Gpu, profile: GpuProfile) -> bool:
    """Whether ``gemm`` deals its tiles out to all SMs before it begins, where GEMMs of its software do
    (``software.kernels.hopper_products``), and needs one of the ``least_held`` SMs that whatever runs beside
    it may hold.

    16-bit GEMMs of cuBLAS on Hopper are persistent kernels: they start a block on each SM, which goes
    through its share of the tiles (github.com/pytorch/pytorch/issues/143988, pull requests 144974 and 147966;
    CUTLASS has static schedulers alone there and others on Blackwell: github.com/NVIDIA/cutlass/issues/2471).
    Those of 13.1 fetch them one by one (docs/decisions/0106-products-that-take-two-passes.md).
    Those of 8 bit are not taken to: TransformerEngine runs them beside bulk gathers without telling them
    (``set_sm_margin`` 0 in MLPerf's rounds 3.1 to 4.1), which would double most of a step. A grouped GEMM
    is many kernels.
    """
    if gpu.architecture not in _DEALT_BEFORE or gemm.dtype not in ("bf16", "fp16") or gemm.calls > 1:
        return False
    return waves_of(gemm, gpu, profile) > 1.0 - least_held / gpu.sms


def _side_by_side(profile: GpuProfile) -> GpuProfile:
    """``profile`` as a kernel finds it whose SMs others share.

    Tiles of the next kernel go where the last wave of one leaves SMs free or brings its outputs out. B200's
    weight gradients of 128 to 154 tokens an expert (SimuMax, points 0783, 0789 and 0792) are priced 3 to 18 %
    too long so, and 43 to 69 % were each kernel alone on its SMs.
    """
    rates = tuple(
        replace(rate, shape=replace(rate.shape, wave_quantisation=0.0, epilogue_s=0.0))
        if rate.shape
        else rate
        for rate in profile.gemm.rates
    )
    curve = replace(profile.gemm, rates=rates, wave_quantisation=0.0, epilogue_s=0.0)
    return replace(profile, gemm=curve)


def _kernel_seconds(gemm: Gemm, gpu: Gpu, profile: GpuProfile, splits: tuple[int, ...]) -> float:
    tiles_s, store_s = _tiling(gemm, gpu, profile, splits)[0], _store_seconds(gemm, gpu, profile)
    alone_s = stream_seconds(output_bytes(gemm)[1], gpu, profile)
    beside_s = stream_seconds(gemm.hbm_bytes, gpu, profile) - alone_s
    flops_per_s = gemm.flops / (blended_s(tiles_s + store_s, beside_s, BLEND) + alone_s)
    clock = profile.clock_fraction * sustained_clock(flops_per_s, gemm.dtype, gpu, profile)
    return profile.kernel_latency_s + blended_s(tiles_s / clock + store_s, beside_s, BLEND) + alone_s


def peak_flops(gpu: Gpu, dtype: str) -> float:
    """Peak FLOP/s of a GEMM's type. Raises ValueError where the tensor cores lack it."""
    if not gpu.has_math(dtype):
        raise ValueError(f"{gpu.name} has no {dtype} matrix math; it has {', '.join(gpu.peak_flops)}")
    return gpu.peak_flops[PEAK_OF.get(dtype, dtype)]


def rate_of(curve: GemmCurve, dtype: str, gpu: Gpu) -> Rate:
    """The rate of the GEMMs of a type, or of the type that it runs like."""
    peak_flops(gpu, dtype)
    rates = {rate.dtype: rate for rate in curve.rates}
    name = dtype
    while name not in rates and name in _LIKE:
        name = _LIKE[name]
    if name not in rates:
        raise ValueError(f"{gpu.name} has no measured {dtype} matrix math; it has {', '.join(rates)}")
    rate = rates[name]
    return replace(rate, fraction=rate.fraction * _MXFP8_RATE) if dtype == "mxfp8" != name else rate


def _store_seconds(gemm: Gemm, gpu: Gpu, profile: GpuProfile) -> float:
    """What math does not hide of the output's traffic in 16 bit."""
    shape = rate_of(profile.gemm, gemm.dtype, gpu).shape or profile.gemm
    return shape.store_exposed * stream_seconds(output_bytes(gemm)[0], gpu, profile)


def output_bytes(gemm: Gemm) -> tuple[int, int]:
    """Bytes of the output that move, up to 16 bit of each element and beyond."""
    elements = gemm.batch * gemm.m * gemm.n * (2 if gemm.accumulate else 1)
    narrow = min(gemm.out_bytes, NARROW_BYTES)
    return elements * narrow, elements * (gemm.out_bytes - narrow)


@lru_cache(maxsize=65536)
def waves_of(gemm: Gemm, gpu: Gpu, profile: GpuProfile) -> float:
    """Waves in which the tiles of ``gemm`` run on all SMs, the last one as full as it is. Raises ValueError
    for a dtype that the GPU lacks."""
    return _tiling(gemm, gpu, profile, SPLITS)[1]


def _tiling(gemm: Gemm, gpu: Gpu, profile: GpuProfile, splits: tuple[int, ...]) -> tuple[float, float]:
    """Time of the quickest tiling at the boost clock, and its waves."""
    rate = rate_of(profile.gemm, gemm.dtype, gpu)
    curve = rate.shape or profile.gemm
    fraction = rate.fraction * alignment(gemm) / split_sums(gemm, gpu)
    flops_per_s_per_sm = fraction * peak_flops(gpu, gemm.dtype) / gpu.sms
    partial_s = stream_seconds(gemm.batch * gemm.m * gemm.n * PARTIAL_BYTES, gpu, profile)

    outgrown = panel_bytes(gemm, gpu) / (gpu.l2_bytes / 2)
    if outgrown > 1.0:
        flops_per_s_per_sm /= 1.0 + curve.deep_slowdown * math.log2(outgrown)

    best = math.inf, 1.0
    for tile in curve.tiles:
        tiles = gemm.batch * math.ceil(gemm.m / tile.m) * math.ceil(gemm.n / tile.n)
        k_s = 2.0 * tile.m * tile.n / (flops_per_s_per_sm * tile.efficiency)
        for split in splits if tiles < SPLIT_WAVES * gpu.sms else (1,):
            waves = tiles * split / gpu.sms
            tile_s = max(math.ceil(gemm.k / split) * k_s, curve.epilogue_s * tile.m * tile.n / EPILOGUE_TILE)
            seconds = filled_waves(waves, curve.wave_quantisation) * (tile_s + curve.tile_overhead_s)
            if split > 1:
                seconds += split * partial_s + curve.split_s
            best = min(best, (seconds, waves))
    return best


def panel_bytes(gemm: Gemm, gpu: Gpu) -> float:
    """Bytes of the operands that a wave of tiles walks through, were it a square of the output."""
    side = math.sqrt(gpu.sms * EPILOGUE_TILE)
    return 2.0 * side * gemm.k * ELEMENT_BYTES[gemm.dtype]


def filled_waves(waves: float, quantisation: float) -> float:
    """Waves that pass while ``waves`` of work run: never under one, the last one rounded up in part."""
    return 1.0 if waves <= 1 else waves + quantisation * (math.ceil(waves) - waves)


def split_sums(gemm: Gemm, gpu: Gpu) -> float:
    """By how much math is slower that adds partial sums of 8 bit in FP32; blocks of 8 bit always do."""
    return _SPLIT_SUMS if gemm.precise and gemm.dtype == "fp8" and gpu.architecture in _FEW_BITS else 1.0


def alignment(gemm: Gemm) -> float:
    """Rate factor of the rows' alignment.

    Rows of the stored matrices are k and n long forward, and m and n long where the weight
    gradient is accumulated; the number of tokens (m, and then k) may be odd at no cost.
    """
    rows = (gemm.m, gemm.n) if gemm.accumulate else (gemm.n, gemm.k)
    stored = PEAK_OF.get(gemm.dtype, gemm.dtype)  # scales of blocks lie elsewhere
    boundary = min(_power_of_two_factor(row) * ELEMENT_BYTES[stored] for row in rows)
    return next((_MISALIGNED[step] for step in (1, 2, 4, 8) if boundary < 2 * step), 1.0)


def _power_of_two_factor(value: int) -> int:
    return value & -value
