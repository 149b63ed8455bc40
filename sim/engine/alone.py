"""A block of one class that nothing interferes with, run without a clock of its own.

Its streams and its host order it; its kernels slow down beside its own collectives and what else the rank has
held all the while. Collectives that slow one another on a link are left to a replay (runs.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, cast

from ..network.sharing import Demand, alone
from ..network.transfer import Transfer
from ..program.program import Block, Collective, Compute
from .slowed import SLACK

if TYPE_CHECKING:
    from ..network.sharing import Link
    from .blocks import Rates
    from .rank_state import RankState

Times = tuple[list[float], list[float], list[float], list["Rates"]]
"""Start, begin and end in seconds, and rates of progress, each by op."""


@dataclass(slots=True)
class OwnRates:
    """What each transfer of a class's own ranks moves in a second where it has their ``links`` to itself."""

    links: Mapping[str, float]
    _known: dict[int, tuple[Transfer, Demand, float]] = field(default_factory=dict)

    def of(self, transfer: Transfer) -> float:
        """Payload bytes per second."""
        return self._of(transfer)[2]

    def weights(self, transfer: Transfer) -> tuple[tuple[str, float], ...]:
        """Bytes on each link for a byte of its payload."""
        return self._of(transfer)[1].weights  # type: ignore[return-value]  # links by their names

    def _of(self, transfer: Transfer) -> tuple[Transfer, Demand, float]:
        known = self._known.get(id(transfer))
        if known is None:
            demand = Demand(transfer.ceiling_bytes_per_s, transfer.local_weights)
            known = self._known[id(transfer)] = (
                transfer,
                demand,
                alone(demand, cast("Mapping[Link, float]", self.links)),
            )
        return known


def run_alone(block: Block, issued_s: float, rank: RankState, rates: OwnRates) -> Times | None:
    """How a block runs that its rank reaches at 0, its first op issued at ``issued_s`` (-inf: long ago).

    None where only a replay tells: collectives that share a link it may not hold them on, that stand for
    several calls, or that never end.
    """
    return _Alone(block, issued_s, rank, rates).times()


class _Alone:
    def __init__(self, block: Block, issued_s: float, rank: RankState, rates: OwnRates) -> None:
        count = len(block.ops)
        self.ops, self.rank, self.own = block.ops, rank, rates
        self.issued_s = [issued_s + at for at in block.issued_s]
        self.rows = [list(reversed(row)) for rows in block.streams.values() for row in rows]  # last first
        self.start, self.end = [math.inf] * count, [math.inf] * count
        self.rates: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        self.now, self.kernel, self.left = 0.0, -1, 0.0  # the kernel at work, and what it has before it
        self.queue: list[tuple[float, int]] = []  # ends of collectives, and when ops are issued (-1)
        self.moving: dict[int, tuple[float, float, float]] = {}  # collectives: since, until, bytes per second

    def times(self) -> Times | None:
        """All times, or None (run_alone)."""
        while True:
            for row in self.rows:
                if row and not self._begin(row[-1]):
                    return None
            done = math.inf
            if self.kernel >= 0:
                since, rate = self.rates[self.kernel][-1]
                done = since + self.left / rate
            if self.queue and self.queue[0][0] < done:
                self.now, i = heappop(self.queue)
                if i >= 0:
                    self._ends(i)
                    del self.moving[i]
                    self._hold(-self.ops[i].work.transfer.sms, -1)  # type: ignore[union-attr]
            elif self.kernel >= 0:
                self.now = done
                self._ends(self.kernel)
                self.kernel = -1
            else:
                return self.start, self.start[:], self.end, list(self.rates)

    def _begin(self, i: int) -> bool:
        """Begin the next op of its row if it can; False where it is not for here."""
        op = self.ops[i]
        if self.start[i] < math.inf or any(self.end[before] == math.inf for before in op.after):
            return True
        if self.issued_s[i] > self.now:
            if (self.issued_s[i], -1) not in self.queue:
                heappush(self.queue, (self.issued_s[i], -1))
            return True
        self.start[i] = self.now
        if isinstance(op.work, Compute):
            self.kernel, self.left = i, op.work.seconds * self.rank.slow
            self.rates[i].append((self.now, self.rank.speed(op.work)))
            return True
        assert isinstance(op.work, Collective)
        return self._launch(i, op.work)

    def _launch(self, i: int, work: Collective) -> bool:
        transfer = work.transfer
        since, until, rate = self.now + transfer.latency_s, self.now + transfer.latency_s, 0.0
        if transfer.bytes:
            rate = self.own.of(transfer)
            if not rate:
                return False
            until += transfer.bytes / rate
            self.rates[i].append((since, rate))
        if work.calls > 1 or self._crowds(transfer, since, until, rate):
            return False
        self.moving[i] = since, until, rate
        heappush(self.queue, (until, i))
        self._hold(transfer.sms, 1)
        return True

    def _crowds(self, transfer: Transfer, since: float, until: float, rate: float) -> bool:
        """Whether it moves together with others on a link that may not hold them."""
        others = [
            (self.ops[i].work.transfer, its_rate)  # type: ignore[union-attr]
            for i, (its_since, its_until, its_rate) in self.moving.items()
            if its_since < until and since < its_until
        ]
        if not others:
            return False
        load: dict[str, float] = {}
        for one, its_rate in others:
            for link, weight in self.own.weights(one):
                load[link] = load.get(link, 0.0) + weight * its_rate
        return any(
            link in load and load[link] + weight * rate >= self.own.links[link] * (1 - SLACK)
            for link, weight in self.own.weights(transfer)
        )

    def _ends(self, i: int) -> None:
        self.end[i] = self.now
        for row in self.rows:
            if row and row[-1] == i:
                row.pop()

    def _hold(self, sms: int, moving: int) -> None:
        """The rank holds more SMs or fewer; a kernel at work goes on at another speed."""
        self.rank.hold(sms, moving)
        if self.kernel < 0:
            return
        rates = self.rates[self.kernel]
        since, rate = rates[-1]
        work = self.ops[self.kernel].work
        assert isinstance(work, Compute)
        now = self.rank.speed(work)
        if now != rate:
            self.left = max(0.0, self.left - rate * (self.now - since))
            rates.append((self.now, now))
