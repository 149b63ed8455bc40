"""How much longer collectives of several replicas take beside the messages of all of these.

Such a collective moves as fast as its slowest member: while a message of any replica takes from a link that
it crosses there, all of it is slower. Equal replicas send at the same times, so it is slower as long as one
of them sends; replicas that differ send at different times, and it is slower as long as any does. Passes
over all replicas say when that is. Knows graphs and links; replays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..network.sharing import Demand, max_min_rates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ..network.transfer import Transfer
    from ..program.program import Programs
    from .graph import Meeting, StepGraph
    from .max_plus import Pass

    Ids = NDArray[np.int64]
    Seconds = NDArray[np.float64]
    Ways = tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """A collective of several replicas and the ``messages``, by number, that slow it: each moves for
    ``moving_s`` after ``latency_s``. It moves ``bytes`` at ``rate``, or at ``slower`` beside one of them; so it
    loses ``healthy_s`` in the healthy step.
    """

    latency_s: float
    bytes: float
    rate: float
    slower: float
    messages: Ids
    after_s: Seconds
    moving_s: Seconds
    healthy_s: float = 0.0

    def lost_s(self, begin_s: float, sent_s: Seconds) -> float:
        """Seconds that it takes longer than alone where messages are sent then, each by all replicas."""
        from_s = begin_s + self.latency_s
        until_s = from_s + self.bytes / self.slower
        since = sent_s[self.messages] + self.after_s[:, None]
        near = (since.min(axis=1) < until_s) & (since.max(axis=1) + self.moving_s > from_s)
        if not near.any():
            return 0.0
        since = since[near]
        until = since + self.moving_s[near, None]
        since, until = _joined(since.ravel(), until.ravel())
        return _slowed_s(self.bytes, self.rate, self.slower, since - from_s, until - from_s)


class Traffic:
    """The collectives of several replicas of a step, and the messages beside them."""

    def __init__(self, graph: StepGraph, programs: Programs) -> None:
        found = [graph.meetings[step - len(graph.nodes)] for step in graph.order if step >= len(graph.nodes)]
        messages = [one for one in found if one.message]
        of_stage: dict[int, list[tuple[int, str]]] = {}
        for number, one in enumerate(messages):
            for n, way in zip(one.nodes, ("out", "in"), strict=True):
                of_stage.setdefault(graph.nodes[n].stage, []).append((number, way))
        sent_s = np.array([[one.at_s] for one in messages])
        self._known: dict[tuple[int, int, str, float], tuple[float, float]] = {}
        self._beside = []
        for one in found:
            if one.crossing:
                stages = sorted({graph.nodes[n].stage for n in one.nodes})
                ways = [(r, *way) for r in stages for way in of_stage.get(r, ())]
                beside = self._of(one, ways, messages, programs.links)
                healthy_s = beside.lost_s(one.at_s, sent_s) if beside else 0.0
                self._beside.append((beside, healthy_s))

    @property
    def any(self) -> bool:
        """Whether a message slows any of these collectives."""
        return any(beside for beside, _ in self._beside)

    def longer_s(self, found: Pass, rows: Sequence[int] | None = None) -> list[float]:
        """By meeting of replicas, how much longer it takes than in the healthy step beside the messages of a
        pass; of the replicas in these ``rows`` of it alone, where given.
        """
        assert found.sent_s is not None
        sent_s = found.sent_s if rows is None else found.sent_s[:, rows]
        return [
            beside.lost_s(float(begin_s), sent_s) - healthy_s if beside else 0.0
            for (beside, healthy_s), begin_s in zip(self._beside, found.begin_s[:-1].tolist(), strict=True)
        ]

    def _of(
        self,
        one: Meeting,
        ways: Sequence[tuple[int, int, str]],
        messages: Sequence[Meeting],
        links: Sequence[Mapping[str, float]],
    ) -> _Beside | None:
        """What is beside a collective, of the messages on its members' links; None: nothing slows it."""
        found = []
        rate = slower = self._rates(one.transfer, None, "", links[ways[0][0]])[0] if ways else 0.0
        for r, number, way in ways:
            message = messages[number].transfer
            mine, its = self._rates(one.transfer, message, way, links[r])
            if mine < rate and its:
                slower = min(slower, mine)
                found.append((number, message.latency_s, message.bytes / its))
        if not found or not one.transfer.bytes:
            return None
        numbers, after_s, moving_s = zip(*found, strict=True)
        return _Beside(
            latency_s=one.transfer.latency_s,
            bytes=one.transfer.bytes,
            rate=rate,
            slower=slower,
            messages=np.array(numbers),
            after_s=np.array(after_s),
            moving_s=np.array(moving_s),
        )

    def _rates(
        self, mine: Transfer, message: Transfer | None, way: str, links: Mapping[str, float]
    ) -> tuple[float, float]:
        """The rates of a collective and a message on one rank's links; of the collective alone."""
        key = id(mine), id(message), way, id(links)
        if key not in self._known:
            demands = [Demand(mine.ceiling_bytes_per_s, mine.local_weights)]
            if message is not None:
                own = tuple(pair for pair in message.local_weights if pair[0].endswith(way))
                demands.append(Demand(message.ceiling_bytes_per_s, own))
            rates = max_min_rates(demands, links)
            self._known[key] = rates[0], rates[-1]
        return self._known[key]


def _joined(since: Seconds, until: Seconds) -> tuple[Seconds, Seconds]:
    """Stretches of time that overlap as one, in their order."""
    order = np.argsort(since, kind="stable")
    since, last = since[order], np.maximum.accumulate(until[order])
    apart = np.flatnonzero(since[1:] > last[:-1]) + 1
    return since[np.concatenate([[0], apart])], last[np.concatenate([apart - 1, [len(last) - 1]])]


def _slowed_s(size: float, rate: float, slower: float, since: Seconds, until: Seconds) -> float:
    """Seconds by which so many bytes that begin to move at 0 take longer where they are slower in stretches."""
    since, until = np.maximum(since, 0.0), np.maximum(until, 0.0)
    open_s = until - since
    lost = np.cumsum(open_s) * (1 - slower / rate)  # seconds at full rate, up to the end of each stretch
    moved = until * rate - lost * rate
    within = int(np.searchsorted(moved, size))
    before_s = float(lost[within - 1]) if within else 0.0
    if within == len(moved):
        return before_s
    start_s = float(since[within])
    left = size - (start_s - before_s) * rate
    return before_s if left <= 0 else before_s + left / slower - left / rate
