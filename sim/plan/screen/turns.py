"""Where a rank's order turns from forwards to backwards, and what it runs before and after.

For schedules of whole backwards: some forwards, then both in turn, then backwards alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....schedules.orders.action import Action, ActionKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....schedules.orders.action import Orders, Step
    from .stages import Pipeline

    Codes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RankTurns:
    """The turns of all ranks.

    ``first`` is the stage of a rank's first backward, ``last`` that of its last forward. ``before`` counts
    the forwards ahead of that backward, and ``after`` the backwards behind that forward, by kind of stage;
    ``stages`` counts all stages of a rank. ``turning`` says whether the last forward comes after the first
    backward.
    """

    first: Codes
    last: Codes
    before: Codes
    after: Codes
    stages: Codes
    turning: NDArray[np.bool_]


def turns_of(orders: Orders, pipeline: Pipeline) -> RankTurns:
    """The turns of all ranks, for orders of whole backwards without pairs."""
    kind_of = np.array(pipeline.kind_of)
    before = [_while(order, ActionKind.FORWARD) for order in orders]
    after = [_while(reversed(order), ActionKind.BACKWARD) for order in orders]

    def counted(several: list[list[int]]) -> Codes:
        kinds = [kind_of[np.array(stages, dtype=np.int64)] for stages in several]
        return np.array([np.bincount(own, minlength=len(pipeline.kinds)) for own in kinds])

    return RankTurns(
        first=np.array([_stage(order[len(own)]) for order, own in zip(orders, before, strict=True)]),
        last=np.array([_stage(order[-1 - len(own)]) for order, own in zip(orders, after, strict=True)]),
        before=counted(before),
        after=counted(after),
        stages=pipeline.counts,
        turning=np.array(
            [
                len(order) > len(ahead) + len(behind)
                for order, ahead, behind in zip(orders, before, after, strict=True)
            ]
        ),
    )


def _while(steps: Iterable[Step], kind: ActionKind) -> list[int]:
    """The stages of the ``steps`` up to the first that is of another ``kind``."""
    stages: list[int] = []
    for step in steps:
        if not isinstance(step, Action) or step.kind is not kind:
            break
        stages.append(step.stage)
    return stages


def _stage(step: Step) -> int:
    assert isinstance(step, Action), "orders with pairs have no turns"
    return step.stage
