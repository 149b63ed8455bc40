"""A schedule timed by itself: when each action runs under given costs, and the figures that follow.

Times are integers of the user's own unit, messages take ``latency`` and block no rank
(schedules/orders/timeline.py). Knows no model, no cluster and no seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ....schedules.orders.action import Orders
from ....schedules.orders.in_flight import peak_activations
from ....schedules.orders.schedule import Placement, Schedule, Shape, stage_to_rank
from ....schedules.orders.timeline import Timeline, timeline
from ....schedules.orders.validate import validate


@dataclass(frozen=True, kw_only=True)
class TimedSchedule:
    """A schedule of one shape, with its orders and when they run."""

    name: str
    title: str
    shape: Shape
    orders: Orders
    rank_of: Placement
    timeline: Timeline
    weight_versions: Callable[[int, Shape], int] | None = None

    @property
    def work(self) -> int:
        """What every rank computes: m·v·(tf + tb + tw)."""
        costs = self.shape.costs
        per_chunk = costs.forward + costs.input_grad + costs.weight_grad
        return self.shape.microbatches * self.shape.chunks * per_chunk

    @property
    def makespan(self) -> int:
        return self.timeline.makespan

    @property
    def max_span(self) -> int:
        return self.timeline.max_span

    @property
    def bubble_rate(self) -> float:
        """Idle share of the longest span, as the zero-bubble papers count: no barrier between steps."""
        return 1 - self.work / self.max_span

    @property
    def bubble_rate_makespan(self) -> float:
        """Idle share of the makespan: all ranks wait for each other at the end of the step."""
        return 1 - self.work / self.makespan

    @cached_property
    def peaks(self) -> tuple[int, ...]:
        """The most chunk activations that each rank holds."""
        return peak_activations(self.orders)

    @cached_property
    def stage_to_rank(self) -> tuple[int, ...] | None:
        """The rank of each stage; None where it depends on the microbatch, as in DualPipe."""
        return stage_to_rank(self.rank_of, self.shape)


def timed(schedule: Schedule, shape: Shape) -> TimedSchedule:
    """A schedule of that shape, timed by itself.

    Raises:
        ValueError: the schedule does not take the shape; in its own words.
    """
    _refuse_no_work(shape)
    orders = schedule.orders(shape)
    return TimedSchedule(
        name=schedule.name,
        title=schedule.title,
        shape=shape,
        orders=orders,
        rank_of=schedule.rank_of,
        timeline=timeline(orders, shape),
        weight_versions=schedule.weight_versions,
    )


def timed_table(name: str, orders: Orders, shape: Shape, rank_of: Placement) -> TimedSchedule:
    """Anyone's orders. Raises ValueError naming rank and action of what cannot be run."""
    _refuse_no_work(shape)
    validate(orders, shape, rank_of)
    return TimedSchedule(
        name=name,
        title=f"Table {name}",
        shape=shape,
        orders=orders,
        rank_of=rank_of,
        timeline=timeline(orders, shape),
    )


def _refuse_no_work(shape: Shape) -> None:
    costs = shape.costs
    if costs.forward + costs.input_grad + costs.weight_grad == 0:
        raise ValueError("tf, tb and tw are all 0: there is nothing to time; give one of them a time")
