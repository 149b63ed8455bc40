"""The steps of ranks whose forwards run beside backwards, of many microbatches from few."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stepsim.schedules.orders.action import Orders
from stepsim.schedules.orders.overlapped import overlapped
from stepsim.schedules.orders.schedule import Shape
from stepsim.schedules.pipeline import get
from stepsim.sim.plan.screen.in_flight import enough_microbatches
from stepsim.sim.plan.screen.steps import RankSteps, steps_of


def orders_of(schedule: str, shape: Shape) -> Orders:
    own = get(schedule)
    return overlapped(own.orders(shape), shape, own.rank_of)


def steps(schedule: str, shape: Shape, longer: Orders = ()) -> RankSteps:
    pipeline: Any = SimpleNamespace(kind_of=tuple(range(shape.stages)), kinds=(None,) * shape.stages)
    return steps_of(orders_of(schedule, shape), pipeline, longer)


@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        ("1f1b", Shape(ranks=1, microbatches=11)),
        ("interleaved", Shape(ranks=2, microbatches=16, chunks=2)),
        ("interleaved", Shape(ranks=4, microbatches=40, chunks=3)),
        ("interleaved", Shape(ranks=8, microbatches=64, chunks=2)),
    ],
)
def test_what_few_microbatches_show_goes_on(schedule: str, shape: Shape) -> None:
    few = replace(shape, microbatches=enough_microbatches(schedule, shape))
    more = replace(few, microbatches=few.microbatches + few.ranks)
    assert few.microbatches < shape.microbatches
    short, whole = steps(schedule, few, orders_of(schedule, more)), steps(schedule, shape)
    groups = (shape.microbatches - few.microbatches) // shape.ranks
    found = short.counts + groups * short.each
    counted = [dict(zip(short.kinds, row, strict=True)) for row in found.tolist()]
    assert counted == [
        {kind: dict(zip(whole.kinds, row, strict=True)).get(kind, 0) for kind in short.kinds}
        for row in whole.counts.tolist()
    ]
    assert {*whole.kinds} <= {*short.kinds}
    assert (short.lead == whole.lead).all()
    assert (short.tail == whole.tail).all()


def test_what_follows_the_last_step_of_a_rank_are_backwards_of_the_stages_below_it() -> None:
    found = steps("interleaved", Shape(ranks=4, microbatches=8, chunks=2))
    assert found.lead.sum(axis=1).tolist() == found.tail.sum(axis=1).tolist() == [0, 1, 2, 3]
