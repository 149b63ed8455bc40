"""What the timeline shows of each rank class: boxes of work, and exposed communication.

Knows a Result and seconds; knows no pixels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...result.result import Result
from ...result.step import AXES, ActionSpan
from .boxes import Box, Track, by_time
from .intervals import Interval, difference, union

NOISE_S = 1e-9


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
        if span.category in AXES and span.is_message:
            communication[span.rank][span.category].append(when)
            continue
        busy[span.rank].append(when)
        if span.category == "optimizer":
            optimizer[span.rank].append(when)
    return tuple(
        _track(result, index, actions[index], busy[index], communication[index], optimizer[index])
        for index in order_of(result)
    )


def order_of(result: Result) -> list[int]:
    """The rank class of each track."""
    return sorted(range(len(result.ranks)), key=lambda index: (result.ranks[index].pp, index))


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
        work=tuple(sorted(work, key=by_time)),
        exposed=tuple(sorted(exposed, key=by_time)),
        tail=tuple(sorted(tail, key=by_time)),
    )


def _exposed(
    busy: list[Interval], communication: dict[str, list[Interval]]
) -> Iterator[tuple[str, list[Interval]]]:
    """Exposed communication by axis; where axes overlap, the first of AXES has the time, so that no moment is
    counted twice."""
    covered = busy
    for axis in AXES:
        if axis in communication:
            times = _lasting(difference(union(communication[axis]), covered))
            covered = union([*covered, *times])
            yield axis, times


def _lasting(times: list[Interval]) -> list[Interval]:
    """``times`` without what rounding of sums leaves between two spans that touch."""
    return [(start, end) for start, end in times if end - start > NOISE_S]
