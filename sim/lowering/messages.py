"""Writes the point-to-point messages of a pipeline rank into its program, by the software's rule.

Knows when a message may start and who waits for it; what it costs is given. Used by real steps
(pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...schedules.orders.action import Action, ActionKind
from ...schedules.p2p.point_to_point import MessageGroup, Recv, Send
from ..network.transfer import Transfer
from ..program import program
from ..program.program import UNORDERED, MessageEnd, Op
from ..program.program_builder import ProgramBuilder
from ..scenario.software.pipeline import HostSync

new = tuple.__new__
"""Makes a named tuple of all its fields in half the time: its own constructor is a function of Python."""

Posted = tuple[bool, Action, int]
"""A part by whether it sends, its action and its peer: tuples are looked up without a function of Python."""


@dataclass(kw_only=True)
class Messages:
    """The messages of one rank. ``transfer(part)`` prices one; ``host_s`` is the host cost of one call.

    ``done`` maps each finished action to the ops that end it, where messages wait for these (async).
    ``tags`` are the names of actions, which all ranks may share; ``priced`` are transfers by stage, kind and
    peer. ``posted`` are the ops of parts; in its place, ``received`` has those of receives (async), by the
    identity of a part.
    """

    writer: ProgramBuilder
    rule: str
    transfer: Callable[[Send | Recv], Transfer]
    host_s: float = 0.0
    host_sync: HostSync = "never"
    done: dict[Action, tuple[int, ...]] = field(default_factory=dict)
    tags: dict[Action, str] = field(default_factory=dict)
    posted: dict[Posted, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)
    priced: dict[tuple[int, ActionKind, int], Transfer] = field(default_factory=dict)

    def exchange(self, exchange: MessageGroup) -> int:
        """Post a group of messages. A group that blocks holds up whatever comes next on the compute stream.
        Returns its op."""
        given, ops = exchange.parts, self.writer.ops
        if self.rule == "async":
            return self.unordered(exchange)
        after, stream = self.writer.frontier(), self._stream(exchange)
        parts = (self._end(given[0]),) if len(given) == 1 else tuple([self._end(part) for part in given])
        waits = self.host_sync != "never" and exchange.blocking and self._host_waits(exchange)
        index, host_s, work = len(ops), len(given) * self.host_s, new(program.Exchange, (parts,))
        ops.append(new(Op, ("exchange", stream, "pp", work, after, parts[0].tag, host_s, waits)))
        if exchange.blocking:
            self.writer.awaited.add(index)
        else:
            for part in given:
                self.posted[isinstance(part, Send), part.action, part.peer] = index
        return index

    def unordered(self, exchange: MessageGroup) -> int:
        """Post one message by itself (async). A send starts when what it carries is made; a receive waits for
        nothing. Returns its op."""
        (part,) = exchange.parts
        ops, end = self.writer.ops, self._end(part)
        index, after = len(ops), self.done[part.action] if end[0] else ()
        if not end[0]:  # no rank waits to send
            self.received[id(part)] = index
        work = new(program.Exchange, ((end,),))
        ops.append(new(Op, ("exchange", UNORDERED, "pp", work, after, end[2], self.host_s, False)))
        return index

    def _stream(self, exchange: MessageGroup) -> str:
        """Calls that go out as one group share a communicator, and with it a stream.

        torch gives lone sends and receives one communicator for each pair of ranks
        (ProcessGroupNCCL.cpp, ``pointToPoint``), so that a receive posted early holds up no other peer.
        """
        if self.rule == "torch" and len(exchange.parts) == 1:
            return f"pp {exchange.parts[0].peer}"
        return "pp"

    def _host_waits(self, exchange: MessageGroup) -> bool:
        if self.host_sync == "receive":
            return any(isinstance(part, Recv) for part in exchange.parts)
        return self.host_sync == "always"

    def ends(self, actions: Iterable[Action]) -> None:
        """Note that all ops of ``actions`` are written, so that messages may wait for the last of them."""
        if self.rule == "async":
            frontier = self.writer.frontier()
            for action in actions:
                self.done[action] = frontier

    def wait(self, part: Send | Recv) -> None:
        """Make the next kernel wait for a message that was posted before."""
        if self.rule == "async":
            index = self.received[id(part)]
        else:
            index = self.posted[isinstance(part, Send), part.action, part.peer]
        self.writer.awaited.add(index)

    def _end(self, part: Send | Recv) -> MessageEnd:
        action, peer = part.action, part.peer
        tag = self.tags.get(action)
        if tag is None:
            tag = self.tags[action] = str(action)
        key = action[0], action[1], peer
        transfer = self.priced.get(key)
        if transfer is None:
            transfer = self.priced[key] = self.transfer(part)
        return new(MessageEnd, (isinstance(part, Send), peer, tag, transfer))
