"""Running communications on shared links: each progresses at its weighted max-min fair rate.

Rates change only when a flow starts or ends, only within the flows that share links with it, and
once per instant after all events of that instant, so that no tie decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..network.sharing import Demand, Link, alone, max_min_rates
from .clock import Clock
from .signal import Done
from .slowed import Slowed, binding


@dataclass(slots=True)
class Flow:
    """A communication in progress: payload bytes left at ``since``, and its current rate."""

    demand: Demand
    left: float
    done: Done
    value: Any
    since: float
    rate: float = 0.0
    version: int = 0
    bound: Link | None = None  # what holds it below its ceiling

    @property
    def ends(self) -> float:
        """When it ends at its present rate."""
        return self.since + self.left / self.rate if self.rate else math.inf


MOST_REMEMBERED = 2_000_000
"""Numbers of all shapes whose rates are remembered: 16 MB of references."""

Begins = Callable[[float, Demand, Done, Any], None]
"""Begins to move payload bytes: ``Flows.start``, or whoever has more to do then."""


class Flows:
    """The flows of one replay over links of fixed capacity."""

    def __init__(self, env: Clock, capacity: Mapping[Link, float]) -> None:
        self._env = env
        self._capacity = dict(capacity)
        self._flows: dict[int, Flow] = {}
        self._on_link: dict[Link, dict[int, None]] = {}
        self._alone: dict[Link, int] = {}
        self._rates: dict[int, tuple[Demand, float, Link | None]] = {}
        self._shared: dict[tuple[float, ...], list[tuple[float, int | None]]] = {}
        self._remembered = 0
        self._dirty: dict[int, None] = {}
        self._stopped: set[Link] = set()
        self._count = 0
        self._settling = False
        self.slowed = Slowed()
        self.begins: Begins = self.start
        """Begins a flow after its latency: whoever has more to do then than ``start``."""
        self.delayed: Callable[[Demand], None] | None = None
        """Told the demand of a flow in progress that will end later than was to be expected."""
        self.watch: Callable[[Any, float, float], None] | None = None
        """Told the source of a flow, the time and the new rate whenever one changes."""

    def on(self, link: Link) -> bool:
        """Whether a flow is on ``link``."""
        number = self._alone.get(link)
        if number is not None and self._flows[number].since <= self._env.time:
            return True
        return link in self._on_link

    def until(self, link: Link) -> float:
        """When the last of the flows on ``link`` ends, unless another delays it; -inf where there is none."""
        number = self._alone.get(link)
        if number is not None and self._flows[number].since <= self._env.time:
            return self._flows[number].ends
        numbers = self._on_link.get(link)
        return max(self._flows[n].ends for n in numbers) if numbers else -math.inf

    def end_of(self, payload_bytes: float, demand: Demand) -> float:
        """When a flow that begins now ends, if it has its links to itself until then; else infinite."""
        if any(self.on(link) for link, _ in demand.weights):
            return math.inf
        rate = self._solo(demand)[0]
        return self._env.time + payload_bytes / rate if rate else math.inf

    def later(self, latency_s: float, payload_bytes: float, demand: Demand, done: Done, value: Any) -> bool:
        """Begin moving after a latency, if the links are free: it only has an end, until somebody begins or
        is to be told of flows on one of them. Else nothing, and False.
        """
        if self.watch is not None:
            return False
        alone, on_link, stopped = self._alone, self._on_link, self._stopped
        for link, _ in demand.weights:
            if link in alone or link in on_link:
                return False
        if stopped and any(link in stopped for link, _ in demand.weights):
            return True  # it never ends
        rate, bound = self._solo(demand)
        if not rate:
            return False
        number, self._count = self._count, self._count + 1
        begins = self._env.time + latency_s
        self._flows[number] = Flow(demand, payload_bytes, done, value, begins, rate, 0, bound)
        for link, _ in demand.weights:
            alone[link] = number
        self._env.call(latency_s + payload_bytes / rate, self._end, (number, 0))
        return True

    def idle(self, r: int, names: Iterable[str]) -> bool:
        """Whether no flow is on links of rank ``r``, or is known to come."""
        alone, on_link = self._alone, self._on_link
        for name in names:
            link = r, name
            if link in alone or link in on_link:
                return False
        return True

    def tell(self, r: int, names: Iterable[str], begins: Begins) -> None:
        """A flow that begins on one of these links of rank ``r`` goes through ``begins``."""
        for name in names:
            number = self._alone.get((r, name))
            if number is not None and self._flows[number].since > self._env.time:
                self._joined(number, begins)

    def _joined(self, number: int, begins: Begins) -> None:
        """Somebody begins on a link of a flow that had its links to itself."""
        flow = self._flows[number]
        for link, _ in flow.demand.weights:
            del self._alone[link]
        if flow.since <= self._env.time:
            for link, _ in flow.demand.weights:
                self._on_link.setdefault(link, {})[number] = None
            return
        del self._flows[number]  # it has not begun: as if it had been told when it does
        self._env.call(
            flow.since - self._env.time, lambda _: begins(flow.left, flow.demand, flow.done, flow.value)
        )

    def start(self, payload_bytes: float, demand: Demand, done: Done, value: Any = None) -> None:
        """Begin moving ``payload_bytes``; ``done`` happens with ``value`` when they have arrived."""
        if payload_bytes <= 0:
            done.happen(value)
            return
        if self._stopped and any(link in self._stopped for link, _ in demand.weights):
            return
        number, self._count = self._count, self._count + 1
        self._flows[number] = flow = Flow(demand, payload_bytes, done, value, self._env.time)
        shares = False
        for link, _ in demand.weights:
            if link in self._alone:
                self._joined(self._alone[link], self.begins)
            on_link = self._on_link.setdefault(link, {})
            shares = shares or bool(on_link)
            on_link[number] = None
        if shares:
            self._touch(number)
        else:  # alone: whoever joins later makes it settle
            self._set_rate(number, flow, *self._solo(demand))

    def change(self, capacity: Mapping[Link, float]) -> None:
        """Links have another capacity from now on."""
        self._capacity.update(capacity)
        self._rates.clear()
        for link in capacity:
            self._share(link)
            for number in self._on_link.get(link, ()):
                self._touch(number)

    def stop(self, links: Iterable[Link]) -> None:
        """Flows over ``links``, those in progress and all that come, never end; others have their share."""
        for link in links:
            self._stopped.add(link)
            self._share(link)
            for number in list(self._on_link.get(link, ())):
                self._leave(number, self._flows.pop(number))

    def _share(self, link: Link) -> None:
        """Whoever has ``link`` to itself has it as others do."""
        if link in self._alone:
            self._joined(self._alone[link], self.begins)

    def _solo(self, demand: Demand) -> tuple[float, Link | None]:
        """The rate of a flow that has its links to itself, and what holds it."""
        known = self._rates.get(id(demand))
        if known is None:
            rate = alone(demand, self._capacity)
            known = self._rates[id(demand)] = demand, rate, binding(demand, rate, (), self._capacity)
        return known[1:]

    def _touch(self, number: int) -> None:
        self._dirty[number] = None
        if not self._settling:
            self._settling = True
            self._env.call_after_all(self._settle)

    def _settle(self, _: object) -> None:
        """New rates for every flow that shares links, directly or through others, with a changed one."""
        self._settling = False
        seeds, self._dirty = self._dirty, {}
        seen: set[int] = set()
        for seed in seeds:
            if seed not in seen and seed in self._flows:
                component = self._component(seed)
                seen.update(component)
                self._set_rates(component)

    def _component(self, seed: int) -> list[int]:
        found, stack = {seed}, [seed]
        while stack:
            for link, _ in self._flows[stack.pop()].demand.weights:
                for other in self._on_link[link]:
                    if other not in found:
                        found.add(other)
                        stack.append(other)
        return sorted(found)

    def _set_rates(self, component: list[int]) -> None:
        flows = [self._flows[n] for n in component]
        demands = [flow.demand for flow in flows]
        links, shape = self._shape(demands)
        known = self._shared.get(shape)
        if known is None:
            self._remembered += len(shape)
            if self._remembered > MOST_REMEMBERED:
                self._shared.clear()
                self._remembered = len(shape)
            known = self._shared[shape] = self._fair(demands, links)
        names = tuple(links)
        for number, flow, (rate, bound) in zip(component, flows, known, strict=True):
            if rate != flow.rate:
                self._set_rate(number, flow, rate, None if bound is None else names[bound])

    def _shape(self, demands: Iterable[Demand]) -> tuple[dict[Link, int], tuple[float, ...]]:
        """Links by number, and what rates depend on: the same for flows alike over other links."""
        links: dict[Link, int] = {}
        shape: list[float] = []
        for demand in demands:
            shape += (demand.ceiling, demand.heaviest, len(demand.weights))
            for link, weight in demand.weights:
                shape += (links.setdefault(link, len(links)), weight)
        shape += [self._capacity[link] for link in links]
        return links, tuple(shape)

    def _fair(self, demands: list[Demand], links: Mapping[Link, int]) -> list[tuple[float, int | None]]:
        """Rates of flows that share ``links``, and the number of that which holds each below its ceiling."""
        if len(demands) == 1:
            rates = [alone(demands[0], self._capacity)]
        else:
            rates = max_min_rates(demands, self._capacity)
        found: list[tuple[float, int | None]] = []
        for i, (demand, rate) in enumerate(zip(demands, rates, strict=True)):
            others = ((d, r) for k, (d, r) in enumerate(zip(demands, rates, strict=True)) if k != i)
            bound = binding(demand, rate, others, self._capacity) if rate < demand.ceiling else None
            found.append((rate, None if bound is None else links[bound]))
        return found

    def _set_rate(self, number: int, flow: Flow, rate: float, bound: Link | None) -> None:
        if flow.bound is not None:
            self.slowed.add(flow.demand, flow.bound, self._env.time - flow.since, flow.rate)
        if rate < flow.rate and self.delayed is not None:
            self.delayed(flow.demand)
        flow.bound = bound
        flow.left = max(0.0, flow.left - flow.rate * (self._env.time - flow.since))
        flow.since, flow.rate, flow.version = self._env.time, rate, flow.version + 1
        if self.watch is not None:
            self.watch(flow.value[1], flow.since, rate)
        if rate:  # else a link is down, and whatever brings it up again sets a rate
            self._env.call(flow.left / rate, self._end, (number, flow.version))

    def _end(self, which: tuple[int, int]) -> None:
        number, version = which
        flow = self._flows.get(number)
        if flow is None or flow.version != version:
            return  # its rate has changed since
        del self._flows[number]
        if flow.bound is not None:
            self.slowed.add(flow.demand, flow.bound, self._env.time - flow.since, flow.rate)
        self._leave(number, flow)
        flow.done.happen(flow.value)

    def _leave(self, number: int, flow: Flow) -> None:
        """Its links are for others now."""
        alone = self._alone
        for link, _ in flow.demand.weights:
            if alone.get(link) == number:
                del alone[link]
                continue
            neighbours = self._on_link[link]
            del neighbours[number]
            for other in neighbours:
                self._touch(other)
            if not neighbours:
                del self._on_link[link]
