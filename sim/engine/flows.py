"""Running communications on shared links: each progresses at its weighted max-min fair rate.

Rates change only when a flow starts or ends, only within the flows that share links with it that can be full,
and once per instant after all events of that instant, so that no tie decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..network.sharing import Demand, Link
from .clock import Clock
from .elsewhere import Elsewhere
from .flow import Flow
from .occupancy import Occupancy
from .rank_state import FirstUse
from .scope import SLACK_S
from .settled import Settled
from .shares import Share, Shares
from .signal import Done
from .slowed import SLACK, Slowed

Lent = tuple[float, Callable[[], None]]
"""Of a taken flow (``Flows.take``): when it ends, as far as its taker knows, and whom to tell of another."""

Begins = Callable[[float, Demand, Done, Any], None]
"""Begins to move payload bytes: ``Flows.start``, or whoever has more to do then."""


class Flows:
    """The flows of one replay over links of fixed capacity."""

    def __init__(self, env: Clock, capacity: Mapping[Link, float]) -> None:
        self._env = env
        self._capacity = dict(capacity)
        self._flows: dict[int, Flow] = {}
        self._demands: dict[int, Demand] = {}  # of those that links of _at know
        self._at = Occupancy(self._capacity)
        self._shares = Shares(self._capacity)
        self._settled = Settled(
            flows=self._flows,
            demands=self._demands,
            at=self._at,
            shares=self._shares,
            capacity=self._capacity,
        )
        self._alone: dict[Link, int] = {}
        self._dirty: dict[int, None] = {}
        self._lent: dict[int, Lent] = {}
        self._elsewhere = Elsewhere(self._capacity)
        self._stopped: set[Link] = set()
        self._count = 0
        self._settling = False
        self.slowed = Slowed()
        self.begins: Begins = self.start
        """Begins a flow after its latency: whoever has more to do then than ``start``."""
        self.disturbs: Callable[[Demand], None] | None = None
        """Told the demand of a flow in progress that ends later, or may move faster, than was expected."""
        self.watch: Callable[[Any, float, float], None] | None = None
        """Told the source of a flow, the time and the new rate whenever one changes."""

    def on(self, link: Link) -> bool:
        """Whether a flow is on ``link``."""
        number = self._alone.get(link)
        if number is not None and self._flows[number].since <= self._env.time:
            return True
        return link in self._at.most

    def until(self, link: Link) -> float:
        """When the last of the flows on ``link`` ends, unless another delays it; -inf where there is none."""
        number = self._alone.get(link)
        if number is not None and self._flows[number].since <= self._env.time:
            return self._flows[number].ends
        numbers = self._at.most.get(link)
        return max(map(self._ends_at, numbers)) if numbers else -math.inf

    def _ends_at(self, number: int) -> float:
        return self._lent[number][0] if number in self._lent else self._flows[number].ends

    def holds(self, link: Link, most: float) -> bool:
        """Whether ``link`` holds bytes per second of others besides all flows on it at their fastest, so that
        none of them slows another there.
        """
        number = self._alone.get(link)
        if number is not None and self._flows[number].since <= self._env.time:
            flow = self._flows[number]
            most += flow.rate * next(weight for name, weight in flow.demand.weights if name == link)
        if (others := self._at.most.get(link)) is not None:
            most += sum(others.values())
        return most < self._capacity[link] * (1 - SLACK)

    def beside(self, r: int, most: Mapping[str, float], *, steady: bool) -> dict[int, Demand] | None:
        """Flows in progress that slow, or are slowed by, communications which put ``most`` bytes per second
        on links of rank ``r``, and all flows that share full links with those. None where other ranks decide,
        too, how fast they are: where one leaves the rank, unless nothing slows it elsewhere and all links are
        ``steady`` to the end.
        """
        found: dict[int, Demand] = {}
        names, alone, at = list(most), self._alone, self._at.most
        for name in names:  # grows
            link = r, name
            if link not in alone and link not in at:  # most are free: no need to ask further
                continue
            if not self.on(link) or self.holds(link, most.get(name, 0.0)):
                continue
            if link in self._alone:
                self._joined(self._alone[link], self.begins)
            for number in self._at.on(link):
                if number in found:
                    continue
                found[number] = demand = self._demands[number]
                for other in demand.links:
                    if not isinstance(other, tuple):
                        return None
                    if other[0] == r:
                        if other[1] not in names:
                            names.append(other[1])
                    elif not steady or not self._is_free(number, r):
                        return None
        return found

    def _is_free(self, number: int, r: int) -> bool:
        """Whether nobody slows a flow but on links of rank ``r``, which alone say how fast it can be."""
        if number in self._lent:
            return False
        others = self._elsewhere.links(self._demands[number], r)
        return others is not None and not any(map(self._at.crowded, others))

    def lend(self, number: int, ends: float, interrupt: Callable[[], None]) -> None:
        """Who took a flow that leaves its rank knows when it ends, and is to hear of what meets it there."""
        self._lent[number] = ends, interrupt
        self._ends_later(number, self._flows[number].ends)

    def _ends_later(self, number: int, told: float) -> None:
        """Others hear of it if a flow ends later than they were told."""
        if self._ends_at(number) > told + SLACK_S and self.disturbs is not None:
            self.disturbs(self._demands[number])

    def coming(self, r: int, most: Mapping[str, float]) -> dict[int, Flow]:
        """Flows known to begin by themselves on links of rank ``r`` alone, which then slow, or are slowed by,
        communications that put so many bytes per second there.
        """
        found: dict[int, Flow] = {}
        if not self._alone:
            return found
        for name, rate in most.items():
            number = self._alone.get((r, name))
            if number is None or number in found:
                continue
            flow = self._flows[number]
            if flow.since <= self._env.time:
                continue
            weights = dict(flow.demand.weights)
            own = all(isinstance(link, tuple) and link[0] == r for link in weights)
            full = rate + weights[r, name] * flow.rate >= self._capacity[r, name] * (1 - SLACK)
            if own and full:
                found[number] = flow
        return found

    def take(self, number: int) -> float:
        """Take a flow out of the clock, since the caller knows how it goes on; the payload bytes that it has
        left."""
        flow, now = self._flows[number], self._env.time
        if number not in self._demands:  # it is yet to begin
            for link in flow.demand.links:
                del self._alone[link]
            flow.version += 1
            return flow.left
        if flow.bound is not None:
            self.slowed.add(flow.demand, flow.bound, now - flow.since, flow.rate)
        flow.left = max(0.0, flow.left - flow.rate * (now - flow.since))
        flow.since, flow.bound, flow.version = now, None, flow.version + 1
        self._dirty.pop(number, None)
        return flow.left

    def give_back(self, number: int, left: float, rate: float, bound: Link | None) -> None:
        """Give a taken flow back to the clock, with so many bytes left. It moves at ``rate`` at first, which
        the link ``bound`` sets."""
        flow = self._flows[number]
        told, _ = self._lent.pop(number, (math.inf, None))
        if number not in self._demands:
            for link in flow.demand.links:
                self._share(link)
            self._demands[number] = flow.demand
            self._at.put(number, flow.demand, self._shares.solo(flow.demand)[0])
        flow.left, flow.since, flow.rate, flow.version = left, self._env.time, rate, flow.version + 1
        flow.bound = flow.held = bound
        if left:
            self._env.call(left / rate, self._end, (number, flow.version))
            self._touch(number)
            self._ends_later(number, told)

    def put_off(self, number: int, latency_s: float, begins: Begins) -> None:
        """A flow that was taken, and is yet to begin, does so by itself after a latency."""
        flow = self._flows.pop(number)
        if not self.later(latency_s, flow.left, flow.demand, flow.done, flow.value):
            self._env.call(latency_s, lambda _: begins(flow.left, flow.demand, flow.done, flow.value))

    def over(self, number: int) -> None:
        """A flow that was given back with nothing left ends."""
        self._end((number, self._flows[number].version))

    def end_of(self, payload_bytes: float, demand: Demand) -> float:
        """When a flow that begins now ends, if it has its links to itself until then; else infinite."""
        if any(map(self.on, demand.links)):
            return math.inf
        rate = self._shares.solo(demand)[0]
        return self._env.time + payload_bytes / rate if rate else math.inf

    def solo_s(self, payload_bytes: float, demand: Demand) -> float:
        """Seconds that so many bytes move if they have their links to themselves."""
        rate = self._shares.solo(demand)[0]
        return payload_bytes / rate if rate else math.inf

    def later(self, latency_s: float, payload_bytes: float, demand: Demand, done: Done, value: Any) -> bool:
        """Begin moving after a latency, if the links are free: it only has an end, until somebody begins or
        is to be told of flows on one of them. Else nothing, and False.
        """
        if self.watch is not None:
            return False
        alone, at, stopped, links = self._alone, self._at.most, self._stopped, demand.links
        for link in links:
            if link in alone or link in at:
                return False
        if stopped and not stopped.isdisjoint(links):
            return True  # it never ends
        rate, bound = self._shares.solo(demand)
        if not rate:
            return False
        number, self._count = self._count, self._count + 1
        begins = self._env.time + latency_s
        self._flows[number] = Flow(demand, payload_bytes, done, value, begins, rate, 0, bound, bound)
        for link in links:
            alone[link] = number
        self._env.call(latency_s + payload_bytes / rate, self._end, (number, 0))
        return True

    def idle(self, r: int, names: Iterable[str]) -> bool:
        """Whether no flow is on links of rank ``r``, or is known to come."""
        alone, at = self._alone, self._at.most
        if not alone and not at:
            return True
        for name in names:
            link = r, name
            if link in alone or link in at:
                return False
        return True

    def tell(self, r: int, most: Mapping[str, float], begins: Begins, first_use: FirstUse) -> None:
        """A flow that begins on a link of rank ``r`` while somebody uses it (``first_use``), who puts so many
        bytes per second there, goes through ``begins`` if the link does not hold both.
        """
        for name, rate in most.items():
            link = r, name
            number = self._alone.get(link)
            if number is None:
                continue
            flow = self._flows[number]
            if flow.since <= self._env.time or first_use(name, flow.since, flow.ends) == math.inf:
                continue
            own = next(weight for other, weight in flow.demand.weights if other == link)
            if not self.holds(link, rate + own * flow.rate):
                self._joined(number, begins)

    def _joined(self, number: int, begins: Begins) -> None:
        """Somebody begins on a link of a flow that had its links to itself."""
        flow = self._flows[number]
        for link, _ in flow.demand.weights:
            del self._alone[link]
        if flow.since <= self._env.time:
            self._demands[number] = flow.demand
            self._at.put(number, flow.demand, self._shares.solo(flow.demand)[0])
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
        if self._stopped and not self._stopped.isdisjoint(demand.links):
            return
        number, self._count = self._count, self._count + 1
        self._flows[number] = flow = Flow(demand, payload_bytes, done, value, self._env.time)
        for link, _ in demand.weights:
            if link in self._alone:
                self._joined(self._alone[link], self.begins)
        self._demands[number] = demand
        solo = self._shares.solo(demand)
        if self._at.put(number, demand, solo[0]):
            self._touch(number)
            if self._lent:
                self._meets_lent(demand)
        else:  # nobody slows it: whoever joins later makes it settle
            self._set_rate(number, flow, *solo)

    def _meets_lent(self, demand: Demand) -> None:
        """Tell who knows how flows go on that one begins which may slow them."""
        for link in demand.links:
            if self._at.crowded(link):
                for number in self._at.on(link):
                    if number in self._lent:
                        self._lent[number][1]()

    def change(self, capacity: Mapping[Link, float]) -> None:
        """Links have another capacity from now on."""
        self._capacity.update(capacity)
        self._shares.forget()
        self._elsewhere.forget()
        for link in capacity:
            self._share(link)
        for number in sorted({n for link in capacity for n in self._at.on(link)}):
            demand = self._demands[number]
            self._at.put(number, demand, self._shares.solo(demand)[0])
            if self.disturbs is not None:  # its other links may no longer hold all that they did
                self.disturbs(demand)
            self._touch(number)
            for link, _ in demand.weights:
                self._touch_held(self._at.on(link), link)

    def stop(self, links: Iterable[Link]) -> None:
        """Flows over ``links``, those in progress and all that come, never end; others have their share."""
        for link in links:
            self._stopped.add(link)
            self._share(link)
            for number in list(self._at.on(link)):
                self._leave(number, self._flows.pop(number))

    def _share(self, link: Link) -> None:
        """Whoever has ``link`` to itself has it as others do."""
        if link in self._alone:
            self._joined(self._alone[link], self.begins)

    def _touch(self, number: int) -> None:
        """Note that the flow's rate has to be found anew: the flow is new, or what held it may no longer do
        so."""
        self._dirty[number] = None
        if not self._settling:
            self._settling = True
            self._env.call_after_all(self._settle)

    def _settle(self, _: object) -> None:
        """New rates for flows that hang together with a changed one."""
        self._settling = False
        seeds, self._dirty = self._dirty, {}
        for number, share in self._settled.rates(seeds):
            self._has(number, share)

    def _has(self, number: int, share: Share) -> None:
        flow, (rate, bound) = self._flows[number], share
        flow.held = bound
        if rate != flow.rate:
            self._set_rate(number, flow, rate, bound)

    def _set_rate(self, number: int, flow: Flow, rate: float, bound: Link | None) -> None:
        if flow.bound is not None:
            self.slowed.add(flow.demand, flow.bound, self._env.time - flow.since, flow.rate)
        if rate < flow.rate and self.disturbs is not None:
            self.disturbs(flow.demand)
        flow.bound = flow.held = bound
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
        if number in self._demands:
            self._leave(number, flow)
        else:
            for link in flow.demand.links:
                del self._alone[link]
        flow.done.happen(flow.value)

    def _leave(self, number: int, flow: Flow) -> None:
        """Free the links of a flow that has ended or stopped, so that others on them get its share."""
        del self._demands[number]
        for link, _ in flow.demand.weights:
            self._touch_held(self._at.leave(link, number), link)

    def _touch_held(self, numbers: Iterable[int], link: Link) -> None:
        """One of those on ``link`` leaves or has another rate by itself: touch whom the link holds. Others
        would not change, and somebody else may know how they go on (``take``).
        """
        for number in numbers:
            if self._flows[number].held == link:
                self._touch(number)
