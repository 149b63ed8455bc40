"""Fit of a GPU's GEMMs on a table of many shapes in several types, with what its harness times besides.

Knows which constants such a table shows: of each type those of its shape, its rate, and the quantisation and
the call of its harness. Does not know which GPU has a table; that is in plan.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ...hardware.gpu import Gpu
from ...hardware.profile import GemmShape, GpuProfile, Harness, Provenance, Rate, Tile
from ..readers.kernel_tables import left_out, shape_of
from ..readers.measurements import Measurement, is_gemm
from .curve_fit import ROBUST_SCALE, FitParameter, fit, provenance
from .table_times import table_times

# Bounds from physics. Tiles of 256 x 128, 192 x 128, 128 x 128, 256 x 64, 128 x 64 and 64 x 64 do 85, 77, 64,
# 51, 43 and 32 FLOPs a byte loaded, and no rate exceeds peak; persistent kernels hide more or less of that.
_TILES = (
    FitParameter(name="wide", start=0.97, low=0.8, high=1.0),
    FitParameter(name="square", start=0.92, low=0.7, high=1.0),
    FitParameter(name="slim", start=0.8, low=0.5, high=1.0),
    FitParameter(name="small", start=0.75, low=0.4, high=0.95),
)
_SHAPE = (
    FitParameter(name="tile_overhead_s", start=0.7e-6, low=0.05e-6, high=6e-6),
    FitParameter(name="store_exposed", start=0.4, low=0.0, high=1.0),
    FitParameter(name="wave_quantisation", start=0.2, low=0.0, high=1.0),
    FitParameter(name="epilogue_s", start=1.0e-6, low=0.0, high=8e-6),
    FitParameter(name="deep_slowdown", start=0.02, low=0.0, high=0.2),
)
# Of the 16-bit library alone: others (DeepGEMM, CUTLASS) do not split over K, nor do tables show it. cuBLAS
# before Hopper has no tiles of 192 x 128, which then come out too slow to be taken.
_SIXTEEN = (
    replace(_TILES[0], low=0.3),
    FitParameter(name="smallest", start=0.6, low=0.3, high=0.95),
    FitParameter(name="split_s", start=3e-6, low=0.0, high=2e-5),
)
_FRACTION = FitParameter(name="fraction", start=0.75, low=0.1, high=1.0)
_HARNESS = (
    FitParameter(name="beside_s", start=8e-6, low=0.0, high=4e-5),
    FitParameter(name="beside_efficiency", start=0.3, low=0.03, high=6.0),
    FitParameter(name="call_s", start=1e-5, low=0.0, high=4e-4),
    FitParameter(name="unaligned_s", start=3e-6, low=0.0, high=1e-4),
    FitParameter(name="unaligned_slowdown", start=1.05, low=1.0, high=2.0),
    FitParameter(name="unaligned_call_s", start=1e-6, low=0.0, high=1e-4),
)
_SLOWDOWN = FitParameter(name="slowdown", start=1.1, low=1.0, high=1.5)
_OF_TWIN = ("fp8",)
_ROW = FitParameter(name="row_s", start=1e-8, low=0.0, high=1e-7)
_GAP = FitParameter(name="beside_s", start=0.5e-6, low=0.0, high=3e-6)  # between kernels of a graph, besides
# The longer a GPU's controller looks, the longer a call at which it has half acted. GEMMs of 1 to 3 ms
# run at 1,559, 1,773 and 1,954 TFLOP/s on B200, GB200 and GB300, of 10 to 30 ms at 1,390, 1,492 and 1,780,
# of more than 100 ms at 1,302, 1,462 and 1,697; on L40S at 257 to 0.2 ms, 217 to 3 ms, 196 from 10 ms on
# (aiconfigurator; some 40 calls each). On A100 none are slower than others. On H100, H200 and B300 those of
# the largest weights are not slower either, since these hold no data (table_harness.py).
_BURST = (
    FitParameter(name="burst_s", start=2e-3, low=2e-4, high=2e-2),
    FitParameter(name="burst_order", start=1.5, low=1.0, high=4.0),
)
_BLANK = FitParameter(name="blank_draw", start=0.5, low=0.3, high=0.9)
_BY_ROW = ("fp8_block",)
"""Types whose input a kernel quantises that walks from row to row in some harnesses (TensorRT-LLM,
tensorrt_llm/quantization/utils/fp8_utils.py, per_token_quant_and_transform: 64 thread blocks of one warp)."""
_TILE_NAMES = ("wide", "square", "slim", "small", "smallest")
_TOLD_APART = 2.0
"""By how much the cost of two optima differs that a table tells apart: two standard deviations, were each
GEMM off by ``ROBUST_SCALE`` by chance."""
_SHORTEST = 0.05  # of the calls: where the host bounds some, it bounds these
_FITTING = Provenance(source="being fitted")


def fit_table(
    profile: GpuProfile,
    table: Sequence[Measurement],
    gpu: Gpu,
    *,
    slows: bool,
    twin: GpuProfile | None,
) -> GpuProfile:
    """``profile`` with the curve of GEMMs that ``table`` shows, without the shapes that are left out.

    The 16-bit GEMMs, which no harness quantises, give the shape constants of the curve; every other type
    has its own, since other kernels run it, beside its rate and its harness. ``slows``: its long calls run
    slower than its short ones, which shows at which duration the power limit acts. ``twin``: a GPU of the
    same chip and limit, whose table shows better how suddenly it does, and of 8 bit the kernels that
    training runs.
    """
    shown = [item for item in table if not left_out(*shape_of(item))]
    sixteen = [item for item in shown if is_gemm(item, "bf16")]
    parameters = [_FRACTION, *_SHAPE, *_TILES[1:], *_SIXTEEN, _GAP]
    parameters += [*_BURST[: 1 if twin else 2]] * slows
    parameters += [_BLANK] * any(item.blank for item in sixteen)
    at_boost = replace(profile, clock_fraction=1.0)
    known = {"burst_order": _burst_order_of(twin)} if twin else {}

    def build(found: dict[str, float]) -> GpuProfile:
        shaped = replace(at_boost, gemm=replace(at_boost.gemm, **_shape(found)))
        return _with_rate(shaped, "bf16", found | known, shape=None)

    fitted = build(_best(parameters, build, sixteen, gpu))
    fitted = _with_record(fitted, "bf16", [item for item in table if is_gemm(item, "bf16")], gpu)
    for dtype in sorted({item.kernels[-1].dtype for item in shown} - {"bf16"}):  # type: ignore[union-attr]
        own = [item for item in table if is_gemm(item, dtype)]
        if twin and dtype in _OF_TWIN:
            fitted = _with_twin(fitted, dtype, own, gpu, twin)
        else:
            fitted = _with_quantised(fitted, dtype, own, gpu)
    record = next(rate.provenance for rate in fitted.gemm.rates if rate.dtype == "bf16")
    return replace(fitted, gemm=replace(fitted.gemm, provenance=record))


def _burst_order_of(profile: GpuProfile) -> float:
    """How suddenly the power limit acts in the table that gave ``profile`` its 16-bit GEMMs."""
    (harness,) = (rate.harness for rate in profile.gemm.rates if rate.dtype == "bf16")
    assert harness is not None
    return harness.burst_order


def _with_quantised(profile: GpuProfile, dtype: str, table: Sequence[Measurement], gpu: Gpu) -> GpuProfile:
    shown = [item for item in table if not left_out(*shape_of(item))]

    def build(found: dict[str, float]) -> GpuProfile:
        return _with_rate(profile, dtype, found, GemmShape(**_shape(found)))

    found = _best([_FRACTION, *_SHAPE, *_TILES, *_harness(shown, dtype)], build, shown, gpu)
    return _with_record(build(found), dtype, table, gpu)


def _with_twin(
    profile: GpuProfile, dtype: str, table: Sequence[Measurement], gpu: Gpu, twin: GpuProfile
) -> GpuProfile:
    """``profile`` with GEMMs of ``dtype`` as ``twin`` has them, and the harness of its own ``table``,
    whose kernels are slower than these."""
    shown = [item for item in table if not left_out(*shape_of(item))]
    (given,) = (rate for rate in twin.gemm.rates if rate.dtype == dtype)

    def build(found: dict[str, float]) -> GpuProfile:
        return _with_rate(profile, dtype, found | {"fraction": given.fraction}, given.shape)

    found = fit([*_harness(shown, dtype), _SLOWDOWN], build, shown, gpu, together=table_times(shown, gpu))
    found = {name: round(value, 11) if name.endswith("_s") else value for name, value in found.items()}
    return _with_record(build(found), dtype, table, gpu)


def _harness(shown: Sequence[Measurement], dtype: str) -> list[FitParameter]:
    shortest_s = float(np.quantile([item.seconds for item in shown], _SHORTEST))
    harness = [replace(one, start=shortest_s) if one.name == "call_s" else one for one in _HARNESS]
    return harness + [_ROW] * (dtype in _BY_ROW)


def _best(
    parameters: Sequence[FitParameter],
    build: Callable[[dict[str, float]], GpuProfile],
    shown: Sequence[Measurement],
    gpu: Gpu,
) -> dict[str, float]:
    """The constants of the best of several searches, since the staircase of tile counts has local optima.

    They begin where last waves cost their share or a whole wave, with narrow tiles a little or much slower.
    Of optima that the table does not tell apart, that with the most efficient tiles: a library has a tile for
    shapes where it pays, and a table of wide shapes may leave a narrow one as slow as the bounds let it be.
    """
    together = table_times(shown, gpu)
    measured_s = np.array([item.seconds for item in shown])

    def cost(found: dict[str, float]) -> float:
        off = (np.log(together(build(found)) / measured_s) / ROBUST_SCALE) ** 2
        return float(np.sum(np.sqrt(1.0 + off) - 1.0))

    optima = [fit(start, build, shown, gpu, together=together) for start in _starts(parameters)]
    costs = [cost(found) for found in optima]
    alike = [found for found, its in zip(optima, costs, strict=True) if its <= min(costs) + _TOLD_APART]
    best = max(alike, key=lambda found: sum(found[name] for name in _TILE_NAMES if name in found))
    return {name: round(value, 11) if name.endswith("_s") else value for name, value in best.items()}


def _starts(parameters: Sequence[FitParameter]) -> Iterator[list[FitParameter]]:
    for share, narrow in product((0.1, 0.8), (_TILES[-1].start, _TILES[-1].high - 0.05)):
        moved = {"wave_quantisation": share, _TILES[-1].name: narrow}
        yield [replace(one, start=moved.get(one.name, one.start)) for one in parameters]


def _shape(found: dict[str, float]) -> dict[str, Any]:
    """The constants of a shape by name, with its tiles."""
    wide, square, slim, small = (found[one.name] for one in _TILES)
    sizes = (
        (256, 128, 1.0), (128, 256, 1.0), (192, 128, wide), (128, 192, wide), (128, 128, square),
        (256, 64, slim), (64, 256, slim), (128, 64, small), (64, 128, small),
        *[(64, 64, found[name]) for name in ("smallest",) if name in found],
    )  # fmt: skip
    tiles = tuple(Tile(m=m, n=n, efficiency=share) for m, n, share in sizes)
    return {"tiles": tiles} | {name: found[name] for name in _OF_SHAPE if name in found}


def _with_rate(
    profile: GpuProfile, dtype: str, found: dict[str, float], shape: GemmShape | None
) -> GpuProfile:
    harness = Harness(**{one: found[one] for one in _IN_HARNESS if one in found})
    rate = Rate(dtype=dtype, fraction=found["fraction"], provenance=_FITTING, harness=harness, shape=shape)
    others = tuple(rate for rate in profile.gemm.rates if rate.dtype != dtype)
    return replace(profile, gemm=replace(profile.gemm, rates=(*others, rate)))


_OF_SHAPE = [one.name for one in _SHAPE] + ["split_s"]
_IN_HARNESS = [one.name for one in (*_HARNESS, _ROW, _SLOWDOWN, *_BURST, _BLANK)]


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
