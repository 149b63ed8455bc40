"""The shades of a schedule: the chunks of a rank, or the ways that microbatches take through the ranks.

Knows placements; knows no colours and no times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....schedules.orders.action import Action
from ....schedules.orders.schedule import Placement, Shape


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """``of(action)`` numbers the lanes of a rank from 0 to ``count - 1``; ``words`` says what they are."""

    count: int
    words: str
    of: Callable[[Action], int]


def lanes(rank_of: Placement, shape: Shape) -> Lanes:
    """Chunks in the order of their stages; where placement depends on the microbatch, of each way."""
    stages = range(shape.stages)
    ways: dict[tuple[int, ...], int] = {}
    way_of = []
    for k in range(shape.microbatches):
        way = tuple(rank_of(stage, k, shape) for stage in stages)
        way_of.append(ways.setdefault(way, len(ways)))
    chunk_of = [[way[:stage].count(way[stage]) for stage in stages] for way in ways]
    v = max(max(chunks) for chunks in chunk_of) + 1
    words = f"chunks 0 to {v - 1}"
    if len(ways) > 1:
        words = " and ".join(f"from rank {way[0]}" for way in ways)
    return Lanes(
        count=len(ways) * v,
        words=words,
        of=lambda action: way_of[action.microbatch] * v + chunk_of[way_of[action.microbatch]][action.stage],
    )
