"""Which replicas to replay, and which to merge, so that bounds of a step meet: chosen by max-plus passes.

Knows factors and passes; replays nothing, so what it expects of the bounds is no bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .max_plus import max_plus

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .graph import StepGraph

    Seconds = NDArray[np.float64]

SAME = 1e-9


def kept_rows(graph: StepGraph, slow: Seconds, within: float, most: int) -> list[int]:
    """Rows of ``slow[u, stage]``, at most so many, that by themselves make the step of all of them but for a
    share ``within`` of it. The latest comes first, and then always the one that those before it would wait
    for longest.
    """
    wanted_s = float(max_plus(graph, slow).begin_s[-1]) * (1 - within)
    alone = max_plus(graph, slow, np.zeros(graph.crossings + 1))
    kept = [int(alone.arrive_s[-1].argmax())]
    while len(kept) < min(most, len(slow)):
        found = max_plus(graph, slow[kept])
        if found.begin_s[-1] >= wanted_s:
            break
        met = max_plus(graph, slow, found.begin_s)
        end_s = met.arrive_s[-1]
        late_s = end_s if end_s.max() > found.begin_s[-1] * (1 + SAME) else met.late_s()
        late_s[kept] = -np.inf
        kept.append(int(late_s.argmax()))
    return kept


def groups_of_rows(
    graph: StepGraph, slow: Seconds, kept: list[int], within: float, most: int
) -> list[list[int]] | None:
    """The kept rows one by one and the others in groups whose worst together add a share ``within`` to the
    step; None where that takes more than ``most`` groups.
    """
    full = max_plus(graph, slow).begin_s
    others = [u for u in _like_beside_like(slow) if u not in set(kept)]
    groups = [others] if others else []
    while len(groups) + len(kept) <= most:
        rows = [[u] for u in kept] + groups
        table = np.array([slow[row].max(axis=0) for row in rows])
        found = max_plus(graph, table).begin_s[-1]
        if found <= full[-1] * (1 + within) or all(len(group) == 1 for group in groups):
            return rows
        end_s = max_plus(graph, table, full).arrive_s[-1][len(kept) :]
        worst = [g for g in np.argsort(-end_s, kind="stable").tolist() if len(groups[g]) > 1]
        halved = set(worst[: max(1, len(groups) // 2)])
        groups = [
            part for g, group in enumerate(groups) for part in (_halves(group) if g in halved else [group])
        ]
    return None


def _like_beside_like(slow: Seconds) -> list[int]:
    """Rows in an order in which those that are slow in the same stages stand side by side."""
    found: list[int] = np.lexsort((slow.max(axis=1), slow.argmax(axis=1))).tolist()
    return found


def _halves(group: list[int]) -> list[list[int]]:
    middle = len(group) // 2
    return [group[:middle], group[middle:]]
