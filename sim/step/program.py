"""Programs: what each class of ranks does, as data, before any time passes.

A Program is a list of ops in the order in which the host issues them. Ops of one stream run in
order; ``after`` names earlier ops (by index) that an op waits for besides, as CUDA events do.
Knows no clock: ``sim/engine`` replays programs, ``program_file`` writes and reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from ..network.transfer import Transfer


@dataclass(frozen=True, slots=True)
class Compute:
    """One kernel (or a run of like kernels): ``seconds`` on an idle GPU.

    ``kind`` is gemm, attention or memory-bound. A math-bound kernel slows down as communication
    holds SMs; all slow down by the profile's co-run slowdown while communication moves data.
    """

    seconds: float
    kind: str
    flops: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of ``communicator``: starts when every member has arrived, ends for all at once."""

    kind: str
    communicator: str
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Part:
    """One end of a point-to-point message: ``tag`` (2F0: its output) pairs it with the other end."""

    send: bool
    peer: int  # class of the other end
    tag: str
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class Exchange:
    """A group of sends and receives that is posted at once and ends when all its parts have."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A short program whose ops all run on one rank's own resources: a layer's forward, say.

    Its ops' ``after`` count from the block's first op. Blocks are compared by identity: each
    distinct one is built once, replayed once, and used many times.
    """

    name: str
    ops: tuple[Op, ...] = field(repr=False)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(frozen=True)
class Segment:
    """Blocks in a row, each so many times: what one pipeline action runs where nothing interferes."""

    blocks: tuple[tuple[Block, int], ...]

    @cached_property
    def host_s(self) -> float:
        """What issuing all its ops costs the host."""
        return sum(count * sum(op.host_s for op in block.ops) for block, count in self.blocks)


Ending = Literal["together", "skewed", "streaming"]
"""How the next step follows: after all classes have ended (together); on each class as soon as that has
ended itself, so that a step takes the longest span of a class (skewed: optimizer post-validation, Qi et
al. 2024, section 4); or with no end at all, microbatch after microbatch (streaming: PipeDream)."""

ENDINGS: tuple[Ending, ...] = get_args(Ending)

Work = Compute | Collective | Exchange | Segment


@dataclass(frozen=True, slots=True)
class Op:
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


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The programs of all classes, and what they share.

    ``communicators`` maps a name to the classes that it joins; a name that is not there (tp, dp)
    stands for a group of its own in every class, whose members are equal and so never wait for one
    another. ``links`` maps a local link name to its capacity in bytes per second, by class. ``ends``
    says how the next step follows this one.
    """

    classes: tuple[Program, ...]
    communicators: Mapping[str, tuple[int, ...]]
    links: tuple[Mapping[str, float], ...]
    sms: int
    corun_slowdown: float
    ends: Ending = "together"
