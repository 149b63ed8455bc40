"""Which flows use which link, and which links they can fill.

A flow never moves faster than it would with its links to itself, so a link that holds all of its flows at
that rate slows none of them: flows that meet on such links alone have nothing to do with one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from .slowed import SLACK

if TYPE_CHECKING:
    from ..network.sharing import Demand, Link

MANY = 24
"""Flows that hang together up to which all are solved anew and remembered; more are repaired
(repaired_rates.py)."""

Crowd = tuple[tuple["Link", float], ...]
"""Links of a flow that can be full, with its weights there."""


class Occupancy:
    """The flows on every link that has any, by number. ``capacity`` (bytes per second) belongs to the
    caller."""

    def __init__(self, capacity: Mapping[Link, float]) -> None:
        self._capacity = capacity
        self.most: dict[Link, dict[int, float]] = {}
        """By link that has any, bytes per second that each of its flows can put there."""
        self._weights: dict[Link, dict[int, float]] = {}
        self._crowded: dict[Link, bool] = {}

    def on(self, link: Link) -> Collection[int]:
        """Flows on ``link``."""
        return self.most.get(link, {}).keys()

    def put(self, number: int, demand: Demand, solo: float) -> bool:
        """Add a flow, or change its rate without others (``solo``). Returns whether others may slow it."""
        slowed = False
        for link, weight in demand.weights:
            most = self.most.get(link)
            if most is None:
                self.most[link], self._weights[link] = {number: weight * solo}, {number: weight}
                continue
            most[number], self._weights[link][number] = weight * solo, weight
            self._crowded.pop(link, None)
            slowed = slowed or self.crowded(link)
        return slowed

    def leave(self, link: Link, number: int) -> Collection[int]:
        """Remove a flow. Returns those that it may have slowed."""
        most = self.most[link]
        if len(most) == 1:
            del self.most[link], self._weights[link]
            self._crowded.pop(link, None)
            return ()
        crowded = self.crowded(link)
        del most[number], self._weights[link][number], self._crowded[link]
        return most.keys() if crowded else ()

    def crowded(self, link: Link) -> bool:
        """Whether ``link`` has several flows that together can exceed its capacity."""
        known = self._crowded.get(link)
        if known is None:
            most = self.most[link].values()
            known = len(most) > 1 and sum(most) >= self._capacity[link] * (1 - SLACK)
            self._crowded[link] = known
        return known

    def weights(self, link: Link) -> Iterable[tuple[int, float]]:
        """Flows on ``link`` with their weights there."""
        return self._weights[link].items()

    def crowd(self, demand: Demand) -> Crowd:
        """The links of a flow that can be full, each with the flows there and their weights."""
        return tuple(pair for pair in demand.weights if self.crowded(pair[0]))

    def component(
        self, seed: int, demands: Mapping[int, Demand], large: set[int], many: float = MANY
    ) -> dict[int, Crowd] | None:
        """The flows whose rates depend on that of ``seed``, directly or through others, in order of their
        numbers.

        None if they are more than ``many``. Then those that were found are added to ``large``, so that a
        search from another of them stops at the first one that it meets.
        """
        found: dict[int, Crowd] = {}
        seen, reached, stack = {seed}, set(), [seed]
        while stack:
            number = stack.pop()
            found[number] = crowd = self.crowd(demands[number])
            for link, _ in crowd:
                if link not in reached:
                    reached.add(link)
                    others = self._weights[link].keys() - seen
                    seen |= others
                    stack += others
            if len(seen) > many or not large.isdisjoint(seen):
                large |= seen
                return None
        return {number: found[number] for number in sorted(found)}
