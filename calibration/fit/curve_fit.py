"""How far predictions lie from measurements, and the robust fit that brings them close.

Knows residuals in log space and scipy. Does not know what is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...hardware.gpu import Gpu
from ...hardware.profile import GpuProfile, Harness, Provenance
from ...kernels.cost import kernel_seconds, range_quantities
from ...kernels.kernel import ELEMENT_BYTES, Attention, Gemm, Kernel
from ...kernels.power import sustained_clock
from ..readers.measurements import Measurement
from ..readers.table_harness import LAYERS

Seconds = TypeVar("Seconds", float, NDArray[np.float64])

# Residuals beyond 5 % count linearly, not squared: one point measured in another power state must
# not bend a curve.
ROBUST_SCALE = 0.05

BOOST_S = 0.7e-3
"""Duration of a call at which half of a sweep's calls still run before the power limit acts.

The public sweep of B200 takes the wall time of 75 calls after 25 (SimuMax, simu_tools/efficency_test/
test_gemm_efficency.py): 70 ms at the boosted clock. None of its points that ran 1.15 to 1.5 times faster than
others of their shape is longer than 0.85 ms.
"""

ATTENTION_BOOST_S = 70e-3 / 30
"""Duration of a call of attention at which half of that sweep's calls still run before the power limit acts:
10 calls and 20 traced ones, each waited for (test_fa_efficiency.py).
"""

ATTENTION_BOOST = 0.5
"""How far the power limit slows attention, by how far it slows GEMMs.

The exponentials leave tensor cores idle, which saves power. One shape of heads ran 1.20 (forward) and 1.15
(backward) times faster at 32k tokens, before the limit, than at 131k, under it (points 0870, 0868, 0902,
0900); GEMMs 1.38 times (``STATES_APART``).
"""

CACHED, UNCACHED = 0.2, 2.8
"""Bytes that a round of calls touches, over what L2 holds: up to the first L2 serves all of them, from the
second on none, since tiles of one wave share what they read. Fitted alone: 0.2 and 2.8 on L40S; on GB300,
B300 and B200, whose L2 holds half of its size (``_ONE_PART``), 0.3, 0.5 and 1.4, and 2.6, 2.8 and 2.6."""

_ONE_PART = ("ada", "blackwell-rtx")
"""Architectures whose L2 is one. Others' is of two halves, and a line that an SM of the other half reads is
kept in both (NVIDIA A100 whitepaper, "A100 L2 cache")."""

CACHED_ROW = 0.4
"""What a kernel that waits for row after row (``Harness.row_s``) saves of the wait where the rows lie in L2:
0.45 of 38 ns on B200, 0.33 of 34 ns on RTX PRO 6000, were it fitted on their tables."""

BYTES_ALIGNED = 16
"""Bytes that addresses of bulk copies are multiples of (TMA); four scales in FP32 are as many."""

JOINED = 3.0  # power mean of two times of one kernel, as of its math and memory (kernels/gemm.py)

STATES_APART = 0.16
"""Half the distance, in log time, of the two power states of that sweep.

1,435 and 1,040 TFLOP/s: points 0474, 0492 and 0504 against 0222, 0258 and 0480, all wide and deep.
"""


@dataclass(frozen=True, kw_only=True)
class FitParameter:
    """One fitted constant: start, physical bounds, and optionally a prior.

    ``spread`` is the relative uncertainty of ``start`` as a prior, worth one measurement that is
    off by the robust scale; None: no prior.
    """

    name: str
    start: float
    low: float
    high: float
    spread: float | None = None


def predicted_seconds(measurement: Measurement, gpu: Gpu, profile: GpuProfile) -> float:
    """Time that ``profile`` gives to the kernels of ``measurement``, in the state in which it was made.

    That state: before or under the power limit, and behind a host that issues call after call.
    """
    if measurement.short_run:
        return _in_a_short_run(measurement, gpu, profile)
    if measurement.at_boost:
        profile = replace(profile, clock_fraction=1.0, measured_power_limited=0.0, measured_boost=0.0)
    elif measurement.operation == "attention":
        gpu, profile = _of_a_sweep(gpu, profile)
    profile = replace(profile, power_limited=profile.measured_power_limited)
    # Past the cache: a fit asks once per profile.
    seconds: float = sum(kernel_seconds.__wrapped__(kernel, gpu, profile) for kernel in measurement.kernels)
    if measurement.operation == "gemm":
        seconds = before_power_limit(seconds, profile)
    elif measurement.operation == "attention":
        boost = ATTENTION_BOOST * profile.measured_boost
        seconds = before_power_limit(seconds, replace(profile, measured_boost=boost), ATTENTION_BOOST_S)
    return seconds


def _of_a_sweep(gpu: Gpu, profile: GpuProfile) -> tuple[Gpu, GpuProfile]:
    """The board of a sweep that a power limit slowed, and ``profile`` under that limit, for its attention.

    The sweep's clock is that of its GEMMs. Attention reaches fewer FLOPs, its backward fewest, and draws
    less: each runs at the clock that its own watts leave, on a board that draws what its GEMMs showed. A
    sweep without a boost showed no limit, and ran at one clock (docs/decisions/0229-attention-of-b200.md).
    """
    if not profile.measured_boost or gpu.joules_per_flop is None:
        return gpu, profile
    products = next(rate for rate in profile.gemm.rates if rate.dtype == "bf16")
    limited = replace(profile, clock_fraction=1.0, power_limited=1.0, measured_power_limited=1.0)
    left = sustained_clock(products.fraction * gpu.peak_flops["bf16"], "bf16", gpu, limited)
    return replace(gpu, draws=gpu.draws * (left / profile.measured_clock_fraction) ** 3), limited


def _in_a_short_run(measurement: Measurement, gpu: Gpu, profile: GpuProfile) -> float:
    """Mean time of a call of a few dozen: the longer they take together, the more the power limit acts."""
    kernel = measurement.kernels[-1]
    harness = harness_of(kernel, profile)
    started = replace(as_timed(kernel, profile), clock_fraction=1.0, power_limited=0.0)
    moved_bytes = sum(other.hbm_bytes for other in measurement.kernels[:-1])
    cached = cached_share(kernel, moved_bytes, gpu) if isinstance(kernel, Gemm) else 0.0
    warm = _drawing(drawn_share(measurement, harness), _with_cache(gpu, cached, profile))
    boosted_s = kernel_seconds.__wrapped__(kernel, warm, started)
    limited = replace(started, power_limited=limited_share(boosted_s, harness))
    seconds = harness.slowdown * kernel_seconds.__wrapped__(kernel, warm, limited)
    call_s = harness.call_s
    rows = kernel.m if isinstance(kernel, Gemm) else 0
    found = rows_cached_share(kernel, moved_bytes, gpu) if isinstance(kernel, Gemm) else 0.0
    beside_s = harness.beside_s + _beside_seconds(harness, moved_bytes, rows, found, gpu)
    if isinstance(kernel, Attention):
        beside_s += kernel.batch * kernel.seq_kv * harness.row_s
    if is_unaligned(kernel):
        seconds *= harness.unaligned_slowdown
        beside_s += harness.unaligned_s
        call_s += harness.unaligned_call_s
    return max(seconds + beside_s, call_s)


def is_unaligned(kernel: Kernel) -> bool:
    """Whether a scale in FP32 for each row of the input ends within a bulk copy's unit."""
    return isinstance(kernel, Gemm) and kernel.m * ELEMENT_BYTES["fp32"] % BYTES_ALIGNED != 0


def limited_share(boosted_s: Seconds, harness: Harness) -> Seconds:
    """How far the power limit acts on calls of ``boosted_s`` each: the more, the longer these are."""
    share: Seconds = 1.0 / (1.0 + (harness.burst_s / boosted_s) ** harness.burst_order)
    return share


def drawn_share(measurement: Measurement, harness: Harness) -> float:
    """The power of a FLOP of ``measurement``, over that of a FLOP on random operands.

    A multiplier with one constant operand switches less: GEMMs of an A100 draw up to 40 % less power just by
    the values of their operands (Gregersen et al. 2024, arXiv:2409.18324).
    """
    return 1.0 - measurement.blank * (1.0 - harness.blank_draw)


def _drawing(share: float, gpu: Gpu) -> Gpu:
    """``gpu`` with the watts of a FLOP times ``share``."""
    if gpu.joules_per_flop is None or share == 1.0:
        return gpu
    return replace(gpu, joules_per_flop=share * gpu.joules_per_flop)


def cached_share(gemm: Gemm, moved_bytes: float, gpu: Gpu) -> float:
    """Share of a GEMM's traffic that L2 serves, call after call, each with weights of its own.

    Of narrow types, whose input the kernel before has written whole, as of rows: halves describe their tables
    worse (B200's blocks 3.3 to 6.2 %).
    """
    if ELEMENT_BYTES[gemm.dtype] < ELEMENT_BYTES["bf16"]:
        return rows_cached_share(gemm, moved_bytes, gpu)
    held_bytes = gpu.l2_bytes if gpu.architecture in _ONE_PART else gpu.l2_bytes / 2
    touched = _touched_bytes(gemm, moved_bytes) / held_bytes
    return min(1.0, max(0.0, (UNCACHED - touched) / (UNCACHED - CACHED)))


def rows_cached_share(gemm: Gemm, moved_bytes: float, gpu: Gpu) -> float:
    """Share of the rows of a GEMM's input that another kernel finds in L2: all where a round fits, none
    where it is twice as much. One SM reads a row, so that no line is kept twice."""
    return min(1.0, max(0.0, 2.0 - _touched_bytes(gemm, moved_bytes) / gpu.l2_bytes))


def _touched_bytes(gemm: Gemm, moved_bytes: float) -> float:
    """Bytes of what a round of calls reads and writes."""
    weights_bytes = gemm.n * gemm.k * ELEMENT_BYTES[gemm.dtype]
    input_bytes = moved_bytes or gemm.m * gemm.k * ELEMENT_BYTES[gemm.dtype]
    return input_bytes + LAYERS * weights_bytes + gemm.m * gemm.n * gemm.out_bytes


def _with_cache(gpu: Gpu, cached: float, profile: GpuProfile) -> Gpu:
    """``gpu`` as a kernel finds it that L2 serves a share ``cached`` of its bytes."""
    if not cached:
        return gpu
    reached = profile.memory.stream_efficiency
    seconds_a_byte = cached / gpu.l2_bytes_per_s + (1.0 - cached) / (reached * gpu.hbm_bytes_per_s)
    return replace(gpu, hbm_bytes_per_s=1.0 / (seconds_a_byte * reached))


def _beside_seconds(harness: Harness, moved_bytes: float, rows: int, cached: float, gpu: Gpu) -> float:
    """Time of a harness's kernel that moves ``moved_bytes`` in ``rows``: its own rate binds, or the memory
    that they lie in, or the wait for row after row."""
    own_bytes_per_s = harness.beside_efficiency * gpu.hbm_bytes_per_s
    from_l2_s = cached * moved_bytes / min(own_bytes_per_s, gpu.l2_bytes_per_s)
    from_hbm_s = (1.0 - cached) * moved_bytes / min(own_bytes_per_s, gpu.hbm_bytes_per_s)
    waiting_s = rows * harness.row_s * (1.0 - CACHED_ROW * cached)
    joined_s: float = ((from_l2_s + from_hbm_s) ** JOINED + waiting_s**JOINED) ** (1.0 / JOINED)
    return joined_s


def harness_of(kernel: Kernel, profile: GpuProfile) -> Harness:
    """What the times of a table hold besides ``kernel``; nothing where its curve has none."""
    found: Iterator[Harness | None] = iter(())
    match kernel:
        case Gemm():
            found = (rate.harness for rate in profile.gemm.rates if rate.dtype == kernel.dtype)
        case Attention():
            found = (c.harness for c in profile.attention if c.implementation == kernel.implementation)
    return next(found, None) or Harness()


def as_timed(kernel: Kernel, profile: GpuProfile) -> GpuProfile:
    """``profile`` with the GEMMs of the library that a table timed, where training runs those of another."""
    if not isinstance(kernel, Gemm) or not any(rate.timed for rate in profile.gemm.rates):
        return profile
    rates = tuple(
        replace(rate, fraction=rate.timed.fraction, shape=rate.timed.shape)
        if rate.timed and rate.dtype == kernel.dtype
        else rate
        for rate in profile.gemm.rates
    )
    return replace(profile, gemm=replace(profile.gemm, rates=rates))


def before_power_limit(sustained_s: float, profile: GpuProfile, burst_s: float = BOOST_S) -> float:
    """Mean time of a call in the sweep of ``profile``'s GPU that takes ``sustained_s`` under the power limit.

    How long a GPU runs at the boosted clock depends on how it rested before; of ever longer runs of calls an
    ever smaller share is boosted.
    """
    boost = profile.measured_boost * boosted_share(sustained_s, burst_s)
    return max(sustained_s / (1.0 + boost), profile.measured_call_s)


def boosted_share(call_s: Seconds, burst_s: float = BOOST_S) -> Seconds:
    """Share of the calls of ``call_s`` seconds each that a sweep makes before the power limit acts."""
    return 1.0 / (1.0 + call_s / burst_s)


def state_weight(call_s: float) -> float:
    """Weight of a point whose calls of ``call_s`` seconds ran before or under the power limit, unknown which.

    One over its standard deviation, that of a point in a known state being 1: states add to what the robust
    scale allows for. A long call is surely sustained; of a short one each state is as likely.
    """
    return ROBUST_SCALE / math.hypot(ROBUST_SCALE, STATES_APART * boosted_share(call_s))


def fit(
    parameters: Sequence[FitParameter],
    build: Callable[[dict[str, float]], GpuProfile],
    measurements: Sequence[Measurement],
    gpu: Gpu,
    *,
    robust_scale: float = ROBUST_SCALE,
    weights: Sequence[float] | None = None,
    together: Callable[[GpuProfile], Iterable[float]] | None = None,
) -> dict[str, float]:
    """Constants that bring ``build(constants)`` closest to ``measurements``, by soft-L1 in log space.

    Residuals beyond ``robust_scale`` count linearly. ``weights``, one a measurement, scale them before.
    ``together`` gives the seconds of all measurements at once, where that is quicker than one by one.
    """
    from scipy.optimize import least_squares

    names = [parameter.name for parameter in parameters]
    weighted = list(zip(measurements, weights or [1.0] * len(measurements), strict=True))

    def errors(values: Sequence[float]) -> list[float]:
        constants = dict(zip(names, values, strict=True))
        profile = build(constants)
        found = together(profile) if together else [predicted_seconds(m, gpu, profile) for m in measurements]
        rows = [w * math.log(s / item.seconds) for (item, w), s in zip(weighted, found, strict=True)]
        for parameter in parameters:
            if parameter.spread is not None:
                off = (constants[parameter.name] - parameter.start) / parameter.start
                rows.append(off / parameter.spread * robust_scale)
        return rows

    result = least_squares(
        errors,
        [parameter.start for parameter in parameters],
        bounds=([parameter.low for parameter in parameters], [parameter.high for parameter in parameters]),
        loss="soft_l1",
        f_scale=robust_scale,
        x_scale=[max(abs(parameter.start), 1e-9) for parameter in parameters],
        diff_step=1e-3,  # tile counts make the time a staircase; a finer step would see noise
        max_nfev=60,
    )
    return dict(zip(names, (float(value) for value in result.x), strict=True))


def provenance(
    source: str, measurements: Sequence[Measurement], gpu: Gpu, profile: GpuProfile, note: str = ""
) -> Provenance:
    """Record of a fit: its residuals over ``measurements`` and the range that they span."""
    errors = [abs(predicted_seconds(item, gpu, profile) / item.seconds - 1) for item in measurements]
    return Provenance(
        source=source,
        points=len(measurements),
        median_residual=float(np.median(errors)),
        p90_residual=float(np.percentile(errors, 90)),
        ranges=_ranges(measurements),
        note=note,
    )


def _ranges(measurements: Iterable[Measurement]) -> tuple[tuple[str, float, float], ...]:
    seen: dict[str, list[float]] = {}
    for measurement in measurements:
        for kernel in measurement.kernels:
            for name, value in range_quantities(kernel).items():
                seen.setdefault(name, []).append(float(value))
    return tuple((name, min(values), max(values)) for name, values in seen.items())
