"""Ops of one class that run together: a whole program, or one block that runs in detail.

Knows what each op waits for besides its stream: other ops, the host, repeated blocks that use its stream.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..program.program import (
    UNORDERED,
    Block,
    Collective,
    Compute,
    Exchange,
    Op,
    Program,
    RepeatedBlocks,
    Work,
)
from .signal import Callback, Signal

UNKNOWN = -1.0
"""The value of a time that is not known yet."""

Times = tuple["array[float]", "array[float]", "array[float]", "array[int]"]
"""Start, begin, end and source of the ops of a scope (see Record)."""

NOBODY, BITS = -1, 32
"""A source is one number: class and op, which takes so many bits."""

Began = tuple[float, tuple[int, int]]
"""When a communication began to move, and the class and op whose arrival began it."""

Left = tuple[float, float]
"""What an op in progress has before it: seconds of latency, then seconds of work or bytes of payload."""

SLACK_S = 1e-12
"""What ends so soon has ended: sums of times differ by as much, and members must tell alike."""

WAITS: Left = (math.inf, math.inf)
"""A collective that waits for its other members has everything before it."""


@dataclass(slots=True)
class Scope:
    """Ops of class ``r`` with their times, by index, in seconds (see Record).

    ``issue`` gives for each op the last op before it that the host waits for (-1: none) and the host time
    from there, or from ``issued_at``, until it is issued; where ``issued_at`` is None, nothing waits for the
    host. ``behind`` names for ops that follow blocks on their stream the op that runs these, ``before`` for
    repeated blocks the ops that come before them on the streams of their blocks. ``left`` has what is left of
    ops that were in progress when the scope began. ``tag`` says which block of its class it is, the same on
    all classes that this meets; None for a program. ``followers`` are messages that wait for an op: ``lose``
    tells them that it has ended."""

    r: int
    ops: Sequence[Op]
    issue: Sequence[tuple[int, float]]
    issued_at: float | None
    start: array[float]
    begin: array[float]
    end: array[float]
    source: array[int]
    behind: Mapping[int, int] = field(default_factory=dict)
    before: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    left: dict[int, Left] = field(default_factory=dict)
    waiting: dict[int, Signal | Callback] = field(default_factory=dict)
    tag: tuple[int, ...] | None = None
    followers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    lose: Callable[[Iterable[int]], None] | None = None

    def ended(self, i: int) -> Signal:
        """The signal that op ``i``, which has not ended, gives when it ends."""
        found = self.waiting.get(i)
        if isinstance(found, Signal):
            return found
        signal = self.waiting[i] = Signal()
        if found is not None:
            signal.then(found)
        return signal

    def then(self, i: int, callback: Callback) -> None:
        """Run ``callback`` when op ``i`` ends. Most ops have only one, and need no signal."""
        if i in self.waiting:
            self.ended(i).then(callback)
        else:
            self.waiting[i] = callback

    def issued(self, i: int) -> float:
        """When the host issues op ``i``; known once the op that the host waits for has ended."""
        sync, offset = self.issue[i]
        base = self.issued_at if sync < 0 else self.end[sync]
        assert base is not None
        return base + offset

    def reached(self, i: int, at: float) -> float:
        """Op ``i``, messages, which is ready at a time, is reached, once the host has issued it; when."""
        if self.issued_at is not None:
            sync, offset = self.issue[i]
            issued = (self.issued_at if sync < 0 else self.end[sync]) + offset
            if issued > at:
                at = issued
        self.start[i] = self.begin[i] = at
        return at

    def all_issued(self, i: int) -> float:
        """When the host has issued the last of the calls of op ``i``, which has been issued; else -inf."""
        if self.issued_at is None:
            return -math.inf
        op = self.ops[i]
        return self.issued(i) + op.host_s - _first_s(op.work, op.host_s)

    def meets(self, i: int, value: Began) -> None:
        """Op ``i``, a collective, began then, by that arrival."""
        self.begin[i], (r, k) = value
        self.source[i] = r << BITS | k

    def ends(self, i: int, now: float, last: Began | None = None) -> None:
        """End op ``i``, and notify what waits for it. Messages began with the ``last`` of them: when, and by
        whose arrival."""
        self.end[i] = now
        if last is not None:
            began, (r, k) = last
            self.source[i] = r << BITS | k
            if began > self.start[i]:
                self.begin[i] = began
        if self.waiting:
            told = self.waiting.pop(i, None)
            if told is not None:
                if isinstance(told, Signal):
                    told.happen()
                else:
                    told()
        if self.followers and i in self.followers:
            assert self.lose is not None
            self.lose(self.followers[i])


RowKind = Literal["communications", "kernels", "mixed"]
"""Ops of a row: collectives and messages alone, kernels and repeated blocks alone, or both."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What is the same in every class that runs a program: ``rows`` of ops that follow one another on a
    stream, or by themselves, and the fields of a Scope. ``kinds`` says what the ops of each row are.

    ``lacks`` says of messages that no stream orders how many ops each waits for, ``followers`` which wait
    for an op, ``receives`` which receive and wait for none, by sending class and tag. ``predecessors``: the
    op before each on its stream, -1 for none.
    """

    rows: tuple[tuple[int, ...], ...]
    kinds: tuple[RowKind, ...]
    lacks: Mapping[int, int]
    followers: Mapping[int, tuple[int, ...]]
    receives: Mapping[tuple[int, str], int]
    issue: Sequence[tuple[int, float]]
    behind: Mapping[int, int]
    before: Mapping[int, tuple[int, ...]]
    predecessors: Sequence[int]


def layout_of(program: Program, *, host: bool) -> Layout:
    """The layout of a program; ``host`` says whether ops wait for it."""
    ops, issue = program.ops, issue_times(program.ops)
    behind, before, predecessors, streams, unordered = _orders(ops)
    lacks: dict[int, int] = {}
    followers: dict[int, list[int]] = {}
    for i in unordered:
        awaited: Collection[int] = ops[i].after
        if len(awaited) > 1 or (host and issue[i][0] >= 0):
            awaited = {*awaited, issue[i][0]} if host and issue[i][0] >= 0 else {*awaited}
        lacks[i] = len(awaited)
        for earlier in awaited:
            followers.setdefault(earlier, []).append(i)
    rows = tuple(map(tuple, streams))
    return Layout(
        rows=rows,
        kinds=tuple([_kind({type(ops[i].work) for i in row}) for row in rows]),
        lacks=lacks,
        followers={i: tuple(waiting) for i, waiting in followers.items()},
        receives=_receives(ops, [i for i, count in lacks.items() if not count]),
        issue=issue,
        behind=behind,
        before=before,
        predecessors=predecessors,
    )


def _kind(works: set[type]) -> RowKind:
    if works <= {Collective, Exchange}:
        return "communications"
    return "kernels" if works <= {Compute, RepeatedBlocks} else "mixed"


def _receives(ops: Sequence[Op], ready: Iterable[int]) -> dict[tuple[int, str], int]:
    """Exchanges among ``ready`` that are one receive, by sending class and tag where these name one."""
    found: dict[tuple[int, str], int] = {}
    twice: set[tuple[int, str]] = set()
    for i in ready:
        parts = ops[i].work.parts  # type: ignore[union-attr]  # those that no stream orders are exchanges
        if len(parts) == 1 and not parts[0].send:
            key = parts[0].peer, parts[0].tag
            if found.setdefault(key, i) != i:
                twice.add(key)
    return {key: i for key, i in found.items() if key not in twice} if twice else found


def program_scope(
    program: Program, layout: Layout, r: int, times: Times, *, issued_at: float | None
) -> Scope:
    """A whole program, whose times go into ``times``."""
    scope = Scope(r, program.ops, layout.issue, issued_at, *times, layout.behind, layout.before)
    scope.followers = layout.followers
    return scope


def unknown(count: int) -> Times:
    """Times of so many ops, none of them known."""
    times = array("d", [UNKNOWN]) * count
    return times, times[:], times[:], array("q", [NOBODY]) * count


def block_scope(block: Block, r: int, *, issued_at: float | None, tag: tuple[int, ...]) -> Scope:
    """A block from its start, its first op issued at ``issued_at``."""
    return Scope(r, block.ops, block.issue, issued_at, *unknown(len(block.ops)), tag=tag)


def issue_times(ops: Sequence[Op], *, last: bool = False) -> list[tuple[int, float]]:
    """For each op, the last op before it that the host waits for (-1: none) and the host time since then.

    Repeated blocks count as issued when their first op is, and several calls when the first of them is; or,
    of both, the ``last``.
    """
    times, sync, offset = list[tuple[int, float]](), -1, 0.0
    for i, (_, _, _, work, _, _, host_s, host_sync) in enumerate(ops):
        if not host_s or last or isinstance(work, Exchange):
            times.append((sync, offset + host_s))
        elif isinstance(work, RepeatedBlocks):
            times.append((sync, offset + (work.first_s if work.blocks else host_s)))
        else:
            times.append((sync, offset + _first_s(work, host_s)))
        offset += host_s
        if host_sync:
            sync, offset = i, 0.0
    return times


def _first_s(work: Work, host_s: float) -> float:
    """What issuing a kernel or a collective costs the host until something of it can begin."""
    return host_s / work.calls if isinstance(work, Collective) else host_s


Behind = dict[int, int]
Before = dict[int, tuple[int, ...]]


def _orders(ops: Sequence[Op]) -> tuple[Behind, Before, list[int], list[list[int]], list[int]]:
    """For ops the last repeated blocks, and for those the last ops, that come before on a shared stream; for
    each op the one before it on its stream (-1: none); the streams; and messages that no stream orders.
    """
    behind, before = Behind(), Before()
    predecessors, streams, unordered = [-1] * len(ops), dict[str | int, list[int]](), list[int]()
    last: dict[str, int] = {}
    repeated: dict[str, int] = {}  # by stream, the last op on it where that is of repeated blocks
    others: dict[str, int] = {}  # and where it is not
    for i, (_, stream, _, work, _, _, _, _) in enumerate(ops):
        if stream == UNORDERED:
            if isinstance(work, Exchange) and work.parts:
                unordered.append(i)
                continue
            streams[i] = [i]
        else:
            row = streams.get(stream)
            if row is None:
                streams[stream] = [i]
            else:
                row.append(i)
            if stream in last:
                predecessors[i] = last[stream]
            last[stream] = i
        if isinstance(work, RepeatedBlocks):
            used = work.last_on
            if not used:
                continue
            if others and not others.keys().isdisjoint(used):
                before[i] = tuple(others.pop(s) for s in used if s in others)
            for s in used:
                repeated[s] = last[s] = i
        elif stream not in ("compute", UNORDERED):
            earlier = repeated.pop(stream, None)
            if earlier is not None:
                behind[i] = earlier
            others[stream] = i
    return behind, before, predecessors, list(streams.values()), unordered
