"""The front (Pareto front) of all layouts, found by replaying only the layouts that may be on it.

A layout may be on the front unless a replayed one is at least as good in every respect, even if the step of
the former took no longer than its bound. Memory, GPUs and the price of a second are known of all layouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .front import front_of, hopeful

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .searching import LayoutSearch

    Numbers = NDArray[np.int64]
    Floats = NDArray[np.float64]

WITHIN = 1.5
"""Times the best step on as many GPUs: nobody gives more for memory that stays free."""

HEADROOM_STEP = 1 / 40
"""Share of a GPU's memory; smaller differences in free memory do not count on the front."""

MOST = 8
"""Places of layouts that are replayed for the front, besides all that were replayed before."""

MOST_ACTIONS = 100_000
"""Actions of all of these together (``Candidates.replayed_actions``): some seconds. Nobody waits a minute for
a few points of the front, as of pipelines of a hundred ranks; the front is then not known to be whole."""

ROUND = 4
"""Replays before it is asked again which others may still be on it."""


def replay_front(search: LayoutSearch) -> None:
    """Replay up to MOST layouts that may be on the front; fewer if no more may be on it, or if more would
    take too long. ROUND are replayed at a time, those that promise most by what is known then. A layout that
    turns out to be beaten before its replay counts towards MOST.
    """
    spent, actions = 0, 0.0
    while spent < MOST:
        known = _Known.of(search)
        turns = _in_turn(search, known, known.hopeful(search), MOST_ACTIONS - actions)[:ROUND]
        if not turns:
            return
        spent += len(turns)
        actions += float(search.among.replayed_actions[turns].sum())
        _replay_round(search, turns)


def _replay_round(search: LayoutSearch, turns: list[int]) -> None:
    """Replay the promising layouts ``turns``, first those that no other of them beats by its bound.

    A layout that a step replayed meanwhile beats is dropped without a replay. It still uses up its place:
    a replay would show the same, that it is not on the front and keeps no other layout off it.
    """
    left, least_s = turns, search.least_s(turns) if len(turns) > 1 else search.bound_s
    while left:
        rows = front_of(_costs(search, np.array(left), least_s[left]))
        first = [left[k] for k in sorted(rows)]
        search.ahead(first)
        for _ in search.values(first):
            pass
        left = [i for i in left if i not in first]
        hoped = _costs(search, np.array(left, dtype=np.int64), least_s[left])
        beaten = _beaten(hoped, _Known.of(search).costs)
        search.beaten |= {i for i, one in zip(left, beaten, strict=True) if one}
        left = [i for i in left if i not in search.beaten]


def _beaten(hoped: Floats, known: Floats) -> list[bool]:
    """Whether some known layout on as many GPUs is faster than each of these can be, and as good in all
    else; both as rows of ``_costs``."""
    return [
        bool(np.any((known[:, 0] < row[0]) & (known[:, 2] == row[2]) & np.all(known <= row, axis=1)))
        for row in hoped
    ]


def front(search: LayoutSearch) -> tuple[list[int], bool]:
    """The replayed layouts that no other beats in step time, headroom, GPUs and price at once, the fastest
    first; and whether all others are ruled out by their bounds."""
    known = _Known.of(search)
    within = np.flatnonzero(_near(known.costs, known.best_s))
    points = [int(known.numbers[within[k]]) for k in front_of(known.costs[within])]
    return points, len(known.hopeful(search)) == 0


class _Known(NamedTuple):
    """Layouts that were replayed and meet every wish, the ``costs`` of each, and the best step by GPUs."""

    numbers: Numbers
    costs: Floats
    best_s: dict[float, float]

    @classmethod
    def of(cls, search: LayoutSearch) -> _Known:
        step_s = {
            i: one.step_time_s
            for i, one in search.judging.known.items()
            if search.open[i] and one.step_time_s <= search.most_s[i] and not one.refused
        }
        numbers = np.fromiter(step_s, dtype=np.int64)
        costs = _costs(search, numbers, np.fromiter(step_s.values(), dtype=np.float64))
        best_s = {gpus: costs[costs[:, 2] == gpus, 0].min() for gpus in set(costs[:, 2].tolist())}
        return cls(numbers, costs, best_s)

    def hopeful(self, search: LayoutSearch) -> Numbers:
        """Layouts of which no step is known, and that may be on the front by their bounds."""
        others = search.open.copy()
        others[[*search.judging.known, *search.beaten]] = False
        left = np.flatnonzero(others)
        hoped = _costs(search, left, search.bound_s[left])
        near = _near(hoped, self.best_s)
        return left[near][hopeful(hoped[near], self.costs[front_of(self.costs)])]


def _in_turn(search: LayoutSearch, known: _Known, left: Numbers, most_actions: float) -> list[int]:
    """Those that promise the most come first, none that another's bound beats, and no more than take so many
    actions together. They are held against each other by screening alone: who was bounded by actions besides
    would promise less than others for being known better.
    """
    actions = search.among.replayed_actions
    left = left[actions[left] <= most_actions]
    hoped = _costs(search, left, search.among.bounds.bound_s[left])
    rows = front_of(hoped)
    gains = [_gain(hoped[row], known.costs, known.best_s) for row in rows]
    turns = left[[rows[k] for k in np.argsort(gains, kind="stable")[::-1]]]
    return [*map(int, turns[np.cumsum(actions[turns]) <= most_actions])]


def _gain(hoped: Floats, costs: Floats, best: dict[float, float]) -> float:
    """By what factor a layout may be faster than the fastest one with as much headroom and as few GPUs; where
    there is none, than the fastest within reach."""
    others = costs[np.all(costs[:, 1:3] <= hoped[1:3], axis=1), 0]
    reach_s = WITHIN * best.get(float(hoped[2]), np.inf)
    return float(min([reach_s, *others]) / hoped[0])


def _near(costs: Floats, best: dict[float, float]) -> NDArray[np.bool_]:
    """Whether the step is within reach of the best one on as many GPUs."""
    gpus, place = np.unique(costs[:, 2], return_inverse=True)
    most = np.array([WITHIN * best.get(each, np.inf) for each in gpus.tolist()], dtype=np.float64)
    return np.asarray(costs[:, 0] <= most[place.ravel()], dtype=bool)


def _costs(search: LayoutSearch, numbers: Numbers, step_s: Floats) -> Floats:
    """A row for each of ``numbers`` with these step times: what less of is better. Seconds and price are for
    as many tokens as a step of the scenario has.
    """
    among = search.among
    training = among.base.training
    seconds = step_s * (training.tokens_per_step / among.tokens_per_step[numbers])
    free = among.headroom_bytes[numbers] / among.bounds.capacity_bytes[numbers]
    price = np.nan_to_num(among.dollars_per_s[numbers]) * seconds
    return np.column_stack([seconds, -np.floor(free / HEADROOM_STEP), among.gpus[numbers], price])
