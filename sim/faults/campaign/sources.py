"""Sources of faults: when the next one comes, by a clock that its owner reads, and where it strikes.

``Poisson`` draws the earliest of all units at once (two draws a failure, whatever the number of units);
``Renewal`` keeps an age for every unit. Knows no job.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Protocol

from .chance import Law, Streams


@dataclass(frozen=True, kw_only=True)
class Source:
    """A process of a campaign, in SI units. ``gap`` is the law of one unit; None with ``prevalence``.

    ``keep_age``: a swapped-in unit is as old as the one before.
    """

    name: str
    kind: str
    scope: str
    units: int
    gap: Law | None
    memoryless: bool
    keep_age: bool
    prevalence: float
    duration: Law | None
    repair: Law | None
    slow_factor: float | None
    bandwidth_factor: float | None
    latency_add: float
    notice: float
    units_per_node: int = 0

    @property
    def rate_per_s(self) -> float:
        """Of all units together."""
        return 0.0 if self.gap is None or self.gap.mean == inf else self.units / self.gap.mean


class Arrivals(Protocol):
    """``next`` is when the next fault comes, by the clock of the source."""

    next: float

    def pop(self) -> int:
        """The unit that fails at ``next``; the source goes on to its next failure."""
        ...

    def swapped(self, node: int, now: float, factor: float) -> None:
        """Another host sits in that slot, with its own frailty."""
        ...


class Poisson:
    """Memoryless and alike units: one exponential for all of them."""

    def __init__(self, source: Source, streams: Streams) -> None:
        self.stream = streams.get(f"{source.name}/arrivals")
        self.units = source.units
        self.mean_s = 1.0 / source.rate_per_s if source.rate_per_s else inf
        self.next = self._gap()

    def _gap(self) -> float:
        return self.stream.expovariate(1.0) * self.mean_s if self.mean_s < inf else inf

    def pop(self) -> int:
        unit = int(self.stream.random() * self.units)
        self.next += self._gap()
        return unit

    def swapped(self, node: int, now: float, factor: float) -> None:
        """Units have no age and are alike."""


class Renewal:
    """A unit fails after a gap of the law, divided by the frailty of its host; its age starts at zero
    then.
    """

    def __init__(self, source: Source, streams: Streams, frailty: Callable[[int], float] | None) -> None:
        assert source.gap is not None
        self.stream: Random = streams.get(f"{source.name}/arrivals")
        self.law, self.keep_age = source.gap, source.keep_age
        self.per_node = source.units_per_node
        self.factor = [1.0] * source.units
        if frailty and self.per_node:
            self.factor = [frailty(unit // self.per_node) for unit in range(source.units)]
        self.at = [self.law.draw(self.stream) / factor for factor in self.factor]
        self.heap = [(at, unit) for unit, at in enumerate(self.at)]
        heapq.heapify(self.heap)
        self.next = self.heap[0][0]

    def _set(self, unit: int, at: float) -> None:
        self.at[unit] = at
        heapq.heappush(self.heap, (at, unit))

    def _settle(self) -> None:
        while self.at[self.heap[0][1]] != self.heap[0][0]:  # drawn anew since
            heapq.heappop(self.heap)
        self.next = self.heap[0][0]

    def pop(self) -> int:
        at, unit = heapq.heappop(self.heap)
        self._set(unit, at + self.law.draw(self.stream) / self.factor[unit])
        self._settle()
        return unit

    def swapped(self, node: int, now: float, factor: float) -> None:
        if not self.per_node or (self.keep_age and factor == 1.0):
            return
        for unit in range(node * self.per_node, (node + 1) * self.per_node):
            self.factor[unit] = factor
            self._set(unit, now + self.law.draw(self.stream) / factor)
        self._settle()


def arrivals(source: Source, streams: Streams, frailty: Callable[[int], float] | None) -> Arrivals:
    """The arrivals of a source; the short way where units are alike and have no age."""
    if source.gap is None or source.rate_per_s == 0.0:
        return Poisson(source, streams)
    hosts_differ = frailty is not None and source.units_per_node > 0
    return (
        Poisson(source, streams)
        if source.memoryless and not hosts_differ
        else Renewal(source, streams, frailty)
    )
