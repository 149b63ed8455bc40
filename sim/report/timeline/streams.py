"""What the communication streams of a step do, a row each: where no pipeline has the page to itself.

Knows a Result and seconds; knows no pixels.
"""

from __future__ import annotations

from collections import defaultdict

from ...result.result import Result
from ...result.step import AXES
from .boxes import Box, Track
from .intervals import Interval, union

MOST_BOXES = 2000
"""Of a row: a stream that is busier is a band at this size, and turns the whole picture into shares."""


def stream_rows(result: Result) -> tuple[Track, ...]:
    """A row for each kind of collective of data parallelism, and one for each other axis, if all ranks do the
    same and there is no pipeline.

    They show the collectives of sharded parameters, and the layers behind which these hide.
    """
    if result.pipelined or len(result.ranks) != 1:
        return ()
    times: dict[tuple[str, str], list[Interval]] = defaultdict(list)
    for span in result.iter_spans():
        if span.category in AXES and span.is_message:
            name = span.name if span.category == "dp" else "communication"
            times[span.category, name].append((span.start_s, span.end_s))
    kinds = sorted(times, key=lambda one: (AXES.index(one[0]), min(times[one])))
    rows = (_row(*kind, times[kind]) for kind in kinds)
    return tuple(row for row in rows if len(row.work) <= MOST_BOXES)


def _row(axis: str, name: str, times: list[Interval]) -> Track:
    words = f"{axis.upper()} {name.replace('_', '-')}"
    boxes = tuple(Box(axis, 0, start, end, name=words) for start, end in union(times))
    return Track(name=words, pp=-1, chunks=1, work=boxes)
