"""Both ends of a message: what leaves a rank after an action, and what must reach it before one.

Knows who makes a result and who needs it; not when a message is posted or awaited, which is the rule's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..orders.action import Action, ActionKind, Orders, actions_of
from ..orders.dependencies import consumer_stage, producer_stage
from ..orders.schedule import Placement, Shape
from .instructions import Recv, Send


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The messages that the actions of ``orders`` need and cause."""

    orders: Orders
    shape: Shape
    rank_of: Placement

    def sent(self, action: Action) -> Send | None:
        """The message with the action's result; None where no other rank needs it."""
        peer = self._peer(consumer_stage(action, self.shape), action)
        return None if peer is None else Send(action, peer)

    def received(self, action: Action) -> Recv | None:
        """The message that the action waits for; None where it needs nothing of another rank."""
        stage = producer_stage(action, self.shape)
        peer = self._peer(stage, action)
        if stage is None or peer is None:
            return None
        if action.kind is ActionKind.FORWARD:
            return Recv(Action(stage, ActionKind.FORWARD, action.microbatch), peer)
        kind = ActionKind.INPUT_GRAD if (stage, action.microbatch) in self._split else ActionKind.BACKWARD
        return Recv(Action(stage, kind, action.microbatch), peer)

    @cached_property
    def _split(self) -> frozenset[tuple[int, int]]:
        """Stages and microbatches whose gradient comes of an input gradient, not of a whole backward."""
        return frozenset(
            (action.stage, action.microbatch)
            for order in self.orders
            for action in actions_of(order)
            if action.kind is ActionKind.INPUT_GRAD
        )

    def _peer(self, stage: int | None, action: Action) -> int | None:
        """The rank that has ``stage`` of the action's microbatch; None where that is the action's own."""
        if stage is None:
            return None
        peer = self.rank_of(stage, action.microbatch, self.shape)
        return None if peer == self.rank_of(action.stage, action.microbatch, self.shape) else peer
