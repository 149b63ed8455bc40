"""Running communications on shared links: each progresses at its weighted max-min fair rate.

Rates change only when a flow starts or ends, only within the flows that share links with it, and
once per instant after all events of that instant, so that no tie decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import simpy

from ..network.sharing import Demand, Link, alone, max_min_rates
from .signal import Signal
from .slowed import Slowed, binding

AFTER_ALL = 2  # SimPy runs priorities 0 (urgent) and 1 (normal) of an instant first


@dataclass(slots=True)
class Flow:
    """A communication in progress: payload bytes left at ``since``, and its current rate."""

    demand: Demand
    left: float
    done: Signal
    value: Any
    since: float
    rate: float = 0.0
    version: int = 0
    bound: Link | None = None  # what holds it below its ceiling

    @property
    def ends(self) -> float:
        """When it ends at its present rate."""
        return self.since + self.left / self.rate if self.rate else math.inf


Begins = Callable[[float, Demand, Signal, Any], None]
"""Begins to move payload bytes: ``Flows.start``, or whoever has more to do then."""


def call_at_end(event: simpy.Event, callback: Callable[[Any], None]) -> None:
    """Run ``callback`` when a pending event happens."""
    assert event.callbacks is not None
    event.callbacks.append(callback)


class Flows:
    """The flows of one replay over links of fixed capacity."""

    def __init__(self, env: simpy.Environment, capacity: Mapping[Link, float]) -> None:
        self._env = env
        self._capacity = dict(capacity)
        self._flows: dict[int, Flow] = {}
        self._on_link: dict[Link, dict[int, None]] = {}
        self._alone: dict[Link, int] = {}
        self._rates: dict[int, tuple[Demand, float, Link | None]] = {}
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
        if number is not None and self._flows[number].since <= self._env.now:
            return True
        return bool(self._on_link.get(link))

    def until(self, link: Link) -> float:
        """When the last of the flows on ``link`` ends, unless another delays it; -inf where there is none."""
        number = self._alone.get(link)
        if number is not None and self._flows[number].since <= self._env.now:
            return self._flows[number].ends
        return max((self._flows[n].ends for n in self._on_link.get(link, ())), default=-math.inf)

    def end_of(self, payload_bytes: float, demand: Demand) -> float:
        """When a flow that begins now ends, if it has its links to itself until then; else infinite."""
        if any(self.on(link) for link, _ in demand.weights):
            return math.inf
        rate = self._solo(demand)[0]
        return self._env.now + payload_bytes / rate if rate else math.inf

    def later(self, latency_s: float, payload_bytes: float, demand: Demand, done: Signal, value: Any) -> bool:
        """Begin moving after a latency, if the links are free: it only has an end, until somebody begins or
        is to be told of flows on one of them. Else nothing, and False.
        """
        links = [link for link, _ in demand.weights]
        if self.watch is not None or any(self._on_link.get(link) or link in self._alone for link in links):
            return False
        if not self._stopped.isdisjoint(links):
            return True  # it never ends
        rate, bound = self._solo(demand)
        if not rate:
            return False
        number, self._count = self._count, self._count + 1
        begins = self._env.now + latency_s
        self._flows[number] = Flow(demand, payload_bytes, done, value, begins, rate, bound=bound)
        self._alone |= dict.fromkeys(links, number)
        call_at_end(self._env.timeout(latency_s + payload_bytes / rate, value=(number, 0)), self._end)
        return True

    def tell(self, link: Link, begins: Begins) -> None:
        """A flow that is to begin on ``link`` goes through ``begins`` when it does."""
        number = self._alone.get(link)
        if number is not None and self._flows[number].since > self._env.now:
            self._joined(number, begins)

    def _joined(self, number: int, begins: Begins) -> None:
        """Somebody begins on a link of a flow that had its links to itself."""
        flow = self._flows[number]
        for link, _ in flow.demand.weights:
            del self._alone[link]
        if flow.since <= self._env.now:
            for link, _ in flow.demand.weights:
                self._on_link.setdefault(link, {})[number] = None
            return
        del self._flows[number]  # it has not begun: as if it had been told when it does
        latency = self._env.timeout(flow.since - self._env.now)
        call_at_end(latency, lambda _: begins(flow.left, flow.demand, flow.done, flow.value))

    def start(self, payload_bytes: float, demand: Demand, done: Signal, value: Any = None) -> None:
        """Begin moving ``payload_bytes``; ``done`` happens with ``value`` when they have arrived."""
        if payload_bytes <= 0:
            done.happen(value)
            return
        if self._stopped and any(link in self._stopped for link, _ in demand.weights):
            return
        number, self._count = self._count, self._count + 1
        self._flows[number] = flow = Flow(demand, payload_bytes, done, value, self._env.now)
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
            self._at_end_of_instant(self._settle)

    def _at_end_of_instant(self, callback: Any) -> None:
        event = simpy.Event(self._env)
        event._ok, event._value = True, None  # noqa: SLF001  succeed() would schedule it as a normal event
        call_at_end(event, callback)
        self._env.schedule(event, priority=AFTER_ALL)  # type: ignore[arg-type]

    def _settle(self, _: simpy.Event) -> None:
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
        if len(flows) == 1:
            rates = [alone(flows[0].demand, self._capacity)]
        else:
            rates = max_min_rates([f.demand for f in flows], self._capacity)
        for i, (number, flow, rate) in enumerate(zip(component, flows, rates, strict=True)):
            if rate == flow.rate:
                continue
            bound = None
            if rate < flow.demand.ceiling:
                others = ((f.demand, r) for k, (f, r) in enumerate(zip(flows, rates, strict=True)) if k != i)
                bound = binding(flow.demand, rate, others, self._capacity)
            self._set_rate(number, flow, rate, bound)

    def _set_rate(self, number: int, flow: Flow, rate: float, bound: Link | None) -> None:
        if flow.bound is not None:
            self.slowed.add(flow.demand, flow.bound, self._env.now - flow.since, flow.rate)
        if rate < flow.rate and self.delayed is not None:
            self.delayed(flow.demand)
        flow.bound = bound
        flow.left = max(0.0, flow.left - flow.rate * (self._env.now - flow.since))
        flow.since, flow.rate, flow.version = self._env.now, rate, flow.version + 1
        if self.watch is not None:
            self.watch(flow.value[1], flow.since, rate)
        if rate:  # else a link is down, and whatever brings it up again sets a rate
            call_at_end(self._env.timeout(flow.left / rate, value=(number, flow.version)), self._end)

    def _end(self, event: simpy.Event) -> None:
        value: Any = event.value
        number, version = value
        flow = self._flows.get(number)
        if flow is None or flow.version != version:
            return  # its rate has changed since
        del self._flows[number]
        if flow.bound is not None:
            self.slowed.add(flow.demand, flow.bound, self._env.now - flow.since, flow.rate)
        self._leave(number, flow)
        flow.done.happen(flow.value)

    def _leave(self, number: int, flow: Flow) -> None:
        """Its links are for others now."""
        for link, _ in flow.demand.weights:
            if self._alone.get(link) == number:
                del self._alone[link]
                continue
            neighbours = self._on_link[link]
            del neighbours[number]
            for other in neighbours:
                self._touch(other)
