"""What each pipeline rank runs in its whole order, step by step, pairs of a forward and a backward as one.

Steps of a rank take turns on its compute stream, and the blocks of each end together, so that its own work is
the sum of them. Knows orders that are there whole, and the seconds of steps; not what comes before and after.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....schedules.orders.action import Action, ActionKind, Overlap, parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....schedules.orders.action import Orders, Step
    from .stages import Pipeline

    Codes = NDArray[np.int64]

Kind = tuple[ActionKind, int] | tuple[int, int]
"""Of a step: what an action computes on which kind of stage; or a pair's kinds, forward and backward."""


@dataclass(frozen=True, kw_only=True)
class RankSteps:
    """``counts``: ranks x ``kinds``, how many steps of each a rank has; ``lead``: ranks x kinds of stages,
    the forwards that the first microbatch of a rank has passed before it comes there.
    """

    kinds: tuple[Kind, ...]
    counts: Codes
    lead: Codes


def steps_of(orders: Orders, pipeline: Pipeline) -> RankSteps:
    """The steps of all ranks."""
    counted = [Counter(_kind(step, pipeline) for step in order) for order in orders]
    kinds = tuple(dict.fromkeys(kind for one in counted for kind in one))
    return RankSteps(
        kinds=kinds,
        counts=np.array([[one[kind] for kind in kinds] for one in counted], dtype=np.int64),
        lead=np.array([_lead(order[0], pipeline) for order in orders], dtype=np.int64),
    )


def adds_up(orders: Orders) -> bool:
    """Whether seconds of actions by themselves do: no two run as one, and all backwards are split or none.

    DualPipeV's are split where ranks fill and drain alone.
    """
    kinds = {part.kind for order in orders for step in order for part in parts(step)}
    pairs = any(isinstance(step, Overlap) for order in orders for step in order)
    return not pairs and not {ActionKind.BACKWARD, ActionKind.INPUT_GRAD} <= kinds


def _kind(step: Step, pipeline: Pipeline) -> Kind:
    if isinstance(step, Overlap):
        return pipeline.kind_of[step.forward.stage], pipeline.kind_of[step.backward.stage]
    return step.kind, pipeline.kind_of[step.stage]


def _lead(first: Step, pipeline: Pipeline) -> list[int]:
    """By kind of stage, those before the stage of a rank's first step: a forward."""
    assert isinstance(first, Action), "a rank has nothing to run backward before its first forward"
    passed = Counter(pipeline.kind_of[: first.stage])
    return [passed[kind] for kind in range(len(pipeline.kinds))]
