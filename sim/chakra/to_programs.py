"""Our own execution traces as the programs that they were written from.

Knows the two nodes that each op was written as (from_programs.py). What is wrong with a trace that was
changed by hand is said by the checks of programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...schedules.orders.action import Action
from ..network.transfer import Transfer
from ..program.fields import Malformed
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
from ..program.reader import Reader
from .node import ExecutionTrace, NodeType, TraceNode, TraceSet
from .pricing import Prices
from .repricing import Repricing

if TYPE_CHECKING:
    from ..result.step import RankClass
    from ..scenario.models import Scenario
    from .pricing import Rule


@dataclass(frozen=True, kw_only=True)
class OwnPrograms:
    """What our traces hold: programs, what their classes stand for, the scenario's document or None."""

    programs: Programs
    ranks: tuple[RankClass, ...]
    scenario: Mapping[str, Any] | None


def own_programs(traces: TraceSet, cluster: Scenario | None, rule: Rule) -> OwnPrograms:
    """The programs of traces that have a machine.json beside them.

    ``cluster``: collectives and messages cost what its network makes of them, on its links and its SMs, and
    by ``rule`` kernels too; what waits for what, and what shares what, stays.

    Raises ValueError naming the file: a machine that is none, another number of traces than it has classes, a
    node without what ours have.
    """
    try:
        programs, ranks, scenario = Reader().read(traces.machine)
    except Malformed as mistake:
        raise ValueError(f"{traces.source}: machine.json: {mistake}") from None
    by_rank = {one.rank: one for one in traces.ranks}
    lost = [one.first_rank for one in ranks if one.first_rank not in by_rank]
    if lost or len(ranks) != len(by_rank):
        what = f"has no trace of rank {lost[0]}" if lost else f"has {len(by_rank)} traces"
        raise ValueError(f"{traces.source}: {what}, and machine.json is of {len(ranks)} classes of ranks")
    class_of = {one.first_rank: r for r, one in enumerate(ranks)}
    moved = None if cluster is None else _repricing(traces, scenario, cluster, rule)
    own = tuple(
        _Reader(trace=by_rank[one.first_rank], class_of=class_of, moved=moved).program() for one in ranks
    )
    programs = replace(programs, classes=own)
    if moved is not None:
        scenario = None  # it ran on another cluster
        there = moved.there
        programs = replace(programs, links=(there.links,) * len(own), sms=there.cluster.gpu.sms)
    return OwnPrograms(programs=programs, ranks=ranks, scenario=scenario)


def _repricing(
    traces: TraceSet, document: Mapping[str, Any] | None, cluster: Scenario, rule: Rule
) -> Repricing:
    from ..scenario.load import scenario_from_document

    there = Prices(scenario=cluster)
    where = f"{traces.source}: machine.json: scenario"
    here = there if document is None else Prices(scenario=scenario_from_document(dict(document), where))
    return Repricing(here=here, there=there, rule=rule, groups=traces.groups)


@dataclass(kw_only=True)
class _Reader:
    """One trace, op by op: ``op_of`` is by node the op that it became."""

    trace: ExecutionTrace
    class_of: Mapping[int, int]
    moved: Repricing | None
    op_of: dict[int, int] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)

    def program(self) -> Program:
        """The program whose ops are the calls of the trace, in the host's order.

        Raises:
            ValueError: a node lacks what our own traces have; names the file and the node.
        """
        for call, nodes in self._calls():
            try:
                self._op(call, nodes)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{self.trace.file}: node {call.id} ({call.name}): {error}") from None
        return Program(ops=tuple(self.ops))

    def _calls(self) -> Iterator[tuple[TraceNode, list[TraceNode]]]:
        """Each call of the host with the nodes that it starts."""
        started: dict[int, list[TraceNode]] = {}
        calls = []
        for node in self.trace.nodes:
            if node.on_host:
                calls.append(node)
                started[node.id] = []
            else:
                call = next((before for before in node.data_deps if before in started), None)
                if call is None:
                    raise ValueError(f"{self.trace.file}: node {node.id} ({node.name}): no call starts it")
                started[call].append(node)
        return ((call, started[call.id]) for call in calls)

    def _op(self, call: TraceNode, nodes: list[TraceNode]) -> None:
        if not nodes:
            raise ValueError("starts nothing")
        for waited in call.data_deps:  # the host waits for what it launched
            if waited in self.op_of:
                number = self.op_of[waited]
                self.ops[number] = self.ops[number]._replace(host_sync=True)
        first = nodes[0]
        stream = first.text("stream_name", "compute")
        after = {self.op_of[before] for before in first.data_deps if before in self.op_of}
        if stream != UNORDERED:
            after.discard(self.last.get(stream, -1))
        index = len(self.ops)
        self.ops.append(
            Op(
                name=call.name.removeprefix("launch "),
                stream=stream,
                category=first.text("category", stream),
                work=self._work(nodes),
                after=tuple(sorted(after)),
                action=_action(first.text("action")),
                host_s=call.duration_s,
            )
        )
        self.last[stream] = index
        self.op_of |= dict.fromkeys((node.id for node in nodes), index)

    def _work(self, nodes: list[TraceNode]) -> Work:
        first = nodes[0]
        if first.is_message:
            return Exchange(tuple(self._message(node) for node in nodes))
        if len(nodes) > 1:
            raise ValueError(f"starts {len(nodes)} nodes")
        if first.type == NodeType.COMM_COLL:
            return self._collective(first)
        flops, size = first.amount("num_ops"), first.amount("tensor_size")
        stays = first.attributes.get("stays") is True
        seconds = first.duration_s
        if self.moved is not None:
            seconds = self.moved.kernel_s(seconds, flops, size)
        return Compute(seconds, first.text("kernel", "fixed"), flops, size, stays)

    def _collective(self, node: TraceNode) -> Collective:
        transfer = _transfer(node)
        if self.moved is not None:
            transfer = self.moved.collective(node, transfer)
        return Collective(node.text("collective"), node.text("pg_desc"), transfer, node.whole("calls", 1))

    def _message(self, node: TraceNode) -> MessageEnd:
        peer = node.peer(self.trace.rank, self.class_of)
        transfer = _transfer(node)
        if self.moved is not None:
            transfer = self.moved.message(self.trace.rank, node, transfer)
        return MessageEnd(node.type == NodeType.COMM_SEND, peer, node.text("message"), transfer)


def _action(text: str) -> str:
    """The pipeline action that an op belongs to; of two that run together a program names none."""
    try:
        Action.parse(text)
    except ValueError:
        return ""
    return text


def _transfer(node: TraceNode) -> Transfer:
    from orjson import loads

    weights = loads(node.text("weights", "{}"))
    if not isinstance(weights, dict):
        raise ValueError("weights: expected an object of links")
    return Transfer(
        node.number("latency_s"),
        node.number("payload_bytes"),
        node.number("ceiling_bytes_per_s"),
        tuple((str(link), float(weight)) for link, weight in weights.items()),
        node.whole("sms"),
        node.text("pattern", "ring"),
        node.text("binding"),
        node.whole("hbm"),
    )
