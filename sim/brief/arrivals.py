"""What an action waits for, and when it arrives, in a replay of actions in which nobody shares a link.

Knows which action of the stage before or behind comes first, and what its message takes by itself. What ranks
do meanwhile is in ``floor.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...schedules.p2p.point_to_point import Recv
from ..lowering.message_sizes import MessageTransfers
from .action_turns import FORWARD, numbers_in_all, numbers_of

if TYPE_CHECKING:
    from ...schedules.orders.action import Action
    from ..lowering.plan import StepPlan


class Coming(NamedTuple):
    """What actions of one kind and stage wait for, for each microbatch.

    ``first`` is the number of microbatch 0's action, ``awaited`` that of the action it waits for (-1: none),
    and ``message_s`` the seconds of its message.
    """

    first: int
    awaited: int = -1
    message_s: float = 0.0


@dataclass(kw_only=True)
class ActionArrivals:
    """When the inputs of actions arrive; ``done_s`` has the end of each action by its number
    (action_turns.py)."""

    plan: StepPlan
    done_s: list[float] = field(init=False)
    messages: dict[int, MessageTransfers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.done_s = [0.0] * numbers_in_all(self.plan.shape)

    def coming(self, action: Action, index: int) -> Coming:
        """What actions of rank ``index`` like this one wait for."""
        stage, kind, _ = action
        first, awaited = numbers_of(stage, kind, self.plan.shape)
        if awaited < 0:
            return Coming(first)
        before = stage - 1 if kind is FORWARD else stage + 1
        return Coming(first, awaited, self._message_s(action._replace(stage=before), index))

    def _message_s(self, sent: Action, index: int) -> float:
        peer = self.plan.schedule.rank_of(sent.stage, sent.microbatch, self.plan.shape)
        if peer == index:
            return 0.0
        if index not in self.messages:
            self.messages[index] = MessageTransfers(plan=self.plan, index=index, alike={})
        return self.messages[index](Recv(sent, peer)).solo_s
