"""Shorten the rows of a repeated building block without holding more activations than it does.

A repeated block wastes slots before its steady state is reached and after it is left. ``reorder`` takes
the actions in the order of their slots, and gives each the earliest idle slot that comes after what it
awaits and keeps its rank within the peak of the block. ``squeeze`` lets every action begin as soon as it
can in the order that its rank now has. Knows no schedule's block and no costs.

Sources: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362);
sail-sg/zero-bubble-pipeline-parallelism 39f2c18 ``zbv_greedy.py`` and ``v1f1b.py``, which try slot after
slot and measure the whole row each time. Here a search reads each slot once or twice, and only those
between the old slot of the action and what it awaits: from its old slot on, a rank never holds more
because an action went earlier, and where a rank would hold too much at some slot before that, it would do
so from every idle slot up to there.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from itertools import accumulate, chain

from .building_block import (
    B_A,
    B_Z,
    CODES,
    F_A,
    F_Z,
    GAIN,
    IDLE,
    QUEUE_PER_CHUNK,
    W_A,
    W_Z,
    Rows,
    awaited,
    columns,
    peak,
    with_weight_grads,
)

Place = tuple[int, int]
"""Slot and rank. Actions are taken in the order of their places."""

START: Place = (0, 0)

_Ends = list[list[list[int]]]
"""The slot after an action, indexed by code, rank and microbatch."""


def steady(rows: Rows) -> tuple[Place, Place]:
    """The steady part: from the first B_a of rank 0 to the first last F_a of any rank that follows, or else
    to the end."""
    first = rows[0].index(B_A)
    lasts = [(row.rindex(F_A), rank) for rank, row in enumerate(rows)]
    return (first, 0), min((last for last in lasts if last[0] >= first), default=(max(map(len, rows)), 0))


def reorder(
    rows: Rows, *, keep: tuple[Place, Place] | None = None, postponed: bool = False, whole: bool = False
) -> Rows:
    """Move each action to the earliest slot that it can have, except from one place of ``keep`` to the other.

    ``postponed``: the rows have no weight gradients; each takes the next idle slot, and moves no other
    action. ``whole``: a backward takes two slots, the second of them marked as its weight gradient, and
    whatever awaits it awaits both.
    """
    limit = max(peak(with_weight_grads(row) if postponed else row) for row in rows)
    states = [_Rank(row=bytearray(row), limit=limit) for row in rows]
    first_fit = _first_fit_postponed if postponed else _first_fit
    ends: _Ends = [[[] for _ in rows] for _ in CODES]
    backwards: list[list[int]] = [[] for _ in rows]
    arrivals = _arrivals(ends)
    arrivals[W_Z] = list(backwards)
    for slot, column in enumerate(columns(rows)):
        for rank, code in enumerate(column):
            if code == IDLE or (whole and code in (W_Z, W_A)):
                continue
            backward = code in (B_Z, B_A)
            piece = bytes((code, QUEUE_PER_CHUNK[code]) if whole and backward else (code,))
            state, own, arrived, at = states[rank], ends[code][rank], arrivals[code][rank], slot
            if keep is None or not keep[0] <= (slot, rank) <= keep[1]:
                earliest = max(own[-1] if own else 0, arrived[len(own)] if arrived is not None else 0)
                at = first_fit(state, piece, earliest, slot)
                _move(state, piece, slot, at)
            state.level += GAIN[piece[-1]]
            own.append(at + len(piece))
            if backward:
                insort(backwards[rank], own[-1])
    return [state.row for state in states]


def squeeze(rows: Rows) -> Rows:
    """Let every action begin as soon as its rank is free and what it awaits is done, in the same order."""
    squeezed: Rows = [bytearray() for _ in rows]
    ends: _Ends = [[[] for _ in rows] for _ in CODES]
    arrivals = _arrivals(ends)
    for column in columns(rows):
        for rank, code in enumerate(column):
            if code == IDLE:
                continue
            row, own, arrived = squeezed[rank], ends[code][rank], arrivals[code][rank]
            if arrived is not None and arrived[len(own)] > len(row):
                row += bytes(arrived[len(own)] - len(row))
            row.append(code)
            own.append(len(row))
    return squeezed


def _arrivals(ends: _Ends) -> list[list[list[int] | None]]:
    """The ends of what actions of each code and rank await, if they await another action than their own."""
    ranks = len(ends[IDLE])
    arrivals: list[list[list[int] | None]] = [[None] * ranks for _ in CODES]
    for code in (F_A, F_Z, B_Z, B_A):
        for rank in range(ranks):
            source = awaited(code, rank, ranks)
            if source is not None:
                arrivals[code][rank] = ends[source[0]][source[1]]
    return arrivals


@dataclass(slots=True, kw_only=True)
class _Rank:
    """A row that is being changed: up to the slot that is looked at, the new one; from there, the old."""

    row: bytearray
    limit: int
    level: int = 0
    """Chunk activations held before that slot, if weight gradients have slots of their own."""
    history: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """If they have not: activations held, and weight gradients that wait, before each of the first slots."""


def _first_fit(rank: _Rank, piece: bytes, earliest: int, slot: int) -> int:
    """The first idle place for the piece from which its rank has room up to ``slot``; or else ``slot``."""
    gap = bytes(len(piece))
    at = rank.row.find(gap, earliest, slot)
    if at >= 0 and piece[0] in (F_A, F_Z):
        roomy, level = slot, rank.level
        while roomy > at and level < rank.limit:
            roomy -= 1
            level -= GAIN[rank.row[roomy]]
        at = rank.row.find(gap, roomy, slot)
    return at if at >= 0 else slot


def _first_fit_postponed(rank: _Rank, piece: bytes, earliest: int, slot: int) -> int:
    """The first slot in which ``piece`` fits, as ``_first_fit``, where the weight gradients that lose their
    slots to it must go later."""
    row, history = rank.row, rank.history
    at = row.find(IDLE, earliest, slot)
    if at >= 0:
        history[-1:] = accumulate(row[len(history) - 1 : slot], _after, initial=history[-1])
    while at >= 0:
        held = accumulate(chain(piece, row[at + 1 : slot]), _after, initial=history[at])
        over = next((i for i, (level, _) in enumerate(held, at - 1) if level > rank.limit), None)
        if over is None:
            return at
        at = row.find(IDLE, over + 1, slot)
    return slot


def _after(held: tuple[int, int], code: int) -> tuple[int, int]:
    """Activations held and weight gradients that wait, after one more slot."""
    level, waiting = held
    if code != IDLE:
        return level + GAIN[code], waiting + (code in (B_Z, B_A))
    return (level - 1, waiting - 1) if waiting else held


def _move(rank: _Rank, piece: bytes, slot: int, at: int) -> None:
    if at < slot:
        rank.row[at : at + len(piece)] = piece
        rank.row[slot : slot + len(piece)] = bytes(len(piece))
        del rank.history[at + 1 :]
