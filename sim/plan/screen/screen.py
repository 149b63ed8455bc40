"""Every layout of a space at once: whether it fits, and what its step takes at least.

Layouts of many are split among the cores by how deep their pipelines are, whose stages and orders then are
worked out once all the same; or by how tensors are cut, or experts spread, where layers take more work than
pipelines, as those with experts do. What one says of a layout does not depend on others.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ....hardware.calibrated.overlay import calibrated_profile
from ...children import cores, in_children
from ...engine.collection import collection_paused
from ...scenario.machine import gpu_of
from ..certainty import fit_probability
from .bound import BoundScreen
from .memory import MemoryScreen
from .numbering import dense
from .tables import tables_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....hardware.profile import GpuProfile
    from ..space import Space

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Screened:
    """By layout: bytes that its fullest stage needs, what of them is held all through the step, bytes of a
    GPU, seconds that its step takes at least.

    Where memory depends on how far hosts are ahead of their GPUs, it is that of hosts as far ahead as they
    can be. A bound of 0 says nothing: such layouts are too large.
    """

    needed_bytes: NDArray[np.float64]
    held_bytes: NDArray[np.float64]
    capacity_bytes: NDArray[np.float64]
    bound_s: NDArray[np.float64]


FULL_BY_FAR = 1.25
"""Of a GPU's memory: layouts that take more are not bounded, since nobody would propose them. Measured peaks
are up to 15 % below predicted ones (docs/accuracy.md)."""


MANY = 1000
"""Layouts that are worth a second process."""

_DEPTHS = ("parallelism.pp", "parallelism.vpp")
"""Fields that tell most pipelines apart."""

_PIPELINES = (*_DEPTHS, "parallelism.stage_split", "training.recompute", "schedule")
"""Fields that tell all of them apart, but for how many microbatches they have."""

_WIDTHS = ("parallelism.tp", "parallelism.ep")
"""Fields that tell most layers apart; the second where the software has but one value of the first."""

_LAYERS = (*_WIDTHS, "parallelism.cp", "parallelism.etp", "training.micro_batch")
"""Fields that tell nearly all of them apart."""


def screen(
    space: Space, profile: GpuProfile | None = None, *, within: float = FULL_BY_FAR, fits: float = 0.0
) -> Screened:
    """Memory of every layout, and the bound of those that take up to ``within`` of a GPU's memory and fit
    with a probability of ``fits``.

    ``profile`` stands in place of the one that each base names where given.
    """
    found = _shared(4, len(space))
    wanted = partial(_wanted, space, within=within, fits=fits)
    tasks = [
        partial(_screen, space, number, rows, profile, wanted, found)
        for number in range(len(space.bases))
        for rows in _parts(space, number)
    ]
    with collection_paused(), in_children(tasks, worth_it=len(space) >= MANY) as done:
        done()
    needed, held, capacity, bound = found.copy()
    return Screened(needed_bytes=needed, held_bytes=held, capacity_bytes=capacity, bound_s=bound)


def _screen(
    space: Space,
    number: int,
    rows: NDArray[np.int64],
    profile: GpuProfile | None,
    wanted: Callable[[Screened], Mask],
    found: Floats,
) -> float:
    """Put what is found of some layouts of base ``number`` into the columns of ``found``."""
    if not len(rows):
        return 0.0
    base = space.bases[number]
    used = profile or calibrated_profile(gpu_of(base.cluster), base.calibration)
    tables = tables_of(space, number, used, rows)
    needed, held = MemoryScreen(tables=tables).needs()
    gpu_bytes = np.full(len(rows), tables.cluster.gpu.hbm_bytes)
    memory = Screened(
        needed_bytes=needed, held_bytes=held, capacity_bytes=gpu_bytes, bound_s=np.zeros(len(rows))
    )
    bounded = wanted(memory)
    bounds = BoundScreen(tables=tables, wanted=bounded).bounds() if bounded.any() else memory.bound_s
    found[:, rows] = np.stack([needed, held, gpu_bytes, bounds])
    return 0.0


def _wanted(space: Space, memory: Screened, *, within: float, fits: float) -> Mask:
    """Layouts of that memory that are bounded."""
    fit = memory.needed_bytes <= within * memory.capacity_bytes
    return np.asarray(fit & (fit_probability(space.scenario, memory) >= fits), dtype=bool)


def _parts(space: Space, number: int) -> list[NDArray[np.int64]]:
    """The layouts of a base, in as many parts as there are cores for: about as many pipelines in each,
    or about as many layers, whichever there are more of."""
    rows = np.flatnonzero(space.base == number)
    count = -(-cores() // len(space.bases)) if len(space) >= MANY else 1
    if count == 1 or not len(rows):
        return [rows]

    def numbered(names: Sequence[str]) -> tuple[NDArray[np.int64], list[int]]:
        return dense([space.codes[name][rows] for name in names])

    wide = [name for name in _WIDTHS if np.count_nonzero(np.bincount(space.codes[name][rows])) >= count]
    deep = not wide or len(numbered(_LAYERS)[1]) < len(numbered(_PIPELINES)[1])
    part_of = numbered(_DEPTHS if deep else wide[:1])[0] % count
    return [rows[part_of == part] for part in range(count)]


def _shared(rows: int, columns: int) -> Floats:
    """Zeros that children write into for this process to read."""
    memory = mmap.mmap(-1, max(1, rows * columns * np.dtype(np.float64).itemsize))
    return np.frombuffer(memory, dtype=np.float64, count=rows * columns).reshape(rows, columns)
