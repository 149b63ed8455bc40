"""Every layout of a space at once: whether it fits, and what its step takes at least.

Many layouts are divided among the cores so that each core does work which the others need not repeat. Usually
they are divided by the depth of the pipeline: stages and orders are then worked out by one core alone, and
blocks of layers by whichever core asks first. Where layers take more work than pipelines, as models with
experts do, they are divided by how tensors are cut or experts spread. What is found of a layout does not
depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from ....hardware.calibrated.overlay import calibrated_profile
from ...children import cores, in_children
from ...engine.collection import collection_paused
from ...scenario.machine import gpu_of
from ..certainty import fit_probability
from .bound import BoundScreen
from .memory import MemoryScreen
from .numbering import dense, zeros
from .tables import tables_of
from .times import ActionTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....hardware.profile import GpuProfile
    from ..space import Space
    from .tables import ScreenTables

    Codes = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Screened:
    """Four figures for each layout.

    ``needed_bytes`` is what its fullest stage needs, ``held_bytes`` the part of that which is held throughout
    the step, ``capacity_bytes`` what a GPU has, and ``bound_s`` a lower bound of its step. Where memory
    depends on how far hosts are ahead of their GPUs, they are as far ahead as they can be. A bound of 0 says
    nothing: such a layout is too large.
    """

    needed_bytes: NDArray[np.float64]
    held_bytes: NDArray[np.float64]
    capacity_bytes: NDArray[np.float64]
    bound_s: NDArray[np.float64]


FULL_BY_FAR = 1.25
"""Multiple of a GPU's memory above which a layout gets no bound: nobody would propose it. Measured peaks are
up to 15 % below predicted ones (docs/accuracy.md)."""


MANY = 1000
"""Layouts from which on a second process is worth starting."""

_DEPTHS = ("parallelism.pp", "parallelism.vpp")
"""Fields in which most different pipelines differ."""

_PIPELINES = (*_DEPTHS, "parallelism.stage_split", "training.recompute", "schedule")
"""Fields in which all different pipelines differ, apart from their number of microbatches."""

_WIDTHS = ("parallelism.tp", "parallelism.ep")
"""Fields in which most different layers differ; the second serves where a space has but few values of the
first."""

_LAYERS = (*_WIDTHS, "parallelism.cp", "parallelism.etp", "training.micro_batch")
"""Fields in which nearly all different layers differ."""


def screen(
    space: Space, profile: GpuProfile | None = None, *, within: float = FULL_BY_FAR, fits: float = 0.0
) -> Screened:
    """Memory of every layout, and the bound of each that takes at most ``within`` of a GPU's memory and fits
    with a probability of at least ``fits``.

    ``profile``, if given, stands in place of the one that each base names.
    """
    found = zeros(4, len(space))
    wanted = partial(_wanted, space, within=within, fits=fits)
    with collection_paused():
        tasks = [
            partial(together.screen, rows, wanted, found)
            for number in range(len(space.bases))
            for together, parts in _parts(space, number, profile)
            for rows in parts
        ]
        with in_children(tasks, worth_it=len(space) >= MANY) as done:
            done()
    needed, held, capacity, bound = found.copy()
    return Screened(needed_bytes=needed, held_bytes=held, capacity_bytes=capacity, bound_s=bound)


@dataclass(frozen=True, kw_only=True)
class _Together:
    """The layouts ``rows`` of base ``number``, which share their tables."""

    space: Space
    number: int
    rows: Codes
    profile: GpuProfile | None

    @cached_property
    def tables(self) -> ScreenTables:
        base = self.space.bases[self.number]
        used = self.profile or calibrated_profile(gpu_of(base.cluster), base.calibration)
        return tables_of(self.space, self.number, used, self.rows)

    @cached_property
    def times(self) -> ActionTimes:
        """Seconds of actions. The blocks of the shallowest pipelines, one for each kind of recomputation, are
        timed once for all processes that are forked afterwards."""
        tables = self.tables
        turns = np.argsort(tables.space.columns["parallelism.pp"][tables.rows], kind="stable")
        _, first = np.unique(tables.code("training.recompute")[turns], return_index=True)
        stages = [stage for row in turns[first].tolist() for stage in tables.pipeline(row).kinds]
        return ActionTimes(tables=tables, in_common=stages)

    def screen(self, rows: Codes, wanted: Callable[[Screened], Mask], found: Floats) -> float:
        """Screen some of the layouts, and put what is found into the columns ``rows`` of ``found``."""
        tables, places = self.tables, np.searchsorted(self.rows, rows)
        needed, held = (each[places] for each in MemoryScreen(tables=tables).needs(places))
        gpu_bytes = np.full(len(places), tables.cluster.gpu.hbm_bytes)
        bound_s = np.zeros(len(places))
        memory = Screened(needed_bytes=needed, held_bytes=held, capacity_bytes=gpu_bytes, bound_s=bound_s)
        bounded = np.zeros(len(tables.rows), dtype=bool)
        bounded[places] = wanted(memory)
        if bounded.any():
            bound_s = BoundScreen(tables=tables, wanted=bounded, times=self.times).bounds()[places]
        found[:, rows] = np.stack([needed, held, gpu_bytes, bound_s])
        return 0.0


def _wanted(space: Space, memory: Screened, *, within: float, fits: float) -> Mask:
    """Which layouts get a bound, by their memory."""
    fit = memory.needed_bytes <= within * memory.capacity_bytes
    return np.asarray(fit & (fit_probability(space.scenario, memory) >= fits), dtype=bool)


def _parts(space: Space, number: int, profile: GpuProfile | None) -> Iterator[tuple[_Together, list[Codes]]]:
    """The layouts of a base in as many parts as there are cores.

    A part has either about as many pipelines as the others, and tables in common with them, or about as many
    layers, and tables of its own: whichever there are more of, pipelines or layers.
    """
    rows = np.flatnonzero(space.base == number)
    count = -(-cores() // len(space.bases)) if len(space) >= MANY else 1
    if not len(rows):
        return

    def numbered(names: Sequence[str]) -> tuple[Codes, list[int]]:
        return dense([space.codes[name][rows] for name in names])

    wide = [name for name in _WIDTHS if np.count_nonzero(np.bincount(space.codes[name][rows])) >= count]
    deep = not wide or len(numbered(_LAYERS)[1]) < len(numbered(_PIPELINES)[1])
    part_of = numbered(_DEPTHS if deep else wide[:1])[0] % count
    parts = [part for place in range(count) if len(part := rows[part_of == place])]
    for together in [parts] if deep else [[part] for part in parts]:
        of = np.sort(np.concatenate(together))
        found = _Together(space=space, number=number, rows=of, profile=profile)
        if len(together) > 1:
            found.times  # noqa: B018 - before processes part, so that they have them in common
        yield found, together
