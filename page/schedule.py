"""The schedule of a step as the page draws it: a row for each class of ranks, boxes of actions in seconds.

Knows a Result; knows no pixels. What the communications do beside them is in the timeline (sim/report).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ..sim.result.result import Result

MOST_BOXES = 40_000
"""Boxes of all rows together; of a longer step the page shows the beginning and says so."""


def schedule_rows(result: Result) -> dict[str, Any]:
    """``rows`` with a ``name``, ``pp``, ``chunks`` and ``boxes``; ``until_s`` where the boxes end early.

    A box is kind, chunk, microbatch, first and last second.
    """
    actions = result.actions[:MOST_BOXES]
    rows: dict[int, list[Any]] = defaultdict(list)
    stages: dict[int, set[int]] = defaultdict(set)
    for action in actions:
        stages[action.rank].add(action.stage)
    chunk_of = {rank: {stage: chunk for chunk, stage in enumerate(sorted(of))} for rank, of in stages.items()}
    for one in actions:
        chunk = chunk_of[one.rank][one.stage]
        rows[one.rank].append([one.kind, chunk, one.microbatch, one.start_s, one.end_s])
    order = sorted(range(len(result.ranks)), key=lambda index: (result.ranks[index].pp, index))
    return {
        "rows": [
            {
                "name": result.ranks[index].name,
                "pp": result.ranks[index].pp,
                "chunks": len(stages[index]),
                "boxes": rows[index],
            }
            for index in order
        ],
        "makespan_s": result.makespan_s,
        "until_s": actions[-1].start_s if len(result.actions) > len(actions) else None,
    }


MOST_SPANS = 20_000


def stream_rows(result: Result, first_s: float, last_s: float) -> dict[str, Any]:
    """Rows of every stream that works within a window, by class and stream; boxes are category, 0, name,
    first and last second. ``whole`` says whether all of them are there."""
    rows: dict[tuple[int, str], list[Any]] = defaultdict(list)
    count = 0
    for span in result.iter_spans():
        if span.end_s < first_s or span.start_s > last_s:
            continue
        count += 1
        if count > MOST_SPANS:
            break
        kind = span.kind if span.category == "compute" else span.category
        rows[span.rank, span.stream].append([kind, 0, span.name, span.start_s, span.end_s])
    order = sorted(rows, key=lambda key: (result.ranks[key[0]].pp, key[0], key[1] != "compute", key[1]))
    return {
        "rows": [
            {
                "name": f"{result.ranks[rank].name} · {stream}",
                "class": result.ranks[rank].name,
                "chunks": 1,
                "boxes": rows[rank, stream],
            }
            for rank, stream in order
        ],
        "whole": count <= MOST_SPANS,
    }
