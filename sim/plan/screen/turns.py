"""Where a rank's order turns from forwards to backwards and back, and what it does outside of these turns.

For schedules of whole backwards: a few forwards, then both in turn, then backwards alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....schedules.orders.action import ActionKind, actions_of

if TYPE_CHECKING:
    from ....schedules.orders.action import Order
    from .stages import Pipeline


@dataclass(frozen=True, kw_only=True)
class Turns:
    """``first`` is the stage of a rank's first backward, ``last`` that of its last forward; ``before`` counts
    the forwards ahead of the one and ``after`` the backwards behind the other, by kind of stage, of which the
    rank has so many ``stages``.
    """

    first: int
    last: int
    before: Mapping[int, int]
    after: Mapping[int, int]
    stages: Mapping[int, int]


def turns_of(order: Order, pipeline: Pipeline) -> Turns:
    """The turns of one rank's order."""
    actions = list(actions_of(order))
    forwards = [place for place, action in enumerate(actions) if action.kind is ActionKind.FORWARD]
    start = next(place for place, action in enumerate(actions) if action.kind is not ActionKind.FORWARD)
    end = forwards[-1]
    kinds = pipeline.kind_of
    return Turns(
        first=actions[start].stage,
        last=actions[end].stage,
        before=Counter(kinds[action.stage] for action in actions[:start]),
        after=Counter(kinds[action.stage] for action in actions[end + 1 :]),
        stages=Counter(kinds[stage] for stage in {action.stage for action in actions}),
    )
