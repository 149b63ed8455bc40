"""What a GPU sustains: calibrated curves of its kernels, each with its provenance.

Knows what the constants mean; calibrated/ reads them from files (profiles/*.yaml are the shipped ones,
written by calibration/fit/kernels.py). Knows neither kernels nor seconds: kernels/ turns them into time.
"""

from __future__ import annotations

from dataclasses import dataclass

from .collective_curve import CollectiveCurve
from .provenance import Provenance
from .step_factors import AS_SHIPPED, StepFactors


@dataclass(frozen=True, kw_only=True)
class MemoryCurve:
    """Traffic at HBM: seconds = ramp_s + bytes / (efficiency * peak rate).

    ``stream_efficiency`` is what a copy kernel reaches and bounds every kernel;
    ``pointwise_efficiency`` is what a framework's pointwise and norm kernels reach.
    """

    stream_efficiency: float
    pointwise_efficiency: float
    ramp_s: float
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One output tile of a GEMM kernel; ``efficiency`` is its math rate relative to the best tile."""

    m: int
    n: int
    efficiency: float


@dataclass(frozen=True, kw_only=True)
class GemmShape:
    """How the time of a GEMM depends on its shape, of one library's kernels; the constants are those of
    ``GemmCurve``."""

    tiles: tuple[Tile, ...]
    tile_overhead_s: float
    store_exposed: float
    wave_quantisation: float
    epilogue_s: float = 0.0
    deep_slowdown: float = 0.0
    split_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TimedKernel:
    """The GEMMs that a table timed, where training runs those of another library: their fraction of peak
    and how their time depends on the shape."""

    fraction: float
    shape: GemmShape


@dataclass(frozen=True, kw_only=True)
class Harness:
    """What the measured times of a curve hold besides its kernel; no step pays it.

    ``beside_s`` and ``beside_efficiency``, a share of the HBM rate, are of the harness's other kernels: they
    quantise a GEMM's input, or write keys and values to a cache (above 1: as far as these lie in L2).
    ``row_s`` is what a row of the input takes at least in a quantising kernel whose few thread blocks walk
    from row to row, and so wait for HBM in each; of attention, what a token adds that is written to a cache.
    ``call_s`` is the least that its host takes for a call;
    ``slowdown`` by how much the kernel itself is slower than the curve's, where it reads such a cache.

    ``unaligned_s``, ``unaligned_slowdown`` and ``unaligned_call_s`` are what is added to the kernels beside,
    to the GEMM and to the call where the rows are no multiple of four: four scales in FP32 are the 16
    bytes that bulk copies are aligned to, so that the scales are padded by another kernel, or a slower
    GEMM runs. ``burst_s`` is the duration of a call at which the power limit has half
    acted, and ``burst_order`` how suddenly it does: by ``1 / (1 + (burst_s / call) ** burst_order)``.
    ``blank_draw`` is the share of a GEMM's watts that are drawn where its weights hold no data.
    """

    beside_s: float = 0.0
    beside_efficiency: float = 1.0
    row_s: float = 0.0
    call_s: float = 0.0
    slowdown: float = 1.0
    unaligned_s: float = 0.0
    unaligned_slowdown: float = 1.0
    unaligned_call_s: float = 0.0
    burst_s: float = 5e-3
    burst_order: float = 1.0
    blank_draw: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Fraction of a dtype's peak that a GEMM without any edge reaches at the boost clock.

    ``shape``: the constants of the kernels of this type, where another library than that of 16 bit runs them.
    ``timed``: the kernels that its table timed, where these are of another library than the rate's.
    """

    dtype: str
    fraction: float
    provenance: Provenance
    harness: Harness | None = None
    shape: GemmShape | None = None
    timed: TimedKernel | None = None


@dataclass(frozen=True, kw_only=True)
class GemmCurve:
    """Time of a GEMM by shape; kernels/gemm.py has the equations.

    ``tile_overhead_s`` is spent once per tile and wave (pipeline fill and drain);
    ``store_exposed`` is the share of a 16-bit output's HBM time that math does not hide;
    ``wave_quantisation`` says what a partly filled wave costs: its share (0) or a whole wave (1).
    ``epilogue_s`` is the time in which an SM brings a 256 x 128 tile of the output out of tensor memory while
    it computes the next, the least that such a tile takes (0: outputs stay in registers; Blackwell's do not).
    ``deep_slowdown`` is by how much math is slower for each doubling of a wave's operands beyond half of L2.
    ``split_s`` is what a split over K takes besides its bytes: the kernel that adds its partial sums.
    ``call_s`` is what the host takes to issue each kernel of a grouped GEMM, where every group is a GEMM
    of its own, on four streams (fitted on B200's 84 grouped GEMMs of SimuMax: median error 11 %).
    """

    rates: tuple[Rate, ...]
    tiles: tuple[Tile, ...]
    tile_overhead_s: float
    store_exposed: float
    wave_quantisation: float
    provenance: Provenance
    epilogue_s: float = 0.0
    deep_slowdown: float = 0.0
    split_s: float = 0.0
    call_s: float = 8.78e-6


@dataclass(frozen=True, kw_only=True)
class AttentionCurve:
    """Time of one fused-attention implementation; kernels/attention.py has the equations.

    ``forward`` and ``backward`` give the fraction of peak by head dimension. ``forward_blend`` and
    ``backward_blend`` are the exponents that join math and memory time (1: one after the other,
    large: perfectly overlapped). ``diagonal_keys`` is what a causal row computes beyond its mask;
    ``causal_tail`` is the imbalance of causal tiles at the end, in waves.
    """

    implementation: str
    forward: tuple[tuple[int, float], ...]
    backward: tuple[tuple[int, float], ...]
    forward_blend: float
    backward_blend: float
    diagonal_keys: float
    causal_tail: float
    wave_quantisation: float
    provenance: Provenance
    harness: Harness | None = None


@dataclass(frozen=True, kw_only=True)
class GpuProfile:
    """Everything calibrated about one GPU.

    ``clock_fraction`` is the sustained clock under training load as a fraction of the clock at which the
    kernels were measured, less what their power takes (``kernels/power.py``); ``corun_slowdown`` the slowdown
    of compute beside a running collective. Both are fitted on step times, because no kernel measurement shows
    them (defaults: ``measured_clock_fraction`` and 0; ``step_time_fit`` says to people how they came about,
    ``clock_from_steps`` whether a step has shown the clock, of this GPU or of another at its pace); all else
    is fitted on kernels. ``measured_clock_fraction`` is the clock at which this GPU's own sweeps ran, in the
    same unit: 1 but where a sweep sustained less than the best measured shape. ``step_time_residual`` is the
    mean absolute error of steps that this fit did not see; None without one. ``power_limited`` says how far
    the power limit acts: 1 in steps, which last, 0 in bursts (``kernels/power.py``). No file states it: the
    harness of a measurement decides, and of a user's own measurements ``measured_power_limited``, which is
    how far the limit acted there (0: in the shipped sweeps the clock and the boost stand for it).
    ``measured_boost`` is how much faster short kernels ran in this GPU's own sweeps, before its power limit
    acts (``calibration/fit/curve_fit.py``); no step is ever that short. ``measured_call_s`` is what a call of
    the host took there at least: no measured kernel is shorter. ``collectives`` are groups measured on a
    user's own cluster, ``steps`` what whole steps took there; shipped profiles have neither.
    """

    gpu: str
    clock_fraction: float
    corun_slowdown: float
    step_time_fit: str
    measured_clock_fraction: float
    kernel_latency_s: float
    memory: MemoryCurve
    gemm: GemmCurve
    attention: tuple[AttentionCurve, ...]
    step_time_residual: float | None = None
    clock_from_steps: bool = True
    power_limited: float = 1.0
    measured_power_limited: float = 0.0
    measured_boost: float = 0.0
    measured_call_s: float = 0.0
    collectives: tuple[CollectiveCurve, ...] = ()
    steps: StepFactors = AS_SHIPPED

    def __hash__(self) -> int:
        # Profiles are part of memo keys; hashing every constant each time would cost more than the lookup.
        return hash((self.gpu, self.clock_fraction, self.corun_slowdown))


__all__ = [
    "AttentionCurve",
    "CollectiveCurve",
    "GemmCurve",
    "GemmShape",
    "GpuProfile",
    "Harness",
    "MemoryCurve",
    "Provenance",
    "Rate",
    "Tile",
]
