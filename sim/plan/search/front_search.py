"""The front of all layouts, by replays of those alone that may be on it.

A layout may be on the front while nothing that was replayed is as good in every respect as it would be
if its step took no longer than its bound: memory, GPUs and the price of a second are known of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
"""Of a GPU's memory: differences in headroom that count."""

MOST = 8
"""Replays for the front, besides all that were replayed before."""

MOST_ACTIONS = 100_000
"""Actions of all of these together (``Candidates.replayed_actions``): some seconds. Nobody waits a minute for
a few points of the front, as of pipelines of a hundred ranks; the front is then not known to be whole."""

ROUND = 4
"""Replays before it is asked again which others may still be on it."""


def front(search: LayoutSearch) -> tuple[list[int], bool]:
    """Layouts that no other beats in step time, headroom, GPUs and price at once, the fastest first; and
    whether that is known of all, or of what was replayed when MOST were, or more would take too long.
    """
    spent, actions = 0, 0.0
    while True:
        now = _standing(search, _known(search), spent, actions)
        if not now.asked:
            return now.points, now.whole
        spent += len(now.asked)
        actions += _actions(search, now.asked)
        search.ahead(now.asked, now.likely)
        for _ in search.values(now.asked):
            pass


def asked_first(search: LayoutSearch, besides: Iterable[int] = ()) -> list[int]:
    """Layouts that the front asks for next whose replays are not at hand: it takes all others as they are.

    If ``besides`` are known then, as they are at hand, or with steps as short as their bounds.
    """
    step_s, spent, actions = _known(search), 0, 0.0
    for i in besides:
        if search.open[i] and i not in step_s:
            judged = search.judging.at_hand(i)
            step_s[i] = float(search.bound_s[i]) if judged is None else judged.step_time_s
    while True:
        asked = _standing(search, step_s, spent, actions).asked
        done = {i: judged for i in asked if (judged := search.judging.at_hand(i)) is not None}
        if len(done) < len(asked) or not asked:
            return [i for i in asked if i not in done]
        spent += len(asked)
        actions += _actions(search, asked)
        step_s |= {i: judged.step_time_s for i, judged in done.items()}


class _Standing(NamedTuple):
    """Of what is known: the ``points`` of its front, whether that is the ``whole`` one, and who is ``asked``
    next whether it is on it, besides those for whom some replays were spent; who is ``likely`` after that."""

    points: list[int]
    whole: bool
    asked: list[int]
    likely: list[int]


def _standing(search: LayoutSearch, step_s: Mapping[int, float], spent: int, actions: float) -> _Standing:
    among, known = search.among, np.fromiter(step_s, dtype=np.int64)
    costs = _costs(search, known, np.fromiter(step_s.values(), dtype=np.float64))
    best = {gpus: costs[costs[:, 2] == gpus, 0].min() for gpus in set(costs[:, 2].tolist())}
    left = _left(search, known)
    hoped = _costs(search, left, search.bound_s[left])
    near = _near(hoped, best)
    left = left[near][hopeful(hoped[near], costs[front_of(costs)])]
    whole = len(left) == 0
    left = left[among.replayed_actions[left] <= MOST_ACTIONS - actions]
    hoped = _costs(search, left, search.bound_s[left])
    rows = front_of(hoped)
    gains = [_gain(hoped[row], costs, best) for row in rows]
    turns = left[[rows[k] for k in np.argsort(gains, kind="stable")[::-1][: 2 * ROUND]]]
    turns = turns[actions + np.cumsum(among.replayed_actions[turns]) <= MOST_ACTIONS]
    asked, then = turns[:ROUND].tolist(), turns[ROUND : max(ROUND, MOST - spent)].tolist()
    within = np.flatnonzero(_near(costs, best))
    points = [int(known[within[k]]) for k in front_of(costs[within])]
    return _Standing(points, whole, asked, then) if spent < MOST else _Standing(points, whole, [], [])


def _actions(search: LayoutSearch, numbers: list[int]) -> float:
    """What their replays take, in actions."""
    return float(search.among.replayed_actions[numbers].sum()) if numbers else 0.0


def _known(search: LayoutSearch) -> dict[int, float]:
    """Seconds of the steps of layouts that were replayed and meet every wish."""
    return {
        i: one.step_time_s
        for i, one in search.judging.known.items()
        if search.open[i] and one.step_time_s <= search.most_s[i] and not one.refused
    }


def _left(search: LayoutSearch, known: Numbers) -> Numbers:
    """Layouts that may be proposed of which no step is known."""
    left = search.open.copy()
    left[[*search.judging.known]] = False
    left[known] = False
    return np.flatnonzero(left)


def _gain(hoped: Floats, costs: Floats, best: dict[float, float]) -> float:
    """By what factor a layout may be faster than the fastest that is as good in headroom and GPUs; than what
    is within reach, where there is none.
    """
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
    seconds = step_s * (training.global_batch * training.seq_length / among.tokens_per_step[numbers])
    free = among.headroom_bytes[numbers] / among.bounds.capacity_bytes[numbers]
    price = np.nan_to_num(among.dollars_per_s[numbers]) * seconds
    return np.column_stack([seconds, -np.floor(free / HEADROOM_STEP), among.gpus[numbers], price])
