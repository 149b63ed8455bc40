"""The steady state of a pipeline: what one group of microbatches after another takes, once it repeats itself.

Two groups in a row are alike when every op of the second ends later by the same than its like in the first,
on all ranks: then all streams are as far apart as a group before, and so they will be a group later. A host
is as far apart, too; or it gets further ahead of them all, and never waits. Steps that differ by the same
twice would prove less: a host that falls back a little in every group is not seen in the time of any, until
it is no longer ahead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.scope import issue_times
from ..program.program import Segment

if TYPE_CHECKING:
    from ..engine.record import Record
    from ..program.program import Op

_MICROBATCH = re.compile(r"\d+[A-Z](\d+)")
"""Of an op's action, as ``2F0``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A group of microbatches takes ``seconds``; the one that is taken as an example begins at ``since_s``.

    ``leads_s`` is by how much the host of each class gets further ahead, in seconds of its work.
    """

    seconds: float
    since_s: float
    leads_s: Mapping[int, float]


def period_of(record: Record, microbatches: int, group: int, within: float) -> Period | None:
    """The period of a step with so many ``microbatches`` in a group, if the one numbered ``group`` (from 0)
    and the next are alike: all times of the second are as much later, ``within`` this share of it.
    """
    found, seconds, since_s = dict[int, float](), None, 0.0
    for r, program in enumerate(record.programs.classes):
        first, second = (_ops_of(program.ops, microbatches, number) for number in (group, group + 1))
        if not first or [program.ops[i].name for i in first] != [program.ops[i].name for i in second]:
            return None
        ends = record.end[r]
        if seconds is None:
            since_s, seconds = ends[first[-1]], ends[second[-1]] - ends[first[-1]]
        limit_s = within * seconds
        if any(abs(ends[j] - ends[i] - seconds) > limit_s for i, j in zip(first, second, strict=True)):
            return None
        issued = _issued(record, r)
        later = [issued[j] - issued[i] for i, j in zip(first, second, strict=True)]
        own_s = min(later)
        if max(later) - own_s > limit_s or own_s > seconds + limit_s:
            return None
        work_s = sum(program.ops[i].host_s for i in second if isinstance(program.ops[i].work, Segment))
        found[r] = work_s * (1.0 - own_s / seconds) if seconds - own_s > limit_s else 0.0
    return None if seconds is None else Period(seconds=seconds, since_s=since_s, leads_s=found)


def _ops_of(ops: tuple[Op, ...], microbatches: int, group: int) -> list[int]:
    """Those of a group, in host order."""
    return [i for i, microbatch in _microbatches(ops) if microbatch // microbatches == group]


def _microbatches(ops: tuple[Op, ...]) -> Iterator[tuple[int, int]]:
    """Ops that belong to a microbatch, and its number."""
    for i, op in enumerate(ops):
        if op.action and (match := _MICROBATCH.fullmatch(op.action)):
            yield i, int(match[1])


def _issued(record: Record, r: int) -> list[float]:
    """When the host of class ``r`` issues each of its ops."""
    end = record.end[r]
    return [
        (end[sync] if sync >= 0 else 0.0) + offset
        for sync, offset in issue_times(record.programs.classes[r].ops)
    ]
