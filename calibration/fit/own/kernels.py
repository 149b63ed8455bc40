"""A GPU's profile fitted on measured kernels of a user's own.

Knows which measurements show which constant, and how many are needed; what they do not show stays as
shipped. Fits are at the clock of the measurements, which is not that of the power limit: how far that limit
acted while they were made is seen from GEMMs that draw much beside those that draw little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ....hardware.calibrated.overlay import profile_for
from ....hardware.gpu import PEAK_OF, Gpu
from ....hardware.profile import AttentionCurve, GpuProfile
from ....hardware.provenance import Provenance
from ....kernels.cost import kernel_seconds
from ....kernels.kernel import Attention, Gemm, MemoryBound
from ...readers.measurements import Measurement
from ...readers.named_gpus import StatedGpu, chip_of
from ..attention import fit_attention
from ..curve_fit import FitParameter, fit, predicted_seconds
from ..gemm import fit_fraction, fit_shape, with_fraction
from .judged import FEW, Fit, Interval, Judged, judged

SHAPE_POINTS, SHAPE_FAMILIES = 24, 8
"""GEMMs of one type from which on the shape constants are fitted; below, the rate alone."""
_ATTENTION_POINTS = 6
_STATES = (0.0, 0.25, 0.5, 0.75, 1.0)
_OUTLIER = 0.2  # a point this far off counts no more than another
_SHAPE = ("tile_overhead_s", "store_exposed", "wave_quantisation")
_BLENDS = ("forward_blend", "backward_blend", "diagonal_keys", "causal_tail", "wave_quantisation")


@dataclass(frozen=True, kw_only=True)
class FittedKernels:
    """``profile`` of ``gpu`` with the parts that ``points`` show; ``fitted`` names them (gemm bf16,
    attention fa2, memory stream_efficiency). ``whole_shape``: the shape constants too. ``intervals`` are of
    constants, by part and name; ``notes`` say what was too little for a fit."""

    gpu: Gpu
    profile: GpuProfile
    points: tuple[Measurement, ...]
    fitted: tuple[str, ...] = ()
    whole_shape: bool = False
    intervals: dict[str, dict[str, Interval]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def fit_kernels(gpu: StatedGpu, points: Sequence[Measurement], *, replicas: int = 20) -> FittedKernels:
    """The shipped profile of ``gpu`` with all that ``points`` show fitted anew; of a GPU that a user
    describes, the one that its relative lends it.

    ``replicas`` bootstraps give the intervals. ValueError for a data type that the GPU lacks.
    """
    chip = chip_of(gpu)
    shipped = profile_for(chip)
    at_clock = replace(
        shipped, clock_fraction=1.0, measured_clock_fraction=1.0, measured_boost=0.0, measured_call_s=0.0
    )
    at_clock = replace(at_clock, measured_power_limited=power_limited(at_clock, points, chip))
    state = FittedKernels(gpu=chip, profile=at_clock, points=tuple(points))
    for name in ("stream_efficiency", "pointwise_efficiency"):
        state = _memory(state, name, replicas)
    gemms = _by(state.points, lambda kernel: kernel.dtype if isinstance(kernel, Gemm) else None)
    for dtype, members in sorted(gemms.items(), key=lambda item: (-len(item[1]), item[0])):
        state = _gemm(state, dtype, members, replicas)
    fused = _by(state.points, lambda kernel: kernel.implementation if isinstance(kernel, Attention) else None)
    for name, members in sorted(fused.items()):
        state = _attention(state, name, members, replicas)
    return replace(state, profile=replace(state.profile, clock_fraction=training_clock(shipped, state)))


def training_clock(shipped: GpuProfile, state: FittedKernels) -> float:
    """What training sustains of the clock of the measurements.

    Where the GPU has a shipped sweep, as there. Else no more than the measurements sustain, and no more
    than the step times of this GPU show: measurements that ran hotter or cooler than the shipped best
    shape do not change what training reaches, unless they are slower than training itself.
    """
    if not any(part.startswith("gemm") for part in state.fitted):
        return shipped.clock_fraction
    if shipped.measured_clock_fraction < 1.0:
        return min(1.0, shipped.clock_fraction / shipped.measured_clock_fraction)
    gpu, own = state.gpu, replace(state.profile, clock_fraction=1.0)
    large = [
        Gemm(m=8192, n=8192, k=8192, dtype=rate.dtype)
        for rate in shipped.gemm.rates
        if f"gemm {rate.dtype}" in state.fitted
    ]
    ratios = [
        kernel_seconds(product, gpu, own) / kernel_seconds(product, gpu, replace(shipped, clock_fraction=1.0))
        for product in large
    ]
    return min(1.0, shipped.clock_fraction * max(ratios, default=1.0))


def power_limited(profile: GpuProfile, points: Sequence[Measurement], gpu: Gpu) -> float:
    """How far the power limit acted while ``points`` were measured, from 0, in bursts, to 1, in long runs.

    Of the GEMMs of the type that most points have, by the curve of ``profile`` at any rate: the state that
    leaves the least error. 0 where there are too few, or where the state makes no difference.
    """
    gemms = _by(points, lambda kernel: kernel.dtype if isinstance(kernel, Gemm) else None)
    if not gemms:
        return 0.0
    dtype, members = max(gemms.items(), key=lambda item: (len(item[1]), item[0]))
    if len(members) < SHAPE_POINTS or not gpu.has_math(dtype):
        return 0.0

    def error(state: float) -> float:
        limited = replace(profile, measured_power_limited=state)
        fraction = fit_fraction(limited, dtype, members, gpu)
        found = with_fraction(limited, dtype, fraction, Provenance(source="fit"))
        return sum(
            min(abs(math.log(predicted_seconds(point, gpu, found) / point.seconds)), _OUTLIER)
            for point in members
        )

    return min(_STATES, key=lambda state: (round(error(state), 6), state))


def _by(points: Iterable[Measurement], key: Callable[[object], str | None]) -> dict[str, list[Measurement]]:
    """Points by the key of their kernels; those without one are left out."""
    groups: dict[str, list[Measurement]] = {}
    for point in points:
        for name in {key(kernel) for kernel in point.kernels} - {None}:
            groups.setdefault(str(name), []).append(point)
    return groups


def _added(state: FittedKernels, part: str, one: Judged, block: str, profile: GpuProfile) -> FittedKernels:
    known = state.intervals.get(block, {})
    return replace(
        state,
        profile=profile,
        fitted=(*state.fitted, part),
        intervals=state.intervals | {block: known | one.intervals},
    )


def _with_impossible(state: FittedKernels, what: str, points: Sequence[Measurement]) -> FittedKernels:
    """``state`` with a note of the GEMMs or attentions that no GPU of this peak can do in their time."""
    peak = state.gpu.peak_flops
    kernels = [(point.kernels, point.seconds) for point in points]
    beyond = sum(
        sum(
            one.flops / peak[PEAK_OF.get(one.dtype, one.dtype)]
            for one in some
            if not isinstance(one, MemoryBound)
        )
        > seconds
        for some, seconds in kernels
    )
    if not beyond:
        return state
    hint = "; attention with a mask has 1 in the column causal" if what.startswith("attention") else ""
    return _noted(
        state, f"{what}: {beyond} of {len(points)} points are faster than the peak of the GPU{hint}"
    )


def _noted(state: FittedKernels, note: str) -> FittedKernels:
    return replace(state, notes=(*state.notes, note))


def _gemm(state: FittedKernels, dtype: str, points: Sequence[Measurement], replicas: int) -> FittedKernels:
    gpu, base = state.gpu, state.profile
    families = len({point.family for point in points})
    if not gpu.has_math(dtype):
        raise ValueError(
            f"{points[0].id}: {gpu.name} has no {dtype} math; it has {', '.join(gpu.peak_flops)}"
        )
    if len(points) < FEW:
        return _noted(state, f"gemm {dtype}: {len(points)} points; a fit needs {FEW}")
    state = _with_impossible(state, f"gemm {dtype}", points)
    whole = not state.whole_shape and len(points) >= SHAPE_POINTS and families >= SHAPE_FAMILIES
    if not whole:
        state = _noted(
            state, f"gemm {dtype}: {len(points)} points in {families} families show its rate alone"
        )

    def fitted(some: Sequence[Measurement]) -> GpuProfile:
        if whole:
            return fit_shape(base, dtype, some, gpu)[0]
        return with_fraction(base, dtype, fit_fraction(base, dtype, some, gpu), Provenance(source="fit"))

    def constants(profile: GpuProfile) -> dict[str, float]:
        fraction = {f"fraction {dtype}": _fraction(profile, dtype)}
        return fraction | ({name: getattr(profile.gemm, name) for name in _SHAPE} if whole else {})

    one = judged(Fit(gpu=gpu, fitted=fitted, constants=constants), points, replicas)
    profile = with_fraction(one.profile, dtype, _fraction(one.profile, dtype), one.record)
    if whole or not any(part.startswith("gemm") for part in state.fitted):
        profile = replace(profile, gemm=replace(profile.gemm, provenance=one.record))
    return replace(
        _added(state, f"gemm {dtype}", one, "gemm", profile), whole_shape=whole or state.whole_shape
    )


def _fraction(profile: GpuProfile, dtype: str) -> float:
    return next(rate.fraction for rate in profile.gemm.rates if rate.dtype == dtype)


def _attention(
    state: FittedKernels, name: str, points: Sequence[Measurement], replicas: int
) -> FittedKernels:
    gpu, base = state.gpu, state.profile
    if len(points) < _ATTENTION_POINTS:
        return _noted(state, f"attention {name}: {len(points)} points; a fit needs {_ATTENTION_POINTS}")
    state = _with_impossible(state, f"attention {name}", points)
    others = tuple(curve for curve in base.attention if curve.implementation != name)

    def fitted(some: Sequence[Measurement]) -> GpuProfile:
        return replace(base, attention=(*others, fit_attention(base, name, some, gpu, "fit")))

    def constants(profile: GpuProfile) -> dict[str, float]:
        curve = _curve(profile, name)
        rates = {f"forward {dim}": rate for dim, rate in curve.forward}
        rates |= {f"backward {dim}": rate for dim, rate in curve.backward}
        return rates | {blend: getattr(curve, blend) for blend in _BLENDS}

    one = judged(Fit(gpu=gpu, fitted=fitted, constants=constants), points, replicas)
    curve = _curve(one.profile, name)
    curve = replace(curve, provenance=replace(one.record, note=curve.provenance.note))
    profile = replace(one.profile, attention=(*others, curve))
    return _added(state, f"attention {name}", one, f"attention {name}", profile)


def _curve(profile: GpuProfile, name: str) -> AttentionCurve:
    return next(curve for curve in profile.attention if curve.implementation == name)


def _memory(state: FittedKernels, name: str, replicas: int) -> FittedKernels:
    """The rate of copies, or of pointwise and norm kernels, on more bytes than the caches hold."""
    gpu, base = state.gpu, state.profile
    points = [
        point
        for point in state.points
        if (point.operation == "stream") == (name == "stream_efficiency")
        and all(isinstance(k, MemoryBound) and k.hbm_bytes > 2 * gpu.l2_bytes for k in point.kernels)
    ]
    if len(points) < FEW:
        return _noted(state, f"memory {name}: {len(points)} points; a fit needs {FEW}") if points else state
    parameter = FitParameter(name=name, start=getattr(base.memory, name), low=0.05, high=1.0)

    def shown(profile: GpuProfile) -> GpuProfile:
        # A memory-bound kernel is priced by the pointwise rate, whichever it is that is fitted.
        rate = getattr(profile.memory, name)
        return replace(profile, memory=replace(profile.memory, pointwise_efficiency=rate))

    def with_rate(found: dict[str, float]) -> GpuProfile:
        rate = found[name]
        if name == "stream_efficiency":
            return replace(base, memory=replace(base.memory, stream_efficiency=rate))
        return replace(base, memory=replace(base.memory, pointwise_efficiency=rate))

    def fitted(some: Sequence[Measurement]) -> GpuProfile:
        return with_rate(fit([parameter], lambda found: shown(with_rate(found)), some, gpu))

    def constants(profile: GpuProfile) -> dict[str, float]:
        return {name: getattr(profile.memory, name)}

    way = Fit(gpu=gpu, fitted=fitted, constants=constants, shown=shown)
    one = judged(way, points, replicas)
    profile = replace(one.profile, memory=replace(one.profile.memory, provenance=one.record))
    return _added(state, f"memory {name}", one, "memory", profile)


__all__ = ["FittedKernels", "fit_kernels", "power_limited", "training_clock"]
