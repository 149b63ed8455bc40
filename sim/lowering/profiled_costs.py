"""What a schedule knows of a step: the costs and memory of its actions.

Schedules that search (zb, zb-v-greedy) ask for times and memory. They get those of the median stage from
the kernel model, in whole microseconds and bytes, as the zero-bubble runtime gives them what it has
measured (Qi et al. 2024, arXiv:2401.10241, section 5: profiled, one cost for all stages).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from ...schedules.orders.action import Action, ActionKind, Orders, Overlap, actions_of
from ...schedules.orders.schedule import ActivationUnits, Costs, Shape
from ..program.solo import solo_seconds
from .actions import Blocks, action_blocks
from .layers.stages import Stage
from .state.activations import ActivationBytes

MICROSECOND = 1e-6


def profiled_shape(
    shape: Shape, stages: Sequence[Stage], blocks: Blocks, sizes: ActivationBytes, message_s: float
) -> Shape:
    """``shape`` with the times and memory of the median stage's actions, for schedules that search."""

    def median_us(kind: ActionKind) -> int:
        seconds = (solo_seconds(action_blocks(Action(0, kind, 0), stage, blocks)) for stage in stages)
        return round(statistics.median(seconds) / MICROSECOND)

    kept = max(1, round(statistics.median(sizes.kept_by_forward(stage) for stage in stages)))
    operands = round(statistics.median(sizes.kept_by_input_grad(stage) for stage in stages))
    limit = shape.memory.limit
    return replace(
        shape,
        costs=Costs(
            forward=median_us(ActionKind.FORWARD),
            input_grad=median_us(ActionKind.INPUT_GRAD),
            weight_grad=median_us(ActionKind.WEIGHT_GRAD),
            latency=max(1, round(message_s / MICROSECOND)),
        ),
        memory=ActivationUnits(
            forward=kept,
            input_grad=min(0, max(-kept, operands - kept)),
            limit=None if limit is None else limit * kept,
        ),
    )


def splits_backward(orders: Orders) -> bool:
    """Whether any weight gradient of ``orders`` is an action of its own."""
    kind = ActionKind.WEIGHT_GRAD
    return any(kind in {action.kind for action in actions_of(order)} for order in orders)


def overlaps(orders: Orders) -> bool:
    """Whether any forward and backward of ``orders`` run as one."""
    return any(Overlap in set(map(type, order)) for order in orders)
