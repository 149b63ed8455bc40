"""Programs as execution traces: two nodes an op, the host's call and what it starts.

Each node waits for its call, for what its stream runs before, and for what its op waits for besides; the
calls wait for one another. Times are those on an idle machine: what shares links or SMs is for whoever
replays them. What Chakra has no word for stands in attributes of our own, and in machine.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..network.transfer import Transfer
from ..program.bind import bound
from ..program.expand import expand
from ..program.program import UNORDERED, Collective, Compute, Exchange, MessageEnd, Op, Program, Programs
from .node import COLLECTIVES, LEAST, ExecutionTrace, NodeType, TraceNode, TraceSet, Value

if TYPE_CHECKING:
    from ..lowering.process_groups import ProcessGroups
    from ..result.step import RankClass

_NAMED = {"ring_step": "all_gather", "neighbours": "all_to_all"}
"""What Chakra has no number for, as what moves the same bytes between the same ranks."""


def traces_of(programs: Programs, ranks: Sequence[RankClass], groups: ProcessGroups, source: str) -> TraceSet:
    """A trace for each class of ranks, as its first rank has it."""
    programs = bound(programs)
    names = _Groups(programs=programs, ranks=ranks, groups=groups)
    traces = []
    for r, program in enumerate(programs.classes):
        writer = _Writer(r=r, names=names)
        for op in expand(program, lambda _: True).ops:
            writer.write(op)
        traces.append(
            ExecutionTrace(
                file=source,
                rank=ranks[r].first_rank,
                nodes=tuple(writer.nodes),
                attributes={"schema": "1.1.1-chakra.0.0.4", "ranks": ranks[r].count},
            )
        )
    return TraceSet(source=source, ranks=tuple(traces), groups=names.members())


def without_ops(programs: Programs) -> Programs:
    """The machine that programs run on, and nothing of what they do."""
    return replace(bound(programs), classes=tuple(Program(ops=()) for _ in programs.classes))


@dataclass(kw_only=True)
class _Groups:
    """Process groups by number, each with its ranks, and messages by theirs, which both ends must know.

    ASTRA-sim takes group 0 for all ranks, and tags modulo 500 million.
    """

    programs: Programs
    ranks: Sequence[RankClass]
    groups: ProcessGroups
    numbers: dict[tuple[int, ...], str] = field(default_factory=dict)
    known: dict[tuple[int, str], tuple[str, int]] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)

    def tag(self, message: str) -> int:
        """The number of a message."""
        return self.tags.setdefault(message, len(self.tags))

    def of(self, r: int, communicator: str) -> tuple[str, int]:
        """The number of a communicator of class ``r``, and how many ranks are in it."""
        if (r, communicator) not in self.known:
            ranks = self._ranks(r, communicator)
            number = self.numbers.setdefault(ranks, str(1 + len(self.numbers)))
            self.known[r, communicator] = number, len(ranks)
        return self.known[r, communicator]

    def _ranks(self, r: int, communicator: str) -> tuple[int, ...]:
        from ..lowering.process_groups import GROUPS

        joined = self.programs.communicators.get(communicator)
        name = communicator.partition(" ")[0]
        first = self.ranks[r].first_rank
        whole = tuple(sorted(map(int, self.groups.containing(name, first)))) if name in GROUPS else ()
        if joined is None:
            return whole or (first,)
        return tuple(sorted({self.ranks[one].first_rank for one in joined} | set(whole)))

    def members(self) -> dict[str, tuple[int, ...]]:
        """Ranks by the group's number."""
        return {number: ranks for ranks, number in self.numbers.items()}


@dataclass(kw_only=True)
class _Writer:
    """The nodes of class ``r`` so far: ``ends[i]`` are those of op i, ``last`` is by stream the latest."""

    r: int
    names: _Groups
    nodes: list[TraceNode] = field(default_factory=list)
    ends: list[tuple[int, ...]] = field(default_factory=list)
    last: dict[str, tuple[int, ...]] = field(default_factory=dict)
    called: tuple[int, ...] = ()
    streams: dict[str, int] = field(default_factory=dict)

    def write(self, op: Op) -> None:
        """The call of an op, and the nodes that it starts."""
        call = self._add(
            f"launch {op.name}",
            NodeType.COMP,
            self.called,
            op.host_s,
            {"is_cpu_op": True, "num_ops": LEAST, "tensor_size": LEAST, "tid": 0},
        )
        before = () if op.stream == UNORDERED else self.last.get(op.stream, ())
        waits = (call, *before, *(end for earlier in op.after for end in self.ends[earlier]))
        about: dict[str, Value] = {
            "is_cpu_op": False,
            "stream": self.streams.setdefault(op.stream, len(self.streams)),
            "stream_name": op.stream,
            "category": op.category,
        }
        if op.action:
            about["action"] = op.action
        ends = tuple(
            self._add(name, kind, waits, seconds, about | more)
            for name, kind, seconds, more in self._parts(op)
        )
        self.ends.append(ends)
        self.last[op.stream] = ends
        self.called = (call, *ends) if op.host_sync else (call,)

    def _add(
        self, name: str, kind: NodeType, waits: Sequence[int], seconds: float, about: Mapping[str, Value]
    ) -> int:
        micros = round(seconds * 1e6)
        exact = {} if seconds == micros * 1e-6 else {"duration_s": float(seconds)}
        self.nodes.append(
            TraceNode(
                id=len(self.nodes) + 1,
                name=name,
                type=kind,
                data_deps=tuple(dict.fromkeys(waits)),
                duration_micros=micros,
                attributes={**about, **exact},
            )
        )
        return len(self.nodes)

    def _parts(self, op: Op) -> Iterator[tuple[str, NodeType, float, dict[str, Value]]]:
        match op.work:
            case Compute() as work:
                amounts: dict[str, Value] = {
                    "num_ops": max(LEAST, round(work.flops)),
                    "tensor_size": max(LEAST, round(work.bytes)),
                }
                amounts |= {"kernel": work.kind} | ({"stays": True} if work.static_schedule else {})
                yield op.name, NodeType.COMP, work.seconds, amounts
            case Collective() as work:
                yield op.name, NodeType.COMM_COLL, work.transfer.solo_s, self._collective(work)
            case Exchange(parts):
                for part in parts:
                    kind = NodeType.COMM_SEND if part.send else NodeType.COMM_RECV
                    yield f"{op.name} {part.tag}", kind, part.transfer.solo_s, self._message(part)

    def _collective(self, work: Collective) -> dict[str, Value]:
        number, ranks = self.names.of(self.r, work.communicator)
        kind = _NAMED.get(work.kind, work.kind)
        handed = work.transfer.bytes / (ranks if kind == "all_gather" else 1)
        found: dict[str, Value] = {
            "comm_type": COLLECTIVES.index(kind) if kind in COLLECTIVES else COLLECTIVES.index("all_to_all"),
            "comm_size": round(handed),
            "pg_name": number,
            "pg_desc": work.communicator,
            "collective": work.kind,
            "calls": work.calls,
        }
        return found | _transfer(work.transfer)

    def _message(self, part: MessageEnd) -> dict[str, Value]:
        own, peer = (self.names.ranks[r].first_rank for r in (self.r, part.peer))
        source, target = (own, peer) if part.send else (peer, own)
        found: dict[str, Value] = {
            "comm_src": source,
            "comm_dst": target,
            "comm_tag": self.names.tag(part.tag),
            "comm_size": round(part.transfer.bytes),
            "message": part.tag,
        }
        return found | _transfer(part.transfer)


def _transfer(transfer: Transfer) -> dict[str, Value]:
    """What a transfer is on its network, in attributes of our own, and its priority: all have the same."""
    from orjson import dumps

    found: dict[str, Value] = {
        "comm_priority": 0,  # the feeder has no default for it
        "payload_bytes": float(transfer.bytes),
        "latency_s": float(transfer.latency_s),
        "ceiling_bytes_per_s": float(transfer.ceiling_bytes_per_s),
        "weights": dumps(dict(transfer.weights)).decode(),
        "sms": transfer.sms,
        "hbm": transfer.hbm,
        "pattern": transfer.pattern,
    }
    return found | ({"binding": transfer.binding} if transfer.binding else {})
