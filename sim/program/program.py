"""Programs: what each class of ranks does, as data, before any time passes.

A Program is a list of ops in the order in which the host issues them. Ops of one stream run in order;
``after`` names further ops (by index) that an op waits for, as CUDA events do.

Knows no clock: ``sim/engine`` replays programs; writer.py and reader.py turn them into files and back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, get_args

from ..network.paths import NO_PATHS, Paths
from ..network.transfer import Transfer

UNORDERED = "free"
"""Ops on this stream do not wait for one another (point-to-point messages without a rule of order)."""


@dataclass(frozen=True, slots=True)
class Compute:
    """One kernel (or a run of equal kernels): ``seconds`` on an idle GPU.

    ``kind`` is gemm, attention or memory-bound. A math-bound kernel slows down while communication holds SMs;
    every kernel slows down by the profile's co-run slowdown while communication moves data. A kernel with
    a ``static_schedule`` is persistent and assigns all its work to SMs before it begins: it needs two passes
    while any SM is held.
    """

    seconds: float
    kind: str
    flops: float = 0.0
    bytes: float = 0.0
    static_schedule: bool = False


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of ``communicator``: it starts when every member has arrived, and ends for all at once.

    It may stand for several equal ``calls`` in a row. Then ``transfer`` and the host's cost are those of all
    calls together: all are issued where the first one is, and the last call runs once it has been issued.
    """

    kind: str
    communicator: str
    transfer: Transfer
    calls: int = 1

    @property
    def last_s(self) -> float:
        """Duration of the last of its calls on an idle network."""
        return self.transfer.solo_s / self.calls


class MessageEnd(NamedTuple):
    """One end of a point-to-point message; ``tag`` pairs it with the other end (2F0: the output of action
    2F0).

    A named tuple, as ``Exchange`` and ``Op`` are: a step has thousands of each, and a frozen dataclass takes
    three times as long to create.
    """

    send: bool
    peer: int  # class of the other end
    tag: str
    transfer: Transfer


class Exchange(NamedTuple):
    """A group of sends and receives that is posted at once and ends when all its parts have."""

    parts: tuple[MessageEnd, ...]


@dataclass(frozen=True, eq=False)
class Block:
    """A short program of kernels and collectives on one rank's own resources: a layer's forward, say.

    The ``after`` of its ops counts from the block's first op. A block begins when all streams of the rank
    have joined, and ends so. Blocks are compared by identity: each distinct one is built once and used many
    times. Where the host waits inside a block, ``parts`` are the pieces between these waits, as blocks.
    """

    name: str
    ops: tuple[Op, ...] = field(repr=False)
    parts: tuple[Block, ...] = field(default=(), repr=False)

    @cached_property
    def issued_s(self) -> tuple[float, ...]:
        """For each op, the seconds of host time between the issue of the first op and its own issue."""
        times = list(accumulate(op.host_s for op in self.ops))
        return tuple(at - times[0] for at in times)

    @cached_property
    def issue(self) -> tuple[tuple[int, float], ...]:
        """For each op, the index of the op that the host waits for before it issues this one (here always -1:
        none), and when the host issues it, in seconds."""
        return tuple([(-1, at) for at in self.issued_s])

    @cached_property
    def first_s(self) -> float:
        """Seconds of the host for issuing the first op; 0 without any."""
        return self.ops[0].host_s if self.ops else 0.0

    @cached_property
    def host_s(self) -> float:
        """Seconds of the host for issuing all ops."""
        return sum(op.host_s for op in self.ops)

    @cached_property
    def streams(self) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        """The ops of each stream, as rows that run in order. Ops of the stream without an order (UNORDERED)
        are one row each."""
        found: dict[str, list[int]] = {}
        for i, op in enumerate(self.ops):
            found.setdefault(op.stream, []).append(i)
        return {
            stream: tuple((i,) for i in ops) if stream == UNORDERED else (tuple(ops),)
            for stream, ops in found.items()
        }

    @cached_property
    def is_serial(self) -> bool:
        """Whether each op waits for the one before it."""
        return all(
            i in op.after or (op.stream == before.stream != UNORDERED)
            for i, (before, op) in enumerate(pairwise(self.ops))
        )

    @cached_property
    def joins(self) -> frozenset[int]:
        """Ops at which all streams meet: every earlier op has ended before they begin, whatever the ops take,
        and no later op has begun."""
        behind: list[int] = []  # by op, a bit for each that it waits for, directly or not
        last: dict[str, int] = {}
        for i, op in enumerate(self.ops):
            bits = last.get(op.stream, 0)
            for before in op.after:
                bits |= behind[before] | 1 << before
            behind.append(bits)
            if op.stream != UNORDERED:
                last[op.stream] = bits | 1 << i
        found, common = set[int](), -1
        for i in range(len(behind) - 1, 0, -1):
            common &= behind[i]
            if not ~common & ((1 << i) - 1):
                found.add(i)
        return frozenset(found)

    @cached_property
    def transfers(self) -> tuple[tuple[int, Transfer], ...]:
        """The index and the transfer of each of its collectives."""
        return tuple(
            (i, op.work.transfer) for i, op in enumerate(self.ops) if isinstance(op.work, Collective)
        )

    @cached_property
    def awaited(self) -> frozenset[int]:
        """Indices of the ops for which an op on another stream waits."""
        ops = self.ops
        return frozenset(i for op in ops for i in op.after if ops[i].stream != op.stream)

    @cached_property
    def most(self) -> Mapping[str, float]:
        """The most bytes per second that its collectives put on each link of the rank. Collectives of one
        stream never run at the same time."""
        found: dict[str, dict[str | int, float]] = {}
        for i, op in enumerate(self.ops):
            if isinstance(op.work, Collective):
                for link, weight in op.work.transfer.local_weights:
                    of_stream = found.setdefault(link, {})
                    stream = i if op.stream == UNORDERED else op.stream
                    rate = weight * op.work.transfer.ceiling_bytes_per_s
                    of_stream[stream] = max(rate, of_stream.get(stream, 0.0))
        return {link: sum(of_stream.values()) for link, of_stream in found.items()}


@dataclass(frozen=True)
class RepeatedBlocks:
    """Blocks in a row, each with a count: what one pipeline action runs.

    They mean the same as their ops written out one by one (expand.py). The engine replays each block once and
    takes it as a whole wherever nothing else begins or ends on the rank meanwhile.
    """

    blocks: tuple[tuple[Block, int], ...]

    @cached_property
    def row(self) -> tuple[Block, ...]:
        """All blocks in their order, each as often as it runs."""
        return tuple(block for block, count in self.blocks for _ in range(count))

    @cached_property
    def host_s(self) -> float:
        """Seconds of the host for issuing all ops of the row."""
        return sum(count * block.host_s for block, count in self.blocks)

    @cached_property
    def issued_s(self) -> tuple[float, ...]:
        """For each block of the row, the seconds of host time between the issue of the very first op and the
        issue of the block's first op."""
        began = accumulate((block.host_s for block in self.row), initial=0.0)
        return tuple(at + block.first_s - self.first_s for at, block in zip(began, self.row, strict=False))

    @cached_property
    def first_s(self) -> float:
        """Seconds of the host for issuing the first op."""
        return self.row[0].first_s if self.row else 0.0

    @cached_property
    def last_on(self) -> Mapping[str, int]:
        """For each stream besides compute, the index of the last block of the row that uses it."""
        return {s: k for k, block in enumerate(self.row) for s in block.streams if s != "compute"}

    @cached_property
    def links(self) -> frozenset[str]:
        """Links of the rank that its collectives use."""
        return frozenset(self.most)

    @cached_property
    def most(self) -> Mapping[str, float]:
        """The most bytes per second that its collectives put on each link of the rank."""
        found: dict[str, float] = {}
        for block in self._distinct:
            for link, rate in block.most.items():
                found[link] = max(rate, found.get(link, 0.0))
        return found

    @cached_property
    def communicators(self) -> frozenset[str]:
        """Communicators that its blocks call."""
        return frozenset(
            op.work.communicator for b in self._distinct for op in b.ops if isinstance(op.work, Collective)
        )

    @property
    def _distinct(self) -> Iterable[Block]:
        return {id(block): block for block, _ in self.blocks}.values()


Ending = Literal["together", "skewed", "streaming"]
"""How the next step follows: after all classes have ended (together); on each class as soon as that has
ended itself, so that a step takes the longest span of a class, or its host's time (skewed: optimizer
post-validation, Qi et al. 2024, section 4); or with no end at all, microbatch after microbatch (streaming:
PipeDream)."""

ENDINGS: tuple[Ending, ...] = get_args(Ending)

Work = Compute | Collective | Exchange | RepeatedBlocks


class Op(NamedTuple):
    """One entry of a stream. ``host_s``: seconds that issuing it costs the host; ``host_sync``: the host
    waits until the op has ended."""

    name: str
    stream: str
    category: str  # compute, optimizer, or the axis of its communication
    work: Work
    after: tuple[int, ...] = ()
    action: str = ""
    host_s: float = 0.0
    host_sync: bool = False


@dataclass(frozen=True, kw_only=True)
class Program:
    """What one class of ranks does in one step."""

    ops: tuple[Op, ...]

    def each_op(self) -> Iterator[Op]:
        """Every op once; in place of repeated blocks, the ops of each distinct block once."""
        seen = set[int]()
        for op in self.ops:
            if not isinstance(op.work, RepeatedBlocks):
                yield op
            elif id(op.work) not in seen:
                seen.add(id(op.work))
                for block, _ in op.work.blocks:
                    if id(block) not in seen:
                        seen.add(id(block))
                        yield from block.ops

    def counted_ops(self) -> Iterator[tuple[Op, int]]:
        """Every op with how often it runs; ops of repeated blocks come once for each distinct block."""
        blocks: Counter[Block] = Counter()
        for op in self.ops:
            if isinstance(op.work, RepeatedBlocks):
                for block, count in op.work.blocks:
                    blocks[block] += count
            else:
                yield op, 1
        for block, count in blocks.items():
            for op in block.ops:
                yield op, count


@dataclass(frozen=True, kw_only=True)
class Binding:
    """What a program means for one class. Many classes run the same program, each with its own peers.

    Kernels take ``slow`` times as long. The class's GPU has ``sms`` SMs (0: as many as all GPUs have).
    ``communicators`` and ``peers`` translate the names in the program; a name that they lack stands for
    itself.
    """

    slow: float = 1.0
    sms: int = 0
    communicators: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[int, int] = field(default_factory=dict)


AS_WRITTEN = Binding()


@dataclass(frozen=True, kw_only=True)
class Change:
    """The state from ``at_s`` on: by class, how slow kernels are (infinite: the rank stops for ever) and the
    capacities of its own ``links``; and the ``capacity`` of links of the fabric. Each change states all of
    these anew."""

    at_s: float
    slow: tuple[float, ...]
    links: tuple[Mapping[str, float], ...]
    capacity: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The programs of all classes, and what they share.

    ``communicators`` maps a name to the classes that it joins. A name that is not in it (tp, dp) stands for a
    group inside each class: its members are equal, so they never wait for one another. ``links`` has, by
    class, the capacity of each local link in bytes per second; ``paths`` says which links of the fabric are
    crossed as well. ``ends`` says how the next step follows this one. ``bindings`` are by class, or empty
    where every program means what it says (bind.py writes bindings into programs). ``changes`` are in the
    order of time.
    """

    classes: tuple[Program, ...]
    communicators: Mapping[str, tuple[int, ...]]
    links: tuple[Mapping[str, float], ...]
    sms: int
    corun_slowdown: float
    ends: Ending = "together"
    paths: Paths = NO_PATHS
    bindings: tuple[Binding, ...] = ()
    changes: tuple[Change, ...] = ()

    def binding(self, r: int) -> Binding:
        """What the program of class ``r`` means for that class."""
        return self.bindings[r] if self.bindings else AS_WRITTEN

    def meant(self, r: int, communicator: str) -> str:
        """The communicator that the program of class ``r`` means by the name ``communicator``."""
        return (
            self.bindings[r].communicators.get(communicator, communicator) if self.bindings else communicator
        )

    def joins(self, r: int, communicator: str) -> str | None:
        """The communicator that the program of class ``r`` means by this name, if it joins several classes;
        else None."""
        name = self.meant(r, communicator)
        return name if name in self.communicators else None
