"""What a rank's program is made of once its communication is written out: compute, exchange, wait.

Messages are named by the action whose result they carry, on both ends, so that ``Send(2F0)`` on one
rank pairs with ``Recv(2F0)`` on the other. Between two ranks, the messages of one direction (forward,
backward) are posted in the same order on both ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ..orders.action import Action, Step


@dataclass(frozen=True, slots=True)
class Send:
    """Hand the result of this rank's ``action`` to rank ``peer``."""

    action: Action
    peer: int


@dataclass(frozen=True, slots=True)
class Recv:
    """Take the result of ``action``, which rank ``peer`` runs."""

    action: Action
    peer: int


MessagePart: TypeAlias = Send | Recv


@dataclass(frozen=True, slots=True)
class RunAction:
    """Run ``step``: an action, or an overlapped pair."""

    step: Step


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Post ``parts`` as one group. ``blocking``: the rank goes on when all of them are done."""

    parts: tuple[MessagePart, ...]
    blocking: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when ``part`` of an earlier exchange that does not block is done."""

    part: MessagePart


Instruction: TypeAlias = RunAction | MessageGroup | Wait
