"""Times that a table's harness measures, of all its GEMMs of one type at once.

Knows the harness of curve_fit.py in arrays, which a test holds equal to that call by call. Fits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...hardware.gpu import Gpu
from ...hardware.profile import GpuProfile, Harness
from ...kernels.gemm_arrays import product_times, products_of
from ...kernels.kernel import Gemm
from ..readers.measurements import Measurement
from .curve_fit import (
    CACHED_ROW,
    JOINED,
    as_timed,
    cached_share,
    harness_of,
    is_unaligned,
    limited_share,
    rows_cached_share,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def table_times(items: Sequence[Measurement], gpu: Gpu) -> Callable[[GpuProfile], Array]:
    """A function of a profile: the seconds that it gives to each of ``items``, GEMMs of one type."""
    import numpy as np

    gemms = [item.kernels[-1] for item in items if isinstance(item.kernels[-1], Gemm)]
    moved_bytes = np.array([sum(other.hbm_bytes for other in item.kernels[:-1]) for item in items])
    blank = np.array([item.blank for item in items])
    moving = list(zip(gemms, moved_bytes, strict=True))
    cached = np.array([cached_share(gemm, moved, gpu) for gemm, moved in moving])
    rows_cached = np.array([rows_cached_share(gemm, moved, gpu) for gemm, moved in moving])
    unaligned = np.array([is_unaligned(gemm) for gemm in gemms])
    products = products_of(gemms, gpu)

    def seconds(profile: GpuProfile) -> Array:
        harness = harness_of(gemms[0], profile)
        started = replace(as_timed(gemms[0], profile), clock_fraction=1.0)
        times = product_times(products, gpu, started, _with_cache(gpu, cached, profile))
        limited = limited_share(times.seconds(gpu, started, 0.0), harness)
        drawn = 1.0 - blank * (1.0 - harness.blank_draw)
        found = harness.slowdown * times.seconds(gpu, started, limited, drawn)
        found = found * np.where(unaligned, harness.unaligned_slowdown, 1.0) + harness.beside_s
        found += _beside_seconds(harness, moved_bytes, products.m, rows_cached, gpu)
        found += np.where(unaligned, harness.unaligned_s, 0.0)
        least: Array = harness.call_s + np.where(unaligned, harness.unaligned_call_s, 0.0)
        return np.maximum(found, least)

    return seconds


def _with_cache(gpu: Gpu, cached: Array, profile: GpuProfile) -> Array:
    """HBM rates as kernels find them that L2 serves a share ``cached`` of their bytes."""
    reached = profile.memory.stream_efficiency
    seconds_a_byte = cached / gpu.l2_bytes_per_s + (1.0 - cached) / (reached * gpu.hbm_bytes_per_s)
    return 1.0 / (seconds_a_byte * reached)


def _beside_seconds(harness: Harness, moved_bytes: Array, rows: Array, cached: Array, gpu: Gpu) -> Array:
    """Seconds that the harness of a table times besides the GEMMs, as curve_fit.py has them, for all rows at
    once."""
    own_bytes_per_s = harness.beside_efficiency * gpu.hbm_bytes_per_s
    moving_s = moved_bytes * (
        cached / min(own_bytes_per_s, gpu.l2_bytes_per_s)
        + (1.0 - cached) / min(own_bytes_per_s, gpu.hbm_bytes_per_s)
    )
    waiting_s = rows * harness.row_s * (1.0 - CACHED_ROW * cached)
    joined_s: Array = (moving_s**JOINED + waiting_s**JOINED) ** (1.0 / JOINED)
    return joined_s
