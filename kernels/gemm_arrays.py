"""Times of many GEMMs of one type at once: kernels/gemm.py in arrays, for fits that ask again and again.

Knows the same equations, which a test holds equal to those GEMM by GEMM. Grouped GEMMs are not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..hardware.gpu import Gpu
from ..hardware.profile import GemmCurve, GemmShape, GpuProfile
from .blend import blended_s
from .gemm import (
    BLEND,
    EPILOGUE_TILE,
    PARTIAL_BYTES,
    SPLIT_WAVES,
    SPLITS,
    alignment,
    output_bytes,
    panel_bytes,
    peak_flops,
    rate_of,
    split_sums,
)
from .kernel import Gemm
from .power import joules_per_flop

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Products:
    """GEMMs of one type; ``aligned`` is each one's rate factor by alignment and split sums,
    ``narrow_bytes`` and ``wide_bytes`` what moves of its output (``output_bytes``), ``panel_bytes`` what a
    wave of its tiles walks through."""

    dtype: str
    m: Array
    n: Array
    k: Array
    flops: Array
    hbm_bytes: Array
    narrow_bytes: Array
    wide_bytes: Array
    aligned: Array
    panel_bytes: Array


def products_of(gemms: Sequence[Gemm], gpu: Gpu) -> Products:
    """``gemms`` in arrays. ValueError where they are of several types, or batched."""
    import numpy as np

    (dtype,) = {gemm.dtype for gemm in gemms}
    if any(gemm.batch > 1 for gemm in gemms):
        raise ValueError("products in arrays are single")
    return Products(
        dtype=dtype,
        m=np.array([float(gemm.m) for gemm in gemms]),
        n=np.array([float(gemm.n) for gemm in gemms]),
        k=np.array([float(gemm.k) for gemm in gemms]),
        flops=np.array([gemm.flops for gemm in gemms]),
        hbm_bytes=np.array([gemm.hbm_bytes for gemm in gemms]),
        narrow_bytes=np.array([float(output_bytes(gemm)[0]) for gemm in gemms]),
        wide_bytes=np.array([float(output_bytes(gemm)[1]) for gemm in gemms]),
        aligned=np.array([alignment(gemm) / split_sums(gemm, gpu) for gemm in gemms]),
        panel_bytes=np.array([panel_bytes(gemm, gpu) for gemm in gemms]),
    )


@dataclass(frozen=True, kw_only=True)
class ProductTimes:
    """Parts of the times of GEMMs: of their tiles at the boost clock, of what is exposed of their outputs'
    store, of bytes that move beside math, of bytes that move while no math is done."""

    products: Products
    tiles_s: Array
    store_s: Array
    beside_s: Array
    alone_s: Array

    def seconds(
        self, gpu: Gpu, profile: GpuProfile, power_limited: Array | float, drawn: Array | float = 1.0
    ) -> Array:
        """On-GPU seconds of each, where the power limit acts as far as ``power_limited``, and a FLOP draws
        ``drawn`` of the watts that it draws of random operands."""
        clock = profile.clock_fraction * self._clock(gpu, power_limited, drawn)
        joined_s = blended_s(self.tiles_s / clock + self.store_s, self.beside_s, BLEND)
        return profile.kernel_latency_s + joined_s + self.alone_s

    def _clock(self, gpu: Gpu, power_limited: Array | float, drawn: Array | float) -> Array | float:
        import numpy as np

        if gpu.joules_per_flop is None:
            return 1.0
        boosted_s = blended_s(self.tiles_s + self.store_s, self.beside_s, BLEND) + self.alone_s
        flops_per_s = self.products.flops / boosted_s
        wanted_w = flops_per_s * drawn * joules_per_flop(self.products.dtype, gpu)
        clock: Array = np.minimum(1.0, (gpu.tdp_w - gpu.idle_w) / wanted_w) ** (power_limited / 3.0)
        return clock


def product_times(
    products: Products, gpu: Gpu, profile: GpuProfile, hbm_bytes_per_s: Array | float
) -> ProductTimes:
    """Parts of each one's time, its bytes moving at ``hbm_bytes_per_s`` of peak."""
    rate = rate_of(profile.gemm, products.dtype, gpu)
    shape = rate.shape or profile.gemm
    stream_bytes_per_s = profile.memory.stream_efficiency * hbm_bytes_per_s
    flops_per_s_per_sm = rate.fraction * products.aligned * peak_flops(gpu, products.dtype) / gpu.sms
    return ProductTimes(
        products=products,
        tiles_s=_tiles_seconds(products, gpu, shape, flops_per_s_per_sm, stream_bytes_per_s),
        store_s=shape.store_exposed * products.narrow_bytes / stream_bytes_per_s,
        beside_s=(products.hbm_bytes - products.wide_bytes) / stream_bytes_per_s,
        alone_s=products.wide_bytes / stream_bytes_per_s,
    )


def _tiles_seconds(
    products: Products,
    gpu: Gpu,
    shape: GemmCurve | GemmShape,
    flops_per_s_per_sm: Array,
    stream_bytes_per_s: Array | float,
) -> Array:
    """Time of the quickest tiling of each."""
    import numpy as np

    outgrown = np.maximum(products.panel_bytes / (gpu.l2_bytes / 2), 1.0)
    flops_per_s_per_sm = flops_per_s_per_sm / (1.0 + shape.deep_slowdown * np.log2(outgrown))
    splits = np.array(SPLITS, dtype=float)[:, np.newaxis]  # a row each
    depths = np.ceil(products.k / splits)
    partial_s = products.m * products.n * PARTIAL_BYTES / stream_bytes_per_s
    parts_s = np.where(splits > 1, splits * partial_s + shape.split_s, 0.0)
    best_s = np.full(products.m.shape, np.inf)
    for tile in shape.tiles:
        tiles = np.ceil(products.m / tile.m) * np.ceil(products.n / tile.n)
        k_s = 2.0 * tile.m * tile.n / (flops_per_s_per_sm * tile.efficiency)
        least_s = shape.epilogue_s * tile.m * tile.n / EPILOGUE_TILE
        waves = tiles * splits / gpu.sms
        waves = np.where(waves <= 1, 1.0, waves + shape.wave_quantisation * (np.ceil(waves) - waves))
        seconds = waves * (np.maximum(depths * k_s, least_s) + shape.tile_overhead_s) + parts_s
        may_be = (splits == 1) | (tiles < SPLIT_WAVES * gpu.sms)
        best_s = np.minimum(best_s, np.where(may_be, seconds, np.inf).min(axis=0))
    return best_s
