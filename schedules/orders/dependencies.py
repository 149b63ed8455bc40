"""Which action hands its result to which stage: activations go up, gradients come down.

Knows the chain of stages; does not know which rank holds them.
"""

from __future__ import annotations

from .action import Action, ActionKind
from .schedule import Shape


def producer_stage(action: Action, shape: Shape) -> int | None:
    """The stage whose result the action awaits; None where it needs nothing of another stage."""
    if action.kind is ActionKind.FORWARD:
        return action.stage - 1 if action.stage > 0 else None
    if action.kind is ActionKind.WEIGHT_GRAD:
        return None
    return action.stage + 1 if action.stage < shape.stages - 1 else None


def consumer_stage(action: Action, shape: Shape) -> int | None:
    """The stage that awaits the action's result; None where no other stage does."""
    if action.kind is ActionKind.FORWARD:
        return action.stage + 1 if action.stage < shape.stages - 1 else None
    if action.kind is ActionKind.WEIGHT_GRAD:
        return None
    return action.stage - 1 if action.stage > 0 else None


def result_of(action: Action, shape: Shape) -> int | None:
    """A number for what the action makes: an activation or a gradient. Nothing awaits a weight gradient."""
    if action.kind is ActionKind.WEIGHT_GRAD:
        return None
    first = 0 if action.kind is ActionKind.FORWARD else shape.stages
    return (first + action.stage) * shape.microbatches + action.microbatch


def needed_by(action: Action, shape: Shape) -> tuple[int, ...]:
    """The numbers of the results that the action needs, its own stage's among them."""
    stage, m = action.stage, shape.microbatches
    activation = stage * m + action.microbatch
    gradient = activation + shape.stages * m
    if action.kind is ActionKind.FORWARD:
        return (activation - m,) if stage > 0 else ()
    if action.kind is ActionKind.WEIGHT_GRAD:
        return (gradient,)
    return (activation, gradient + m) if stage < shape.stages - 1 else (activation,)
