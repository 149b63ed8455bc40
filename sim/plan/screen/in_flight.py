"""How many microbatches a pipeline rank holds at each moment, by kind of stage, from the orders alone.

Each row of a table counts what is held at one moment (``QUANTITIES``) for each kind of stage: activations
kept, activations at work, logits, operands of weight gradients, single layers, and buffers. A row that
another row equals or exceeds everywhere cannot be the peak and is left out, so that a handful of rows
remain. Follows ``sim/lowering/state/timeline.py``, which walks one step in seconds; here a rank does the
steps of its order one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....schedules.orders.action import ActionKind, Overlap, parts
from ...scenario.schedules import traits_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....schedules.orders.action import Order
    from ....schedules.orders.schedule import Shape

    Rows = NDArray[np.int64]
    Codes = NDArray[np.int64]
    Mask = NDArray[np.bool_]

QUANTITIES = (
    "kept",
    "working",
    "logits",
    "operands",
    "layer",
    "gradients",
    "unreduced",
    "gathered",
    "forward",
    "backward",
    "reducing",
    "updating",
)
_PLACE = {name: place for place, name in enumerate(QUANTITIES)}


def enough_microbatches(schedule: str, shape: Shape) -> int:
    """The fewest microbatches of a step that surely takes as much memory as one of ``shape``.

    A schedule that becomes steady holds the most when its pipeline is full (``Schedule.filling``).
    """
    filling = traits_of(schedule).filling
    if not filling or shape.group is not None:
        return shape.microbatches
    return min(shape.microbatches, (filling + 2) * shape.ranks + shape.microbatches % shape.ranks)


@dataclass(frozen=True, kw_only=True)
class RankActions:
    """The actions of one rank in its order: the stage, the kind (its place in ``KINDS``), and the step of the
    order that each is part of. ``steps`` is how many steps there are."""

    stage: Codes
    kind: Codes
    step: Codes
    steps: int


KINDS = tuple(ActionKind)
_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_FORWARD, _BACKWARD, _INPUT_GRAD, _WEIGHT_GRAD = (
    KINDS.index(kind)
    for kind in (ActionKind.FORWARD, ActionKind.BACKWARD, ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD)
)


def actions_of_rank(order: Order, runs_as_one: Callable[[Overlap], bool]) -> RankActions:
    """The actions of a rank as arrays. ``runs_as_one`` says whether a pair is one step, or two in turn."""
    rows: list[tuple[int, ActionKind, int]] = []
    steps = 0
    for step in order:
        if isinstance(step, Overlap):
            apart = 0 if runs_as_one(step) else 1
            rows += [(one.stage, one.kind, steps + apart * i) for i, one in enumerate(parts(step))]
            steps += 1 + apart
        else:
            rows.append((step.stage, step.kind, steps))
            steps += 1
    table = np.array([(stage, _NUMBER[kind], step) for stage, kind, step in rows]).reshape(-1, 3)
    return RankActions(stage=table[:, 0], kind=table[:, 1], step=table[:, 2], steps=steps)


def held_rows(actions: RankActions, kind_of: Codes, kinds: int) -> Rows:
    """What a rank holds at each moment, a row each: ``len(QUANTITIES)`` columns for each of ``kinds``.

    ``kind_of`` is the kind of each virtual stage. A step changes what is held when it begins, when a backward
    has used up what its microbatch kept, and when it ends (``timeline._keep``, ``timeline._release``). A
    forward that shares its step with a backward takes a layer until both end. The last row is the update.
    """
    narrow = np.int16 if actions.steps < np.iinfo(np.int16).max else np.int32  # no count is above the steps
    rows = np.zeros((3 * actions.steps, kinds, len(QUANTITIES)), dtype=narrow)
    kind, of_stage, step = actions.kind, kind_of[actions.stage], actions.step
    forward, weight = kind == _FORWARD, kind == _WEIGHT_GRAD
    split = kind == _INPUT_GRAD
    back, gives = split | (kind == _BACKWARD), weight | (kind == _BACKWARD)

    def change(which: Mask, names: tuple[str, ...], count: int, moment: int) -> None:
        # a step has one action of each kind, so that no place is named twice
        places = [_PLACE[name] for name in names]
        rows[(3 * step[which] + moment)[:, np.newaxis], of_stage[which][:, np.newaxis], places] += count

    begins, used, ends = range(3)
    paired = forward & (np.bincount(step)[step] > 1)
    change(forward & ~paired, ("kept",), 1, begins)
    change(forward, ("forward",), 1, begins)
    change(paired, ("layer",), 1, begins)
    change(paired, ("layer",), -1, ends)
    change(paired, ("kept",), 1, ends)
    change(_outer(actions, forward, first=True), ("gathered",), 1, begins)
    change(back, ("working", "backward", "reducing"), 1, begins)
    change(back, ("logits",), -1, begins)
    change(_outer(actions, back, first=True), ("unreduced",), 1, begins)
    change(back, ("kept",), -1, used)
    change(_outer(actions, back, first=True), ("gradients",), 1, used)
    change(forward, ("forward",), -1, ends)
    change(forward, ("logits",), 1, ends)
    change(back, ("working", "backward", "reducing"), -1, ends)
    change(_outer(actions, back, first=False), ("gathered",), -1, ends)
    change(split, ("operands",), 1, ends)
    change(weight, ("operands",), -1, ends)
    change(_outer(actions, gives, first=False), ("unreduced",), -1, ends)
    held: Rows = rows.cumsum(axis=0, dtype=rows.dtype)
    update = held[-1:].copy()
    of_kind = kind_of[np.flatnonzero(np.bincount(actions.stage))]
    update[0, :, _PLACE["updating"]] = np.bincount(of_kind, minlength=kinds)
    return np.concatenate([held, update]).reshape(len(held) + 1, -1)


def _outer(actions: RankActions, which: Mask, *, first: bool) -> Mask:
    """Among the actions marked in ``which``, the first of each stage, or the last."""
    places = np.flatnonzero(which)
    if not first:
        places = places[::-1]
    found = np.zeros(len(which), dtype=bool)
    found[places[np.unique(actions.stage[places], return_index=True)[1]]] = True
    return found


def largest(rows: Rows) -> Rows:
    """The rows that no other exceeds or equals in every column."""
    used = rows.any(axis=0)
    # A column each: comparisons go along what is long.
    left, kept = np.ascontiguousarray(_different(rows[:, used]).T), []
    sums = left.sum(axis=0)
    while left.shape[1]:
        row = left[:, sums.argmax()]
        kept.append(row)
        more = np.flatnonzero((left > row[:, np.newaxis]).any(axis=0))
        left, sums = left.take(more, axis=1), sums[more]
    found = np.zeros((len(kept), rows.shape[1]), dtype=rows.dtype)
    found[:, used] = np.array(kept).reshape(len(kept), -1)
    return found


def _different(rows: Rows) -> Rows:
    """Each row once, in the order of their first places: a pipeline that is full repeats itself, so that more
    than half of the rows are others again."""
    rows = np.ascontiguousarray(rows)
    if not rows.shape[1]:
        return rows[:1]
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    return rows[np.sort(np.unique(whole, return_index=True)[1])]
