"""What each pipeline rank runs in its whole order, step by step, a forward and backward that overlap as one.

Steps of a rank run one after the other on its compute stream, and the blocks of a step end together, so that
a rank's own work is the sum of its steps. Knows whole orders and the seconds of steps; not what comes before
and after.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from ....schedules.orders.action import Action, ActionKind, Overlap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....schedules.orders.action import Order, Orders, Step
    from .stages import Pipeline

    Codes = NDArray[np.int64]

Kind = tuple[ActionKind, int] | tuple[int, int]
"""The kind of a step: an action and the kind of stage that it runs on; or the kinds of stage of a pair,
forward and backward."""


@dataclass(frozen=True, kw_only=True)
class RankSteps:
    """The steps of all ranks. ``counts`` (ranks x ``kinds``) says how many steps of each kind a rank has, and
    ``each`` how many more with as many more microbatches as ranks, in a schedule whose steady state repeats.

    ``lead`` (ranks x kinds of stages) says which forwards the first microbatch of a rank has passed before it
    gets there, and ``tail`` which whole backwards follow its last step on other ranks, each by itself.
    """

    kinds: tuple[Kind, ...]
    counts: Codes
    each: Codes
    lead: Codes
    tail: Codes


def steps_of(orders: Orders, pipeline: Pipeline, longer: Orders = ()) -> RankSteps:
    """The steps of all ranks; ``longer`` are the orders of one group of microbatches more."""
    counted, more = ([_counted(order, pipeline) for order in found] for found in (orders, longer or orders))
    kinds = tuple(dict.fromkeys(kind for one in (*counted, *more) for kind in one))
    counts, longest = (
        np.array([[one[kind] for kind in kinds] for one in found], dtype=np.int64)
        for found in (counted, more)
    )
    alone = {step for order in orders for step in order if isinstance(step, Action)}
    return RankSteps(
        kinds=kinds,
        counts=counts,
        each=longest - counts,
        lead=np.array([_lead(order[0], pipeline) for order in orders], dtype=np.int64),
        tail=np.array([_tail(order[-1], pipeline, alone) for order in orders], dtype=np.int64),
    )


def adds_up(orders: Orders) -> bool:
    """Whether a rank's work is the sum of its single actions: no two run as one, and either all backwards are
    split or none.

    DualPipeV splits those of ranks that fill and drain alone.
    """
    if any(Overlap in set(map(type, order)) for order in orders):
        return False
    kinds = set(map(attrgetter("kind"), chain.from_iterable(orders)))
    return not {ActionKind.BACKWARD, ActionKind.INPUT_GRAD} <= kinds


def _counted(order: Order, pipeline: Pipeline) -> Counter[Kind]:
    return Counter(_kind(step, pipeline) for step in order)


def _kind(step: Step, pipeline: Pipeline) -> Kind:
    if isinstance(step, Overlap):
        return pipeline.kind_of[step.forward.stage], pipeline.kind_of[step.backward.stage]
    return step.kind, pipeline.kind_of[step.stage]


def _lead(first: Step, pipeline: Pipeline) -> list[int]:
    """How many stages of each kind come before the stage of a rank's first step, which is a forward."""
    assert isinstance(first, Action), "a rank has nothing to run backward before its first forward"
    passed = Counter(pipeline.kind_of[: first.stage])
    return [passed[kind] for kind in range(len(pipeline.kinds))]


def _tail(last: Step, pipeline: Pipeline, alone: set[Action]) -> list[int]:
    """How many whole backwards of each kind of stage follow a rank's last step and share theirs with no
    forward. Weight gradients have nothing behind them."""
    behind: list[int] = []
    if isinstance(last, Action) and last.kind is ActionKind.BACKWARD:
        behind = [stage for stage in range(last.stage) if last._replace(stage=stage) in alone]
    passed = Counter(pipeline.kind_of[stage] for stage in behind)
    return [passed[kind] for kind in range(len(pipeline.kinds))]
