"""What one picture of a schedule shows: rows of boxes in time.

Knows no Result, no unit of time and no pixels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ...result.step import AXES
from .intervals import Interval


@dataclass(frozen=True, slots=True)
class Box:
    """Something that fills a stretch of a row.

    ``kind`` is F, B, I, W, ``optimizer`` or an axis of parallelism; ``chunk`` the virtual chunk on
    its rank; ``label`` the microbatch; ``name`` what a reader sees when pointing at it. ``low`` and
    ``high`` say which share of the row's height it fills, counted from the top.
    """

    kind: str
    chunk: int
    start: float
    end: float
    label: str = ""
    name: str = ""
    low: float = 0.0
    high: float = 1.0

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, kw_only=True)
class Track:
    """One row: ``work`` in order of time, and ``exposed`` communication.

    Communication is exposed when it ran and no kernel of the compute stream did. ``tail`` is what of
    it belongs to no action (gradient reduction, parameter gathers), ``exposed`` all the rest.
    Pipeline transfers are never tail: a wait on those is the bubble itself. ``pairs`` are the stretches
    of work that run as one piece.
    """

    name: str
    pp: int
    chunks: int
    work: tuple[Box, ...]
    exposed: tuple[Box, ...] = ()
    tail: tuple[Box, ...] = ()
    pairs: tuple[Interval, ...] = ()


def by_time(box: Box) -> tuple[float, float]:
    return box.start, box.end


def within(boxes: Iterable[Box], window: Interval) -> tuple[Box, ...]:
    """The boxes that the window shows, whole or in part."""
    first, last = window
    return tuple(box for box in boxes if box.end > first and box.start < last)


def gathered(boxes: Iterable[Box], window: Interval, columns: int) -> tuple[Box, ...]:
    """Boxes too thin to tell apart, as ``columns`` of equal time: in each, every kind fills the share
    of the height that it fills of the column's time, so that areas stay true. The chunk is the mean
    of those that the column stands for. Equal neighbours are joined.
    """
    first, last = window
    column_s = (last - first) / columns
    found: dict[int, dict[str, list[tuple[float, int]]]] = defaultdict(lambda: defaultdict(list))
    for box in boxes:
        start, end = max(box.start, first) - first, min(box.end, last) - first
        for column in range(int(start / column_s), min(int(end / column_s), columns - 1) + 1):
            part = min(end, (column + 1) * column_s) - max(start, column * column_s)
            if part > 0:
                found[column][box.kind].append((part / column_s, box.chunk))
    joined: dict[str, list[Box]] = defaultdict(list)
    for column, kinds in sorted(found.items()):
        start, low = first + column * column_s, 0.0
        for kind, parts in sorted(kinds.items(), key=lambda item: _STACK.index(item[0])):
            share = sum(part for part, _ in parts)
            chunk = round(sum(part * chunk for part, chunk in parts) / share)
            high = min(low + max(round(share * 20) / 20, 0.05), 1.0)
            _join(joined[kind], Box(kind, chunk, start, start + column_s, low=low, high=high))
            low = high
    return tuple(sorted((box for row in joined.values() for box in row), key=by_time))


_STACK = ("F", "B", "I", "W", "optimizer", *AXES)


def _join(row: list[Box], box: Box) -> None:
    last = row[-1] if row else None
    same = last and (last.chunk, last.low, last.high) == (box.chunk, box.low, box.high)
    if last and same and abs(last.end - box.start) < 1e-6 * box.duration:
        row[-1] = Box(box.kind, box.chunk, last.start, box.end, low=box.low, high=box.high)
    else:
        row.append(box)
