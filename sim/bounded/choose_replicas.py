"""Which replicas to replay, and which to merge, so that bounds of a step meet: chosen by max-plus passes.

Knows factors and passes; replays nothing, so what it expects of the bounds is no bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .max_plus import Pass
    from .passes import Passes

    Seconds = NDArray[np.float64]

BARELY = 1.005
"""Where merged groups exceed the wanted step by more than this factor, no finer groups are looked for:
halving the worst one does not gain as much."""

MOST_TRIED = 48
"""Rows that are tried, each being left out once: those that most often come last."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The replicas of ``rows`` by themselves make the step of all, but for a share ``lacks`` of it."""

    rows: list[int]
    lacks: float


def kept_rows(passes: Passes, within: float, most: int) -> Kept:
    """The rows of at most ``most`` replicas that alone make the step as long as all do, up to a share
    ``within`` of it where so few suffice.

    The replicas that come last wherever replicas meet make the whole step by themselves. Of these, the ones
    whose absence shortens the step most are taken, as many as it takes. Then rows for which the others
    suffice are dropped again, one by one.
    """
    last, times = np.unique(passes.full.arrive_s.argmax(axis=-1), return_counts=True)
    found = last[np.argsort(-times, kind="stable")][:MOST_TRIED].tolist()
    found = [found[i] for i in np.argsort(passes.without_each_s(found), kind="stable")]
    size = min(most, len(found))
    sets = [found[:k] + found[:1] * (size - k) for k in range(1, size + 1)]
    lacks = (1 - passes.of(passes.slow[sets]).step_s / passes.step_s).tolist()
    count = next((k for k, share in enumerate(lacks, 1) if share <= within), size)
    return fewer(passes, Kept(rows=found[:count], lacks=lacks[count - 1]), within)


def fewer(passes: Passes, kept: Kept, within: float) -> Kept:
    """The kept rows without those that are not needed: the rest lack at most a share ``within`` of the
    step."""
    found, lack = kept.rows, kept.lacks
    while len(found) > 1 and lack <= within:
        left_s = passes.without_each_s(found)
        i = int(left_s.argmax())
        share = 1 - float(left_s[i] / passes.step_s)
        if share > within:
            break
        found, lack = found[:i] + found[i + 1 :], share
    return Kept(rows=found, lacks=max(0.0, lack))


def grouped_barely(passes: Passes, kept: list[int], most: int) -> bool:
    """Whether merging the rows beside the kept ones, in as many groups as allowed, adds almost nothing."""
    rows = in_groups(passes, kept, most)
    return len(rows) <= most and bool(_together(passes, rows).step_s <= passes.step_s * BARELY)


def in_groups(passes: Passes, kept: list[int], most: int) -> list[list[int]]:
    """The kept rows one by one, and the others in groups of equal size: ``most`` in all, or one more than the
    kept ones where these are as many already."""
    others = [u for u in _like_beside_like(passes.slow) if u not in set(kept)]
    groups = np.array_split(others, max(1, most - len(kept)))
    return [[u] for u in kept] + [part.tolist() for part in groups if len(part)]


def groups_of_rows(passes: Passes, kept: list[int], within: float, most: int) -> list[list[int]] | None:
    """The kept rows one by one, and the others in groups that together add at most a share ``within`` to the
    step, each group as slow as its slowest row; None where that takes more than ``most`` groups."""
    others = [u for u in _like_beside_like(passes.slow) if u not in set(kept)]
    if not others or len(kept) >= most:
        return None if others else [[u] for u in kept]
    most_s = passes.step_s * (1 + within)
    groups = [others]
    while len(groups) + len(kept) <= most:
        rows = [[u] for u in kept] + groups
        found = _together(passes, rows)
        if found.step_s <= most_s:
            return rows
        last = {int(g) - len(kept) for g in np.unique(found.arrive_s.argmax(axis=-1))}
        halved = {g for g in last if g >= 0 and len(groups[g]) > 1}
        if not halved:
            return rows
        groups = [
            part for g, group in enumerate(groups) for part in (_halves(group) if g in halved else [group])
        ]
    return None


def _together(passes: Passes, rows: list[list[int]]) -> Pass:
    """A pass over groups of rows, each as slow in every stage as its slowest row."""
    return passes.of(np.array([passes.slow[row].max(axis=0) for row in rows]))


def _like_beside_like(slow: Seconds) -> list[int]:
    """Rows in an order in which those that are slow in the same stages are neighbours."""
    found: list[int] = np.lexsort((slow.max(axis=1), slow.argmax(axis=1))).tolist()
    return found


def _halves(group: list[int]) -> list[list[int]]:
    middle = len(group) // 2
    return [group[:middle], group[middle:]]
