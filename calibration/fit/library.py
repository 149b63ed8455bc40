"""GEMMs of four bit by the library that training runs, where a table timed another's.

Knows that the tables of NVFP4 on Blackwell are of TensorRT-LLM's CUTLASS kernels and FlashInfer's, and that
Transformer Engine calls cuBLAS (docs/decisions/0158-four-bit-products-by-cublas.md). Fits one number, on the
points of the one GPU on which cuBLAS's GEMMs of four bit were measured by shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hardware.gpu import PEAK_OF, Gpu
from ...hardware.profile import GpuProfile, Provenance, Rate, TimedKernel
from ...kernels.gemm_arrays import product_times, products_of
from ...kernels.kernel import Gemm
from ..readers.measurements import Measurement
from .curve_fit import FitParameter, fit

FOUR_BIT = "nvfp4"
_EIGHT_BIT = "fp8"
_FRACTION = FitParameter(name="fraction", start=0.7, low=0.1, high=1.0)
_FITTING = Provenance(source="being fitted")


def library_gain(profile: GpuProfile, points: Sequence[Measurement], gpu: Gpu) -> float:
    """How many times as fast as its GEMMs of 8 bit the library's of 4 bit are, by ``points`` of ``gpu``.

    Their time depends on the shape as that of 8 bit does. The points ran before the power limit acted: 100
    calls of 0.08 to 1.6 ms, of which the table of that GPU shows it only after some 40 calls of 20 ms.
    """
    products = products_of([m.kernels[-1] for m in points if isinstance(m.kernels[-1], Gemm)], gpu)
    eight = _rate(profile, _EIGHT_BIT)

    def build(found: dict[str, float]) -> GpuProfile:
        four = Rate(dtype=FOUR_BIT, fraction=found["fraction"], provenance=_FITTING, shape=eight.shape)
        return _with_rate(profile, four)

    found = fit(
        [_FRACTION],
        build,
        points,
        gpu,
        together=lambda tried: product_times(products, gpu, tried, gpu.hbm_bytes_per_s).seconds(
            gpu, replace(tried, clock_fraction=1.0), 0.0
        ),
    )
    return found["fraction"] / eight.fraction * _peak(gpu, FOUR_BIT) / _peak(gpu, _EIGHT_BIT)


def with_library(profile: GpuProfile, gain: float, gpu: Gpu, source: str) -> GpuProfile:
    """``profile`` with GEMMs of 4 bit ``gain`` times as fast as its own of 8 bit; what its table timed is
    kept beside them.

    Raises ValueError where no table of its own gave it GEMMs of either type.
    """
    timed, eight = _rate(profile, FOUR_BIT), _rate(profile, _EIGHT_BIT)
    if timed.shape is None or eight.shape is None:
        raise ValueError(f"{profile.gpu} has no table of products of 4 and of 8 bit")
    note = f"residuals: of the table's own kernels; rate and shape: {gain:.3f} times those of 8 bit, {source}"
    four = replace(
        timed,
        fraction=gain * eight.fraction * _peak(gpu, _EIGHT_BIT) / _peak(gpu, FOUR_BIT),
        shape=eight.shape,
        timed=TimedKernel(fraction=timed.fraction, shape=timed.shape),
        provenance=replace(timed.provenance, note=note),
    )
    return _with_rate(profile, four)


def _rate(profile: GpuProfile, dtype: str) -> Rate:
    return next(rate for rate in profile.gemm.rates if rate.dtype == dtype)


def _with_rate(profile: GpuProfile, given: Rate) -> GpuProfile:
    rates = tuple(given if rate.dtype == given.dtype else rate for rate in profile.gemm.rates)
    return replace(profile, gemm=replace(profile.gemm, rates=rates))


def _peak(gpu: Gpu, dtype: str) -> float:
    return gpu.peak_flops[PEAK_OF.get(dtype, dtype)]
