"""Communications: members gather, a latency passes, and the payload moves over shared links.

A communication's SMs are held on each member from its arrival on. One that begins to move opens the
repeated blocks whose links it shares.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ..network.sharing import Demand, Link
from ..network.transfer import Transfer, link_names
from ..program.program import Collective, MessageEnd, Programs
from .clock import Clock
from .flows import Flows
from .rank_state import RankState
from .record import SlowedBy
from .scope import Left
from .signal import Done, Signal

Ends = tuple[tuple[int, int], ...]
"""(sending, receiving) classes of a communication."""

Between = str | None
"""The communicator of a collective; None: a message."""

Place = tuple[RankState, tuple[int, str], float]
"""A rank, its link, and the bytes per second that a communication puts there at most."""

Source = tuple[int, int]
"""Class and op whose arrival began a communication."""


class Receiver(Protocol):
    """The messages of a class that no stream orders (p2p_queue.py), as the other ends of them see it."""

    def receives(self, sender: int, tag: str) -> tuple[float, int] | None:
        """When a receive that waits for the host alone is posted, and its index; None without one."""

    def received(self, i: int, done: Signal) -> None:
        """The message of such a receive has ended."""

    def over(self, i: int, value: tuple[float, Source], now: float) -> None:
        """The only message of exchange ``i`` has ended."""

    def leave(self, until_s: float) -> None:
        """The replay is over: receives that nobody asked for are posted."""

    def forget(self) -> None:
        """The replay is over: nobody will be told."""


@dataclass(slots=True)
class Rendezvous:
    """A collective that gathers its members; ``done`` tells when it began, and its Source.

    ``issued``: when the last of its calls is, on the last of the members.
    """

    done: Signal = field(default_factory=Signal)
    arrived: int = 0
    issued: float = -math.inf


@dataclass(slots=True)
class NotBefore:
    """Passes an event on to ``done``, at ``time`` at the earliest."""

    env: Clock
    done: Done
    time: float

    def happen(self, value: Any = None) -> None:
        """Tell ``done`` at ``time``, or now where that has passed."""
        wait_s = self.time - self.env.time
        if wait_s > 0:
            self.env.call(wait_s, self.done.happen, value)
        else:
            self.done.happen(value)


@dataclass
class RendezvousPoints:
    """The communications of one replay; ``p2p_queue`` by class, of those that have any."""

    env: Clock
    programs: Programs
    ranks: Sequence[RankState]
    flows: Flows
    p2p_queue: dict[int, Receiver] = field(default_factory=dict)
    _open: dict[tuple[Any, ...], Rendezvous] = field(default_factory=dict)
    _posted: dict[tuple[tuple[int, int], str], tuple[Signal, float, Source]] = field(default_factory=dict)
    _calls: dict[tuple[int, str], int] = field(default_factory=dict)
    _places: dict[int, list[Place]] = field(default_factory=dict)
    _kinds: dict[int, int] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _kept: list[Transfer] = field(default_factory=list)
    _demands: dict[tuple[int, Ends, Between], tuple[Transfer, Demand]] = field(default_factory=dict)
    _asked: dict[tuple[int, Ends, Between], Demand] = field(default_factory=dict)

    def arrive(
        self,
        work: Collective,
        place: Source,
        tag: tuple[int, ...] | None,
        left: Left | None,
        issued: float = -math.inf,
    ) -> Signal:
        """Class and op at ``place`` arrive at a collective; its end.

        Calls of blocks meet by their ``tag`` and op, which are the same on all classes, those of programs
        (None) by their number. ``left`` where it has begun before, which all members tell alike. ``issued``
        is when the host has issued the last of its calls.
        """
        r, i = place
        communicator = self.programs.meant(r, work.communicator)
        if (
            communicator not in self.programs.communicators
        ):  # of the class's own ranks, which are equal and never wait for one another
            done = Signal()
            told = self._issued(done, work, issued)
            self.launch(told, work.transfer, ((r, r),), place, communicator, left)
            return done
        if tag is None:
            number = self._calls[r, communicator] = self._calls.get((r, communicator), -1) + 1
            key: tuple[Any, ...] = (communicator, number)
        else:
            key = (communicator, *tag, i)
        members = self.programs.communicators[communicator]
        rendezvous = self._rendezvous(key)
        rendezvous.arrived += 1
        rendezvous.issued = max(rendezvous.issued, issued)
        if rendezvous.arrived == len(members):
            del self._open[key]
            told = self._issued(rendezvous.done, work, rendezvous.issued)
            self.launch(told, work.transfer, tuple((m, m) for m in members), place, communicator, left)
        return rendezvous.done

    def own_demand(self, r: int, work: Collective) -> Demand:
        """What a collective of class ``r``'s own ranks asks of links."""
        own = self.programs.meant(r, work.communicator)
        asked = id(work.transfer), ((r, r),), own
        return self._asked.get(asked) or self._demand(work.transfer, ((r, r),), own)

    def _issued(self, done: Signal, work: Collective, issued: float) -> Done:
        """``done`` delayed until the last of the calls has been issued and has had its time."""
        return NotBefore(self.env, done, issued + work.last_s) if work.calls > 1 else done

    def post(self, part: MessageEnd, place: Source, at: float) -> Signal:
        """Post one end of a message at a time, which may lie ahead. Returns what tells its end."""
        send, peer, tag, transfer = part
        r, peers = place[0], self.ranks[place[0]].peers
        if peers:
            peer = peers.get(peer, peer)
        ends = (r, peer) if send else (peer, r)
        other = self._posted.pop((ends, tag), None)
        if other is None:
            done = Signal()
            receiver = self.p2p_queue.get(peer) if send else None
            found = receiver.receives(r, tag) if receiver is not None else None
            if receiver is None or found is None:
                self._posted[ends, tag] = done, at, place
                return done
            done.then(partial(receiver.received, found[1], done))
            its_at, its_place = found[0], (peer, found[1])
        else:
            done, its_at, its_place = other
        if its_at > at:
            at, place = its_at, its_place
        self.launch(done, transfer, (ends,), place, None, at=at)
        return done

    def launch(
        self,
        done: Done,
        transfer: Transfer,
        ends: Ends,
        source: Source,
        between: Between,
        left: Left | None = None,
        at: float | None = None,
    ) -> None:
        """Run a communication: latency, then payload, then ``done``. ``left`` has what is left of both if
        it began earlier. It begins ``at`` a time ahead, or now."""
        now = self.env.time
        if at is None:
            at = now
        latency_s, payload = left or (transfer.latency_s, transfer.bytes)
        latency_s += at - now
        value = at, source
        if not payload:
            self.env.call(latency_s, done.happen, value)
            return
        demand = self._asked.get((id(transfer), ends, between)) or self._demand(transfer, ends, between)
        if not latency_s:
            self.move(payload, demand, done, value)
        elif self._may_open(latency_s, payload, demand) or not self.flows.later(
            latency_s, payload, demand, done, value
        ):
            self.env.call(latency_s, lambda _: self.move(payload, demand, done, value))

    def move(self, payload: float, demand: Demand, done: Done, value: Any) -> None:
        """Begin to move the payload. Repeated blocks that use one of its links before it ends are
        interrupted when they do."""
        now, end = self.env.time, self.flows.end_of(payload, demand)
        for rank, link, most in self._closed(demand):
            at = rank.first_use(link[1], now, end)
            if at == math.inf or self.flows.holds(link, most + rank.closed_most[link[1]]):
                continue
            if at > now:
                self.env.call(at - now, rank.open_if, rank.closed)
            else:
                rank.open()
        self.flows.start(payload, demand, done, value)

    def disturbs(self, demand: Demand) -> None:
        """A communication in progress ends later than it was to, or can move faster than it could: blocks
        open that use a link of it which does not hold both."""
        for rank, link, _ in self._closed(demand):
            slowed = not self.flows.holds(link, rank.closed_most[link[1]])
            if slowed and rank.first_use(link[1], self.env.time, math.inf) < math.inf:
                rank.open()

    def _closed(self, demand: Demand) -> list[Place]:
        """The places of ``demand`` where a block runs as a whole and uses the link at some time."""
        found = []
        for place in self._places_of(demand):
            rank, link, _ = place
            if rank.closed is not None and link[1] in rank.closed_most:
                found.append(place)
        return found

    def _may_open(self, latency_s: float, payload: float, demand: Demand) -> bool:
        """Whether a communication that begins to move after a latency opens any of them, if it has its links
        to itself: whoever joins it there makes it look for blocks again.
        """
        for rank, link, most in self._places.get(id(demand)) or self._places_of(demand):
            if rank.closed is not None and link[1] in rank.closed_most:
                since = self.env.time + latency_s
                until = since + self.flows.solo_s(payload, demand)
                if rank.first_use(link[1], since, until) < math.inf and not self.flows.holds(
                    link, most + rank.closed_most[link[1]]
                ):
                    return True
        return False

    def _places_of(self, demand: Demand) -> list[Place]:
        """Ranks' own links among those of ``demand``: blocks that cross the fabric never run as a whole."""
        places = self._places.get(id(demand))
        if places is None:
            places = self._places[id(demand)] = [
                (self.ranks[link[0]], link, weight * demand.ceiling)
                for link, weight in demand.weights
                if isinstance(link, tuple)
            ]
        return places

    def _rendezvous(self, key: tuple[Any, ...]) -> Rendezvous:
        if key not in self._open:
            self._open[key] = Rendezvous()
        return self._open[key]

    def _demand(self, transfer: Transfer, ends: Ends, between: Between) -> Demand:
        """What the transfer asks of links: one object for all that differ in their payload alone."""
        kind = self._kinds.get(id(transfer))
        if kind is None:
            value = transfer.ceiling_bytes_per_s, transfer.weights, transfer.pattern, transfer.binding
            kind = self._numbers.setdefault(value, len(self._numbers))
            self._kinds[id(transfer)] = kind
            self._kept.append(transfer)  # as long as its identity is a key
        key = kind, ends, between
        known = self._demands.get(key)
        if known is None:
            weights: dict[Link, float] = {}
            for sender, receiver in ends:
                for name, weight in transfer.weights:
                    for link in link_names(name):
                        r = sender if link.endswith(".out") else receiver
                        weights[r, link] = weights.get((r, link), 0.0) + weight
            # Fair in bytes through a member's busiest port: a link of the fabric may be many cables.
            heaviest = max(weights.values(), default=0.0)
            weights |= self._fabric(transfer, ends, between)
            demand = Demand(transfer.ceiling_bytes_per_s, tuple(weights.items()), heaviest)
            known = self._demands[key] = transfer, demand
        found = self._asked[id(transfer), ends, between] = known[1]
        return found

    def slowed(self) -> list[SlowedBy]:
        """Seconds and bytes by which shared links slowed communications, by communication and link."""
        known = {
            id(demand): (between, ends, transfer.ceiling_bytes_per_s, transfer.binding)
            for (_, ends, between), (transfer, demand) in self._demands.items()
        }
        return [
            SlowedBy(*known[number], link, sums.seconds, sums.bytes)
            for (number, link), sums in self.flows.slowed.sums.items()
        ]

    def _fabric(self, transfer: Transfer, ends: Ends, between: Between) -> dict[Link, float]:
        """Bytes that a transfer puts on each link of the fabric for each byte of its payload."""
        paths = self.programs.paths
        if between is None:
            path = paths.messages.get(ends[0], ())
        else:
            path = paths.collectives.get((ends[0][0], between, transfer.pattern), ())
        return {link: transfer.nic * weight for link, weight in path} if transfer.nic else {}
