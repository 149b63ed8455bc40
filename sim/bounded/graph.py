"""A healthy step as a graph of what waits for what, with the seconds that each op takes.

Nodes are the ops of one rank of each pipeline stage, and the messages between stages. What contention costs
an op is taken to be what it cost in the healthy replay. Knows a record; knows nothing of what is slow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.gemm import IN_TWO_PASSES, LEAST_SMS
from ..network.transfer import MOST_HBM
from ..program.program import Collective, Compute, RepeatedBlocks
from .dependencies import dependencies_of
from .layer_edges import NOTHING, LayerEdges, edges_of_work
from .messages_in_flight import COMPUTE
from .stage_messages import exchanges_in, messages_of

if TYPE_CHECKING:
    from ..engine.record import Record
    from ..network.transfer import Transfer
    from ..program.program import Block, Program
    from .stage_messages import StageMessage

_Kernels = tuple[float, float, float]
"""Seconds of kernels: all of them, those that are bound by math, and those that need all SMs."""

HOST_S = 1e-9
"""An op that begins later than this after all that it waits for has waited for its host."""


@dataclass(frozen=True, kw_only=True)
class StepNode:
    """An op of the graph, or a message between stages.

    It starts when the nodes ``before`` have ended, and not before ``earliest_s``. Its own work takes
    ``fixed_s``, and ``kernel_s`` times the factor of its ``stage``. While a collective of several replicas
    holds SMs of its rank, a share ``lost`` of its time is lost; ``holds`` marks such a collective. A
    ``message`` waits for what either of its ends waits for. ``edges`` say by how much a rank may be ahead of
    its tensor-parallel group before and after the group is awaited.
    """

    stage: int
    before: tuple[int, ...]
    earliest_s: float
    fixed_s: float
    kernel_s: float
    lost: float = 0.0
    holds: bool = False
    message: bool = False
    edges: LayerEdges = NOTHING


@dataclass(frozen=True, kw_only=True)
class StepRendezvous:
    """Nodes that begin together when the last of them has started, at ``at_s`` in the healthy step. A
    ``crossing`` rendezvous joins all replicas. ``transfer`` is what moves then."""

    nodes: tuple[int, ...]
    crossing: bool
    transfer: Transfer
    at_s: float


Step = tuple[int, tuple[int, ...], float, bool, float, int]
"""What a pass needs of a node or rendezvous: its number, and the nodes that it waits for or that meet; of a
node also ``earliest_s``, whether it meets others, ``lost`` and ``stage``."""


@dataclass(frozen=True, kw_only=True)
class StepGraph:
    """The graph of one healthy step.

    ``order`` lists nodes as they start and rendezvous as they begin; numbers below the count of nodes are
    nodes, those from there on rendezvous. A node ends when its rendezvous have ended and its own work is
    done. ``messages`` are those of the nodes that are messages, in their order.
    """

    nodes: tuple[StepNode, ...]
    rendezvous: tuple[StepRendezvous, ...]
    messages: tuple[StageMessage, ...]
    order: tuple[int, ...]

    @cached_property
    def crossings(self) -> tuple[StepRendezvous, ...]:
        """The rendezvous of several replicas, in their order."""
        count = len(self.nodes)
        met = (self.rendezvous[step - count] for step in self.order if step >= count)
        return tuple(one for one in met if one.crossing)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The nodes and rendezvous in their order."""
        count, found = len(self.nodes), list[Step]()
        for number in self.order:
            if number < count:
                node = self.nodes[number]
                meets = number in self.meet
                found.append((number, node.before, node.earliest_s, meets, node.lost, node.stage))
            else:
                found.append((number, self.rendezvous[number - count].nodes, 0.0, False, 0.0, -1))
        return tuple(found)

    @cached_property
    def meet(self) -> frozenset[int]:
        """Nodes that meet others."""
        return frozenset(n for one in self.rendezvous for n in one.nodes)


def graph_of(record: Record, crossing: Collection[str], awaiting: Collection[str]) -> StepGraph:
    """The graph of a healthy record. Communicators in ``crossing`` join ranks of several replicas, those in
    ``awaiting`` all ranks of a tensor-parallel group."""
    programs = record.programs
    first = [0]
    for program in programs.classes:
        first.append(first[-1] + len(program.ops))
    layers: dict[Block, LayerEdges] = {}
    ops = [
        node
        for r, program in enumerate(programs.classes)
        for node in _nodes(record, r, program, first[r], crossing, awaiting, layers)
    ]
    messages = messages_of(record, first)
    nodes, number = _with_messages(ops, messages, exchanges_in(record, first))
    rendezvous = tuple(_rendezvous(record, first, number, crossing))
    at_s = [at for r in range(len(programs.classes)) for at in record.start[r]]
    at_s = [at_s[n] for n in number] + [one.at_s for one in messages]
    order = _order(nodes, rendezvous, at_s)
    return StepGraph(
        nodes=tuple(nodes),
        rendezvous=rendezvous,
        messages=tuple(messages[n - len(number)] for n in order if len(number) <= n < len(nodes)),
        order=order,
    )


def _with_messages(
    ops: Sequence[StepNode], messages: Sequence[StageMessage], parts: Mapping[int, int]
) -> tuple[list[StepNode], dict[int, int]]:
    """Nodes for the messages in place of the exchanges that post them, with the number of each op that
    remains. ``parts`` says how many messages each exchange has."""
    posted = Counter(n for one in messages for n in one.ends)
    left = [n for n in range(len(ops)) if not 0 < posted[n] == parts.get(n)]
    number = {n: i for i, n in enumerate(left)}
    instead = {n: [i] for n, i in number.items()}
    for m, one in enumerate(messages, len(left)):
        for n in one.ends:
            instead.setdefault(n, []).append(m)

    def behind(before: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted({i for n in before for i in instead[n]}))

    nodes = [replace(ops[n], before=behind(ops[n].before)) for n in left]
    for one in messages:
        sent, received = (ops[n] for n in one.ends)
        nodes.append(
            StepNode(
                stage=one.sender,
                before=behind((*sent.before, *received.before)),
                earliest_s=max(sent.earliest_s, received.earliest_s),
                fixed_s=one.busy_s,
                kernel_s=0.0,
                message=True,
            )
        )
    return nodes, number


def _nodes(
    record: Record,
    r: int,
    program: Program,
    first: int,
    crossing: Collection[str],
    awaiting: Collection[str],
    layers: dict[Block, LayerEdges],
) -> Iterator[StepNode]:
    waits = dependencies_of(program)
    _, _, ends, _ = record.of_class(r)
    between = _between_kernels(program)
    held = [i for i, op in enumerate(program.ops) if _holds(op.work, crossing) and i not in between]
    windows = [record.times(r, i)[::2] for i in held]
    sms, hbm = (
        max((one[k] for one in map(_taken, (program.ops[i].work for i in held))), default=0) for k in (0, 1)
    )
    taken = min(1 - LEAST_SMS, sms / record.programs.sms), min(MOST_HBM, hbm) / 1000
    within_s = _within_s(record.begin[r], ends, windows)
    known: dict[int, tuple[_Kernels, LayerEdges]] = {}
    for i, op in enumerate(program.ops):
        before = waits[i]
        start_s, begin_s, end_s = record.times(r, i)
        ready_s = max((ends[j] for j in before), default=0.0)
        if id(op.work) not in known:
            known[id(op.work)] = _kernels_s(op.work), edges_of_work(op.work, awaiting, layers)
        kernels, edges = known[id(op.work)]
        lost = _lost(end_s - begin_s, kernels, taken)
        if lost:
            end_s -= lost * within_s[i]
        kernel_s = min(kernels[0], end_s - begin_s)
        yield StepNode(
            stage=r,
            before=tuple(first + j for j in before),
            earliest_s=start_s if start_s > ready_s + HOST_S else 0.0,
            fixed_s=end_s - begin_s - kernel_s,
            kernel_s=kernel_s,
            lost=lost,
            holds=i in held,
            edges=edges,
        )


def _between_kernels(program: Program) -> set[int]:
    """Ops that no kernel runs beside: each waits for the last kernel before it, and the next kernel waits for
    it."""
    found, last = set[int](), -1
    waiting: list[int] = []
    for i, op in enumerate(program.ops):
        if op.stream == COMPUTE:
            found.update(k for k in waiting if k in op.after)
            last, waiting = i, []
        elif last in op.after:
            waiting.append(i)
    return found


def _within_s(
    begin: Sequence[float], end: Sequence[float], windows: Sequence[tuple[float, float]]
) -> list[float]:
    """For each op, its seconds within the given windows of time."""
    since, until = np.array(begin), np.array(end)
    found = np.zeros(len(since))
    for first_s, last_s in windows:
        found += np.maximum(0.0, np.minimum(until, last_s) - np.maximum(since, first_s))
    inside: list[float] = found.tolist()
    return inside


def _lost(whole_s: float, kernels: _Kernels, taken: tuple[float, float]) -> float:
    """The share of its time that an op loses while others hold the shares ``taken`` of its rank's SMs and of
    HBM's bandwidth. SMs that are held slow kernels bound by math, and most of all those that need every SM;
    HBM's bandwidth that is taken slows all other kernels."""
    sms, hbm = taken
    whole = max(sms, 1 - IN_TWO_PASSES) if sms else 0.0
    kernel_s, math_s, static_s = kernels
    parts = (sms, math_s - static_s), (whole, static_s), (hbm, kernel_s - math_s)
    slow_s = [(part, seconds / (1 - part)) for part, seconds in parts]
    lost_s = sum(part * seconds for part, seconds in slow_s)
    others_s = max(whole_s - kernel_s, 0.0)
    return lost_s / (others_s + sum(seconds for _, seconds in slow_s)) if lost_s else 0.0


def _holds(work: object, crossing: Collection[str]) -> bool:
    return isinstance(work, Collective) and work.communicator in crossing and any(_taken(work))


def _taken(work: object) -> tuple[int, int]:
    return (work.transfer.sms, work.transfer.hbm) if isinstance(work, Collective) else (0, 0)


def _kernels_s(work: object) -> _Kernels:
    """Seconds of the kernels of an op: all, those that are bound by math, and those that need all SMs."""
    if isinstance(work, Compute):
        math_s = 0.0 if work.kind == "memory-bound" else work.seconds
        return work.seconds, math_s, math_s if work.static_schedule else 0.0
    found_s = math_s = static_s = 0.0
    if isinstance(work, RepeatedBlocks):
        for block, count in work.blocks:
            for op in block.ops:
                one_s, bound_s, one_static_s = _kernels_s(op.work)
                found_s, math_s = found_s + count * one_s, math_s + count * bound_s
                static_s += count * one_static_s
    return found_s, math_s, static_s


def _rendezvous(
    record: Record, first: Sequence[int], number: Mapping[int, int], crossing: Collection[str]
) -> Iterator[StepRendezvous]:
    """Collectives that join stages or replicas. ``number`` gives the node of each op."""
    programs = record.programs
    joined: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    what: dict[tuple[str, int, int], tuple[Transfer, float]] = {}
    for r, program in enumerate(programs.classes):
        calls: dict[str, int] = defaultdict(int)
        for i, op in enumerate(program.ops):
            if not isinstance(op.work, Collective):
                continue
            name = op.work.communicator
            shared = programs.joins(r, name)
            if shared is not None or name in crossing:
                key = name, -1 if shared else r, calls[name]
                joined[key].append(number[first[r] + i])
                what[key] = op.work.transfer, record.begin[r][i]
            calls[name] += 1
    for key, nodes in joined.items():
        transfer, at_s = what[key]
        yield StepRendezvous(nodes=tuple(nodes), crossing=key[0] in crossing, transfer=transfer, at_s=at_s)


def _order(
    nodes: Sequence[StepNode], rendezvous: Sequence[StepRendezvous], at_s: Sequence[float]
) -> tuple[int, ...]:
    """Nodes as they start and rendezvous as they begin, each after all that it waits for, and otherwise in
    the order of ``at_s``, when they start in the healthy step."""
    of_node: list[list[int]] = [[] for _ in nodes]
    for m, one in enumerate(rendezvous):
        for member in one.nodes:
            of_node[member].append(m)
    behind: list[list[int]] = [[] for _ in nodes]
    lacks = [len(node.before) for node in nodes]
    for n, node in enumerate(nodes):
        for earlier in node.before:
            behind[earlier].append(n)
    absent = [len(one.nodes) for one in rendezvous]
    open_ = [len(mine) for mine in of_node]
    found: list[int] = []
    ready = [(at_s[n], n) for n, count in enumerate(lacks) if not count]
    heapify(ready)
    while ready:
        n = heappop(ready)[1]
        found.append(n)
        ended = [] if of_node[n] else [n]
        for m in of_node[n]:
            absent[m] -= 1
            if not absent[m]:
                found.append(len(nodes) + m)
                for member in rendezvous[m].nodes:
                    open_[member] -= 1
                    if not open_[member]:
                        ended.append(member)
        for earlier in ended:
            for later in behind[earlier]:
                lacks[later] -= 1
                if not lacks[later]:
                    heappush(ready, (at_s[later], later))
    assert len(found) == len(nodes) + len(rendezvous), "what has been replayed has an order"
    return tuple(found)
