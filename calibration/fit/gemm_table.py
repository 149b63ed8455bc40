"""Fit of a GPU's products on a table of many shapes in several types, with what its harness times besides.

Knows which constants such a table shows: the shape constants, which all types share, a rate for each, and the
quantisation and the call of its harness. Does not know which GPU has a table; that is in plan.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...hardware.gpu import Gpu
from ...hardware.profile import GpuProfile, Harness, Provenance, Rate, Tile
from ..readers.kernel_tables import left_out, sample, shape_of
from ..readers.measurements import Measurement, is_gemm
from .curve_fit import FitParameter, fit, provenance

SHAPE_POINTS, RATE_POINTS = 500, 300
"""Shapes of a type that the shape constants, and then its rate, are fitted on: more change them by less than
the tables of two GPUs of one chip differ."""

# Bounds from physics. Tiles of 256 x 128, 192 x 128, 128 x 128, 256 x 64 and 128 x 64 do 85, 77, 64, 51 and
# 43 FLOPs a byte loaded, and are ordered so; no rate exceeds peak.
_TILES = (
    FitParameter(name="wide", start=0.97, low=0.9, high=1.0),
    FitParameter(name="square", start=0.92, low=0.8, high=1.0),
    FitParameter(name="slim", start=0.8, low=0.6, high=1.0),
    FitParameter(name="small", start=0.75, low=0.5, high=0.95),
)
_SHAPE = (
    FitParameter(name="tile_overhead_s", start=0.7e-6, low=0.1e-6, high=5e-6),
    FitParameter(name="store_exposed", start=0.4, low=0.0, high=1.0),
    FitParameter(name="wave_quantisation", start=0.1, low=0.0, high=1.0),
    FitParameter(name="epilogue_s", start=1.0e-6, low=0.0, high=8e-6),
    FitParameter(name="deep_slowdown", start=0.03, low=0.0, high=0.2),
)
_FRACTION = FitParameter(name="fraction", start=0.75, low=0.1, high=1.0)
_HARNESS = (
    FitParameter(name="beside_s", start=8e-6, low=0.0, high=3e-5),
    FitParameter(name="beside_efficiency", start=0.3, low=0.05, high=1.0),
    FitParameter(name="call_s", start=1e-5, low=0.0, high=4e-4),
)
_GAP = FitParameter(name="beside_s", start=0.4e-6, low=0.0, high=3e-6)  # between kernels of a graph, besides
_SLOWDOWN = FitParameter(name="slowdown", start=1.1, low=1.0, high=2.0)
_SHORTEST = 0.05  # of the calls: where the host bounds some, it bounds these
_FITTING = Provenance(source="being fitted")


def fit_table(
    profile: GpuProfile, table: Sequence[Measurement], gpu: Gpu, rates: Mapping[str, float]
) -> GpuProfile:
    """``profile`` with the curve of products that ``table`` shows, without the shapes that are left out.

    The shape constants come from the 16-bit products, which no harness quantises; of every other type the
    rate and the harness. ``rates`` are known otherwise; the table shows how much slower its kernel is.
    """
    shown = [item for item in table if not left_out(*shape_of(item))]
    sixteen = [item for item in shown if is_gemm(item, "bf16")]
    parameters = [_FRACTION, *_SHAPE, *_TILES, _GAP]
    at_boost = replace(profile, clock_fraction=1.0)

    def build(found: dict[str, float]) -> GpuProfile:
        return _with_rate(_with_shape(at_boost, found), "bf16", found)

    fitted = build(fit(parameters, build, sample(sixteen, SHAPE_POINTS), gpu))
    fitted = _with_record(fitted, "bf16", [item for item in table if is_gemm(item, "bf16")], gpu)
    for dtype in sorted({item.kernels[-1].dtype for item in shown} - {"bf16"}):  # type: ignore[union-attr]
        own = [item for item in table if is_gemm(item, dtype)]
        fitted = _with_quantised(fitted, dtype, own, gpu, rates.get(dtype))
    record = next(rate.provenance for rate in fitted.gemm.rates if rate.dtype == "bf16")
    return replace(fitted, gemm=replace(fitted.gemm, provenance=record))


def _with_quantised(
    profile: GpuProfile, dtype: str, table: Sequence[Measurement], gpu: Gpu, fraction: float | None
) -> GpuProfile:
    shown = [item for item in table if not left_out(*shape_of(item))]

    def build(found: dict[str, float]) -> GpuProfile:
        return _with_rate(profile, dtype, {"fraction": fraction, **found} if fraction else found)

    shortest_s = float(np.quantile([item.seconds for item in shown], _SHORTEST))
    harness = [replace(one, start=shortest_s) if one.name == "call_s" else one for one in _HARNESS]
    found = fit([_SLOWDOWN if fraction else _FRACTION, *harness], build, sample(shown, RATE_POINTS), gpu)
    return _with_record(build(found), dtype, table, gpu)


def _with_shape(profile: GpuProfile, found: dict[str, float]) -> GpuProfile:
    wide, square, slim, small = (found[one.name] for one in _TILES)
    sizes = (
        (256, 128, 1.0), (128, 256, 1.0), (192, 128, wide), (128, 192, wide), (128, 128, square),
        (256, 64, slim), (64, 256, slim), (128, 64, small), (64, 128, small),
    )  # fmt: skip
    constants = {one.name: found[one.name] for one in _SHAPE}
    tiles = tuple(Tile(m=m, n=n, efficiency=share) for m, n, share in sizes)
    return replace(profile, gemm=replace(profile.gemm, tiles=tiles, **constants))  # type: ignore[arg-type]


def _with_rate(profile: GpuProfile, dtype: str, found: dict[str, float]) -> GpuProfile:
    names = [one.name for one in (*_HARNESS, _SLOWDOWN) if one.name in found]
    harness = Harness(**{name: found[name] for name in names}) if names else None
    rate = Rate(dtype=dtype, fraction=found["fraction"], provenance=_FITTING, harness=harness)
    others = tuple(rate for rate in profile.gemm.rates if rate.dtype != dtype)
    return replace(profile, gemm=replace(profile.gemm, rates=(*others, rate)))


def _with_record(profile: GpuProfile, dtype: str, table: Sequence[Measurement], gpu: Gpu) -> GpuProfile:
    """``profile`` with the residuals of ``dtype``: of what the fit saw, and of what it did not."""
    held = [item for item in table if left_out(*shape_of(item))]
    shown = [item for item in table if not left_out(*shape_of(item))]
    source = ", ".join(sorted({item.source for item in table}))
    record, unseen = provenance(source, shown, gpu, profile), provenance(source, held, gpu, profile)
    record = replace(record, held_out_median=unseen.median_residual, held_out_p90=unseen.p90_residual)
    rates = tuple(
        replace(rate, provenance=record) if rate.dtype == dtype else rate for rate in profile.gemm.rates
    )
    return replace(profile, gemm=replace(profile.gemm, rates=rates))
