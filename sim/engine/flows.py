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
from .connected_rates import Settled
from .flow import Flow
from .occupancy import Occupancy
from .other_ranks_links import LinksOfOtherRanks
from .rank_state import FirstUse
from .scope import SLACK_S
from .shares import Share, Shares
from .signal import Done
from .slowed import SLACK, Slowed

LentFlow = tuple[float, Callable[[], None]]
"""Of a taken flow (``Flows.take``): when it ends, as far as its taker knows, and whom to tell of another."""

Begins = Callable[[float, Demand, Done, Any], None]
"""Begins to move payload bytes: ``Flows.start``, or whoever has more to do then."""


class Flows:
    """The flows of one replay over links of fixed capacity.

    A flow that has all its links to itself is only an end in the queue (``_alone``) until another flow begins
    there. A flow may be taken out of the clock (``take``) by somebody who knows how it goes on; it is
    ``lent`` while that party waits to hear of flows that meet it, and comes back by ``give_back``.
    """

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
        self._lent: dict[int, LentFlow] = {}
        self._other_ranks_links = LinksOfOtherRanks(self._capacity)
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
        """When the last of the flows on ``link`` ends at their present rates; -inf where there is none."""
        number = self._alone.get(link)
        if number is not None and self._flows[number].since <= self._env.time:
            return self._flows[number].ends
        numbers = self._at.most.get(link)
        return max(map(self._ends_at, numbers)) if numbers else -math.inf

    def _ends_at(self, number: int) -> float:
        return self._lent[number][0] if number in self._lent else self._flows[number].ends

    def holds(self, link: Link, most: float) -> bool:
        """Whether ``link`` can carry ``most`` bytes per second beside all its flows at their fastest."""
        number = self._alone.get(link)
        if number is not None and self._flows[number].since <= self._env.time:
            flow = self._flows[number]
            most += flow.rate * next(weight for name, weight in flow.demand.weights if name == link)
        if (others := self._at.most.get(link)) is not None:
            most += sum(others.values())
        return most < self._capacity[link] * (1 - SLACK)

    def beside(self, r: int, most: Mapping[str, float], *, steady: bool) -> dict[int, Demand] | None:
        """The flows in progress that slow, or are slowed by, communications which put ``most`` bytes per
        second on links of rank ``r``, and all flows that share full links with those.

        None where their rates also depend on other ranks: where such a flow leaves the rank, unless nothing
        slows it elsewhere and all links are ``steady`` to the end.
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
        """Whether only links of rank ``r`` can slow a flow."""
        if number in self._lent:
            return False
        others = self._other_ranks_links.links(self._demands[number], r)
        return others is not None and not any(map(self._at.crowded, others))

    def lend(self, number: int, ends: float, interrupt: Callable[[], None]) -> None:
        """Record that the taker of a flow knows when it ``ends``; call ``interrupt`` when another flow
        meets it."""
        self._lent[number] = ends, interrupt
        self._ends_later(number, self._flows[number].ends)

    def _ends_later(self, number: int, told: float) -> None:
        """Notify those who wait for a flow if it ends later than it was to."""
        if self._ends_at(number) > told + SLACK_S and self.disturbs is not None:
            self.disturbs(self._demands[number])

    def coming(self, r: int, most: Mapping[str, float]) -> dict[int, Flow]:
        """Flows that are known to begin later, on links of rank ``r`` alone, and will then slow, or be
        slowed by, communications that put ``most`` bytes per second there."""
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
        """Take a flow out of the clock; the caller knows how it goes on. Returns the payload bytes left."""
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
        """Return a taken flow, ``left`` bytes of it, to the clock. At first it has ``rate``, limited by
        ``bound``."""
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
        """Let a taken flow that has not begun begin by itself after a latency."""
        flow = self._flows.pop(number)
        if not self.later(latency_s, flow.left, flow.demand, flow.done, flow.value):
            self._env.call(latency_s, lambda _: begins(flow.left, flow.demand, flow.done, flow.value))

    def over(self, number: int) -> None:
        """End a flow that was given back with nothing left."""
        self._end((number, self._flows[number].version))

    def end_of(self, payload_bytes: float, demand: Demand) -> float:
        """When a flow that begins now would end, if it keeps its links to itself; infinite if they are in
        use."""
        if any(map(self.on, demand.links)):
            return math.inf
        rate = self._shares.solo(demand)[0]
        return self._env.time + payload_bytes / rate if rate else math.inf

    def solo_s(self, payload_bytes: float, demand: Demand) -> float:
        """Seconds to move so many bytes without other flows."""
        rate = self._shares.solo(demand)[0]
        return payload_bytes / rate if rate else math.inf

    def later(self, latency_s: float, payload_bytes: float, demand: Demand, done: Done, value: Any) -> bool:
        """Let a flow begin after a latency, if its links are free: until another flow needs one of them,
        only its end is in the queue. Returns False, and does nothing, if they are not free."""
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
        """Whether no flow is on links of rank ``r``, now or later as far as known."""
        alone, at = self._alone, self._at.most
        if not alone and not at:
            return True
        for name in names:
            link = r, name
            if link in alone or link in at:
                return False
        return True

    def tell(self, r: int, most: Mapping[str, float], begins: Begins, first_use: FirstUse) -> None:
        """Let known later flows on links of rank ``r`` begin through ``begins``, if somebody uses the link
        then (``first_use``) and the link cannot carry both at full speed."""
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
        """End the special treatment of a flow that had its links to itself: another one begins there."""
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
        """Notify the holders of lent flows that a flow begins which may slow these."""
        for link in demand.links:
            if self._at.crowded(link):
                for number in self._at.on(link):
                    if number in self._lent:
                        self._lent[number][1]()

    def change(self, capacity: Mapping[Link, float]) -> None:
        """Change the capacity of links from now on."""
        self._capacity.update(capacity)
        self._shares.forget()
        self._other_ranks_links.forget()
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
        """Stop all flows over ``links`` for ever, present and future ones; the others get their shares."""
        for link in links:
            self._stopped.add(link)
            self._share(link)
            for number in list(self._at.on(link)):
                self._leave(number, self._flows.pop(number))

    def _share(self, link: Link) -> None:
        """Treat the flow that has ``link`` to itself as one that shares it."""
        if link in self._alone:
            self._joined(self._alone[link], self.begins)

    def _touch(self, number: int) -> None:
        """Mark a flow that needs a new rate: it is new, or what limited it may do so no more."""
        self._dirty[number] = None
        if not self._settling:
            self._settling = True
            self._env.call_after_all(self._settle)

    def _settle(self, _: object) -> None:
        """Set new rates for all flows whose rates depend on a marked one."""
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
        """Mark the flows among ``numbers`` that ``link`` limits, since another flow has left it or
        changed. The rates of others do not change, and somebody may rely on them (``take``)."""
        for number in numbers:
            if self._flows[number].held == link:
                self._touch(number)
