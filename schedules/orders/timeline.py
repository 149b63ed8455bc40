"""When each action of a schedule begins and ends, if every rank goes on as soon as it can.

A rank runs its order step by step; a step begins when the rank is free and all that it needs is there.
A result that another rank needs arrives ``latency`` after it is made, and blocks nobody. An overlapped
pair runs its forward, then its backward, once both can run. Times are integers of the unit that the
costs are in; real steps are timed by sim/engine, which agrees with this where every action is one kernel.

Linear in the number of actions: a rank that waits is woken once, by what it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from .action import Action, ActionKind, Orders, parts
from .dependencies import needed_by, result_of
from .schedule import Costs, Shape


class Timed(NamedTuple):
    """An action with its begin and end."""

    action: Action
    begin: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """The timed actions of every rank, in its order; rank 0 first."""

    ranks: tuple[tuple[Timed, ...], ...]

    @cached_property
    def makespan(self) -> int:
        """Latest end, counted from 0."""
        return max((rank[-1].end for rank in self.ranks if rank), default=0)

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """For each rank, its last end minus its first begin."""
        return tuple(rank[-1].end - rank[0].begin if rank else 0 for rank in self.ranks)

    @property
    def max_span(self) -> int:
        """What the zero-bubble papers report: the step, if ranks need not wait for each other at its end."""
        return max(self.spans, default=0)


def timeline(orders: Orders, shape: Shape, costs: Costs | None = None) -> Timeline:
    """Time the orders, with the costs of the shape unless others are given.

    Raises ValueError naming a rank and an action when ranks wait for each other (validate.py says why).
    """
    costs = costs or shape.costs
    lasts = durations(costs)
    ends: dict[int, tuple[int, int]] = {}  # of every result: when, and on which rank
    clocks = [0] * len(orders)
    timed: list[list[Timed]] = [[] for _ in orders]
    heads = [0] * len(orders)
    asleep: dict[int, int] = {}  # rank by the result that it waits for
    awake = list(range(len(orders)))
    while awake:
        rank = awake.pop()
        order, clock, row = orders[rank], clocks[rank], timed[rank]
        for position in range(heads[rank], len(order)):
            actions = parts(order[position])
            begin = clock
            missing = None
            for need in chain.from_iterable(needed_by(action, shape) for action in actions):
                if need not in ends:
                    missing = need
                    break
                end, maker = ends[need]
                begin = max(begin, end if maker == rank else end + costs.latency)
            if missing is not None:
                asleep[missing] = rank
                break
            clock = begin
            for action in actions:
                began, clock = clock, clock + lasts[action.kind]
                row.append(Timed(action, began, clock))
                made = result_of(action, shape)
                if made is not None:
                    ends[made] = clock, rank
                    if made in asleep:
                        awake.append(asleep.pop(made))
            heads[rank] = position + 1
        clocks[rank] = clock
    for rank, order in enumerate(orders):
        if heads[rank] < len(order):
            raise ValueError(f"rank {rank} waits for ever at action {heads[rank]} ({order[heads[rank]]})")
    return Timeline(tuple(tuple(row) for row in timed))


def durations(costs: Costs) -> dict[ActionKind, int]:
    """How long an action of each kind takes."""
    return {
        ActionKind.FORWARD: costs.forward,
        ActionKind.BACKWARD: costs.input_grad + costs.weight_grad,
        ActionKind.INPUT_GRAD: costs.input_grad,
        ActionKind.WEIGHT_GRAD: costs.weight_grad,
    }
