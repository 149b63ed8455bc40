"""Sources of faults: when the next one comes, by a clock that its owner reads, and where it strikes.

``Poisson`` draws the earliest of all units at once (two draws a failure, whatever the number of units);
``Frail`` does so for hosts that differ, ``Renewal`` keeps an age for every unit. Knows no job.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
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
        """Faults per second of all units together."""
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

    def rest(self, node: int, now: float) -> None:
        """Let nothing fail in that slot until it goes on; a source without ages may still give faults, which
        then find nothing."""
        ...

    def go_on(self, node: int, now: float) -> None:
        """Units of that slot age again, from where they were."""
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
        """Nothing changes: a new host is like the old one, and failures without memory know no age."""

    def rest(self, node: int, now: float) -> None:
        """Nothing changes: failures without memory know no age."""

    def go_on(self, node: int, now: float) -> None:
        """Nothing changes: failures without memory know no age."""


class Weights:
    """The frailty of the host in each slot, shared by all sources of a replication."""

    def __init__(self, factors: list[float]) -> None:
        self.factors = factors
        self.total = math.fsum(factors)
        self._sums: list[float] = []

    def change(self, node: int, factor: float) -> None:
        """Another host sits in that slot."""
        self.total += factor - self.factors[node]
        self.factors[node] = factor
        self._sums = []

    def choose(self, share: float) -> int:
        """The slot at ``share`` of all frailty."""
        self._sums = self._sums or list(itertools.accumulate(self.factors))
        return min(bisect.bisect_right(self._sums, share * self._sums[-1]), len(self._sums) - 1)


class Frail:
    """Memoryless units on hosts that differ: the rate of all is that of one times the sum of frailties."""

    def __init__(self, source: Source, streams: Streams, weights: Weights) -> None:
        assert source.gap is not None
        self.stream = streams.get(f"{source.name}/arrivals")
        self.per_node, self.weights = source.units_per_node, weights
        self.mean_s = source.gap.mean / source.units_per_node
        self.total = weights.total
        self.next = self._gap()

    def _gap(self) -> float:
        return self.stream.expovariate(1.0) * self.mean_s / self.weights.total

    def pop(self) -> int:
        node = self.weights.choose(self.stream.random())
        unit = node * self.per_node + int(self.stream.random() * self.per_node)
        self.next += self._gap()
        return unit

    def swapped(self, node: int, now: float, factor: float) -> None:
        """What is left of an exponential gap scales with the rate."""
        self.next = now + max(0.0, self.next - now) * self.total / self.weights.total
        self.total = self.weights.total

    def rest(self, node: int, now: float) -> None:
        """Nothing changes: failures without memory know no age."""

    def go_on(self, node: int, now: float) -> None:
        """Nothing changes: failures without memory know no age."""


class Renewal:
    """A unit fails after a gap of the law, divided by the frailty of its host; its age starts at zero
    then.
    """

    def __init__(self, source: Source, streams: Streams, weights: Weights | None) -> None:
        assert source.gap is not None
        self.stream: Random = streams.get(f"{source.name}/arrivals")
        self.law, self.keep_age = source.gap, source.keep_age
        self.per_node = source.units_per_node
        self.factor = [1.0] * source.units
        if weights and self.per_node:
            self.factor = [weights.factors[unit // self.per_node] for unit in range(source.units)]
        self.at = [self.law.draw(self.stream) / factor for factor in self.factor]
        self.heap = [(at, unit) for unit, at in enumerate(self.at)]
        heapq.heapify(self.heap)
        self.next = self.heap[0][0]
        self.left: dict[int, float] = {}  # of units that rest, until they fail

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

    def rest(self, node: int, now: float) -> None:
        """The ages of its units stand still."""
        for unit in range(node * self.per_node, (node + 1) * self.per_node):
            if unit not in self.left:
                self.left[unit] = max(0.0, self.at[unit] - now)
                self._set(unit, inf)
        self._settle()

    def go_on(self, node: int, now: float) -> None:
        """They go on."""
        for unit in range(node * self.per_node, (node + 1) * self.per_node):
            if unit in self.left:
                self._set(unit, now + self.left.pop(unit))
        self._settle()


def arrivals(source: Source, streams: Streams, weights: Weights | None) -> Arrivals:
    """The arrivals of a source: the short way where units have no age. ``weights`` where hosts differ."""
    if source.gap is None or source.rate_per_s == 0.0:
        return Poisson(source, streams)
    if not source.memoryless:
        return Renewal(source, streams, weights)
    return Frail(source, streams, weights) if weights and source.units_per_node else Poisson(source, streams)
