"""Programs: what each class of ranks does, as data, before any time passes.

A Program is a list of ops in the order in which the host issues them. Ops of one stream run in
order; ``after`` names earlier ops (by index) that an op waits for besides, as CUDA events do.
Knows no clock: ``sim/engine`` replays programs, ``program_file`` writes and reads them.
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
    """One kernel (or a run of like kernels): ``seconds`` on an idle GPU.

    ``kind`` is gemm, attention or memory-bound. A math-bound kernel slows down as communication
    holds SMs; all slow down by the profile's co-run slowdown while communication moves data. One that
    ``stays`` has dealt its work out to all SMs before it begins: it takes two passes while any are held.
    """

    seconds: float
    kind: str
    flops: float = 0.0
    bytes: float = 0.0
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of ``communicator``: starts when every member has arrived, ends for all at once.

    It may stand for several equal ``calls`` in a row: ``transfer`` is that of all of them, and so is what
    issuing costs the host. It is issued when the first is, and the last takes its time once it is issued.
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
    """One end of a point-to-point message: ``tag`` (2F0: its output) pairs it with the other end.

    A named tuple, as ``Exchange`` and ``Op`` are: a step has thousands of each, and a frozen dataclass takes
    three times as long to make.
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

    Its ops' ``after`` count from the block's first op; it begins and ends with all its streams joined.
    Blocks are compared by identity: each distinct one is built once, and used many times. Where the host
    waits inside, ``parts`` are what comes before and after each wait, as blocks.
    """

    name: str
    ops: tuple[Op, ...] = field(repr=False)
    parts: tuple[Block, ...] = field(default=(), repr=False)

    @cached_property
    def issued_s(self) -> tuple[float, ...]:
        """For each op, the host time from the issue of the first op on."""
        times = list(accumulate(op.host_s for op in self.ops))
        return tuple(at - times[0] for at in times)

    @cached_property
    def issue(self) -> tuple[tuple[int, float], ...]:
        """For each op, the op that the host waits for before issuing it, here none (-1), and when it issues
        it."""
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
        """By stream, its ops in rows: one, or on the stream that orders nothing (UNORDERED) one for each."""
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
        """Ops before which all earlier ones have ended, whatever they take, and no later one has begun."""
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
        """Its collectives by op."""
        return tuple(
            (i, op.work.transfer) for i, op in enumerate(self.ops) if isinstance(op.work, Collective)
        )

    @cached_property
    def awaited(self) -> frozenset[int]:
        """Ops for which ops of other streams wait."""
        ops = self.ops
        return frozenset(i for op in ops for i in op.after if ops[i].stream != op.stream)

    @cached_property
    def most(self) -> Mapping[str, float]:
        """By link of the rank, the bytes per second that its collectives put there at most: those of one
        stream move one after the other.
        """
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
    """Blocks in a row, each so many times: what one pipeline action runs.

    They mean their ops in their place (expand.py): each block is replayed once, and taken as a whole
    wherever nothing else begins or ends on the rank meanwhile.
    """

    blocks: tuple[tuple[Block, int], ...]

    @cached_property
    def row(self) -> tuple[Block, ...]:
        """The blocks, one by one."""
        return tuple(block for block, count in self.blocks for _ in range(count))

    @cached_property
    def host_s(self) -> float:
        """Seconds of the host for issuing all ops of the row."""
        return sum(count * block.host_s for block, count in self.blocks)

    @cached_property
    def issued_s(self) -> tuple[float, ...]:
        """For each of the row, the host time from the issue of the very first op to that of its own first."""
        began = accumulate((block.host_s for block in self.row), initial=0.0)
        return tuple(at + block.first_s - self.first_s for at, block in zip(began, self.row, strict=False))

    @cached_property
    def first_s(self) -> float:
        """Seconds of the host for issuing the first op."""
        return self.row[0].first_s if self.row else 0.0

    @cached_property
    def last_on(self) -> Mapping[str, int]:
        """Streams besides compute, each with the last of the row that uses it."""
        return {s: k for k, block in enumerate(self.row) for s in block.streams if s != "compute"}

    @cached_property
    def links(self) -> frozenset[str]:
        """Links of the rank that its collectives use."""
        return frozenset(self.most)

    @cached_property
    def most(self) -> Mapping[str, float]:
        """By link of the rank, the bytes per second that its collectives put there at most."""
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
ended itself, so that a step takes the longest span of a class (skewed: optimizer post-validation, Qi et
al. 2024, section 4); or with no end at all, microbatch after microbatch (streaming: PipeDream)."""

ENDINGS: tuple[Ending, ...] = get_args(Ending)

Work = Compute | Collective | Exchange | RepeatedBlocks


class Op(NamedTuple):
    """One entry of a stream. ``host_s``: what issuing costs the host; ``host_sync``: it waits for the end."""

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
        """Its ops, but in place of repeated blocks the ops of each distinct block, once."""
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
        """Its ops with how often they run, those of repeated blocks once for each distinct block."""
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
    """What a program means in one class: many classes run the same program, each with its own peers.

    Kernels take ``slow`` times as long. Its GPU has ``sms``, or as many as all have (0). ``communicators``
    and ``peers`` say what the program's names of communicators and classes stand for; what is not there
    stands for itself.
    """

    slow: float = 1.0
    sms: int = 0
    communicators: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[int, int] = field(default_factory=dict)


AS_WRITTEN = Binding()


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is otherwise from ``at_s`` on, by class: how slow kernels are (infinite: it stops, for ever), the
    capacities of its ``links``; and the ``capacity`` of links of the fabric. All of them each time.
    """

    at_s: float
    slow: tuple[float, ...]
    links: tuple[Mapping[str, float], ...]
    capacity: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The programs of all classes, and what they share.

    ``communicators`` maps a name to the classes that it joins; a name that is not there (tp, dp)
    stands for a group of its own in every class, whose members are equal and so never wait for one
    another. ``links`` maps a local link name to its capacity in bytes per second, by class; ``paths``
    says which links of the fabric are crossed besides. ``ends`` says how the next step follows this one.
    ``bindings``, by class, or none where every program means what it says (bind.py writes them into the
    programs). ``changes`` are in the order of their times.
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
        """What the program of class ``r`` means there."""
        return self.bindings[r] if self.bindings else AS_WRITTEN

    def meant(self, r: int, communicator: str) -> str:
        """The name of what the program of class ``r`` calls ``communicator``."""
        return (
            self.bindings[r].communicators.get(communicator, communicator) if self.bindings else communicator
        )

    def joins(self, r: int, communicator: str) -> str | None:
        """The name of a communicator of class ``r``'s program, where it joins classes; else None."""
        name = self.meant(r, communicator)
        return name if name in self.communicators else None
