"""What is wrong with execution traces: dependencies that are not there, circles, messages and
collectives that do not match.

Knows nodes and ranks. A rank without a trace is taken to do what the others do; what waits for what across
ranks is looked at once programs are made (sim/program/check.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from .node import COLLECTIVES, ExecutionTrace, NodeType, TraceNode, TraceSet

SHOWN = 5
"""Problems of one kind in one trace that are told one by one."""


def problems(traces: TraceSet) -> tuple[str, ...]:
    """All problems, each with its file and node."""
    found = [problem for one in traces.ranks for problem in _own(one)]
    if found:
        return tuple(found)
    return (*_messages(traces), *_collectives(traces))


def notes(traces: TraceSet) -> tuple[str, ...]:
    """What is missing and does no harm: calls that nodes were part of."""
    found = []
    for one in traces.ranks:
        there = {node.id for node in one.nodes}
        lost = sum(any(call not in there for call in node.ctrl_deps) for node in one.nodes)
        if lost:
            found.append(
                f"{one.file}: {lost:,} nodes are part of calls (ctrl_deps) that the trace leaves out"
            )
    return tuple(found)


def in_order(nodes: Sequence[TraceNode]) -> list[TraceNode]:
    """The nodes so that each follows all that it waits for, else in order of start and number; those in
    circles are left out.
    """
    by_id = {node.id: node for node in nodes}
    missing = {node.id: len(set(node.data_deps)) for node in nodes}
    waiting: dict[int, list[int]] = defaultdict(list)
    for node in nodes:
        for before in set(node.data_deps):
            waiting[before].append(node.id)
    ready = [(node.start_micros, node.id) for node in nodes if not missing[node.id]]
    heapify(ready)
    found = []
    while ready:
        _, number = heappop(ready)
        found.append(by_id[number])
        for after in waiting[number]:
            missing[after] -= 1
            if not missing[after]:
                heappush(ready, (by_id[after].start_micros, after))
    return found


def is_collective(node: TraceNode) -> bool:
    """Whether a node is a collective on the network: the host's call of one is not."""
    return node.type == NodeType.COMM_COLL and not (node.on_host and "comm_type" not in node.attributes)


def collective_kind(node: TraceNode) -> str:
    """The name of a collective's kind. ValueError for a number that is none."""
    number = node.whole("comm_type", -1)
    if not 0 <= number < len(COLLECTIVES):
        raise ValueError(f"node {node.id} ({node.name}): comm_type: {number} is not a collective")
    return COLLECTIVES[number]


def _own(trace: ExecutionTrace) -> Iterator[str]:
    """What is wrong with the trace of one rank, without looking at the others."""
    count = Counter(node.id for node in trace.nodes)
    twice = [number for number, times in count.items() if times > 1]
    yield from _some(trace, [f"node {number} stands {count[number]} times" for number in twice])
    lost = [
        f"node {node.id} ({node.name[:60]}) waits for node {before}, which is not there"
        for node in trace.nodes
        for before in node.data_deps
        if before not in count
    ]
    yield from _some(trace, lost)
    if twice or lost:
        return
    circle = len(trace.nodes) - len(in_order(trace.nodes))
    if circle:
        yield f"{trace.file}: {circle:,} nodes wait for one another in a circle, or for those that do"
    wrong = []
    for node in trace.nodes:
        try:
            _check_communication(node)
        except ValueError as error:
            wrong.append(str(error))
    yield from _some(trace, wrong)


def _check_communication(node: TraceNode) -> None:
    if is_collective(node):
        collective_kind(node)
    elif not node.is_message:
        return
    if node.whole("comm_size", -1) < 0:
        raise ValueError(f"node {node.id} ({node.name}): comm_size: must be stated, in bytes")


def _some(trace: ExecutionTrace, wrong: Sequence[str]) -> Iterator[str]:
    for one in wrong[:SHOWN]:
        yield f"{trace.file}: {one}"
    if len(wrong) > SHOWN:
        yield f"{trace.file}: and {len(wrong) - SHOWN:,} more of this kind"


def _messages(traces: TraceSet) -> Iterator[str]:
    """Each send with its receive: ranks, tag and size."""
    sent: Counter[tuple[int, int, int, int]] = Counter()
    for one in traces.ranks:
        for node in one.nodes:
            if node.is_message:
                sends = node.type == NodeType.COMM_SEND
                key = (*node.ends(one.rank), node.whole("comm_tag"), node.whole("comm_size"))
                sent[key] += 1 if sends else -1
    for (source, target, tag, size), more in sorted(sent.items()):
        if more:
            lacks, there = ("receive", "send") if more > 0 else ("send", "receive")
            yield (
                f"{traces.source}: {abs(more)} {there} from rank {source} to rank {target} with tag {tag} "
                f"and {size:,} bytes without a {lacks}"
            )


def _collectives(traces: TraceSet) -> Iterator[str]:
    """The calls of each group, in one order on all of its ranks that have a trace."""
    calls: dict[str, dict[int, list[tuple[str, int]]]] = defaultdict(dict)
    for one in traces.ranks:
        for node in one.nodes:
            if is_collective(node):
                row = calls[node.text("pg_name")].setdefault(one.rank, [])
                kind = collective_kind(node)
                size = 0 if kind == "all_to_all" else node.whole("comm_size")  # each may send another amount
                row.append((kind, size))
    there = {one.rank for one in traces.ranks}
    for name, by_rank in sorted(calls.items()):
        members = set(traces.groups.get(name, tuple(by_rank))) & there
        what = f"{traces.source}: group {name or 'of all'}"
        strangers = sorted(set(by_rank) - members)
        if strangers:
            yield f"{what}: rank {strangers[0]} calls it and is not in it"
            continue
        first = min(by_rank)
        for rank in sorted(members - {first}):
            row = by_rank.get(rank, [])
            if Counter(row) != Counter(by_rank[first]):
                yield (
                    f"{what}: rank {first} has {len(by_rank[first])} collectives in it and rank {rank} "
                    f"{len(row)}, or others"
                )
            elif row != by_rank[first]:
                at = next(n for n, (a, b) in enumerate(zip(row, by_rank[first], strict=True)) if a != b)
                here, other = by_rank[first][at][0], row[at][0]
                yield f"{what}: collective {at} is {here} on rank {first} and {other} on rank {rank}"
