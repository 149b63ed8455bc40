"""What it is worth to mend a part: how much shorter the step is by a pass over all replicas without it.

A part of a replica that nobody waits for gains nothing. Knows tables of factors; replays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .max_plus import max_plus

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .graph import StepGraph
    from .replicas import Replicas

    Ids = NDArray[np.int64]
    Seconds = NDArray[np.float64]

MOST_PASSES = 12
"""Parts of replicas that others wait for, each of which takes a pass."""


def gains(
    graph: StepGraph,
    replicas: Replicas,
    kinds: list[Ids],
    kept: Sequence[int],
    parts: Sequence[Mapping[int, float]],
) -> tuple[float | None, ...]:
    """By part, the share of the step that mending it gains: ``parts`` has the factor of each rank that it
    makes slow, ``kept`` the kinds of replicas that others wait for. None where too many parts are of these.
    """
    replica = np.empty(replicas.rank.size, dtype=np.int64)
    replica[replicas.rank] = np.arange(replicas.count)[:, None, None]
    kind = np.empty(replicas.count, dtype=np.int64)
    for number, members in enumerate(kinds):
        kind[members] = number
    slow = replicas.worst(kinds)
    step_s = float(max_plus(graph, slow).begin_s[-1])
    found: list[float | None] = []
    passes = 0
    for part in parts:
        touched = sorted({int(replica[rank]) for rank in part})
        if not {int(kind[u]) for u in touched} & set(kept):
            found.append(0.0)
        elif passes == MOST_PASSES:
            found.append(None)
        else:
            passes += 1
            table = _without(replicas, kinds, slow, part, touched)
            found.append(max(0.0, 1 - float(max_plus(graph, table).begin_s[-1]) / step_s))
    return tuple(found)


def _without(
    replicas: Replicas, kinds: list[Ids], slow: Seconds, part: Mapping[int, float], touched: list[int]
) -> Seconds:
    """The table of kinds with each touched replica on its own, without what a part does to it."""
    left = [
        row for row, members in zip(slow, kinds, strict=True) if not set(members.tolist()) <= set(touched)
    ]
    rows = list(left)
    for u in touched:
        factors = np.array([[part.get(int(rank), 1.0) for rank in stage] for stage in replicas.rank[u]])
        rows.append((replicas.slow[u] / factors).max(axis=1))
    return np.array(rows)
