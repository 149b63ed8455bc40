"""Where Megatron starts to reduce a stage's gradients and to gather its parameters, within an order.

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
from typing import TypeAlias

from ..orders.action import Action, Kind, Order, Orders, Step, actions_of, parts
from ..orders.schedule import Shape


class Call(StrEnum):
    """What happens to gradients or parameters between two steps."""

    DISABLE = "DIS"  # from here on, backwards only add to the gradients
    ENABLE = "EN"  # from here on, a backward reduces each bucket of gradients as soon as it is full
    REDUCE = "GRAD_SYNC"  # start to reduce all gradients of a stage
    GATHER = "PARAM_SYNC"  # start to gather all parameters of a stage


@dataclass(frozen=True, slots=True)
class Hook:
    """One call; of a stage, or of all that the rank holds (None).

    >>> str(Hook(Call.REDUCE, 3))
    'GRAD_SYNC3'
    """

    call: Call
    stage: int | None = None

    def __str__(self) -> str:
        return self.call.value + ("" if self.stage is None else str(self.stage))


Hooked: TypeAlias = Step | Hook
"""A step of the order, or a call between two steps."""


def hooked(orders: Orders, shape: Shape, *, aligned: bool = True) -> tuple[tuple[Hooked, ...], ...]:
    """The orders with the calls between their steps, rank 0 first.

    ``orders`` are of 1F1B or of the schedule interleaved, or alike. With one chunk per rank only rank 0
    reduces bucket by bucket during its last backward; the others reduce all at once after theirs, while
    the pipeline drains, and no parameters are gathered within the schedule. Not ``aligned``, every stage
    reduces bucket by bucket during its own last backward, and gathers when its forward needs it.
    Raises ValueError for split backwards, and for fewer microbatches than ranks with several chunks.
    """
    if shape.chunks > 1 and shape.microbatches < shape.ranks:
        raise ValueError(
            f"Megatron never interleaves fewer microbatches than ranks, so not {shape.microbatches} on "
            f"{shape.ranks}"
        )
    for rank, order in enumerate(orders):
        split = (action for action in actions_of(order) if action.kind in (Kind.INPUT_GRAD, Kind.WEIGHT_GRAD))
        if action := next(split, None):
            raise ValueError(
                f"Megatron's calls are known for whole backwards only, but rank {rank} has {action}"
            )
    return tuple(tuple(_hooked(rank, order, shape, aligned)) for rank, order in enumerate(orders))


def _hooked(rank: int, order: Order, shape: Shape, aligned: bool) -> Iterator[Hooked]:
    yield Hook(Call.DISABLE)
    if shape.chunks > 1 and aligned:
        yield from _aligned_chunks(rank, order, shape)
    elif rank > 0 and aligned:
        yield from order
        yield from (Hook(Call.ENABLE), Hook(Call.REDUCE, rank))
    else:
        yield from _by_bucket(order, shape)


def _by_bucket(order: Order, shape: Shape) -> Iterator[Hooked]:
    """Enabled for the last backward of each stage."""
    for step in order:
        last = any(_backward(action) and _is_last(action, shape) for action in parts(step))
        if last:
            yield Hook(Call.ENABLE)
        yield step
        if last and shape.chunks > 1:
            yield Hook(Call.DISABLE)
    if shape.chunks > 1:
        yield Hook(Call.ENABLE)


def _aligned_chunks(rank: int, order: Order, shape: Shape) -> Iterator[Hooked]:
    """The first two chunks are gathered before anything runs; what is left to reduce follows at the end."""
    forwards = [action for action in actions_of(order) if not _backward(action)]
    backwards = [action for action in actions_of(order) if _backward(action)]
    gathers = {
        forward: begun.stage + shape.ranks
        for forward, begun in zip(forwards, forwards[rank:], strict=False)
        if begun.microbatch == 0 and shape.ranks <= begun.stage < shape.stages - shape.ranks
    }
    reduces = {
        backward: ended.stage
        for backward, ended in zip(backwards[rank:], backwards, strict=False)
        if _is_last(ended, shape)
    }
    held = [chunk * shape.ranks + rank for chunk in range(shape.chunks)]
    yield from (Hook(Call.GATHER, stage) for stage in held[:2])
    for step in order:
        yield from (Hook(Call.GATHER, gathers[action]) for action in parts(step) if action in gathers)
        yield step
        for stage in (reduces[action] for action in parts(step) if action in reduces):
            yield from (Hook(Call.ENABLE), Hook(Call.REDUCE, stage), Hook(Call.DISABLE))
    yield Hook(Call.ENABLE)
    yield from (Hook(Call.REDUCE, stage) for stage in held if stage not in reduces.values())


def _backward(action: Action) -> bool:
    return action.kind is Kind.BACKWARD


def _is_last(action: Action, shape: Shape) -> bool:
    return action.microbatch == shape.microbatches - 1
