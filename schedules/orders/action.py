"""One step of a pipeline schedule: what a rank does with one microbatch on one stage.

Knows the notation that torch.distributed.pipelining prints (``2F0``: stage 2, forward,
microbatch 0; ``(0F3;3B1)OVERLAP_F_B``: two actions run as one). Knows nothing of seconds or bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import NamedTuple, TypeAlias, cast

_ACTION = re.compile(r"([0-9]+)([FBIW])([0-9]+)")
_OVERLAP = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")
_STAGE = itemgetter(0)


class ActionKind(StrEnum):
    """What an action computes."""

    FORWARD = "F"
    BACKWARD = "B"  # input gradient, then weight gradient, fused
    INPUT_GRAD = "I"
    WEIGHT_GRAD = "W"

    __hash__ = str.__hash__  # as equal strings have; an Enum's own is a call of Python, for every Action


class Action(NamedTuple):
    """One action: ``kind`` of ``microbatch`` on global (virtual) ``stage``.

    A named tuple, because large schedules have hundreds of thousands of them.

    >>> str(Action(2, ActionKind.FORWARD, 0))
    '2F0'
    >>> Action.parse("3B1")
    Action(stage=3, kind=<ActionKind.BACKWARD: 'B'>, microbatch=1)
    """

    stage: int
    kind: ActionKind
    microbatch: int

    def __str__(self) -> str:
        stage, kind, microbatch = self
        return str(stage) + kind + str(microbatch)

    @classmethod
    def parse(cls, text: str) -> Action:
        """Read ``2F0``. Raises ValueError with the text when it is not an action."""
        match = _ACTION.fullmatch(text)
        if match is None:
            raise ValueError(f"not an action: {text!r} (expected <stage><F|B|I|W><microbatch>, as in 2F0)")
        stage, kind, microbatch = match.groups()
        return cls(int(stage), ActionKind(kind), int(microbatch))


@dataclass(frozen=True, slots=True)
class Overlap:
    """A forward and a whole backward of other microbatches, run as one (DualPipe).

    >>> str(Overlap(Action.parse("0F3"), Action.parse("3B1")))
    '(0F3;3B1)OVERLAP_F_B'
    """

    forward: Action
    backward: Action

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


Step: TypeAlias = Action | Overlap
"""What a rank does as one piece."""

Order: TypeAlias = tuple[Step, ...]
"""What one rank does, first to last."""

Orders: TypeAlias = tuple[Order, ...]
"""One order per rank, rank 0 first."""


def parse_step(text: str) -> Step:
    """Read ``2F0`` or ``(0F3;3B1)OVERLAP_F_B``. Raises ValueError with the text when it is neither."""
    match = _OVERLAP.fullmatch(text)
    if match is None:
        return Action.parse(text)
    forward, backward = (Action.parse(part) for part in match.groups())
    if (forward.kind, backward.kind) != (ActionKind.FORWARD, ActionKind.BACKWARD):
        raise ValueError(f"not an overlapped pair: {text!r} (expected a forward, then a whole backward)")
    return Overlap(forward, backward)


def parts(step: Step) -> tuple[Action, ...]:
    """The actions of a step, in the order in which they end."""
    return (step,) if isinstance(step, Action) else (step.forward, step.backward)


def actions_of(order: Iterable[Step]) -> Iterator[Action]:
    """The actions of an order, pairs taken apart."""
    for step in order:
        if isinstance(step, Action):
            yield step
        else:
            yield from parts(step)


def stages_of(order: Order) -> tuple[int, ...]:
    """The stages of an order, each once, in the order of their first actions.

    >>> stages_of((Action.parse("1F0"), Action.parse("0F0"), Action.parse("1B0")))
    (1, 0)
    """
    if Overlap in map(type, order):
        return tuple(dict.fromkeys([action.stage for action in actions_of(order)]))
    alone = cast("tuple[Action, ...]", order)
    return tuple(dict.fromkeys(map(_STAGE, alone)))  # without a call of Python for each
