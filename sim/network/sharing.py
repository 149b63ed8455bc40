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
"""Factor up to which rates and levels count as equal."""

FEW = 64
"""Activities up to which plain Python is faster than arrays (measured, of up to three links each): 11 against
44 us for 4 of them, 100 against 205 us for 24, 470 against 570 us for 64, 940 against 890 us for 96."""


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
    left = {link: capacity[link] for demand in demands for link in demand.links}
    rates, open_ = [0.0] * len(demands), list(range(len(demands)))
    while open_:
        level, full = _next_level([demands[i] for i in open_], left)
        spent, still_open = dict[Link, float](), list[int]()
        for i in open_:
            demand = demands[i]
            ceiling, heaviest = demand.ceiling, demand.heaviest
            if ceiling * heaviest > level * SLACK and full.isdisjoint(demand.links):
                still_open.append(i)
                continue
            rates[i] = rate = min(level / heaviest, ceiling)
            for link, weight in demand.weights:
                spent[link] = spent.get(link, 0.0) + weight * rate
        for link, rate in spent.items():
            left[link] = max(0.0, left[link] - rate)
        open_ = still_open
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


def _next_level(open_: Sequence[Demand], left: Mapping[Link, float]) -> tuple[float, set[Link]]:
    """The common phi at which the next link or ceiling binds, and the links that are full there.

    In the order of operations of filling.py, so that both ways agree to the last bit.
    """
    load: dict[Link, float] = {}
    level = math.inf
    for demand in open_:
        heaviest = demand.heaviest
        level = min(level, demand.ceiling * heaviest)
        for link, weight in demand.weights:
            load[link] = load.get(link, 0.0) + weight / heaviest
    at = {link: left[link] / total for link, total in load.items() if total > 0}
    level = min(level, min(at.values(), default=math.inf))
    return level, {link for link, phi in at.items() if phi <= level * SLACK}
