"""New rates of the flows that hang together with those that changed.

Few are all solved anew; of many, those that the change reaches (``repair``). Knows no events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..network.sharing import Demand, Link
from .flow import Flow
from .occupancy import Crowd, Occupancy
from .repaired_rates import RateRepair
from .shares import Share, Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Computes rates of the flows of a replay; its owner changes the flows."""

    flows: Mapping[int, Flow]
    demands: Mapping[int, Demand]
    at: Occupancy
    shares: Shares
    capacity: Mapping[Link, float]

    def rates(self, changed: Iterable[int]) -> Iterator[tuple[int, Share]]:
        """Numbers and shares of the flows that hang together with ``changed`` ones; those that repair reaches
        are found after all others have been taken."""
        seen: set[int] = set()
        large: set[int] = set()
        reached: list[int] = []
        for seed in changed:
            if seed in seen or seed not in self.flows:
                continue
            component = self.at.component(seed, self.demands, large)
            if component is not None:
                seen.update(component)
                yield from self._solved(component)
            else:
                reached.append(seed)
        if reached:
            yield from self._repaired(reached)

    def _solved(self, component: Mapping[int, Crowd]) -> Iterator[tuple[int, Share]]:
        demands = [self.demands[number] for number in component]
        return zip(component, self.shares.shared(demands, component.values()), strict=True)

    def _repaired(self, reached: list[int]) -> Iterator[tuple[int, Share]]:
        """Shares of those flows, of many that hang together, that the change reaches."""
        found = RateRepair(self.flows, self.at, self.shares, self.capacity).found(reached)
        if found is not None:
            yield from found.items()
            return
        seen: set[int] = set()
        for seed in reached:
            if seed not in seen:
                component = self.at.component(seed, self.demands, set(), math.inf)
                assert component is not None
                seen.update(component)
                yield from self._solved(component)
