"""Every layout of a space at once: whether it fits, and what its step takes at least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....hardware.calibrated.overlay import calibrated_profile
from ...engine.collection import collection_paused
from ...scenario.machine import gpu_of
from .bound import BoundScreen
from .memory import MemoryScreen
from .tables import tables_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....hardware.profile import GpuProfile
    from ..space import Space


@dataclass(frozen=True, kw_only=True)
class Screened:
    """By layout: bytes of its fullest stage, what of them is held all through the step, bytes of a GPU,
    seconds that its step takes at least.

    Where memory depends on how far hosts are ahead of their GPUs, it is that of hosts as far ahead as they
    can be. A bound of 0 says nothing: such layouts are far too large.
    """

    peak_bytes: NDArray[np.float64]
    static_bytes: NDArray[np.float64]
    capacity_bytes: NDArray[np.float64]
    bound_s: NDArray[np.float64]


FULL_BY_FAR = 1.25
"""Of a GPU's memory: layouts that take more are not bounded, since nobody would propose them. Measured peaks
are up to 15 % below predicted ones (docs/accuracy.md)."""


def screen(space: Space, profile: GpuProfile | None = None, *, within: float = FULL_BY_FAR) -> Screened:
    """Memory of every layout, and the bound of those that take up to ``within`` of a GPU's memory.

    ``profile`` stands in place of the one that each base names where given.
    """
    peak, static, capacity, bound = (np.zeros(len(space)) for _ in range(4))
    with collection_paused():
        for number, base in enumerate(space.bases):
            used = profile or calibrated_profile(gpu_of(base.cluster), base.calibration)
            tables = tables_of(space, number, used)
            if not len(tables.rows):
                continue
            gpu_bytes = tables.cluster.gpu.hbm_bytes
            peaks, static[tables.rows] = MemoryScreen(tables=tables).peaks()
            fits = peaks <= within * gpu_bytes
            peak[tables.rows], capacity[tables.rows] = peaks, gpu_bytes
            if fits.any():
                bound[tables.rows] = BoundScreen(tables=tables, wanted=fits).bounds()
    return Screened(peak_bytes=peak, static_bytes=static, capacity_bytes=capacity, bound_s=bound)
