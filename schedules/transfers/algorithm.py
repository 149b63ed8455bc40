"""What every collective algorithm is: a pure function from a group to a plan, for each of its collectives.

One file per algorithm in ``schedules/collectives``; each ends in ``ALGORITHM = Algorithm(...)`` and
is found by its name (``schedules.collectives.get("ring")``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .collective import CollectiveKind
from .group import RankGroup
from .loads import Loads
from .plan import TransferPlan

LoadsOf = Callable[[CollectiveKind, RankGroup], Loads]
Plans = Mapping[CollectiveKind, Callable[[RankGroup], TransferPlan]]


def any_group(group: RankGroup) -> None:
    """The check of an algorithm that runs on every group."""
    del group


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A named algorithm. ``check(group)`` refuses a group with a ValueError that says what would do.

    ``loads_of`` are the closed forms that price each of its collectives. ``uneven``: it runs where nodes have
    different numbers of ranks, too. ``in_phases``: what it does inside nodes and between them follows one
    another. ``reduces_in_node``: it needs switches of the node that reduce, ``reduces_in_network``: between
    nodes those of the network. ``place`` orders it among those that can be asked for.
    """

    name: str
    title: str
    plans: Plans
    loads_of: LoadsOf
    check: Callable[[RankGroup], None] = any_group
    uneven: bool = False
    in_phases: bool = False
    reduces_in_node: bool = False
    reduces_in_network: bool = False
    place: int = 1000

    @property
    def collectives(self) -> tuple[CollectiveKind, ...]:
        """What the algorithm can do."""
        return tuple(self.plans)

    def plan(self, collective: CollectiveKind | str, group: RankGroup) -> TransferPlan:
        """The collective on that group. Raises ValueError where the algorithm does not do it there."""
        return self.plans[self._known(collective, group)](group)

    def loads(self, collective: CollectiveKind | str, group: RankGroup) -> Loads:
        """What pricing that plan takes. Raises ValueError where the algorithm does not do it there."""
        return self.loads_of(self._known(collective, group), group)

    def _known(self, collective: CollectiveKind | str, group: RankGroup) -> CollectiveKind:
        known = {one.value: one for one in self.plans}
        if collective not in known:
            raise ValueError(f"{self.name} has no {str(collective)!r}; it has {', '.join(known)}")
        if group.parts and not self.uneven:
            ranks = ", ".join(map(str, group.parts))
            raise ValueError(f"{self.name} needs as many ranks on every node, not {ranks}")
        self.check(group)
        return known[collective]
