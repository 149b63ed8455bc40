"""Times of a sweep's GEMMs of one type, all at once.

Knows ``predicted_seconds`` of single GEMMs in arrays, which a test holds equal to it. Fits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeGuard

from ...hardware.gpu import Gpu
from ...hardware.profile import GpuProfile
from ...kernels.gemm_arrays import product_times, products_of
from ...kernels.kernel import Gemm, Kernel
from ..readers.measurements import Measurement
from .curve_fit import boosted_share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def sweep_times(items: Sequence[Measurement], gpu: Gpu) -> Callable[[GpuProfile], Array] | None:
    """A function of a profile: the seconds that it gives to each of ``items``. None where one of them is more
    than a single GEMM, or of a short run, or where they are of several types."""
    import numpy as np

    gemms = [kernel for item in items for kernel in item.kernels if _is_single(kernel, item)]
    if not gemms or len(gemms) < len(items) or len({gemm.dtype for gemm in gemms}) > 1:
        return None
    products = products_of(gemms, gpu)

    def seconds(profile: GpuProfile) -> Array:
        times = product_times(products, gpu, profile, gpu.hbm_bytes_per_s)
        sustained_s = times.seconds(gpu, profile, profile.measured_power_limited)
        boosted_s = sustained_s / (1.0 + profile.measured_boost * boosted_share(sustained_s))
        found: Array = np.maximum(boosted_s, profile.measured_call_s)
        return found

    return seconds


def _is_single(kernel: Kernel, item: Measurement) -> TypeGuard[Gemm]:
    return (
        item.operation == "gemm"
        and not item.short_run
        and len(item.kernels) == 1
        and isinstance(kernel, Gemm)
        and kernel.batch == kernel.calls == 1
    )
