"""What an action waits for, and when it arrives, in a replay of actions in which nobody shares a link.

Knows which action of the stage before or behind comes first, and what its message takes by itself. What ranks
do meanwhile is in ``floor.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...schedules.orders.action import ActionKind
from ...schedules.p2p.point_to_point import Recv
from ..lowering.message_sizes import MessageTransfers

if TYPE_CHECKING:
    from ...schedules.orders.action import Action
    from ..lowering.plan import StepPlan

FORWARD, WEIGHT_GRAD = ActionKind.FORWARD, ActionKind.WEIGHT_GRAD


class Coming(NamedTuple):
    """Actions of one kind and stage, one for each microbatch.

    ``first`` is the number of that of microbatch 0, ``awaited`` the number of the one that it waits for (-1:
    none), and ``message_s`` the seconds of its message.
    """

    first: int
    awaited: int = -1
    message_s: float = 0.0


@dataclass(kw_only=True)
class ActionArrivals:
    """When what actions wait for has arrived: ``done_s`` has the end of each action by its number, or None.

    A whole backward and the input gradient of a split one count as the same, since either may follow the
    other. Nobody waits for weight gradients, which share the last numbers.
    """

    plan: StepPlan
    done_s: list[float | None] = field(init=False)
    messages: dict[int, MessageTransfers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.plan.shape
        numbers = 2 * shape.stages * shape.microbatches
        self.done_s = [None] * (numbers + shape.microbatches)

    def coming(self, action: Action, index: int) -> Coming:
        """What rank ``index`` waits for before actions like this one."""
        stage, kind, _ = action
        if kind is WEIGHT_GRAD:
            return Coming(self._first(self.plan.shape.stages, forward=False))
        forward = kind is FORWARD
        first, before = self._first(stage, forward=forward), stage - 1 if forward else stage + 1
        if not 0 <= before < self.plan.shape.stages:
            return Coming(first)
        message_s = self._message_s(action._replace(stage=before), index)
        return Coming(first, self._first(before, forward=forward), message_s)

    def _first(self, stage: int, *, forward: bool) -> int:
        return (2 * stage + forward) * self.plan.shape.microbatches

    def _message_s(self, sent: Action, index: int) -> float:
        peer = self.plan.schedule.rank_of(sent.stage, sent.microbatch, self.plan.shape)
        if peer == index:
            return 0.0
        if index not in self.messages:
            self.messages[index] = MessageTransfers(plan=self.plan, index=index, alike={})
        return self.messages[index](Recv(sent, peer)).solo_s
