"""Reference timing of an order: every action starts as soon as its rank is free and its inputs are there.

Written apart from the engine and from the validator, to hold both to. A message between different ranks
arrives ``latency`` after its sender ends, and blocks nobody. Times are abstract and stay integers when
given as integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepsim.schedules.orders.action import Action, ActionKind, Orders, Step, parts


@dataclass(frozen=True, kw_only=True)
class Times:
    """Per chunk. A whole backward lasts ``input_grad + weight_grad``."""

    forward: float
    input_grad: float
    weight_grad: float
    latency: float = 0

    def of(self, kind: ActionKind) -> float:
        return {
            ActionKind.FORWARD: self.forward,
            ActionKind.BACKWARD: self.input_grad + self.weight_grad,
            ActionKind.INPUT_GRAD: self.input_grad,
            ActionKind.WEIGHT_GRAD: self.weight_grad,
        }[kind]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """``clock``: when each rank ends; ``spans``: last end minus first start of each rank."""

    clock: tuple[float, ...]
    spans: tuple[float, ...]

    @property
    def makespan(self) -> float:
        return max(self.clock)


class Stuck(Exception):
    """No rank can go on."""


def asap(orders: Orders, stages: int, times: Times) -> Timeline:
    """Longest path through the orders of ``stages`` stages. Raises Stuck."""
    ends: dict[tuple[str, int, int], tuple[float, int]] = {}  # of each result: when, and on which rank
    clock: list[float] = [0] * len(orders)
    starts: list[float | None] = [None] * len(orders)
    left = [list(reversed(order)) for order in orders]
    while any(left):
        moved = False
        for rank, order in enumerate(left):
            while order and all(name in ends for name in _inputs(order[-1], stages)):
                step = order.pop()
                made = [ends[name] for name in _inputs(step, stages)]
                arrivals = [end + (times.latency if maker != rank else 0) for end, maker in made]
                start = max([clock[rank], *arrivals])
                starts[rank] = start if starts[rank] is None else starts[rank]
                clock[rank] = start
                for action in parts(step):
                    clock[rank] += times.of(action.kind)
                    ends[_output(action)] = clock[rank], rank
                moved = True
        if not moved:
            raise Stuck([str(order[-1]) for order in left if order])
    spans = tuple(end - (start or 0) for end, start in zip(clock, starts, strict=True))
    return Timeline(clock=tuple(clock), spans=spans)


def _output(action: Action) -> tuple[str, int, int]:
    kind = "gradient" if action.kind in (ActionKind.BACKWARD, ActionKind.INPUT_GRAD) else action.kind.value
    return kind, action.stage, action.microbatch


def _inputs(step: Step, stages: int) -> Iterator[tuple[str, int, int]]:
    """What the step needs before it begins, named as by _output."""
    for action in parts(step):
        yield from _inputs_of(action, stages)


def _inputs_of(action: Action, stages: int) -> Iterator[tuple[str, int, int]]:
    s, k = action.stage, action.microbatch
    match action.kind:
        case ActionKind.FORWARD if s > 0:
            yield "F", s - 1, k
        case ActionKind.BACKWARD | ActionKind.INPUT_GRAD:
            yield "F", s, k
            if s + 1 < stages:
                yield "gradient", s + 1, k
        case ActionKind.WEIGHT_GRAD:
            yield "gradient", s, k
