"""Which logged operation of a job waits for which, and how long each takes by itself.

Knows the order that Megatron-LM's schedules give a rank's operations, read off the first replica in the first
step of the log: all replicas and steps have it. Does not know what stragglers cost: sim/what_if does.

Source: Lin et al. 2025, OSDI'25, arXiv:2505.05713, section 4 (streams, dependencies, transfer durations), and
what its artifact (ByteDance-Seed/StragglerAnalysis, 57b56c45) takes for granted: matched messages, operations
at the end of a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...sim.what_if.operations import Operation, Operations
from ..readers.operation_log import OperationLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Seconds = NDArray[np.float64]

Name = tuple[str, int, int]
"""An operation of a replica: kind, its number among those of its kind, stage."""

FORWARD, BACKWARD = "forward", "backward"
MESSAGES = {
    "forward-send": (1, "forward-recv"),
    "forward-recv": (-1, "forward-send"),
    "backward-send": (-1, "backward-recv"),
    "backward-recv": (1, "backward-send"),
}
"""By kind of message, the neighbour (in stages) that the other end is on, and what that calls it."""
JOINS = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce", "optimizer-clip-main-grad")
"""Kinds that all data-parallel replicas meet in."""
COMMUNICATION = (*MESSAGES, *JOINS, "layernorm-grads-all-reduce", "embedding-grads-all-reduce")
_TOUCH_S = 5e-5
"""Seconds by which the clocks of two ranks may differ."""


@dataclass(frozen=True, kw_only=True)
class WaitingOrder:
    """``operations`` with their names, and ``own_s[operation, replica, step]``; ``steps`` and ``ranks``
    (replica, stage) as the log calls them."""

    operations: Operations
    own_s: Seconds
    names: tuple[Name, ...]
    steps: tuple[int, ...]
    ranks: Mapping[tuple[int, int], int]


@dataclass(kw_only=True)
class _Order:
    """What is known so far: by operation what it waits for, and the groups that begin together."""

    after: dict[Name, list[Name]] = field(default_factory=lambda: defaultdict(list))
    groups: list[tuple[Name, ...]] = field(default_factory=list)

    def chain(self, names: Iterable[Name], behind: Sequence[Name] = ()) -> None:
        """Each waits for the one before; the first for all of ``behind``."""
        last = list(behind)
        for name in names:
            self.after[name] += last
            last = [name]


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One operation as the first replica's first step has it."""

    name: Name
    start_s: float
    end_s: float
    chunk: int

    @property
    def when(self) -> tuple[float, int, str]:
        return self.start_s, self.name[1], self.name[0]


def waiting_order(log: OperationLog) -> WaitingOrder:
    """The operations of a log.

    Raises:
        ValueError: naming the file: an operation that not all replicas and steps have, messages without
            another end, no operation that ends a step, or a circle.
    """
    names, start_s, end_s, steps = _table(log)
    stages = _stages(log, names, start_s, end_s)
    order = _Order()
    for stage in stages.values():
        _computes(order, stage)
    _pair_messages(order, stages, log.file)
    for number, stage in stages.items():
        _gradients(order, stage)
        _end(order, number, stage, len(stages))
    _join_stages(order, stages)
    found = _operations(log.file, order, names)
    return WaitingOrder(
        operations=found,
        own_s=_own_s(found, start_s, end_s),
        names=names,
        steps=steps,
        ranks={(int(d), int(s)): int(r) for d, s, r in zip(log.dp_rank, log.stage, log.rank, strict=True)},
    )


def _table(log: OperationLog) -> tuple[tuple[Name, ...], Seconds, Seconds, tuple[int, ...]]:
    """Names, and start and end [operation, replica, step] in seconds."""
    steps, step_at = np.unique(log.step, return_inverse=True)
    replicas, replica_at = np.unique(log.dp_rank, return_inverse=True)
    row_names = list(zip(log.kind, map(int, log.number), map(int, log.stage), strict=True))
    names = tuple(sorted(set(row_names), key=lambda name: (name[2], name[0], name[1])))
    place = {name: number for number, name in enumerate(names)}
    at = np.array([place[name] for name in row_names])
    start_s = np.full((len(names), len(replicas), len(steps)), np.nan)
    end_s = np.full_like(start_s, np.nan)
    start_s[at, replica_at, step_at] = log.start_s
    end_s[at, replica_at, step_at] = log.start_s + log.duration_s
    if np.isnan(start_s).any():
        operation, replica, step = (int(one[0]) for one in np.nonzero(np.isnan(start_s)))
        kind, number, stage = names[operation]
        raise ValueError(
            f"{log.file}: step {steps[step]}: dp_rank {replicas[replica]} has no {kind} {number} of stage "
            f"{stage}, which others have"
        )
    return names, start_s, end_s, tuple(int(step) for step in steps)


def _stages(
    log: OperationLog, names: Sequence[Name], start_s: Seconds, end_s: Seconds
) -> dict[int, list[_Row]]:
    """The operations of the first replica's first step, by stage and in order of their start."""
    chunks: dict[Name, int] = {}
    for kind, number, stage, chunk in zip(log.kind, log.number, log.stage, log.chunk, strict=True):
        chunks.setdefault((kind, int(number), int(stage)), int(chunk))
    found: dict[int, list[_Row]] = defaultdict(list)
    for place, name in enumerate(names):
        found[name[2]].append(
            _Row(
                name=name,
                start_s=float(start_s[place, 0, 0]),
                end_s=float(end_s[place, 0, 0]),
                chunk=max(0, chunks[name]),
            )
        )
    return {stage: sorted(rows, key=lambda row: row.when) for stage, rows in sorted(found.items())}


def _of(rows: Iterable[_Row], *kinds: str) -> list[_Row]:
    return [row for row in rows if row.name[0] in kinds]


def _computes(order: _Order, rows: Sequence[_Row]) -> None:
    """Passes run one after the other, and messages of a kind do; the first backward's messages are posted
    behind the forward before the last one.
    """
    computes = _of(rows, "forward-compute", "backward-compute")
    order.chain(row.name for row in computes)
    for kind in MESSAGES:
        order.chain(row.name for row in _of(rows, kind))
    first = next((n for n, row in enumerate(computes) if row.name[0] == "backward-compute"), 0)
    if first >= 2:
        for kind in ("backward-recv", "backward-send"):
            for row in _of(rows, kind):
                if row.name[1] == 0:
                    order.after[row.name].append(computes[first - 2].name)


def _pair_messages(order: _Order, stages: Mapping[int, list[_Row]], file: str) -> None:
    """Each message waits for its pass or is waited for by it, and both of its ends begin together."""
    ends: dict[tuple[str, int], list[Name]] = defaultdict(list)
    chunks = 1 + max(row.chunk for rows in stages.values() for row in rows)
    for stage, rows in stages.items():
        for kind, (way, _) in MESSAGES.items():
            for message, compute in _matched(rows, kind, file):
                _wait(order, message.name, compute.name)
                neighbour = compute.chunk * len(stages) + stage + way
                if 0 <= neighbour < chunks * len(stages):
                    ends[kind, stage].append(message.name)
                else:  # logged where no message is, at either end of the model
                    order.groups.append((message.name,))
    for (kind, stage), sent in ends.items():
        way, other = MESSAGES[kind]
        if not kind.endswith("send"):
            continue
        received = ends.get((other, (stage + way) % len(stages)), [])
        if len(received) != len(sent):
            raise ValueError(
                f"{file}: {len(sent)} {kind} of stage {stage} and {len(received)} {other} for them"
            )
        order.groups += zip(sent, received, strict=True)


def _matched(rows: Sequence[_Row], kind: str, file: str) -> list[tuple[_Row, _Row]]:
    """The messages of a kind with the passes that they belong to; such as move nothing, logged before the
    first or behind the last pass, belong to none.
    """
    computes = _of(rows, f"{kind.partition('-')[0]}-compute")
    messages = _of(rows, kind)
    if not computes or not messages:
        return []
    if kind.endswith("recv"):
        last = max(row.start_s for row in computes)
        messages = [row for row in messages if row.start_s <= last + _TOUCH_S]
    else:
        first = min(row.end_s for row in computes)
        messages = [row for row in messages if row.end_s >= first - _TOUCH_S]
    missing = len(computes) - len(messages)
    if missing not in (0, 1):
        raise ValueError(
            f"{file}: {len(messages)} {kind} of stage {computes[0].name[2]} for {len(computes)} passes"
        )
    by_number = sorted(computes, key=lambda row: row.name[1])
    return list(zip(messages, by_number[missing if kind.endswith("recv") else 0 :], strict=False))


def _wait(order: _Order, message: Name, compute: Name) -> None:
    if message[0].endswith("send"):
        order.after[message].append(compute)
        return
    order.after[compute].append(message)
    if compute[1] > 0:
        order.after[message].append((compute[0], compute[1] - 1, compute[2]))


def _gradients(order: _Order, rows: Sequence[_Row]) -> None:
    """Parameters are gathered before the first forward of their chunk; with overlap, gradients are reduced
    behind the last backward of theirs. Both are one stream.
    """
    gathers, scatters = _of(rows, "params-all-gather"), _of(rows, "grads-reduce-scatter")
    order.chain(row.name for row in _of(rows, "params-all-gather", "grads-reduce-scatter"))
    last_of = {row.chunk: row for row in sorted(gathers, key=lambda row: row.name[1])}
    for chunk, gather in last_of.items():
        forwards = [row for row in _of(rows, "forward-compute") if row.chunk == chunk]
        if forwards:
            order.after[forwards[0].name].append(gather.name)
    if _of(rows, "separate-grads-all-reduce"):
        for chunk, scatter in {row.chunk: row for row in reversed(scatters)}.items():
            backwards = [row for row in _of(rows, "backward-compute") if row.chunk == chunk]
            if backwards:
                order.after[scatter.name].append(max(backwards, key=lambda row: row.end_s).name)


def _end(order: _Order, stage: int, rows: Sequence[_Row], stages: int) -> None:
    """What follows the last pass, one after the other, as far as the log has it."""
    there = {row.name for row in rows}
    computes = _of(rows, "forward-compute", "backward-compute")
    scatters = [row.name for row in sorted(_of(rows, "grads-reduce-scatter"), key=lambda row: row.name[1])]
    separate = ("separate-grads-all-reduce", 0, stage)
    overlapped = separate in there
    chain: list[Name] = [("layernorm-grads-all-reduce", 0, stage)]
    if stage in (0, stages - 1):
        chain.append(("embedding-grads-all-reduce", 0, stage))
    chain += [separate] if overlapped else scatters
    chain += [("optimizer-clip-main-grad", 0, stage), ("optimizer", 0, stage)]
    collected: Name = ("gc", 0, stage)
    behind = [max(computes, key=lambda row: row.end_s).name] if computes else []
    if collected in there:
        order.after[collected] += behind
        behind = [collected]
    if overlapped and scatters:
        behind = [scatters[-1], *behind]
    order.chain((name for name in chain if name in there), behind)


def _join_stages(order: _Order, stages: Mapping[int, list[_Row]]) -> None:
    """Ends of a tied embedding begin together, and so do all stages in the gradients' norm."""
    for kind, of in (
        ("embedding-grads-all-reduce", {0, max(stages)}),
        ("optimizer-clip-main-grad", set(stages)),
    ):
        found = tuple(row.name for stage in sorted(of) for row in _of(stages[stage], kind))
        if found:
            order.groups.append(found)


def _operations(file: str, order: _Order, names: Sequence[Name]) -> Operations:
    place = {name: number for number, name in enumerate(names)}
    group_of = {name: number for number, group in enumerate(order.groups) for name in group}
    try:
        return Operations(
            all=tuple(
                Operation(
                    kind=name[0],
                    stage=name[2],
                    after=tuple(dict.fromkeys(place[before] for before in order.after.get(name, ()))),
                    group=group_of.get(name),
                    joins_replicas=name[0] in JOINS,
                    communicates=name[0] in COMMUNICATION,
                    ends_step=name[0] == "optimizer",
                )
                for name in names
            )
        )
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _own_s(operations: Operations, start_s: Seconds, end_s: Seconds) -> Seconds:
    """Passes from start to end; communication from the last start of its group on."""
    begin_s = start_s.copy()
    groups: dict[int, list[int]] = defaultdict(list)
    for number, operation in enumerate(operations.all):
        if operation.group is not None:
            groups[operation.group].append(number)
        elif operation.joins_replicas:
            begin_s[number] = start_s[number].max(axis=0)
    for members in groups.values():
        last = np.maximum.reduce([start_s[number] for number in members])
        if operations.all[members[0]].joins_replicas:
            last = np.broadcast_to(last.max(axis=0), last.shape)
        for number in members:
            begin_s[number] = last
    found: Seconds = np.maximum(end_s - begin_s, 0.0)
    return found
