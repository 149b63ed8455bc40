"""Messages of one class that no stream orders: each is posted when what it waits for has ended.

When the host issues one is known by then, so it is posted at that time although it may be yet to come. A
receive that waits for the host alone is not even posted: its sender finds it. They are a quarter of a step's
ops, and messages half.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..program.program import Exchange
from .clock import Clock
from .rank_state import RankState
from .rendezvous import Receiver, RendezvousPoints, Source
from .scope import UNKNOWN, Layout, Scope
from .signal import Signal


@dataclass(slots=True)
class P2PQueue:
    """Exchanges of ``scope``. ``lost`` counts what those that wait for several ops need wait for no more.

    ``names`` says what its program calls a class.
    """

    env: Clock
    rank: RankState
    rendezvous_points: RendezvousPoints
    scope: Scope
    layout: Layout
    late_s: float = 0.0
    lost: dict[int, int] = field(default_factory=dict)
    names: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.names = {r: name for name, r in self.rank.peers.items()}

    def begin(self, _: object = None) -> None:
        """Post all that wait for nothing and that nobody finds."""
        found = set(self.layout.receives.values())
        for i, lacks in self.layout.lacks.items():
            if not lacks and i not in found:
                self._post(i)

    def lose(self, indices: Iterable[int]) -> None:
        """Note that one of the ops that each of these exchanges waited for has ended."""
        if self.rank.stopped:
            return
        for i in indices:
            lacks = self.layout.lacks[i]
            if lacks > 1:
                self.lost[i] = self.lost.get(i, 0) + 1
                if self.lost[i] < lacks:
                    continue
            self._post(i)

    def receives(self, sender: int, tag: str) -> tuple[float, int] | None:
        """When a receive that waits for the host alone is posted, and its index, for the first that asks.

        None where there is none.
        """
        name = self.names.get(sender)
        if name is None:
            if sender in self.rank.peers:
                return None
            name = sender
        i = self.layout.receives.get((name, tag))
        if i is None or self.scope.start[i] >= 0 or self.rank.stopped:
            return None
        return self.scope.reached(i, self.late_s), i

    def received(self, i: int, done: Signal) -> None:
        """Call ``done`` when the message of receive ``i``, which waited for the host alone, has ended."""
        self.over(i, done.value, self.env.time)

    def leave(self, until_s: float) -> None:
        """Post the receives that nobody has asked for, too, as far as the host issues them up to
        ``until_s``."""
        for i in self.layout.receives.values():
            if self.scope.start[i] < 0 and self.scope.reached(i, self.late_s) > until_s:
                self.scope.start[i] = self.scope.begin[i] = UNKNOWN

    def forget(self) -> None:
        """Drop all that waits, because the replay is over and nobody will be told."""
        self.scope.lose = None

    def over(self, i: int, value: tuple[float, Source], now: float) -> None:
        """End exchange ``i``, whose only message ended ``now`` with ``value``."""
        if self.rank.stopped:
            return
        self.scope.ends(i, now, value)

    def _post(self, i: int) -> None:
        at = self.scope.reached(i, self.env.time)
        work = self.scope.ops[i].work
        assert isinstance(work, Exchange)
        place, rendezvous_points = (self.scope.r, i), self.rendezvous_points
        part = work.parts[0]
        if len(work.parts) == 1 and part.send:
            peer = self.rank.peers.get(part.peer, part.peer)
            receiver = rendezvous_points.p2p_queue.get(peer)
            found = receiver.receives(place[0], part.tag) if receiver is not None else None
            if receiver is not None and found is not None:  # no other end of it is posted: it begins
                its_at, j = found
                message = Message(self, i, receiver, j)
                if its_at > at:
                    at, place = its_at, (peer, j)
                rendezvous_points.launch(message, part.transfer, ((self.scope.r, peer),), place, None, at=at)
                return
        posted = [rendezvous_points.post(part, place, at) for part in work.parts]
        over = partial(self._all_over, i, posted)
        for done in posted:
            done.then(over)

    def _all_over(self, i: int, posted: Sequence[Signal]) -> None:
        """Note that one message of an exchange has ended; the exchange ends with the last of them."""
        for done in posted:
            if not done.happened or self.rank.stopped:
                return
        self.scope.ends(i, self.env.time, max([done.value for done in posted]))


class Message:
    """A message that is the only one of both its exchanges, which end with it."""

    __slots__ = ("_i", "_j", "_receiver", "_sender")

    def __init__(self, sender: P2PQueue, i: int, receiver: Receiver, j: int) -> None:
        self._sender, self._i, self._receiver, self._j = sender, i, receiver, j

    def happen(self, value: tuple[float, Source]) -> None:
        """End the message; ``value`` says when it began, and whose arrival began it."""
        now = self._sender.env.time
        self._sender.over(self._i, value, now)
        self._receiver.over(self._j, value, now)
