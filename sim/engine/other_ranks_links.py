"""What slows a communication on ranks other than one: nothing, some links, or more than links can say.

Kept by demand and rank until a capacity changes. Knows no flow and no time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..network.sharing import Demand, Link


class LinksOfOtherRanks:
    """Remembers which links on other ranks can slow a communication; ``capacity`` is in bytes per second."""

    def __init__(self, capacity: Mapping[Link, float]) -> None:
        self._capacity = capacity
        self._known: dict[tuple[int, int], tuple[Demand, tuple[Link, ...] | None]] = {}

    def links(self, demand: Demand, r: int) -> tuple[Link, ...] | None:
        """The links of ``demand`` on ranks other than ``r``. None where one of these, or a link of the
        fabric, may be what slows it even without other flows."""
        known = self._known.get((id(demand), r))
        if known is None:  # beside the demand itself, so that no other takes its id
            known = self._known[id(demand), r] = demand, self._found(demand, r)
        return known[1]

    def forget(self) -> None:
        """Forget every answer, because capacities have changed."""
        self._known.clear()

    def _found(self, demand: Demand, r: int) -> tuple[Link, ...] | None:
        capacity, here, elsewhere = self._capacity, list[float](), dict[Link, float]()
        heaviest = 0.0
        for link, weight in demand.weights:
            if not isinstance(link, tuple):
                return None
            if link[0] == r:
                here.append(capacity[link] / weight)
                heaviest = max(heaviest, weight)
            else:
                elsewhere[link] = capacity[link] / weight
        fastest = min(demand.ceiling, *here) if here else math.inf
        alone = heaviest == demand.heaviest and fastest <= min(elsewhere.values(), default=math.inf)
        return tuple(elsewhere) if alone else None
