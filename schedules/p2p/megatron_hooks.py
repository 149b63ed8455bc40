"""The places within an order at which Megatron starts to reduce a stage's gradients and to gather its
parameters.

Ranks are made to start at the same slot of the pipeline (``align_grad_reduce``, ``align_param_gather``),
because a rank that communicates computes more slowly, and one slow rank holds up the others. So after its
j-th backward rank r reduces the stage that ended with its backward j-r, and before its k-th forward it
gathers for the stage after the one that it begins with forward k+r. Knows the place of the calls only;
what they cost, and which buckets they are cut into, is the simulator's.

Source: Megatron-LM d98e8a6 ``core/pipeline_parallel/schedules.py`` (``grad_sync_func``,
``param_sync_func``, ``no_sync_func``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TypeAlias

from ..orders.action import Action, ActionKind, Order, Step, actions_of, parts, stages_of
from ..orders.schedule import Shape


class HookCall(StrEnum):
    """What happens to gradients or parameters between two steps."""

    DISABLE = "DIS"  # from here on, backwards only add to the gradients
    ENABLE = "EN"  # from here on, a backward reduces each bucket of gradients as soon as it is full
    REDUCE = "GRAD_SYNC"  # start to reduce all gradients of a stage
    GATHER = "PARAM_SYNC"  # start to gather all parameters of a stage


@dataclass(frozen=True, slots=True)
class Hook:
    """One call; of a stage, or of all that the rank holds (None).

    >>> str(Hook(HookCall.REDUCE, 3))
    'GRAD_SYNC3'
    """

    call: HookCall
    stage: int | None = None

    def __str__(self) -> str:
        return self.call.value + ("" if self.stage is None else str(self.stage))


Hooked: TypeAlias = Step | Hook
"""A step of the order, or a call between two steps."""


GIVES_GRADIENT = (ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD)
"""Actions after which a stage's gradients of a microbatch are there."""


def hooked(rank: int, order: Order, shape: Shape, *, aligned: bool = True) -> tuple[Hooked, ...]:
    """The order of a rank with the calls between its steps.

    With one chunk per rank only rank 0 reduces bucket by bucket during its last backward; the others reduce
    all at once after theirs, while the pipeline drains, and no parameters are gathered within the
    schedule. Not ``aligned``, every stage reduces bucket by bucket during its own last backward, and gathers
    when its forward needs it. Megatron has them for 1F1B and interleaved 1F1B. Of other orders a
    weight gradient stands for its backward; with those and with fewer microbatches than ranks, which Megatron
    never interleaves, the same rule is followed.
    """
    if shape.chunks > 1 and aligned:
        return Hook(HookCall.DISABLE), *_aligned_chunks(rank, order)
    if rank > 0 and aligned:
        return (
            Hook(HookCall.DISABLE),
            *order,
            Hook(HookCall.ENABLE),
            Hook(HookCall.REDUCE, stages_of(order)[0]),
        )
    return Hook(HookCall.DISABLE), *_by_bucket(order, shape)


def _by_bucket(order: Order, shape: Shape) -> Iterator[Hooked]:
    """Enabled for the last backward of each stage."""
    final = set(_final(order).values())
    for step in order:
        last = not final.isdisjoint(parts(step))
        if last:
            yield Hook(HookCall.ENABLE)
        yield step
        if last and shape.chunks > 1:
            yield Hook(HookCall.DISABLE)
    if shape.chunks > 1:
        yield Hook(HookCall.ENABLE)


def _aligned_chunks(rank: int, order: Order) -> Iterator[Hooked]:
    """The first two chunks are gathered before anything runs; what is left to reduce follows at the end."""
    all_ = tuple(actions_of(order))
    forwards = [action for action in all_ if action.kind is ActionKind.FORWARD]
    backwards = _backwards(all_)
    held, final = stages_of(all_), {action.stage: action for action in backwards}
    begins = {forward.stage: k for k, forward in reversed(list(enumerate(forwards)))}
    gathers: dict[Action, list[int]] = {}
    for begun, following in pairwise(held[1:]):
        gathers.setdefault(forwards[max(0, begins[begun] - rank)], []).append(following)
    reduces = {
        backward: ended.stage
        for backward, ended in zip(backwards[rank:], backwards, strict=False)
        if final[ended.stage] is ended
    }
    yield from (Hook(HookCall.GATHER, stage) for stage in held[:2])
    called = gathers.keys() | reduces.keys()
    for step in order:
        actions = parts(step)
        if called.isdisjoint(actions):  # as most are
            yield step
            continue
        for action in actions:
            for stage in gathers.get(action, ()):
                yield Hook(HookCall.GATHER, stage)
        yield step
        for action in actions:
            if action in reduces:
                yield Hook(HookCall.ENABLE)
                yield Hook(HookCall.REDUCE, reduces[action])
                yield Hook(HookCall.DISABLE)
    yield Hook(HookCall.ENABLE)
    yield from (Hook(HookCall.REDUCE, stage) for stage in held if stage not in reduces.values())


def _backwards(order: Order) -> list[Action]:
    return [action for action in actions_of(order) if action.kind in GIVES_GRADIENT]


def _final(order: Order) -> dict[int, Action]:
    """For each stage, the action after which its gradients of all microbatches are complete."""
    return {action.stage: action for action in _backwards(order)}
