"""The most that a rank holds by the order of its actions alone: each begins when the one before has ended.

The sums are those of timeline.py, in the same order; there is no clock, and only the largest is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ....schedules.orders.action import ActionKind
from .timeline import UPDATE, Held, Peak, StageSizes

if TYPE_CHECKING:
    from ....schedules.orders.action import Action, Order
    from ..layers.stages import Stage
    from .activations import ActivationBytes
    from .timeline import Buffers

Most = tuple[Peak, int]
"""The largest sum that a rank holds, and the most layers, times microbatches, that are in flight."""

Parts = tuple[float, float, float, float]
"""Bytes of activations, logits, gradients and gathered parameters."""

FORWARD, BACKWARD, INPUT_GRAD, WEIGHT_GRAD = ActionKind  # read once: a member is looked up by a function


def peak_of_order(
    order: Order,
    stages: Sequence[Stage],
    sizes: ActivationBytes,
    buffers: Mapping[int, Buffers],
    *,
    unusable: float,
) -> Most:
    """The peak of a rank that runs the actions of ``order``, none of which are pairs. ``Peak.at_s`` is not
    known."""
    known = {s: StageSizes.of(stages[s], sizes, own) for s, own in buffers.items()}
    actions = cast("Sequence[Action]", order)
    most, parts, fullest = 0.0, (0.0, 0.0, 0.0, 0.0), cast("Action | str", "")
    for action, held in _held(actions, known):
        total = held[0] + held[1] + held[2] + held[3] + unusable * held[1]
        if total > most:
            most, parts, fullest = total * (1 + 1e-12), held, action
    return Peak(held=Held(*parts), action=str(fullest)), _layers_in_flight(actions, stages)


def _layers_in_flight(actions: Sequence[Action], stages: Sequence[Stage]) -> int:
    """The most layers, times microbatches, between their forward and their backward."""
    layers_of = [stage.layers for stage in stages]
    layers = most = 0
    for stage, kind, _ in actions:
        if kind is FORWARD:
            layers += layers_of[stage]
            if layers > most:
                most = layers
        elif kind is not WEIGHT_GRAD:
            layers -= layers_of[stage]
    return most


def _held(actions: Sequence[Action], known: Mapping[int, StageSizes]) -> Iterator[tuple[Action | str, Parts]]:
    """What is held at each point where it may be largest: during each action, at a loss behind a forward,
    after a stage's first backward (all its gradients are there), after an input gradient (operands wait
    for the weight gradient), and in the update.

    One function with its sums in local variables: cut into methods of a record it takes twice the time, some
    30 ms of a step of 405B on 16,384 GPUs.
    """
    activations = logits = gradients = gathered = 0.0
    forwards, backwards = set[int](), set[int]()  # stages that have begun one
    last = {a.stage: i for i, a in enumerate(actions) if a.kind is BACKWARD or a.kind is INPUT_GRAD}
    reduced = {a.stage: i for i, a in enumerate(actions) if a.kind is BACKWARD or a.kind is WEIGHT_GRAD}
    for i, action in enumerate(actions):
        stage, kind, _ = action
        one = known[stage]
        own, begun = one.own, forwards if kind is FORWARD else backwards
        first = stage not in begun
        if first:
            begun.add(stage)
        if kind is FORWARD:
            activations += one.kept
            gathered += own.forward + (own.gathered if first else 0.0)
            yield action, (activations, logits, gradients, gathered)
            gathered -= own.forward
            if one.logits:
                logits += one.logits
                yield action, (activations, logits, gradients, gathered)
            continue
        if kind is WEIGHT_GRAD:
            activations -= one.operands
        else:
            activations += one.working
            logits -= one.logits
            gathered += own.backward
            gradients += own.reducing + (own.unreduced if first else 0.0)
            yield action, (activations, logits, gradients, gathered)
            activations -= one.kept
            if first and own.gradients:
                gradients += own.gradients
                yield action, (activations, logits, gradients, gathered)
            activations -= one.working
            gathered -= own.backward
            gradients -= own.reducing
            gathered -= own.gathered if last[stage] == i else 0.0
            if kind is INPUT_GRAD:
                activations += one.operands
                yield action, (activations, logits, gradients, gathered)
        gradients -= own.unreduced if kind is not INPUT_GRAD and reduced[stage] == i else 0.0
    if actions and (updating := sum(one.own.updating for one in known.values())):
        yield UPDATE, (activations, logits, gradients + updating, gathered)
