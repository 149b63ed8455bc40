"""Weighted max-min fair rates of running communications.

An activity progresses at ``x`` payload bytes per second, puts weight ``w_l`` on link l, and has a
ceiling. Fairness is in ``phi = x * max_l w_l``, the bytes per second on its busiest link; the
ceiling acts as a private link, so the allocation is unique (Bertsekas & Gallager, Data Networks,
section 6.5.2: progressive filling). Where an activity stands for several equal ones that cross the
same link, their weights there add up, and ``phi`` stays that of one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .filling import fill

Link = Hashable

SLACK = 1 + 1e-12
"""By which rates and levels that should be equal may differ."""

FEW = 3
"""Activities up to which plain Python is faster than arrays, which take 0.1 ms at least (measured)."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One activity: its ceiling in payload bytes per second, and its weight on each link.

    ``heaviest`` is the bytes per payload byte that fairness counts: by default the largest weight.
    ``links`` are those of ``weights``.
    """

    ceiling: float
    weights: tuple[tuple[Link, float], ...]
    heaviest: float = 0.0
    links: tuple[Link, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "links", tuple([link for link, _ in self.weights]))
        if not self.heaviest:
            object.__setattr__(self, "heaviest", max((w for _, w in self.weights), default=1.0))


def max_min_rates(demands: Sequence[Demand], capacity: Mapping[Link, float]) -> list[float]:
    """Payload rates of ``demands`` under ``capacity`` (bytes per second per link)."""
    if len(demands) == 1:
        return [alone(demands[0], capacity)]
    if len(demands) > FEW:
        return _filled(demands, capacity)
    rates = [0.0] * len(demands)
    left = {link: capacity[link] for d in demands for link, _ in d.weights}
    open_ = set(range(len(demands)))
    while open_:
        level, full = _next_level(demands, open_, left)
        frozen = {i for i in open_ if _is_bound(demands[i], level, full)}
        for i in frozen:
            demand = demands[i]
            rates[i] = min(level / demand.heaviest, demand.ceiling)
            for link, weight in demand.weights:
                left[link] = max(0.0, left[link] - rates[i] * weight)
        open_ -= frozen
    return rates


def _filled(demands: Sequence[Demand], capacity: Mapping[Link, float]) -> list[float]:
    """Payload rates of the demands in bytes per second, in their order; solved over arrays."""
    numbers = {
        link: i for i, link in enumerate(dict.fromkeys(link for d in demands for link, _ in d.weights))
    }
    pairs = [(i, numbers[link], weight) for i, d in enumerate(demands) for link, weight in d.weights]
    rates = fill(
        np.array([d.ceiling for d in demands]),
        np.array([i for i, _, _ in pairs], dtype=np.int64),
        np.array([link for _, link, _ in pairs], dtype=np.int64),
        np.array([weight for _, _, weight in pairs], dtype=float),
        np.array([capacity[link] for link in numbers], dtype=float),
        np.array([d.heaviest for d in demands]),
    )
    return [float(rate) for rate in rates]


def alone(demand: Demand, capacity: Mapping[Link, float]) -> float:
    """The rate of an activity that shares no link."""
    return min([demand.ceiling, *(capacity[link] / weight for link, weight in demand.weights)])


def _next_level(
    demands: Sequence[Demand], open_: set[int], left: Mapping[Link, float]
) -> tuple[float, set[Link]]:
    """The common phi at which the next link or ceiling binds, and the links that are full there."""
    load: dict[Link, float] = {}
    level = math.inf
    for i in sorted(open_):
        demand = demands[i]
        level = min(level, demand.ceiling * demand.heaviest)
        for link, weight in demand.weights:
            load[link] = load.get(link, 0.0) + weight / demand.heaviest
    level = min([level, *(left[link] / total for link, total in load.items())])
    return level, {link for link, total in load.items() if left[link] <= level * total * SLACK}


def _is_bound(demand: Demand, level: float, full: set[Link]) -> bool:
    """Whether this activity is held at ``level`` by its ceiling or by a link that is ``full`` there."""
    return demand.ceiling * demand.heaviest <= level * SLACK or not full.isdisjoint(demand.links)
