"""What the timeline shows of each rank class: boxes of work, and exposed communication.

Knows a Result and seconds; knows no pixels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..result import AXES, ActionSpan, Result
from .intervals import Interval, difference, union

NOISE_S = 1e-9


@dataclass(frozen=True, slots=True)
class Box:
    """Something that fills a stretch of a row.

    ``kind`` is F, B, I, W, ``optimizer`` or an axis of parallelism; ``chunk`` the virtual chunk on
    its rank; ``label`` the microbatch; ``name`` what a reader sees when pointing at it. ``low`` and
    ``high`` say which share of the row's height it fills, counted from the top.
    """

    kind: str
    chunk: int
    start_s: float
    end_s: float
    label: str = ""
    name: str = ""
    low: float = 0.0
    high: float = 1.0

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, kw_only=True)
class Track:
    """One row: ``work`` in order of time, and ``exposed`` communication.

    Communication is exposed when it ran and no kernel of the compute stream did. ``tail`` is what of
    it belongs to no action (gradient reduction, parameter gathers), ``exposed`` all the rest.
    Pipeline transfers are never tail: a wait on those is the bubble itself.
    """

    name: str
    pp: int
    chunks: int
    work: tuple[Box, ...]
    exposed: tuple[Box, ...]
    tail: tuple[Box, ...]


def tracks(result: Result) -> tuple[Track, ...]:
    """One track a rank class, in order of pipeline rank."""
    actions: dict[int, list[ActionSpan]] = defaultdict(list)
    for action in result.actions:
        actions[action.rank].append(action)
    busy: dict[int, list[Interval]] = defaultdict(list)
    communication: dict[int, dict[str, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    optimizer: dict[int, list[Interval]] = defaultdict(list)
    for span in result.iter_spans():
        when = span.start_s, span.end_s
        if span.category in AXES:
            communication[span.rank][span.category].append(when)
            continue
        busy[span.rank].append(when)
        if span.category == "optimizer":
            optimizer[span.rank].append(when)
    rows = sorted(range(len(result.ranks)), key=lambda index: (result.ranks[index].pp, index))
    return tuple(
        _track(result, index, actions[index], busy[index], communication[index], optimizer[index])
        for index in rows
    )


def _track(
    result: Result,
    index: int,
    actions: list[ActionSpan],
    busy: list[Interval],
    communication: dict[str, list[Interval]],
    optimizer: list[Interval],
) -> Track:
    stages = sorted({action.stage for action in actions})
    chunk_of = {stage: chunk for chunk, stage in enumerate(stages)}
    work = [
        Box(
            a.kind,
            chunk_of[a.stage],
            a.start_s,
            a.end_s,
            str(a.microbatch),
            f"{a.stage}{a.kind}{a.microbatch}",
        )
        for a in actions
    ]
    work += [Box("optimizer", 0, start, end, name="optimizer") for start, end in union(optimizer)]
    in_actions = union((action.start_s, action.end_s) for action in actions)
    exposed: list[Box] = []
    tail: list[Box] = []
    for axis, times in _exposed(union(busy), communication):
        outside = [] if axis == "pp" else _lasting(difference(times, in_actions))
        tail += [Box(axis, 0, start, end, name=f"exposed {axis.upper()}") for start, end in outside]
        exposed += [
            Box(axis, 0, start, end, name=f"exposed {axis.upper()}")
            for start, end in _lasting(difference(times, outside))
        ]
    return Track(
        name=result.ranks[index].name,
        pp=result.ranks[index].pp,
        chunks=len(stages),
        work=tuple(sorted(work, key=_when)),
        exposed=tuple(sorted(exposed, key=_when)),
        tail=tuple(sorted(tail, key=_when)),
    )


def _exposed(
    busy: list[Interval], communication: dict[str, list[Interval]]
) -> Iterator[tuple[str, list[Interval]]]:
    """Where axes overlap in the open, the first of AXES has the time: no moment is counted twice."""
    covered = busy
    for axis in AXES:
        if axis in communication:
            times = _lasting(difference(union(communication[axis]), covered))
            covered = union([*covered, *times])
            yield axis, times


def _lasting(times: list[Interval]) -> list[Interval]:
    """Without what the rounding of sums leaves between two spans that touch."""
    return [(start, end) for start, end in times if end - start > NOISE_S]


def _when(box: Box) -> tuple[float, float]:
    return box.start_s, box.end_s


def within(boxes: Iterable[Box], window: Interval) -> tuple[Box, ...]:
    """The boxes that the window shows, whole or in part."""
    first, last = window
    return tuple(box for box in boxes if box.end_s > first and box.start_s < last)


def gathered(boxes: Iterable[Box], window: Interval, columns: int) -> tuple[Box, ...]:
    """Boxes too thin to tell apart, as ``columns`` of equal time: in each, every kind fills the share
    of the height that it fills of the column's time, so that areas stay true. The chunk is the mean
    of those that the column stands for. Equal neighbours are joined.
    """
    first, last = window
    column_s = (last - first) / columns
    found: dict[int, dict[str, list[tuple[float, int]]]] = defaultdict(lambda: defaultdict(list))
    for box in boxes:
        start, end = max(box.start_s, first) - first, min(box.end_s, last) - first
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
    return tuple(sorted((box for row in joined.values() for box in row), key=_when))


_STACK = ("F", "B", "I", "W", "optimizer", *AXES)


def _join(row: list[Box], box: Box) -> None:
    last = row[-1] if row else None
    same = last and (last.chunk, last.low, last.high) == (box.chunk, box.low, box.high)
    if last and same and abs(last.end_s - box.start_s) < 1e-6 * box.duration_s:
        row[-1] = Box(box.kind, box.chunk, last.start_s, box.end_s, low=box.low, high=box.high)
    else:
        row.append(box)
