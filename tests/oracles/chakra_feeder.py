"""What Chakra's feeders and ASTRA-sim read of execution traces, and whether ranks that run them come to an
end.

Two feeders are read by: the classic one takes each attribute from the one field of its type, and what stands
in another field is zero to it; the newer one converts whole numbers, and throws for what is not there.
ASTRA-sim issues nodes whose dependencies have ended, lowest number first: one call, one kernel and one
collective or send at a time; receives hold nothing.

Sources: mlcommons/chakra, src/feeder/et_feeder_node.cpp and src/third_party/utils/protolib.py;
astra-sim/chakra, src/feeder_v3 (et_feeder_node.h, et_feeder_node_attr.h, dependancy_solver.cpp);
astra-sim/astra-sim, astra-sim/workload (Workload.cc, HardwareResource.cc), system/CommunicatorGroup.cc.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from wire_format import attribute, fields, messages, packed

COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
TYPES = {
    "is_cpu_op": "bool",
    "num_ops": "int64",
    "tensor_size": "uint64",
    "comm_type": "int64",
    "comm_priority": "int32",
    "comm_size": "int64",
    "comm_src": "int32",
    "comm_dst": "int32",
    "comm_tag": "int32",
    "pg_name": "string",
}
"""By attribute, the type of the field that the classic feeder takes it from."""
ISSUED = (0, 2, 5, 6, 7)
"""Collectives that ASTRA-sim knows: all_reduce, all_gather, broadcast, all_to_all, reduce_scatter."""
TAGS = 500_000_000
"""Tags of messages are taken modulo this many."""
Value = int | float | str


@dataclass(frozen=True, kw_only=True)
class FedNode:
    """A node as the classic feeder holds it; ``fed`` has the attributes that it found, by its types."""

    id: int
    type: int
    waits: frozenset[int]
    micros: int
    fed: Mapping[str, Value]
    others: Mapping[str, Value]

    def need(self, name: str) -> Value:
        """The newer feeder's look-up, which throws."""
        if name not in self.fed:
            raise LookupError(f"Attribute {name} not found in node {self.id}")
        return self.fed[name]

    def whole(self, name: str) -> int:
        value = self.need(name)
        assert isinstance(value, int)
        return value


def read(content: bytes) -> list[FedNode]:
    """The nodes of a file, by the wire format and the types of the feeder alone."""
    _, *rows = messages(content)
    assert all(rows), "a message without a byte ends the file"
    return [_node(row) for row in rows]


def _node(row: bytes) -> FedNode:
    numbers: dict[int, int] = {}
    waits: list[int] = []
    fed: dict[str, Value] = {}
    others: dict[str, Value] = {}
    for number, value in fields(row):
        if number == 10:
            assert isinstance(value, bytes)
            name, kind, what = attribute(value)
            said: Value = what.decode() if isinstance(what, bytes) else what
            if name in TYPES:
                fed[name] = said if kind == TYPES[name] else "" if TYPES[name] == "string" else 0
            else:
                others[name] = said
        elif number in (4, 5):
            assert isinstance(value, bytes)
            waits += packed(value)
        elif isinstance(value, int):
            numbers[number] = value
    return FedNode(
        id=numbers[1],
        type=numbers[3],
        waits=frozenset(waits),
        micros=numbers.get(7, 0),
        fed=fed,
        others=others,
    )


@dataclass(kw_only=True)
class Machine:
    """All ranks; ``ended_at`` is by rank when its last node ended, in microseconds."""

    ranks: Mapping[int, Sequence[FedNode]]
    groups: Mapping[str, Sequence[int]]
    ended_at: dict[int, int] = field(default_factory=dict)
    now: int = 0
    _queue: list[tuple[int, int, int]] = field(default_factory=list)
    _called: dict[tuple[str, int], list[tuple[int, FedNode]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _calls: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    _sent: dict[tuple[int, int, int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    _asked: dict[tuple[int, int, int, int], list[tuple[int, FedNode]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def run(self) -> int:
        """How many nodes never end: none, of traces that fit one another."""
        waits = {rank: {node.id: set(node.waits) for node in nodes} for rank, nodes in self.ranks.items()}
        by_id = {rank: {node.id: node for node in nodes} for rank, nodes in self.ranks.items()}
        after: dict[int, dict[int, list[int]]] = {rank: defaultdict(list) for rank in self.ranks}
        for rank, nodes in self.ranks.items():
            assert len(by_id[rank]) == len(nodes), "two nodes of one number"
            for node in nodes:
                assert node.waits <= by_id[rank].keys(), "waits for a node that is not there"
                for before in node.waits:
                    after[rank][before].append(node.id)
        free = {rank: sorted(node for node, left in ids.items() if not left) for rank, ids in waits.items()}
        busy: dict[int, set[str]] = {rank: set() for rank in self.ranks}
        for rank in self.ranks:
            self._issue(rank, free[rank], busy[rank], by_id[rank])
        while self._queue:
            self.now, rank, number = heappop(self._queue)
            busy[rank].discard(_resource(by_id[rank][number]))
            for child in after[rank][number]:
                waits[rank][child].discard(number)
                if not waits[rank][child]:
                    free[rank].append(child)
            free[rank].sort()
            del waits[rank][number]
            self.ended_at[rank] = self.now
            self._issue(rank, free[rank], busy[rank], by_id[rank])
        return sum(map(len, waits.values()))

    def _issue(self, rank: int, free: list[int], busy: set[str], nodes: Mapping[int, FedNode]) -> None:
        for number in tuple(free):
            node = nodes[number]
            resource = _resource(node)
            if resource and resource in busy:
                continue
            busy.add(resource)
            free.remove(number)
            self._begin(rank, node)

    def _begin(self, rank: int, node: FedNode) -> None:
        if node.type == COMP:
            assert node.whole("num_ops") > 0
            assert node.whole("tensor_size") > 0
            self._end(rank, node)
            return
        assert not node.fed.get("is_cpu_op", True), "a message on the host"
        assert node.whole("comm_size") >= 0
        if node.type == COLLECTIVE:
            self._join(rank, node)
            return
        source, target, tag = (node.whole(name) for name in ("comm_src", "comm_dst", "comm_tag"))
        assert 0 <= tag < TAGS
        assert rank == (source if node.type == SEND else target)
        key = (source, target, tag, node.whole("comm_size"))
        if node.type == SEND:
            self._end(rank, node)
            self._sent[key].append(rank)
        else:
            self._asked[key].append((rank, node))
        if self._sent[key] and self._asked[key]:
            self._sent[key].pop()
            self._end(*self._asked[key].pop(0))

    def _join(self, rank: int, node: FedNode) -> None:
        """A collective begins when every rank of its group has called it; one that others take for another
        never does.
        """
        assert node.whole("comm_type") in ISSUED
        name = str(node.need("pg_name"))
        assert int(name) > 0, "ASTRA-sim takes group 0 for all ranks"
        members = self.groups[name]
        assert rank in members
        call = self._calls[name, rank]
        self._calls[name, rank] += 1
        together = self._called[name, call]
        together.append((rank, node))
        if len(together) == len(members) and len({one.whole("comm_type") for _, one in together}) == 1:
            for member, one in together:
                self._end(member, one)

    def _end(self, rank: int, node: FedNode) -> None:
        heappush(self._queue, (self.now + node.micros, rank, node.id))


def _resource(node: FedNode) -> str:
    if node.fed.get("is_cpu_op", True):
        return "host"
    return {COMP: "kernels", RECV: ""}.get(node.type, "messages")
