"""New rates where many flows hang together: of those alone that a change reaches, exactly.

Rates are max-min fair if and only if each flow is at its fastest or has a bottleneck: a full link on which
nobody has a higher level (Bertsekas & Gallager, Data Networks, section 6.5.2). So the flows that have lost
theirs are filled anew beside the others as they are, and whoever then has none, or stands above one that has
none, joins them, until all have one. Every rate is found from the present ones of others, not from changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..network.sharing import Demand, Link, max_min_rates
from .flow import Flow
from .occupancy import Crowd, Occupancy
from .shares import ROUNDING, Share, Shares
from .slowed import SLACK

MOST_ROUNDS = 12
"""After so many all that hang together are cheaper."""


@dataclass(frozen=True, slots=True)
class RateState:
    """A link with everybody on it: whether it is full, its highest level and the next."""

    full: bool
    just_full: bool  # to rounding
    first: float
    second: float


@dataclass
class RateRepair:
    """``found`` rates of flows that a change reaches; all others keep theirs."""

    flows: Mapping[int, Flow]
    at: Occupancy
    shares: Shares
    capacity: Mapping[Link, float]
    crowds: dict[int, Crowd] = field(default_factory=dict)
    solo: dict[int, Share] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    fixed: dict[Link, float] = field(default_factory=dict)  # load of the others
    states: dict[Link, RateState] = field(default_factory=dict)

    def found(self, changed: Iterable[int]) -> dict[int, Share] | None:
        """Rates and what holds them, from the flows that have lost their bottleneck; None: too far a way."""
        new = set(changed)
        for _ in range(MOST_ROUNDS):
            if not new:
                return {number: self._share(number) for number in sorted(self.rates)}
            self._join(new)
            self._fill()
            new = self._without()
        return None

    def _join(self, new: Iterable[int]) -> None:
        changed: dict[Link, None] = {}
        for number in new:
            demand = self.flows[number].demand
            self.solo[number] = self.shares.solo(demand)
            self.crowds[number] = crowd = self.at.crowd(demand)
            changed |= dict.fromkeys(link for link, _ in crowd)
        for link in changed:
            self.fixed[link] = sum(
                weight * self.flows[number].rate
                for number, weight in self.at.weights(link)
                if number not in self.crowds
            )

    def _fill(self) -> None:
        numbers = sorted(self.crowds)
        demands = [Demand(self.solo[n][0], self.crowds[n], self.flows[n].demand.heaviest) for n in numbers]
        left = {link: max(0.0, self.capacity[link] - load) for link, load in self.fixed.items()}
        self.rates = dict(zip(numbers, max_min_rates(demands, left), strict=True))
        self.states = {link: self._state(link) for link in self.fixed}

    def _state(self, link: Link) -> RateState:
        load = first = second = 0.0
        for number, weight in self.at.weights(link):
            flow = self.flows[number]
            rate = self.rates.get(number, flow.rate)
            load += weight * rate
            level = flow.demand.heaviest * rate
            if level > second:
                first, second = (level, first) if level > first else (first, level)
        capacity = self.capacity[link]
        return RateState(load >= capacity * (1 - SLACK), load >= capacity * (1 - ROUNDING), first, second)

    def _without(self) -> set[int]:
        """Other flows that have no bottleneck now, or that stand above one that has none."""
        found: set[int] = set()
        for number, rate in self.rates.items():
            level = self.flows[number].demand.heaviest * rate
            full = [link for link, _ in self.crowds[number] if self.states[link].just_full]
            if rate >= self.solo[number][0] * (1 - ROUNDING) or any(
                level >= self.states[link].first * (1 - ROUNDING) for link in full
            ):
                continue
            found |= {other for link in full for other in self._others(link) if self._level(other) > level}
        for link, state in self.states.items():
            least = state.first * (1 - ROUNDING)
            found |= {
                other
                for other in self._others(link)
                if self.flows[other].held == link and (not state.just_full or self._level(other) < least)
            }
        return found

    def _others(self, link: Link) -> Iterable[int]:
        return (number for number, _ in self.at.weights(link) if number not in self.rates)

    def _level(self, number: int) -> float:
        return self.flows[number].demand.heaviest * self.flows[number].rate

    def _share(self, number: int) -> Share:
        rate, solo = self.rates[number], self.solo[number]
        if rate >= solo[0] * (1 - SLACK):
            return (solo[0] if rate >= solo[0] * (1 - ROUNDING) else rate), solo[1]
        level = self.flows[number].demand.heaviest * rate
        others = {
            link: state.second if level >= state.first else state.first
            for link, state in ((link, self.states[link]) for link, _ in self.crowds[number])
            if state.full
        }
        return rate, min(others, key=others.__getitem__, default=None)
