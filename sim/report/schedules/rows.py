"""A timed schedule as rows of boxes, one a rank, for the pictures. Knows no pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....schedules.orders.action import Order, Overlap, parts
from ....schedules.orders.timeline import Timed
from ..timeline.boxes import Box, Track
from ..timeline.intervals import Interval
from .lanes import Lanes, lanes
from .timed import TimedSchedule


def rows(schedule: TimedSchedule, unit: float) -> tuple[Track, ...]:
    """One track a rank, rank 0 first; ``unit`` is how many of the schedule's times make one of the axis."""
    shades = lanes(schedule.rank_of, schedule.shape)
    pairs = zip(schedule.orders, schedule.timeline.ranks, strict=True)
    return tuple(
        Track(
            name=f"rank {rank}",
            pp=rank,
            chunks=shades.count,
            work=tuple(_boxes(timed, shades, unit)),
            pairs=tuple(_pairs(order, timed, unit)),
        )
        for rank, (order, timed) in enumerate(pairs)
    )


def _boxes(timed: Sequence[Timed], shades: Lanes, unit: float) -> Iterator[Box]:
    """Actions that take no time are no boxes."""
    for action, begin, end in timed:
        if end > begin:
            kind, label = action.kind.value, str(action.microbatch)
            yield Box(kind, shades.of(action), begin / unit, end / unit, label, str(action))


def _pairs(order: Order, timed: Sequence[Timed], unit: float) -> Iterator[Interval]:
    position = 0
    for step in order:
        last = position + len(parts(step)) - 1
        if isinstance(step, Overlap):
            yield timed[position].begin / unit, timed[last].end / unit
        position = last + 1
