"""What it is worth to mend a part: how much shorter the step is by a pass over all replicas without it.

A part of a replica that nobody waits for gains nothing. Knows tables of factors; replays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .passes import Passes
    from .replicas import Replicas

    Ids = NDArray[np.int64]
    Seconds = NDArray[np.float64]

MOST_PASSES = 12
"""Parts that are tried by a pass of their own: only parts of replicas for which others wait."""

MOST_ROWS = 1024
"""Most replicas of one pass, which may try several parts at once."""


def gains(
    passes: Passes,
    replicas: Replicas,
    kinds: list[Ids],
    parts: Sequence[Mapping[int, float]],
) -> tuple[float | None, ...]:
    """For each part, the share of the step that mending it saves, by a pass over all replicas.

    ``parts`` has for each part the factor of every rank that it makes slow. A part of a replica for which
    nobody waits saves 0. None stands for parts beyond ``MOST_PASSES`` of replicas for which others wait.
    """
    replica = np.empty(replicas.rank.size, dtype=np.int64)
    replica[replicas.rank] = np.arange(replicas.count)[:, None, None]
    kind = np.empty(replicas.count, dtype=np.int64)
    for number, members in enumerate(kinds):
        kind[members] = number
    awaited = set(passes.full.arrive_s.argmax(axis=-1).tolist())
    found: list[float | None] = []
    asked: list[int] = []
    tables: list[Seconds] = []
    for number, part in enumerate(parts):
        touched = sorted({int(replica[rank]) for rank in part})
        found.append(0.0)
        if {int(kind[u]) for u in touched} & awaited:
            found[number] = None
            asked.append(number)
            if len(tables) < MOST_PASSES:
                tables.append(_without(replicas, kinds, passes.slow, part, touched))
    for number, left_s in zip(asked, _steps_s(passes, tables), strict=False):
        found[number] = max(0.0, 1 - left_s / passes.step_s)
    return tuple(found)


def _steps_s(passes: Passes, tables: list[Seconds]) -> list[float]:
    """The step in seconds for each table of replicas, by as few passes as memory allows."""
    if not tables:
        return []
    rows = max(len(table) for table in tables)
    padded = np.array([np.concatenate([table, table[:1].repeat(rows - len(table), 0)]) for table in tables])
    at_once = max(1, MOST_ROWS // rows)
    parts = [padded[i : i + at_once] for i in range(0, len(padded), at_once)]
    found: list[float] = np.concatenate([passes.of(part).step_s for part in parts]).tolist()
    return found


def _without(
    replicas: Replicas, kinds: list[Ids], slow: Seconds, part: Mapping[int, float], touched: list[int]
) -> Seconds:
    """The table of kinds of replicas, with each touched replica in a row of its own, without what a part does
    to it."""
    left = [
        row for row, members in zip(slow, kinds, strict=True) if not set(members.tolist()) <= set(touched)
    ]
    rows = list(left)
    for u in touched:
        factors = np.array([[part.get(int(rank), 1.0) for rank in stage] for stage in replicas.rank[u]])
        rows.append((replicas.slow[u] / factors).max(axis=1))
    return np.array(rows)
