"""Rates of flows and what holds them: of one alone, and of those that share links, remembered by shape.

Of several full links the one where others have least holds a flow: everyone has one where none has more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from ..network.sharing import Demand, Link, alone, max_min_rates
from .slowed import SLACK, binding

if TYPE_CHECKING:
    from .occupancy import Crowd

MOST_REMEMBERED = 4096
"""Shapes whose rates are remembered, for all replays: they say all that the rates follow from. They have some
thirty numbers each, where many flows hang together some hundreds.
"""

ROUNDING = 1e-12
"""Relative difference up to which a rate counts as at its ceiling."""

Share = tuple[float, Link | None]
"""Payload bytes per second, and what holds them below the flow's ceiling."""


class Shares:
    """Shares of flows, remembered. ``capacity`` (bytes per second) belongs to the caller, who calls
    ``forget`` after changes."""

    def __init__(self, capacity: Mapping[Link, float]) -> None:
        self._capacity = capacity
        self._solo: dict[int, tuple[Demand, Share]] = {}

    def forget(self) -> None:
        """Drop the shares that were computed, because capacities have changed."""
        self._solo.clear()

    def solo(self, demand: Demand) -> Share:
        """The share of a flow without others: bytes per second, and what limits it."""
        known = self._solo.get(id(demand))
        if known is None:
            rate = alone(demand, self._capacity)
            known = self._solo[id(demand)] = demand, (rate, binding(demand, rate, self._capacity))
        return known[1]

    def shared(self, demands: Sequence[Demand], crowds: Iterable[Crowd]) -> list[Share]:
        """Shares of flows that share the links of ``crowds``, on which they put these weights."""
        solo = [self.solo(demand) for demand in demands]
        if len(demands) == 1:
            return solo
        links: dict[Link, int] = {}
        shape: list[float] = []
        for (rate, _), demand, crowd in zip(solo, demands, crowds, strict=True):
            shape += (rate, demand.heaviest, len(crowd))
            for link, weight in crowd:
                shape += (links.setdefault(link, len(links)), weight)
        names = tuple(links)
        shape += [self._capacity[link] for link in names]
        found = _fair(tuple(shape), len(demands), len(names))
        return [
            (rate, own if bound is None else names[bound])
            for (_, own), (rate, bound) in zip(solo, found, strict=True)
        ]


@lru_cache(maxsize=MOST_REMEMBERED)
def _fair(shape: tuple[float, ...], flows: int, links: int) -> Sequence[tuple[float, int | None]]:
    """Rates, and the number of the link that holds each below its rate alone."""
    capacity = dict(enumerate(shape[len(shape) - links :]))
    demands: list[Demand] = []
    crowds: list[tuple[tuple[int, float], ...]] = []
    at = 0
    for _ in range(flows):
        end = at + 3 + 2 * int(shape[at + 2])
        crowds.append(tuple(zip(map(int, shape[at + 3 : end : 2]), shape[at + 4 : end : 2], strict=True)))
        demands.append(Demand(shape[at], crowds[-1], shape[at + 1]))
        at = end
    rates = max_min_rates(demands, cast("dict[Link, float]", capacity))
    levels = [demand.heaviest * rate for demand, rate in zip(demands, rates, strict=True)]
    most = _most(crowds, rates, levels, capacity)
    found: list[tuple[float, int | None]] = []
    for demand, crowd, rate, level in zip(demands, crowds, rates, levels, strict=True):
        if rate >= demand.ceiling * (1 - SLACK):
            found.append((demand.ceiling if rate >= demand.ceiling * (1 - ROUNDING) else rate, None))
            continue
        others = {link: most[link][1 if level >= most[link][0] else 0] for link, _ in crowd if link in most}
        found.append((rate, min(others, key=others.__getitem__, default=None)))
    return tuple(found)


def _most(
    crowds: Sequence[Sequence[tuple[int, float]]],
    rates: Sequence[float],
    levels: Sequence[float],
    capacity: Mapping[int, float],
) -> dict[int, tuple[float, float]]:
    """The highest level, and the next, on every link that is full."""
    load, most = dict.fromkeys(capacity, 0.0), dict.fromkeys(capacity, (0.0, 0.0))
    for crowd, rate, level in zip(crowds, rates, levels, strict=True):
        for link, weight in crowd:
            load[link] += weight * rate
            first, second = most[link]
            if level > second:
                most[link] = (level, first) if level > first else (first, level)
    return {link: most[link] for link, total in load.items() if total >= capacity[link] * (1 - SLACK)}
