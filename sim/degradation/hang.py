"""Which ranks wait for one that has stopped, read from a replay that could not go on.

A rank is blocked when its compute stream waits, directly or through what comes before, for a communication
that never ends, from the end of its last kernel on or from when it enters that communication, whichever is
later: what it waits for might have taken a while in any case. The watchdog counts from the moment at which a
communication is entered on its stream; PyTorch counts from its enqueueing by the host, which is as much
earlier as the host is ahead.

Sources: PyTorch ProcessGroupNCCL.cpp, WorkNCCL (its start time is taken where it is made).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.record import Record, Stretch
from ..program.program import Collective, Exchange, Op, RepeatedBlocks
from ..result.step_hang import Blocked, Hang, Waiters

if TYPE_CHECKING:
    from collections.abc import Iterable

    Ids = np.typing.NDArray[np.int64]
    Mask = np.typing.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """Where a class is stuck: since ``since_s`` it only waits in a communication of ``axis``."""

    since_s: float
    axis: str
    operation: str


Unfinished = tuple[Sequence[Op], Sequence[Any], Sequence[Any]]
"""Ops, with their starts and ends where they are known: of a program, or of a block."""


def hang_of(
    record: Record,
    of_rank: Ids,
    stopped: Sequence[int],
    relations: Iterable[tuple[str, Mask]],
    *,
    at_s: float,
    watchdog_s: float,
) -> Hang:
    """``of_rank`` is the class of every rank; ``stopped`` ranks did so ``at_s``."""
    gone = np.zeros(len(of_rank), dtype=bool)
    gone[list(stopped)] = True
    classes = set(np.unique(of_rank[~gone]).tolist())
    stuck = {r: found for r in sorted(classes) if (found := _stuck(record, r)) is not None}
    counts = np.bincount(of_rank[~gone], minlength=len(record.programs.classes))
    entered = [at for r in stuck for at in _entered(record, r)]
    return Hang(
        at_s=at_s,
        stopped=int(gone.sum()),
        finished=int(sum(counts[r] for r in classes if r not in stuck)),
        blocked=_by_axis(stuck, counts),
        waiters=tuple(
            _waiters(name, of_rank[ranks & ~gone], stuck)
            for name, ranks in relations
            if (ranks & ~gone).any()
        ),
        entered_s=min(entered, default=at_s),
        watchdog_s=watchdog_s,
    )


def _by_axis(stuck: dict[int, Stuck], counts: Ids) -> tuple[Blocked, ...]:
    found = []
    for axis in dict.fromkeys(one.axis for one in stuck.values()):
        mine = {r: one for r, one in stuck.items() if one.axis == axis}
        first = min(mine.values(), key=lambda one: one.since_s)
        found.append(
            Blocked(
                axis=axis,
                operation=first.operation,
                ranks=int(sum(counts[r] for r in mine)),
                first_s=first.since_s,
                last_s=max(one.since_s for one in mine.values()),
            )
        )
    return tuple(sorted(found, key=lambda one: one.first_s))


def _waiters(name: str, classes: Ids, stuck: dict[int, Stuck]) -> Waiters:
    mine = [stuck[r] for r in np.unique(classes).tolist() if r in stuck]
    first = min(mine, key=lambda one: one.since_s, default=None)
    return Waiters(
        name=name,
        ranks=len(classes),
        blocked=int(np.isin(classes, list(stuck)).sum()),
        first_s=first.since_s if first else None,
        axis=first.axis if first else "",
    )


# One class -------------------------------------------------------------------------------------------------


def _stuck(record: Record, r: int) -> Stuck | None:
    """Where a class waits for ever; None if it has completed its step."""
    if all(end >= 0 for end in record.end[r]):
        return None
    for ops, start, end in _unfinished(record, r):
        waits = [i for i, op in enumerate(ops) if op.stream == "compute" and end[i] < 0][:1]
        held = _held_by(ops, start, end, waits or [i for i in range(len(ops)) if end[i] < 0][:1])
        if held is not None:
            since_s = max(_last_work(record, r), start[held])
            return Stuck(since_s=since_s, axis=ops[held].category, operation=ops[held].name)
    raise AssertionError("a class that is not done waits for something")


def _held_by(ops: Sequence[Op], start: Sequence[Any], end: Sequence[Any], first: list[int]) -> int | None:
    """The communication in progress that ops wait for: earlier ones on their streams, and what they name."""
    seen, stack = set(first), list(first)
    while stack:
        i = stack.pop()
        if isinstance(ops[i].work, Collective | Exchange) and start[i] >= 0:
            return i
        before = [k for k in range(i) if ops[k].stream == ops[i].stream and ops[i].stream != "free"]
        for k in (*ops[i].after, *before):
            if end[k] < 0 and k not in seen:
                seen.add(k)
                stack.append(k)
    return None


def _unfinished(record: Record, r: int) -> Iterator[Unfinished]:
    """Blocks of a class that run in detail and have not ended, then its program."""
    ops = record.programs.classes[r].ops
    for i, op in enumerate(ops):
        if isinstance(op.work, RepeatedBlocks) and record.end[r][i] < 0:
            for piece in record.pieces(r, i):
                if not isinstance(piece, Stretch) and any(end < 0 for end in piece.end):
                    yield piece.ops, piece.start, piece.end
    yield ops, record.start[r], record.end[r]


def _entered(record: Record, r: int) -> Iterator[float]:
    """When a class entered the communications that never end for it."""
    for ops, start, end in _unfinished(record, r):
        for i, op in enumerate(ops):
            if isinstance(op.work, Collective | Exchange) and start[i] >= 0 and end[i] < 0:
                yield start[i]


def _last_work(record: Record, r: int) -> float:
    """When its last kernel ended; 0 if it ran none."""
    last = 0.0
    for i, op in enumerate(record.programs.classes[r].ops):
        if op.stream != "compute":
            continue
        end = record.end[r][i]
        last = max(last, end)
        for piece in record.pieces(r, i) if end < 0 else ():
            if isinstance(piece, Stretch):
                done = piece.run.runs[: piece.count]
                last = max(
                    [last, *(piece.at + b + run.last for b, run in zip(piece.run.bases, done, strict=False))]
                )
            else:
                ends = (
                    e for o, e in zip(piece.ops, piece.end, strict=True) if o.stream == "compute" and e > 0
                )
                last = max([last, *ends])
    return last
