"""How many microbatches a pipeline rank holds at each moment of a step, by kind of stage, from the orders alone.

Each row counts what is held at one moment: activations kept, those at work, logits, operands of weight gradients,
buffers (``QUANTITIES``), of each kind of stage. A row that another one exceeds everywhere cannot be the peak
and is left out; what is left is a handful. Follows ``sim/lowering/state/timeline.py``, which walks one step in
seconds: here a rank does one step of its order after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....schedules.orders.action import ActionKind, actions_of, parts
from ...scenario.schedules import schedule_named, traits_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....schedules.orders.action import Action, Order, Orders
    from ....schedules.orders.schedule import Shape

    Rows = NDArray[np.float64]

QUANTITIES = (
    "kept",
    "working",
    "logits",
    "operands",
    "gradients",
    "unreduced",
    "gathered",
    "forward",
    "backward",
    "reducing",
)
_PLACE = {name: place for place, name in enumerate(QUANTITIES)}
_LIKE_BACKWARD = (ActionKind.BACKWARD, ActionKind.INPUT_GRAD)
_GIVES = (ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD)


def enough_microbatches(schedule: str, shape: Shape) -> int:
    """Microbatches of a step whose memory is that of one of ``shape``, as few as is sure.

    A schedule that becomes steady holds the most when it is full (``Schedule.filling``).
    """
    filling = traits_of(schedule).filling
    if not filling or shape.group is not None:
        return shape.microbatches
    return min(shape.microbatches, (2 * filling + 1) * shape.ranks + shape.microbatches % shape.ranks)


def orders_of(schedule: str, shape: Shape) -> Orders:
    """The orders of a schedule that asks for no costs."""
    return schedule_named(schedule).orders(shape)


def held_rows(order: Order, kind_of: Sequence[int], kinds: int) -> Rows:
    """What a rank holds after each change, one moment a row: len(QUANTITIES) columns for each of ``kinds``.

    ``kind_of`` numbers the kind of each virtual stage.
    """
    width, changes = len(QUANTITIES), list[dict[int, int]]()
    left = Counter(action.stage for action in actions_of(order) if action.kind in _LIKE_BACKWARD)
    owed = Counter(action.stage for action in actions_of(order) if action.kind in _GIVES)
    begun: set[tuple[int, bool]] = set()
    for step in order:
        found: dict[int, int] = {}
        for action in parts(step):
            if action.kind is not ActionKind.WEIGHT_GRAD:
                _begin(found, action, kind_of[action.stage] * width, begun)
        changes.append(found)
        found = {}
        for action in parts(step):
            _end(found, action, kind_of[action.stage] * width, left, owed)
        changes.append(found)
    rows = np.zeros((len(changes), kinds * width))
    for number, one in enumerate(changes):
        for column, more in one.items():
            rows[number, column] = more
    held: Rows = rows.cumsum(axis=0)
    return held


def _begin(found: dict[int, int], action: Action, base: int, begun: set[tuple[int, bool]]) -> None:
    """What an action takes as it starts (``timeline._keep``)."""
    forward = action.kind is ActionKind.FORWARD
    first = (action.stage, forward) not in begun
    begun.add((action.stage, forward))
    names = ["kept", "logits", "forward"] if forward else ["working", "backward", "reducing"]
    if first:
        names += ["gathered"] if forward else ["gradients", "unreduced"]
    for name in names:
        _add(found, base, name, 1)


def _end(
    found: dict[int, int], action: Action, base: int, left: Counter[int], owed: Counter[int]
) -> None:
    """What an action lets go as it ends (``timeline._release``)."""
    names: tuple[str, ...] = ()
    if action.kind is ActionKind.FORWARD:
        names = ("forward",)
    elif action.kind is ActionKind.WEIGHT_GRAD:
        names = ("operands",)
    else:
        names = ("kept", "working", "logits", "backward", "reducing")
        left[action.stage] -= 1
        names += () if left[action.stage] else ("gathered",)
        if action.kind is ActionKind.INPUT_GRAD:
            _add(found, base, "operands", 1)
    if action.kind in _GIVES:
        owed[action.stage] -= 1
        names += () if owed[action.stage] else ("unreduced",)
    for name in names:
        _add(found, base, name, -1)


def _add(found: dict[int, int], base: int, name: str, count: int) -> None:
    column = base + _PLACE[name]
    found[column] = found.get(column, 0) + count


def largest(rows: Rows) -> Rows:
    """The rows that no other exceeds or equals in every column."""
    rows = np.unique(rows, axis=0)
    rows = rows[np.argsort(-rows.sum(axis=1), kind="stable")]
    kept: list[int] = []
    for number in range(len(rows)):
        if not any((rows[other] >= rows[number]).all() for other in kept):
            kept.append(number)
    return rows[kept]
