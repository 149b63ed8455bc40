"""Layouts that are the same to the simulator, by rules of the software and by where ranks are.

Two ZeRO stages are the same where the software makes nothing more of the higher one; two splits of layers
where stages have the same; two orders of ranks where each group of a rank sits over as many domains and each
message goes as far. Knows fields and where ranks are; knows no replay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..fold.can_bind import can_bind
from ..lowering.layers.routing import distinct_loads
from ..lowering.layers.stages import build_stages
from ..lowering.placed_groups import PlacedGroups, domains, gpus
from ..lowering.process_groups import process_groups_of
from ..scenario.machine import cluster_of
from ..scenario.sharding import same_stages
from .distinct_placements import ways_placed
from .row_numbers import numbered_rows
from .same_twice import SPLIT, ZERO

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ..lowering.layers.stages import Stage
    from ..scenario.models import Scenario
    from .axes import Values

    Ids = NDArray[np.int64]

ORDER = "parallelism.order"

_PLACED = (
    *(f"parallelism.{name}" for name in ("tp", "cp", "cp_a2a", "pp", "vpp", "ep", "etp", "dp")),
    "parallelism.fsdp_shard_size",
    ORDER,
    "schedule",
)
"""Fields that say where ranks are, and who talks to whom."""


@dataclass(kw_only=True)
class Twins:
    """The twins in one space (``Space``), each found when somebody asks for it; ``draft`` gives a layout."""

    bases: Sequence[Scenario]
    base: Ids
    values: Mapping[str, Values]
    codes: Mapping[str, Ids]
    draft: Callable[[int], Scenario]
    _clusters: dict[int, Cluster] = field(default_factory=dict)
    _places: dict[tuple[int, ...], Hashable] = field(default_factory=dict)
    _stages: dict[int, tuple[Stage, ...]] = field(default_factory=dict)

    def of(self, i: int) -> int:
        """The layout whose step and memory are those of layout ``i``, the first by ZeRO stage, order of ranks
        and split; ``i`` itself where there is none before it."""
        order, split = self.codes[ORDER], self.codes[SPLIT]
        return next(
            j
            for j in self._as_sharded(i)
            if (split[j] == split[i] or self._same_stages(i, j))
            and (order[j] == order[i] or self._same_place(i, j))
        )

    def _as_sharded(self, i: int) -> list[int]:
        """Layouts that differ in the order of ranks and the split alone, or in a ZeRO stage that is the
        same."""
        number, place, first = self._kinds
        found = place[first[number[i]] : first[number[i] + 1]]
        stages, zero, order, split = self.values[ZERO], self.codes[ZERO], self.codes[ORDER], self.codes[SPLIT]
        same = same_stages(self.draft(i)) if stages[zero[i]] > 1 else [stages[zero[i]]]
        alike = [j for j in found.tolist() if stages[zero[j]] in same]
        return sorted(alike, key=lambda j: (stages[zero[j]], order[j], split[j]))

    def _same_stages(self, i: int, j: int) -> bool:
        return self._stages_of(i) == self._stages_of(j)

    def _stages_of(self, i: int) -> tuple[Stage, ...]:
        if i not in self._stages:
            self._stages[i] = build_stages(self.draft(i))
        return self._stages[i]

    @cached_property
    def _kinds(self) -> tuple[Ids, Ids, Ids]:
        """Layouts that differ in ZeRO stage, split and order of ranks at most: the number of each, all by
        these numbers, and the place of the first of each number among them."""
        names = [name for name in self.codes if name not in (ZERO, SPLIT, ORDER)]
        sizes = [len(self.bases), *(len(self.values[name]) for name in names)]
        key, there, _ = numbered_rows([self.base, *(self.codes[name] for name in names)], sizes)
        dense = np.full(int(there.max(initial=-1)) + 1, -1, dtype=np.int64)
        dense[there] = np.arange(len(there))
        number = dense[key]
        place = np.argsort(number, kind="stable")
        return number, place, np.searchsorted(number[place], np.arange(len(there) + 1))

    def _same_place(self, i: int, j: int) -> bool:
        places = []
        for one in (i, j):
            key = int(self.base[one]), *(int(self.codes[name][one]) for name in _PLACED)
            if key not in self._places:
                self._places[key] = self._place(one)
            places.append(self._places[key])
        return places[0] is not None and places[0] == places[1]

    def _place(self, i: int) -> Hashable:
        """How the ranks of a layout are placed, by which its programs differ from those of another order;
        None where ranks differ or share links of the fabric, so that the placement alone does not decide
        that."""
        draft, cluster = self.draft(i), self._cluster(int(self.base[i]))
        where = gpus(draft.cluster, cluster)
        placed = PlacedGroups(process_groups=process_groups_of(draft), cluster=cluster, gpu=where)
        ways = ways_placed(draft, placed, cluster)
        if can_bind(cluster) or len(ways.first) > 1 or len(distinct_loads(draft)) > 1:
            return None
        own = placed.of_rank(0)
        replica = where[list(own.replica)]
        named = tuple(sorted(own.named.items()))
        uneven = tuple(sorted(ways.groups))
        return named, uneven, _parts(domains(replica, cluster)), _parts(replica // cluster.gpus_per_node)

    def _cluster(self, base: int) -> Cluster:
        if base not in self._clusters:
            self._clusters[base] = cluster_of(self.bases[base].cluster)
        return self._clusters[base]


def _parts(numbers: Ids) -> tuple[int, ...]:
    """Which entries are equal, whatever they are.

    >>> _parts(np.array([7, 3, 7, 4]))
    (0, 1, 0, 2)
    """
    known: dict[int, int] = {}
    return tuple(known.setdefault(number, len(known)) for number in numbers.tolist())
