"""How much longer collectives of several replicas take beside the messages of all these replicas.

Such a collective moves as fast as its slowest member: while a message of any replica takes bandwidth from a
link that it crosses, all of it is slower. Equal replicas send at the same times, so that it is slower while
one of them sends. Replicas that differ send at different times, and it is slower while any of them does.
Passes over all replicas say when that is. Knows graphs and links; replays nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..network.sharing import Demand, max_min_rates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ..network.transfer import Transfer
    from ..program.program import Programs
    from .graph import StepGraph
    from .max_plus import Pass

    Ids = NDArray[np.int64]
    Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class _Slowed:
    """How messages slow the collectives that load links in one certain way, on members in certain stages.

    Alone these collectives move at ``rate``, and beside any of the ``messages`` (by number) at ``slower``,
    both in payload bytes per second. Each message moves for ``moving_s``, from ``after_s`` after it has
    begun.
    """

    rate: float
    slower: float
    messages: Ids
    after_s: Seconds
    moving_s: Seconds

    def lost_s(self, transfer: Transfer, begin_s: float, sent: _Sent) -> float:
        """Seconds by which a collective that begins at ``begin_s`` takes longer than alone."""
        if not len(self.messages) or not transfer.bytes:
            return 0.0
        from_s = begin_s + transfer.latency_s
        until_s = from_s + transfer.bytes / self.slower
        near = sent.first_s[self.messages] + self.after_s < until_s
        near &= sent.last_s[self.messages] + self.after_s + self.moving_s > from_s
        if not near.any():
            return 0.0
        since = sent.at_s[self.messages[near]] + (self.after_s[near] - from_s)[:, None]
        until = since + self.moving_s[near, None]
        return _longer_s(transfer.bytes, self.rate, self.slower, *_joined(since.ravel(), until.ravel()))


class _Sent:
    """When each replica sends each message, with the first and last time that any does."""

    def __init__(self, at_s: Seconds) -> None:
        self.at_s, self.first_s, self.last_s = at_s, at_s.min(axis=1), at_s.max(axis=1)


class Traffic:
    """The collectives of several replicas of a step, and the messages beside them."""

    def __init__(self, graph: StepGraph, programs: Programs) -> None:
        self._graph, self._programs = graph, programs
        self._known: dict[object, _Slowed] = {}
        self._ends: dict[int, list[tuple[int, str, Transfer]]] = defaultdict(list)
        for number, one in enumerate(graph.messages):
            self._ends[one.sender].append((number, ".out", one.transfer))
            self._ends[one.receiver].append((number, ".in", one.transfer))
        self._slowed = [self._of(*one) for one in self._members()]
        self._healthy_s = [0.0] * len(self._slowed)
        if graph.messages:
            sent = _Sent(np.array([[one.at_s] for one in graph.messages]))
            self._healthy_s = [
                slowed.lost_s(one.transfer, one.at_s, sent)
                for slowed, one in zip(self._slowed, graph.crossings, strict=True)
            ]

    def longer_s(self, found: Pass) -> list[float]:
        """For each rendezvous of replicas, the seconds that it takes longer than in the healthy step, beside
        the messages of a pass over some replicas."""
        if found.sent_s is None or not len(found.sent_s):
            return [0.0] * len(self._slowed)
        sent = _Sent(found.sent_s)
        return [
            slowed.lost_s(one.transfer, begin_s, sent) - healthy_s
            for slowed, one, begin_s, healthy_s in zip(
                self._slowed,
                self._graph.crossings,
                found.begin_s[:-1].tolist(),
                self._healthy_s,
                strict=True,
            )
        ]

    def _members(self) -> list[tuple[tuple[int, ...], Transfer]]:
        """For each rendezvous of replicas, the stages of its members, and what moves."""
        nodes, crossings = self._graph.nodes, self._graph.crossings
        return [(tuple(sorted({nodes[n].stage for n in one.nodes})), one.transfer) for one in crossings]

    def _of(self, stages: tuple[int, ...], transfer: Transfer) -> _Slowed:
        """What slows such a collective of members in these stages."""
        key = stages, transfer.ceiling_bytes_per_s, transfer.weights
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._found(stages, transfer)
        return known

    def _found(self, stages: tuple[int, ...], transfer: Transfer) -> _Slowed:
        links = self._programs.links
        rate = min(_rates(transfer, None, "", links[r])[0] for r in stages)
        slower = rate
        rates: dict[tuple[int, str, int], tuple[float, float]] = {}
        found = []
        for r in stages:
            for number, way, message in self._ends[r]:
                key = r, way, id(message)
                if key not in rates:
                    rates[key] = _rates(transfer, message, way, links[r])
                mine, its = rates[key]
                if mine < rate and its:
                    slower = min(slower, mine)
                    found.append((number, message.latency_s, message.bytes / its))
        numbers, after_s, moving_s = zip(*found, strict=True) if found else ((), (), ())
        return _Slowed(
            rate=rate,
            slower=slower,
            messages=np.array(numbers, dtype=np.int64),
            after_s=np.array(after_s),
            moving_s=np.array(moving_s),
        )


def _rates(
    mine: Transfer, message: Transfer | None, way: str, links: Mapping[str, float]
) -> tuple[float, float]:
    """The rates of a collective on the links of one rank: alone, and beside a message that leaves or
    arrives."""
    demands = [Demand(mine.ceiling_bytes_per_s, mine.local_weights)]
    if message is not None:
        own = tuple(pair for pair in message.local_weights if pair[0].endswith(way))
        demands.append(Demand(message.ceiling_bytes_per_s, own))
    rates = max_min_rates(demands, dict(links.items()))
    return rates[0], rates[-1]


def _joined(since: Seconds, until: Seconds) -> tuple[Seconds, Seconds]:
    """Windows of time in their order, those that overlap joined into one."""
    order = np.argsort(since, kind="stable")
    since, last = since[order], np.maximum.accumulate(until[order])
    apart = np.flatnonzero(since[1:] > last[:-1]) + 1
    return since[np.concatenate([[0], apart])], last[np.concatenate([apart - 1, [len(last) - 1]])]


def _longer_s(size: float, rate: float, slower: float, since: Seconds, until: Seconds) -> float:
    """Seconds by which a transfer that begins at time 0 takes longer where it is slower in these windows."""
    since, until = np.maximum(since, 0.0), np.maximum(until, 0.0)
    lost_s = np.cumsum(until - since) * (1 - slower / rate)  # up to the end of each stretch
    whole = int(np.searchsorted((until - lost_s) * rate, size))  # so many stretches pass before it ends
    before_s = float(lost_s[whole - 1]) if whole else 0.0
    if whole == len(since):
        return before_s
    left = size - (float(since[whole]) - before_s) * rate
    return before_s + max(0.0, left) * (1 / slower - 1 / rate)
