"""The process groups of a layout: the rank grid is one reshaped array, and groups are its slices along axes.

Ranks are laid out in the order of ``parallelism.order`` (fastest first, as Megatron names it). Knows ranks
only; which GPUs they run on is in ``placed_groups``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..scenario.blocks import Parallelism
    from ..scenario.models import Scenario

    Ids = NDArray[np.int64]

_PP = ("pp.stages", "pp.copies")
_CP = ("cp.ring", "cp.heads")

AXES: Mapping[str, tuple[str, ...]] = {
    "pipelines": ("pp", "place"),
    "dense": (*_PP, "dp", *_CP, "tp"),
    "shards": (*_PP[:1], "replicas", "shards", "tp"),
    "experts": (*_PP, "edp", "ep", "etp"),
    "expert shards": (*_PP[:1], "expert replicas", "expert shards", "ep", "etp"),
}
"""The ways in which all ranks are cut into axes, slowest first.

``pp`` has two parts: stages that differ, and the ranks that hold copies of one (two where microbatches travel
both ways, else one). ``cp`` has two: neighbours that exchange heads, and rings of these. ``shards`` hold one
copy of the sharded state, whose ``replicas`` are the rest of those that hold the same parameters. Experts are
spread over the ranks of a stage on axes of their own.
"""

GROUPS: dict[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": _CP,
    "cp.ring": ("cp.ring",),
    "cp.heads": ("cp.heads",),
    "dp": ("pp.copies", "dp", *_CP),
    "world": AXES["dense"],
    "fsdp": ("shards",),
    "hsdp": ("replicas",),
    "ep": ("ep",),
    "etp": ("etp",),
    "edp": ("pp.copies", "edp"),
    "efsdp": ("expert shards",),
    "ehsdp": ("expert replicas",),
    "pp": ("pp",),
    "model": (*_PP, "tp"),
    "amax": ("dp", *_CP, "tp"),
    "amax.tp": (*_CP, "tp"),
}
"""Process groups by name, with the axes that they run along; ``model`` holds one copy of the model.

A communicator with a name from here gets its links, its place in the folding and the check of a placement by
being here. The ends of a tied table are part of a group of ``pp``.
"""


@dataclass(frozen=True, kw_only=True)
class ProcessGroups:
    """The groups of a layout; ``two_way``: every stage is there twice, on pipeline ranks r and pp - 1 - r.
    ``experts_whole``: the ranks that hold the same experts hold all of their state, and no shard."""

    parallelism: Parallelism
    two_way: bool = False
    experts_whole: bool = False
    _known: dict[tuple[int, tuple[str, ...]], dict[str, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def cut_by(self) -> tuple[Hashable, ...]:
        """All of the layout that the groups follow from."""
        par = self.parallelism
        axes = par.tp, par.cp, par.cp_a2a, par.dp, par.pp, par.ep, par.etp
        return self.two_way, self.experts_whole, par.order, par.fsdp_shard_size, *axes

    @cached_property
    def stages(self) -> Ids:
        """The ranks of each pipeline rank, one a row; dp is slowest, then cp, then tp."""
        par = self.parallelism
        sizes = {"tp": par.tp, "cp": par.cp, "dp": par.dp, "pp": par.pp}
        order = [axis for axis in par.order.split("-") if axis != "ep"]  # ep lies inside dp, cp and tp
        grid = np.arange(par.tp * par.cp * par.dp * par.pp).reshape([sizes[axis] for axis in reversed(order)])
        slowest_first = [len(order) - 1 - order.index(axis) for axis in ("pp", "dp", "cp", "tp")]
        return grid.transpose(slowest_first).reshape(par.pp, -1)

    @cached_property
    def _sorted_stages(self) -> Ids:
        """The same in the global order of ranks, which experts are spread over.

        etp is fastest, then ep (Megatron-LM parallel_state.py, ``expert_decoder_rank_generator``: the same
        order with sizes of its own).
        """
        return np.sort(self.stages, axis=1, kind="stable")  # the usual order is sorted already

    @cached_property
    def grids(self) -> Mapping[str, Ids]:
        """All ranks as arrays, with the axes of ``AXES``."""
        dense, experts = self._with_copies(self.stages), self._with_copies(self._sorted_stages)
        ranks = {"pipelines": self.stages, "experts": experts, "expert shards": experts}
        sizes = self._sizes
        return {
            cut: ranks.get(cut, dense).reshape([sizes[axis] for axis in axes]) for cut, axes in AXES.items()
        }

    @property
    def _sizes(self) -> Mapping[str, int]:
        """The size of each axis; -1 for what the others of a cut leave."""
        par = self.parallelism
        copies, heads = 2 if self.two_way else 1, par.cp_a2a or 1
        alike = copies * par.dp * par.cp  # ranks that hold the same dense parameters
        replicas = alike // (par.fsdp_shard_size or alike)
        of_pp = {"pp": par.pp, "pp.stages": par.pp // copies, "pp.copies": copies, "place": -1}
        dense = {"dp": par.dp, "cp.ring": par.cp // heads, "cp.heads": heads, "tp": par.tp}
        experts = {"edp": -1, "ep": par.ep, "etp": par.etp}
        shards = {"replicas": replicas, "shards": -1}
        if self.experts_whole:
            shards |= {"expert replicas": -1, "expert shards": 1}
        else:
            shards |= {"expert replicas": replicas, "expert shards": -1}
        return of_pp | dense | experts | shards

    def _with_copies(self, stages: Ids) -> Ids:
        """The ranks of each stage, and then those of its copy."""
        if not self.two_way:
            return stages
        half = len(stages) // 2
        return np.concatenate([stages[:half], stages[::-1][:half]], axis=1)

    @cached_property
    def pipeline_rank(self) -> Ids:
        """The pipeline rank of every rank."""
        return self.number(("place",))

    def of(self, along: str | tuple[str, ...]) -> Ids:
        """The ranks of each group of a name, or along axes, one group a row.

        >>> from ..scenario.blocks import Parallelism
        >>> ProcessGroups(parallelism=Parallelism(tp=2, dp=2)).of("dp").tolist()
        [[0, 2], [1, 3]]
        """
        joined, axes, grid = self._cut(along)
        apart = [number for number, axis in enumerate(axes) if axis not in joined]
        within = [number for number, axis in enumerate(axes) if axis in joined]
        size = int(np.prod([grid.shape[number] for number in within]))
        return grid.transpose([*apart, *within]).reshape(-1, size)

    def number(self, along: str | tuple[str, ...]) -> Ids:
        """The number of every rank's group: its row in ``of``."""
        rows = self.of(along)
        number = np.empty(rows.size, dtype=np.int64)
        number[rows] = np.arange(len(rows))[:, np.newaxis]
        return number

    def place(self, along: str | tuple[str, ...]) -> Ids:
        """Every rank's place in its group: its column in ``of``."""
        rows = self.of(along)
        place = np.empty(rows.size, dtype=np.int64)
        place[rows] = np.arange(rows.shape[1])
        return place

    def containing(self, along: str | tuple[str, ...], rank: int) -> Ids:
        """The ranks of the group that a rank belongs to."""
        joined, axes, grid = self._cut(along)
        if (rank, axes) not in self._known:
            self._known[rank, axes] = self.coordinates(rank, axes)
        coordinates = self._known[rank, axes]
        at = tuple(slice(None) if axis in joined else coordinates[axis] for axis in axes)
        ranks: Ids = grid[at].ravel()
        return ranks

    def coordinates(self, rank: int, axes: tuple[str, ...]) -> dict[str, int]:
        """The coordinate of a rank along each axis of the cut that has these ``axes``, counted from 0."""
        grid = self.grids[_cut_along(axes)]
        place = np.unravel_index(int(np.argmax(grid == rank)), grid.shape)
        return {axis: int(number) for axis, number in zip(axes, place, strict=True)}

    def _cut(self, along: str | tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], Ids]:
        """The axes that a group runs along, and those and the grid of the cut that has them."""
        joined = GROUPS[along] if isinstance(along, str) else along
        cut = _cut_along(joined)
        return joined, AXES[cut], self.grids[cut]


def process_groups_of(scenario: Scenario) -> ProcessGroups:
    """The process groups of a scenario's ranks."""
    from ..scenario.schedules import traits_of

    return ProcessGroups(
        parallelism=scenario.parallelism,
        two_way=traits_of(scenario.schedule).two_way,
        experts_whole=scenario.software.sharding.experts_whole,
    )


def holds_experts(name: str) -> bool:
    """Whether a group is of those that experts are spread over."""
    return _cut_along(GROUPS[name]) in ("experts", "expert shards")


@cache
def _cut_along(axes: tuple[str, ...]) -> str:
    """The first way of cutting all ranks that has these axes."""
    return next(cut for cut, found in AXES.items() if set(axes) <= set(found))
