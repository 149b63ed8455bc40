"""An execution trace as data: nodes that wait for nodes, one trace a rank.

Knows the numbers of Chakra's node and collective types and the attributes that its feeder reads. Does not
know bytes, nor what time a node takes on which machine.

Source: mlcommons/chakra, schema/protobuf/et_def.proto and src/feeder (0.0.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class NodeType(IntEnum):
    """What a node does."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


COLLECTIVES = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter_block",
    "barrier",
)
"""Collectives in the order of their numbers (``comm_type``)."""

LEAST = 1
"""FLOPs and bytes of a node that has none: a roofline divides one by the other."""

Value = bool | int | float | str | bytes | tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNode:
    """One node. It may run once all of ``data_deps`` have ended; ``ctrl_deps`` name the call that it is
    part of where a converter leaves them, and do not hold it up. Durations are whole microseconds in Chakra;
    ``duration_s``, an attribute of ours, holds what is lost by that.
    """

    id: int
    name: str
    type: int
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    start_micros: int = 0
    duration_micros: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)

    @property
    def duration_s(self) -> float:
        exact = self.attributes.get("duration_s")
        return float(exact) if isinstance(exact, int | float) else self.duration_micros * 1e-6

    @property
    def on_host(self) -> bool:
        """Whether it runs on the CPU."""
        return bool(self.attributes.get("is_cpu_op", False))

    @property
    def is_message(self) -> bool:
        """Whether it is one end of a message between two ranks."""
        return self.type in (NodeType.COMM_SEND, NodeType.COMM_RECV)

    def ends(self, rank: int) -> tuple[int, int]:
        """The ranks that a message of ``rank`` goes from and to; a trace may leave out the rank's own."""
        return self.whole("comm_src", rank), self.whole("comm_dst", rank)

    def peer(self, rank: int, class_of: Mapping[int, int]) -> int:
        """The class of the rank at the other end of a message. ValueError where no trace is of that rank."""
        source, target = self.ends(rank)
        other = target if self.type == NodeType.COMM_SEND else source
        if other not in class_of:
            raise ValueError(f"rank {other}, the other end, has no trace")
        return class_of[other]

    def amount(self, name: str) -> float:
        """FLOPs (``num_ops``) or bytes (``tensor_size``) of a kernel, 0 where it has none."""
        found = self.number(name)
        return found if found > LEAST else 0.0

    def whole(self, name: str, default: int = 0) -> int:
        """A number among the attributes. ValueError for anything else."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise ValueError(
                f"node {self.id} ({self.name}): {name}: {str(value)[:40]!r} is not a whole number"
            )
        return value

    def number(self, name: str, default: float = 0.0) -> float:
        """A number of any kind among the attributes. ValueError for anything else."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int | float):
            raise ValueError(f"node {self.id} ({self.name}): {name}: {str(value)[:40]!r} is not a number")
        return float(value)

    def text(self, name: str, default: str = "") -> str:
        """A text among the attributes; numbers are written out."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, str) else str(value)


@dataclass(frozen=True, kw_only=True)
class ExecutionTrace:
    """The nodes of one rank, as the ``file`` has them."""

    file: str
    rank: int
    nodes: tuple[TraceNode, ...]
    version: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TraceSet:
    """The traces of a job, in the order of their ranks. ``groups`` are the ranks of process groups by name;
    ``machine`` is what this package writes beside its own (machine.json), None of others.
    """

    source: str
    ranks: tuple[ExecutionTrace, ...]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    machine: Mapping[str, object] | None = None
