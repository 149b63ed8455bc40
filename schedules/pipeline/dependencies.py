"""Which action hands its result to which stage: activations go up, gradients come down.

Knows the chain of stages; does not know which rank holds them.
"""

from __future__ import annotations

from .action import Action, Kind
from .schedule import Shape


def producer_stage(action: Action, shape: Shape) -> int | None:
    """The stage whose result the action awaits; None where it needs nothing of another stage."""
    if action.kind is Kind.FORWARD:
        return action.stage - 1 if action.stage > 0 else None
    if action.kind is Kind.WEIGHT_GRAD:
        return None
    return action.stage + 1 if action.stage < shape.stages - 1 else None


def consumer_stage(action: Action, shape: Shape) -> int | None:
    """The stage that awaits the action's result; None where no other stage does."""
    if action.kind is Kind.FORWARD:
        return action.stage + 1 if action.stage < shape.stages - 1 else None
    if action.kind is Kind.WEIGHT_GRAD:
        return None
    return action.stage - 1 if action.stage > 0 else None
