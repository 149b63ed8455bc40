"""The steady state of a pipeline: what each group of microbatches takes once it repeats itself.

Two successive groups are alike when every op of the second ends later, by the same time on all ranks, than
its counterpart in the first. Then all streams are as far apart as a group before, and so they will be a group
later. A host is as far apart, too, or it gets further ahead of them all. In the latter case nothing may wait
for the host to the end of the step, since what waits for it now would not in a longer step.

Steps whose lengths differ by the same time twice would prove less. A host that falls back a little in every
group shows in no group's time until it has lost its lead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ..engine.record import Stretch
from ..program.program import Collective, RepeatedBlocks

if TYPE_CHECKING:
    from ..engine.blocks import RepeatedRun
    from ..engine.record import Piece, Record
    from ..program.program import Op

MICROBATCH = re.compile(r"\d+([A-Z])(\d+)")
"""Finds the kind and the microbatch in the name of an op's action, such as F and 0 in ``2F0``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """One period. A group of microbatches takes ``seconds``; the one that was taken as an example begins at
    ``since_s``.

    ``leads_s`` says for each class by how much its host gets further ahead in a period, in seconds of its
    work.
    """

    seconds: float
    since_s: float
    leads_s: Mapping[int, float]


def period_of(record: Record, microbatches: int, group: int, within: float) -> Period | None:
    """The period of a step with ``microbatches`` in each group, if group number ``group`` (from 0) and the
    next one are alike, else None. All times of the second must be later by the same amount, up to a share
    ``within`` of it."""
    found, seconds, since_s = dict[int, float](), None, 0.0
    for r, program in enumerate(record.programs.classes):
        first, second = _ops_of(program.ops, microbatches, group)
        if not first or [program.ops[i].name for i in first] != [program.ops[i].name for i in second]:
            return None
        ends = record.end[r]
        if seconds is None:
            since_s, seconds = ends[first[-1]], ends[second[-1]] - ends[first[-1]]
        limit_s = within * seconds
        if not ends_alike(record, r, first, second, seconds, limit_s):
            return None
        lead_s = class_lead_s(record, r, first, second, second, seconds, limit_s)
        if lead_s is None:
            return None
        found[r] = lead_s
    return None if seconds is None else Period(seconds=seconds, since_s=since_s, leads_s=found)


def ends_alike(
    record: Record, r: int, first: Sequence[int], second: Sequence[int], seconds: float, limit_s: float
) -> bool:
    """Whether the ops ``second`` of class ``r``, and what is inside them, end ``seconds`` after their
    counterparts."""
    ends = record.end[r]
    if any(abs(ends[j] - ends[i] - seconds) > limit_s for i, j in zip(first, second, strict=True)):
        return False
    return all(_inside_alike(record, r, i, j, seconds, limit_s) for i, j in zip(first, second, strict=True))


def class_lead_s(
    record: Record,
    r: int,
    first: Sequence[int],
    second: Sequence[int],
    period: Sequence[int],
    seconds: float,
    limit_s: float,
) -> float | None:
    """How much further the host of class ``r`` gets ahead in a period of these ops; None if that varies, or
    if something waits for the host."""
    ops, issued = record.programs.classes[r].ops, issues_s(record, r)
    later = [issued[j] - issued[i] for i, j in zip(first, second, strict=True)]
    own_s = min(later)
    if max(later) - own_s > limit_s or own_s > seconds + limit_s:
        return None
    if seconds - own_s <= limit_s:
        return 0.0
    if _waits_for_host(record, r, first[0], issued, limit_s):
        return None
    work_s = sum(ops[i].host_s for i in period if isinstance(ops[i].work, RepeatedBlocks))
    return work_s * (1.0 - own_s / seconds)


def _ops_of(ops: tuple[Op, ...], microbatches: int, group: int) -> tuple[list[int], list[int]]:
    """Indices of the ops of one group of microbatches, and of the next, in the order of the host."""
    found: tuple[list[int], list[int]] = [], []
    groups: dict[str, int] = {}
    for i, op in enumerate(ops):
        if not op.action:
            continue
        number = groups.get(op.action)
        if number is None:
            match = MICROBATCH.fullmatch(op.action)
            number = groups[op.action] = int(match[2]) // microbatches - group if match else -1
        if 0 <= number <= 1:
            found[number].append(i)
    return found


def _inside_alike(record: Record, r: int, i: int, j: int, seconds: float, limit_s: float) -> bool:
    """Whether all ops of the repeated blocks ``j`` end that much later than those of ``i``. Streams beside
    the kernels may fall back for a while without holding them up. True for other ops."""
    whole = record.whole(r, i)
    if whole is not None and whole is record.whole(r, j):
        return abs(record.start[r][j] - record.start[r][i] - seconds) <= limit_s
    pieces = record.pieces(r, i), record.pieces(r, j)
    if len(pieces[0]) != len(pieces[1]):
        return False
    for one, other in zip(*pieces, strict=True):
        if isinstance(one, Stretch) and isinstance(other, Stretch) and one.run is other.run:
            if one.count != other.count or abs(other.at - one.at - seconds) > limit_s:
                return False
            continue
        ends, later = list(_ends(one)), list(_ends(other))
        if len(ends) != len(later) or any(
            abs(b - a - seconds) > limit_s for a, b in zip(ends, later, strict=True)
        ):
            return False
    return True


def _ends(piece: Piece) -> Iterator[float]:
    """Seconds at which each op of a part of repeated blocks ends."""
    if isinstance(piece, Stretch):
        for run, base in zip(piece.run.runs[: piece.count], piece.run.bases, strict=False):
            yield from (piece.at + base + end for end in run.end)
    else:
        yield from piece.end


def _waits_for_host(record: Record, r: int, since: int, issued: list[float], slack_s: float) -> bool:
    """Whether any op of class ``r``, from op ``since`` on, begins just when its host issues it.

    An op is exempt if it is issued after something there for which the host has waited: it is as much later
    as that.
    """
    ops, leads_s = record.programs.classes[r].ops, dict[tuple[int, int], float]()
    start, begin, end, at_once = record.start[r], record.begin[r], record.end[r], record.at_once[r]
    for i, (sync, _) in enumerate(islice(record.issues(r), since, None), since):
        if sync >= since:
            continue
        work = ops[i].work
        if isinstance(work, RepeatedBlocks):
            run = at_once.get(i)
            if run is not None:
                if _run_waits(run, start[i] - run.first, work, issued[i], slack_s, leads_s):
                    return True
                continue
            for piece in record.pieces(r, i):
                if _piece_waits(piece, work, issued[i], slack_s, leads_s):
                    return True
        elif begin[i] <= issued[i] + slack_s:
            return True
        elif isinstance(work, Collective) and work.calls > 1:
            last_s = issued[i] + ops[i].host_s * (1.0 - 1.0 / work.calls)
            if end[i] - work.last_s <= last_s + slack_s:
                return True
    return False


def _piece_waits(
    piece: Piece,
    segment: RepeatedBlocks,
    issued_s: float,
    slack_s: float,
    leads_s: dict[tuple[int, int], float],
) -> bool:
    """Whether any op in this part of repeated blocks begins just when its host issues it. The first op of the
    blocks is issued at ``issued_s``; ``leads_s`` keeps those that are known, by run and blocks."""
    if isinstance(piece, Stretch):
        return _run_waits(piece.run, piece.at, segment, issued_s, slack_s, leads_s)
    at = piece.issued_at
    if at is None:
        return False
    # the host waits for no op of a block, so that each is issued so long after the first
    waits = zip(piece.begin, piece.issue, strict=True)
    return any(begin <= at + offset + slack_s for begin, (_, offset) in waits)


def _run_waits(
    run: RepeatedRun,
    at: float,
    segment: RepeatedBlocks,
    issued_s: float,
    slack_s: float,
    leads_s: dict[tuple[int, int], float],
) -> bool:
    """The waits of a ``run`` whose times count from ``at``."""
    lead_s = at + run.first - issued_s - segment.issued_s[run.number]
    key = id(run), id(segment)
    known = leads_s.get(key)
    if known is None:
        known = leads_s[key] = run.lead_s(segment)
    return known >= lead_s - slack_s


def issues_s(record: Record, r: int) -> list[float]:
    """When the host of class ``r`` issues each of its ops."""
    end = record.end[r]
    return [(end[sync] if sync >= 0 else 0.0) + offset for sync, offset in record.issues(r)]
