"""Anyone's execution traces as programs: each node an op, in an order that its dependencies allow.

Nodes of a stream (or, where a trace names none, of the GPU) run one after the other, and so do those of a
thread of the host. Kernels take what the trace says, or what their FLOPs and bytes cost on a cluster; so do
collectives and messages, which share links but slow no kernel: traced ones have been slowed already. Ranks
without a trace are taken to come when the others do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..network.transfer import Transfer
from ..program.program import (
    UNORDERED,
    Collective,
    Compute,
    Exchange,
    MessageEnd,
    Op,
    Program,
    Programs,
    Work,
)
from .node import ExecutionTrace, NodeType, TraceNode, TraceSet
from .pricing import Prices, Rule
from .validate import collective_kind, in_order, is_collective

_NO_LINKS = {"nvlink.out": 1.0, "nvlink.in": 1.0, "nic.out": 1.0, "nic.in": 1.0}
"""Links of a machine that nobody described: nothing that is timed by its trace loads them."""


def foreign_programs(traces: TraceSet, prices: Prices | None, rule: Rule) -> Programs:
    """Programs of ``traces`` on a cluster; without ``prices`` all takes what the trace says.

    Raises ValueError naming file and node: a node without a time, and nothing to price it by; a message to a
    rank without a trace; a rank that the cluster does not have.
    """
    class_of = {one.rank: r for r, one in enumerate(traces.ranks)}
    made = [
        _Builder(traces=traces, trace=one, class_of=class_of, prices=prices, rule=rule)
        for one in traces.ranks
    ]
    classes = tuple(one.program() for one in made)
    joined = {}
    for name in sorted({name for one in made for name in one.called}):
        members = tuple(r for r, one in enumerate(made) if name in one.called)
        if len(members) > 1:
            joined[name] = members
    links = prices.links if prices else _NO_LINKS
    return Programs(
        classes=classes,
        communicators=joined,
        links=(links,) * len(classes),
        sms=prices.cluster.gpu.sms if prices else 1024,
        corun_slowdown=0.0,
    )


@dataclass(kw_only=True)
class _Builder:
    """The program of one trace."""

    traces: TraceSet
    trace: ExecutionTrace
    class_of: dict[int, int]
    prices: Prices | None
    rule: Rule
    called: set[str] = field(default_factory=set)

    def program(self) -> Program:
        main = self._main_stream()
        place: dict[int, int] = {}
        ops: list[Op] = []
        for node in in_order([one for one in self.trace.nodes if one.type != NodeType.METADATA]):
            try:
                work = self._work(node)
            except ValueError as error:
                said = str(error)
                where = "" if said.startswith("node ") else f"node {node.id} ({node.name[:60]}): "
                raise ValueError(f"{self.trace.file}: {where}{said}") from None
            sends = isinstance(work, Collective | Exchange)
            place[node.id] = len(ops)
            ops.append(
                Op(
                    name=node.name[:120] or f"node {node.id}",
                    stream=self._stream(node, main, work),
                    category="dp" if sends else "compute",
                    work=work,
                    after=tuple(sorted({place[before] for before in node.data_deps if before in place})),
                )
            )
        return Program(ops=tuple(ops))

    def _main_stream(self) -> object:
        """The stream of the GPU that computes most, by the number of its kernels."""
        count = Counter(
            _stream_of(node) for node in self.trace.nodes if node.type == NodeType.COMP and not node.on_host
        )
        return count.most_common(1)[0][0] if count else None

    def _stream(self, node: TraceNode, main: object, work: Work) -> str:
        """Messages are posted and wait for nothing but their dependencies."""
        stream = _stream_of(node)
        if isinstance(work, Exchange):
            return UNORDERED
        if isinstance(work, Collective):
            return UNORDERED if stream is None else f"stream {stream}"
        if node.on_host:
            return f"host {node.text('tid', '0')}"
        return "compute" if stream == main else f"stream {stream}"

    def _work(self, node: TraceNode) -> Work:
        if is_collective(node):
            return self._collective(node)
        if node.is_message:
            return self._message(node)
        flops, size = node.amount("num_ops"), node.amount("tensor_size")
        kind = "fixed" if node.on_host else "gemm" if flops else "memory-bound"
        return Compute(self._seconds(node), kind, flops, size)

    def _seconds(self, node: TraceNode) -> float:
        """What a kernel, a copy or the host takes; a node without an amount of anything takes no time."""
        flops, size = node.amount("num_ops"), node.amount("tensor_size")
        known = flops or (size and self.rule == "flops")
        if node.on_host or not known or (self.rule == "duration" and node.duration_s):
            return node.duration_s
        if self.prices is None:
            raise ValueError("has FLOPs and no duration; give --cluster SCENARIO to price it on")
        return self.prices.kernel_s(flops, size)

    def _collective(self, node: TraceNode) -> Collective:
        name = node.text("pg_name")
        self.called.add(name or "all")
        kind, size = collective_kind(node), float(node.whole("comm_size"))
        if self.prices is None:
            transfer = _as_traced(node, size)
        else:
            transfer = replace(self.prices.collective(kind, size, self._members(name)), sms=0)
        return Collective(kind, name or "all", transfer)

    def _members(self, name: str) -> Sequence[int]:
        """The ranks of a group; of one that nothing lists all that are traced, and of one trace all GPUs."""
        if name in self.traces.groups:
            return self.traces.groups[name]
        there = tuple(one.rank for one in self.traces.ranks)
        assert self.prices is not None
        return there if len(there) > 1 else range(self.prices.scenario.cluster.gpus)

    def _message(self, node: TraceNode) -> Exchange:
        peer, size = node.peer(self.trace.rank, self.class_of), float(node.whole("comm_size"))
        if self.prices is None:
            transfer = _as_traced(node, size)
        else:
            transfer = replace(self.prices.message(size, *node.ends(self.trace.rank)), sms=0)
        sends = node.type == NodeType.COMM_SEND
        return Exchange((MessageEnd(sends, peer, str(node.whole("comm_tag")), transfer),))


def _stream_of(node: TraceNode) -> object:
    """The stream or thread that a trace names for a node; None where it names none."""
    return node.attributes.get("stream", node.attributes.get("tid"))


def _as_traced(node: TraceNode, size: float) -> Transfer:
    """What the trace says, on no link. ValueError where it says nothing."""
    if not node.duration_s and size:
        raise ValueError("moves bytes and has no duration; give --cluster SCENARIO to price it on")
    return Transfer(node.duration_s, 0.0, math.inf)
