"""Communications: members gather, a latency passes, and the payload moves over shared links.

A communication's SMs are held on each member from its arrival on. One that begins to move opens the
segments whose links it shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from ..network.sharing import Demand, Link
from ..network.transfer import Transfer, link_names
from ..program.program import Part, Programs
from .flows import Flows, call_at_end
from .ranks import Rank
from .record import SlowedBy

Ends = tuple[tuple[int, int], ...]
"""(sending, receiving) classes of a communication."""

Between = str | None
"""The communicator of a collective; None: a message."""

Source = tuple[int, int]
"""Class and op whose arrival began a communication."""


@dataclass(slots=True)
class Meeting:
    """A collective or message that gathers its members; ``done`` tells when it began, and its Source."""

    done: simpy.Event
    arrived: int = 0


@dataclass
class Meetings:
    """The communications of one replay."""

    env: simpy.Environment
    programs: Programs
    ranks: Sequence[Rank]
    flows: Flows
    _open: dict[tuple[Any, ...], Meeting] = field(default_factory=dict)
    _calls: dict[tuple[int, str], int] = field(default_factory=dict)
    _demands: dict[tuple[int, Ends, Between], tuple[Transfer, Demand, list[tuple[Rank, str]]]] = field(
        default_factory=dict
    )

    def call(self, communicator: str, transfer: Transfer, place: Source) -> simpy.Event:
        """Class and op at ``place`` reach a collective that joins classes; its end."""
        members, r = self.programs.communicators[communicator], place[0]
        number = self._calls[r, communicator] = self._calls.get((r, communicator), -1) + 1
        meeting = self._meeting((communicator, number))
        meeting.arrived += 1
        if meeting.arrived == len(members):
            self.launch(meeting.done, transfer, tuple((m, m) for m in members), place, communicator)
        return meeting.done

    def post(self, part: Part, place: Source) -> simpy.Event:
        """One end of a message is posted; its end."""
        r = place[0]
        ends = (r, part.peer) if part.send else (part.peer, r)
        meeting = self._meeting((*ends, part.tag))
        meeting.arrived += 1
        if meeting.arrived == 2:
            self.launch(meeting.done, part.transfer, (ends,), place, None)
        return meeting.done

    def launch(
        self,
        done: simpy.Event,
        transfer: Transfer,
        ends: Ends,
        source: Source,
        between: Between,
        left: tuple[float, float] | None = None,
    ) -> None:
        """Latency, then the payload, then ``done``; ``left`` of both, where it has begun before."""
        value = (self.env.now, source)
        latency_s, payload = left or (transfer.latency_s, transfer.bytes)
        if not latency_s:
            self._move(done, transfer, payload, (ends, between), value)
            return
        latency = self.env.timeout(latency_s)
        call_at_end(latency, lambda _: self._move(done, transfer, payload, (ends, between), value))

    def _meeting(self, key: tuple[Any, ...]) -> Meeting:
        if key not in self._open:
            self._open[key] = Meeting(self.env.event())
        return self._open[key]

    def _move(
        self,
        done: simpy.Event,
        transfer: Transfer,
        payload: float,
        members: tuple[Ends, Between],
        value: Any,
    ) -> None:
        if not payload:
            done.succeed(value)
            return
        _, demand, used = self._demand(transfer, *members)
        for rank, link in used:
            if rank.closed is not None and link in rank.closed_links:
                rank.open()
        self.flows.start(payload, demand, done, value)

    def _demand(
        self, transfer: Transfer, ends: Ends, between: Between
    ) -> tuple[Transfer, Demand, list[tuple[Rank, str]]]:
        """Its demand, and the links in question; kept with the transfer, whose identity is the key."""
        key = (id(transfer), ends, between)
        if key not in self._demands:
            weights: dict[Link, float] = {}
            used = []
            for sender, receiver in ends:
                for name, weight in transfer.weights:
                    for link in link_names(name):
                        r = sender if link.endswith(".out") else receiver
                        weights[r, link] = weights.get((r, link), 0.0) + weight
                        used.append((self.ranks[r], link))
            # Fair in bytes through a member's busiest port: a link of the fabric may be many cables.
            heaviest = max(weights.values(), default=0.0)
            weights |= self._fabric(transfer, ends, between)
            demand = Demand(transfer.ceiling_bytes_per_s, tuple(weights.items()), heaviest)
            self._demands[key] = (transfer, demand, used)
        return self._demands[key]

    def slowed(self) -> list[SlowedBy]:
        """What shared links did to whom."""
        known = {
            id(demand): (between, ends, transfer.ceiling_bytes_per_s, transfer.binding)
            for (_, ends, between), (transfer, demand, _) in self._demands.items()
        }
        return [
            SlowedBy(*known[number], link, sums.seconds, sums.bytes)
            for (number, link), sums in self.flows.slowed.sums.items()
        ]

    def _fabric(self, transfer: Transfer, ends: Ends, between: Between) -> dict[Link, float]:
        """Its weights on links of the fabric."""
        paths = self.programs.paths
        if between is None:
            path = paths.messages.get(ends[0], ())
        else:
            path = paths.collectives.get((ends[0][0], between, transfer.pattern), ())
        return {link: transfer.nic * weight for link, weight in path} if transfer.nic else {}
