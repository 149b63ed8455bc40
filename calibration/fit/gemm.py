"""Fit of the GEMM curve: shape constants from a sweep, rates from the best measured shape.

Knows which constants a sweep can show, and what lies midway between two curves. Does not know
which GPU has a sweep; that is in plan.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...hardware.gpu import Gpu
from ...hardware.profile import GpuProfile, Provenance, Rate, Tile
from ...kernels.kernel import Gemm
from ..readers.measurements import Measurement
from .curve_fit import FitParameter, before_power_limit, fit, predicted_seconds, state_weight
from .sweep_times import sweep_times

# Bounds from physics. A smaller tile does fewer FLOPs per byte that it loads (256x128: 85, 128x128:
# 64, 256x64: 51, 128x64: 43, 64x64: 32), so tiles are ordered; no rate exceeds peak.
_TILES = (
    FitParameter(name="square", start=0.85, low=0.75, high=0.95),
    FitParameter(name="slim", start=0.70, low=0.55, high=0.75),
    FitParameter(name="small", start=0.60, low=0.45, high=0.70, spread=0.2),
    FitParameter(name="smallest", start=0.45, low=0.30, high=0.45, spread=0.2),
)
_FRACTION = FitParameter(name="fraction", start=0.7, low=0.2, high=1.0)
_OVERHEAD = FitParameter(name="tile_overhead_s", start=1.5e-6, low=0.2e-6, high=5e-6)
_EPILOGUE = FitParameter(name="epilogue_s", start=2.5e-6, low=0.1e-6, high=8e-6)
_CALL = FitParameter(name="call_s", start=3e-6, low=0.0, high=2e-5)
_CLOCK = FitParameter(name="clock", start=0.8, low=0.3, high=1.0)
_BOOST = FitParameter(name="boost", start=0.3, low=0.0, high=0.6)
_STORE = FitParameter(name="store_exposed", start=0.4, low=0.0, high=1.0)
# A point this far off counts no more than another: the GPU was in another power state.
_OUTLIER = 0.2
_FITTING = Provenance(source="being fitted")


def fit_shape(
    profile: GpuProfile,
    dtype: str,
    measurements: Sequence[Measurement],
    gpu: Gpu,
    *,
    two_states: bool = False,
    overlapped: bool = False,
) -> tuple[GpuProfile, float]:
    """``profile`` with its GEMM shape constants fitted, and the fraction of peak that the sweep sustains.

    ``two_states``: the sweep's short kernels ran now before, now under the power limit, shapes alike. Shape
    and mean boost are then found together, each point weighted by how sure its state is: else short ones,
    1.4 times apart in time, would hide the steps of wave counts that long ones show. The boost that is kept
    lies between both states.

    ``overlapped``: outputs leave tensor memory while the next tile is computed, in a time to be fitted.

    The wave quantisation is started from both ends, since the staircase of tile counts has local
    optima; the better end wins.
    """
    best: tuple[float, GpuProfile, float] | None = None
    weights = [state_weight(item.seconds) if two_states else 1.0 for item in measurements]
    together = sweep_times(measurements, gpu)
    if two_states:
        profile = replace(profile, measured_call_s=min(item.seconds for item in measurements))
    for quantisation in (0.15, 0.8):
        waves = FitParameter(name="wave_quantisation", start=quantisation, low=0.0, high=1.0)
        parameters = [_FRACTION, _OVERHEAD, _STORE, waves, *_TILES]
        parameters += [_BOOST] * two_states + [_EPILOGUE] * overlapped

        def build(found: dict[str, float]) -> GpuProfile:
            return _with_shape(profile, dtype, found)

        constants = fit(parameters, build, measurements, gpu, weights=weights, together=together)
        fitted = _with_shape(profile, dtype, constants)
        errors = (abs(predicted_seconds(item, gpu, fitted) / item.seconds - 1) for item in measurements)
        cost = sum(w * min(error, _OUTLIER) for w, error in zip(weights, errors, strict=True))
        if best is None or cost < best[0]:
            best = (cost, fitted, constants["fraction"])
    assert best is not None
    return (_with_boost(best[1], measurements, gpu) if two_states else best[1]), best[2]


def fit_state(profile: GpuProfile, sweep: Sequence[Measurement], gpu: Gpu, *, two_states: bool) -> GpuProfile:
    """``profile`` at the clock at which ``sweep`` ran, its curve being given, and with the boost of its short
    kernels where these ran before the power limit acted (``two_states``)."""
    weights = [state_weight(item.seconds) if two_states else 1.0 for item in sweep]
    if two_states:
        profile = replace(profile, measured_call_s=min(item.seconds for item in sweep))

    def build(found: dict[str, float]) -> GpuProfile:
        return replace(profile, clock_fraction=found["clock"], measured_boost=found.get("boost", 0.0))

    together = sweep_times(sweep, gpu)
    found = fit([_CLOCK, *[_BOOST] * two_states], build, sweep, gpu, weights=weights, together=together)
    fitted = replace(profile, clock_fraction=found["clock"])
    return _with_boost(fitted, sweep, gpu) if two_states else fitted


def _with_boost(profile: GpuProfile, measurements: Sequence[Measurement], gpu: Gpu) -> GpuProfile:
    """``profile`` with the boost of short kernels that lies between both states.

    A mean or a median lies in the state that more points are in; what is wanted is near both: the least mean
    of the errors from the 80th to the 95th percentile.
    """
    alone = replace(profile, measured_boost=0.0, measured_call_s=0.0)
    profile = replace(profile, measured_call_s=min(item.seconds for item in measurements))
    sustained_s = np.array([predicted_seconds(item, gpu, alone) for item in measurements])
    measured_s = np.array([item.seconds for item in measurements])

    def tail(boost: float) -> float:
        found_s = [before_power_limit(s, replace(profile, measured_boost=boost)) for s in sustained_s]
        errors = np.abs(np.array(found_s) / measured_s - 1)
        return float(np.mean(np.quantile(errors, np.linspace(0.8, 0.95, 16))))

    return replace(profile, measured_boost=min(np.linspace(_BOOST.low, _BOOST.high, 61).tolist(), key=tail))


def with_call(profile: GpuProfile, measurements: Sequence[Measurement], gpu: Gpu) -> GpuProfile:
    """``profile`` with the time that each of several separate GEMMs costs besides, by ``measurements``."""

    def build(found: dict[str, float]) -> GpuProfile:
        return replace(profile, gemm=replace(profile.gemm, call_s=found["call_s"]))

    # Half of these GEMMs are bound by their launch: no point is an outlier of the other half.
    return build(fit([_CALL], build, measurements, gpu, robust_scale=_OUTLIER))


def fit_fraction(profile: GpuProfile, dtype: str, measurements: Sequence[Measurement], gpu: Gpu) -> float:
    """Fraction of the dtype's peak that ``measurements`` show, the shape constants being given."""

    def build(found: dict[str, float]) -> GpuProfile:
        return with_fraction(profile, dtype, found["fraction"], _FITTING)

    return fit([_FRACTION], build, measurements, gpu, together=sweep_times(measurements, gpu))["fraction"]


def with_fraction(profile: GpuProfile, dtype: str, fraction: float, source: Provenance) -> GpuProfile:
    """``profile`` with the rate of ``dtype`` set."""
    others = tuple(rate for rate in profile.gemm.rates if rate.dtype != dtype)
    shape = next((rate.shape for rate in profile.gemm.rates if rate.dtype == dtype), None)
    rates = (*others, Rate(dtype=dtype, fraction=fraction, provenance=source, shape=shape))
    return replace(profile, gemm=replace(profile.gemm, rates=rates))


def fraction_of_best(best: Measurement, gpu: Gpu) -> float:
    """Fraction of peak that an endless GEMM reaches, by the fastest shape of a search.

    The search also tried larger shapes, which lose less at their edges; that they were no faster
    shows the limit to be power, so the best shape bounds them all.
    """
    (gemm,) = best.kernels
    assert isinstance(gemm, Gemm)
    return gemm.flops / best.seconds / gpu.peak_flops[gemm.dtype]


def _with_shape(profile: GpuProfile, dtype: str, constants: dict[str, float]) -> GpuProfile:
    others = tuple(rate for rate in profile.gemm.rates if rate.dtype != dtype)  # the type takes this shape
    gemm = replace(
        profile.gemm,
        rates=others,
        tiles=_tiles(constants),
        tile_overhead_s=constants["tile_overhead_s"],
        store_exposed=constants["store_exposed"],
        wave_quantisation=constants["wave_quantisation"],
        epilogue_s=constants.get("epilogue_s", profile.gemm.epilogue_s),
    )
    shaped = replace(profile, gemm=gemm, measured_boost=constants.get("boost", 0.0))
    return with_fraction(shaped, dtype, constants["fraction"], _FITTING)


def _tiles(constants: dict[str, float]) -> tuple[Tile, ...]:
    """Tiles that the libraries' kernels have (NVIDIA's guide, section 2.3), largest first."""
    slim, small = constants["slim"], constants["small"]
    return (
        Tile(m=256, n=128, efficiency=1.0),
        Tile(m=128, n=256, efficiency=1.0),
        Tile(m=128, n=128, efficiency=constants["square"]),
        Tile(m=256, n=64, efficiency=slim),
        Tile(m=64, n=256, efficiency=slim),
        Tile(m=128, n=64, efficiency=small),
        Tile(m=64, n=128, efficiency=small),
        Tile(m=64, n=64, efficiency=constants["smallest"]),
    )
