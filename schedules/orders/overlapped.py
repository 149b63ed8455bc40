"""Orders whose forwards run as one with backwards, as Megatron-LM has them to hide exchanges of experts.

Knows no schedule: the orders are those of the schedule without overlap, with pairs made of them.
"""

from __future__ import annotations

from .action import Action, ActionKind, Order, Orders, Overlap, Step
from .schedule import Placement, Shape
from .validate import validate


def overlapped(orders: Orders, shape: Shape, rank_of: Placement) -> Orders:
    """``orders`` with every whole backward and the forward right after it made one pair.

    Of (interleaved) 1F1B that leaves one forward more before the first pair, and each rank holds one
    activation more: Megatron's ``overlap_moe_expert_parallel_comm`` (Megatron-LM d98e8a6
    ``core/pipeline_parallel/schedules.py`` and ``combined_1f1b.py``), there with several chunks per rank or
    on one rank alone. Raises ValueError naming the ranks whose pairs wait for each other in a circle, as
    they may where the last group of microbatches is smaller than the ranks: Megatron interleaves none such.
    """
    pairs = tuple(_overlapped(order) for order in orders)
    validate(pairs, shape, rank_of)
    return pairs


def _overlapped(order: Order) -> Order:
    steps: list[Step] = []
    for step in order:
        before = steps[-1] if steps else None
        if _is(step, ActionKind.FORWARD) and _is(before, ActionKind.BACKWARD):
            assert isinstance(step, Action)
            assert isinstance(before, Action)
            steps[-1] = Overlap(step, before)
        else:
            steps.append(step)
    return tuple(steps)


def _is(step: Step | None, kind: ActionKind) -> bool:
    return isinstance(step, Action) and step.kind is kind
