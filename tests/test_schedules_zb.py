"""The automatic zero-bubble schedule: goldens, optima of the authors' ILP, closed forms, laws."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, product
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_shapes import goldens

from stepsim.schedules.orders.action import Action, ActionKind, Order, Orders, actions_of
from stepsim.schedules.orders.in_flight import peak_activations
from stepsim.schedules.orders.schedule import ActivationUnits, Costs, Shape
from stepsim.schedules.orders.timeline import timeline
from stepsim.schedules.orders.validate import validate
from stepsim.schedules.pipeline import get, zb_search

ZB = get("zb")

times = st.integers(0, 4) | st.integers(1, 40)
costs = st.builds(
    Costs,
    forward=times,
    input_grad=times,
    weight_grad=times,
    latency=st.just(0) | times,
)


@st.composite
def searches(draw: st.DrawFn) -> Shape:
    """Shapes with any times, any unit of memory, and any limit that holds one activation."""
    forward = draw(st.integers(1, 9))
    ranks = draw(st.integers(1, 7))
    limits = st.integers(forward, 3 * ranks * forward)
    memory = st.builds(
        ActivationUnits,
        forward=st.just(forward),
        input_grad=st.integers(-forward, 0),
        limit=st.none() | limits,
    )
    return Shape(
        ranks=ranks,
        microbatches=draw(st.integers(1, 16)),
        costs=draw(costs),
        memory=draw(memory),
    )


def shape_of(golden: dict[str, Any], limit: float) -> Shape:
    """The shape of a golden of the zero-bubble authors, whose limit is in activations."""
    assert limit == int(limit)
    return Shape(
        ranks=golden["p"],
        microbatches=golden["m"],
        costs=Costs(
            forward=golden["tF"],
            input_grad=golden["tB"],
            weight_grad=golden["tW"],
            latency=golden["tC"],
        ),
        memory=ActivationUnits(limit=int(limit)),
    )


def memory_held(order: Order, memory: ActivationUnits) -> tuple[int, ...]:
    """What a rank holds after each action, in the unit of ``memory``."""
    adds = {
        ActionKind.FORWARD: memory.forward,
        ActionKind.INPUT_GRAD: memory.input_grad,
        ActionKind.WEIGHT_GRAD: memory.weight_grad,
    }
    return tuple(accumulate(adds[action.kind] for action in actions_of(order)))


def zb_h1(p: int, m: int) -> Orders:
    """Qi 2023, section 2.1: p-1-r forwards, then F and I in turn, and W once r of them are pending."""
    orders = []
    for rank in range(p):
        ahead = p - 1 - rank
        steps = ["F"] * ahead
        for i in range(m):
            steps += ["F"] * (ahead + i < m) + ["I"] + ["W"] * (ahead + i >= p - 1)
        steps += ["W"] * (p - 1 - ahead)
        orders.append(
            tuple(Action(rank, ActionKind(kind), steps[:at].count(kind)) for at, kind in enumerate(steps))
        )
    return tuple(orders)


# Goldens and optima --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["zb1p", "zb2p"])
def test_goldens(shared: Path, name: str) -> None:
    """Action for action what the authors' scheduler finds, and as long as it says."""
    for file, golden in goldens(shared / "data" / "goldens" / "zb", f"{name}_*.json"):
        shape = shape_of(golden, golden["mem_limit"])
        orders = ZB.orders(shape)
        assert [[str(action) for action in order] for order in orders] == golden["actions"], file
        assert list(peak_activations(orders)) == golden["peak_act_chunks"], file
        found = timeline(orders, shape)
        assert (found.makespan, found.max_span) == (golden["makespan"], golden["max_span"]), file
        assert shape.memory.limit == {"zb1p": 1, "zb2p": 2}[name] * shape.ranks, file


def test_as_short_as_the_optimum(shared: Path) -> None:
    """The authors' integer program within the same limit: the search reaches all three optima on file."""
    for file, golden in goldens(shared / "data" / "goldens" / "ilp", "*.json"):
        shape = shape_of(golden, golden["mem"])
        found = timeline(ZB.orders(shape), shape)
        assert found.max_span == golden["longest_stage_span"], file
        assert found.makespan == golden["makespan"], file


# Closed forms --------------------------------------------------------------------------------------------


@given(st.integers(1, 8), st.integers(0, 16), st.integers(1, 9))
def test_equal_times_within_p_activations_are_zb_h1(p: int, more: int, t: int) -> None:
    """From m = p + 1 on (sooner than the 2p that its authors ask for)."""
    shape = Shape(ranks=p, microbatches=p + 1 + more, costs=Costs(forward=t, input_grad=t, weight_grad=t))
    assert ZB.orders(shape) == zb_h1(p, shape.microbatches)


@given(st.integers(1, 8), st.integers(0, 16), st.integers(1, 9))
def test_equal_times_within_2p_activations_have_no_bubble(p: int, more: int, t: int) -> None:
    """Qi 2023, section 2.2 (ZB-H2): every rank's span is its work; one microbatch fewer has a bubble."""
    m = 2 * p - 1
    shape = Shape(
        ranks=p,
        microbatches=m + more,
        costs=Costs(forward=t, input_grad=t, weight_grad=t),
        memory=ActivationUnits(limit=2 * p),
    )
    assert timeline(ZB.orders(shape), shape).max_span == 3 * t * shape.microbatches
    if p > 1:
        fewer = replace(shape, microbatches=m - 1)
        assert timeline(ZB.orders(fewer), fewer).max_span > 3 * t * (m - 1)


@given(st.integers(1, 7), st.integers(1, 12), costs)
def test_one_activation_at_a_time(p: int, m: int, drawn: Costs) -> None:
    """The smallest limit: a rank begins a microbatch when it has done with the one before."""
    shape = Shape(ranks=p, microbatches=m, costs=drawn, memory=ActivationUnits(limit=1))
    expected = tuple(
        tuple(
            Action(rank, kind, k)
            for k in range(m)
            for kind in (ActionKind.FORWARD, ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD)
        )
        for rank in range(p)
    )
    assert ZB.orders(shape) == expected


@given(st.integers(1, 8), st.integers(1, 20), st.integers(1, 9), st.booleans())
def test_forwards_of_equal_times_fill_the_wait_for_the_first_gradient(
    p: int, m: int, t: int, overfill: bool
) -> None:
    """2(p-1-r) of them beside the first, with nothing to overfill."""
    shape = Shape(ranks=p, microbatches=m, costs=Costs(forward=t, input_grad=t, weight_grad=t))
    counts = zb_search._warm_up(shape, 2 * p, overfill=overfill)
    assert counts == [min(m, 2 * (p - 1 - rank) + 1) for rank in range(p)]


# Laws ------------------------------------------------------------------------------------------------------


@given(searches())
def test_orders_can_be_run_within_the_limit(shape: Shape) -> None:
    orders = ZB.orders(shape)
    validate(orders, shape, ZB.rank_of)
    limit = shape.memory.limit or shape.ranks * shape.memory.forward
    for order in orders:
        held = memory_held(order, shape.memory)
        assert max(held) <= limit
        assert held[-1] == 0


@given(searches())
def test_the_first_shortest_of_all_variants_wins(shape: Shape) -> None:
    """Giving variants up changes nothing; idle times are those of the timeline."""
    limit = shape.memory.limit or shape.ranks * shape.memory.forward
    keep = zb_search._pending_that_fit(shape, limit)
    attempts = []
    for overfill, *on in product((False, True), (True, False), (True, False)):
        warm_up = zb_search._warm_up(shape, limit, overfill=overfill)
        attempts.append(zb_search._started(shape, zb_search.SearchRules(*on), keep, warm_up))
        zb_search._continue(attempts[-1], give_up_at=inf)
    best = min(attempts, key=lambda attempt: attempt.longest_idle)
    found = zb_search.search(shape, limit)
    flushed = [
        bytes(steps) + bytes([zb_search.WEIGHT_GRAD]) * pending
        for steps, pending in zip(best.steps, best.pending, strict=True)
    ]
    assert [bytes(steps) for steps in found] == flushed
    of = shape.costs
    work = shape.microbatches * (of.forward + of.input_grad + of.weight_grad)
    assert timeline(ZB.orders(shape), shape).spans == tuple(work + idle for idle in best.idle)


@given(searches(), st.integers(2, 1000), st.integers(2, 10**9))
def test_units_do_not_matter(shape: Shape, of_time: int, of_memory: int) -> None:
    of, memory = shape.costs, shape.memory
    scaled = replace(
        shape,
        costs=Costs(
            forward=of.forward * of_time,
            input_grad=of.input_grad * of_time,
            weight_grad=of.weight_grad * of_time,
            latency=of.latency * of_time,
        ),
        memory=ActivationUnits(
            forward=memory.forward * of_memory,
            input_grad=memory.input_grad * of_memory,
            limit=None if memory.limit is None else memory.limit * of_memory,
        ),
    )
    assert ZB.orders(scaled) == ZB.orders(shape)


@given(searches(), st.integers(0, 10**15))
def test_more_memory_than_all_activations_changes_nothing(shape: Shape, more: int) -> None:
    enough = shape.microbatches * shape.memory.forward
    all_of_it = replace(shape, memory=replace(shape.memory, limit=enough))
    ample = replace(shape, memory=replace(shape.memory, limit=enough + more))
    assert ZB.orders(ample) == ZB.orders(all_of_it)


@given(searches())
def test_the_limit_is_p_activations_unless_given(shape: Shape) -> None:
    none = replace(shape, memory=replace(shape.memory, limit=None))
    stated = replace(shape, memory=replace(shape.memory, limit=shape.ranks * shape.memory.forward))
    assert ZB.orders(none) == ZB.orders(stated)


# Refusals ------------------------------------------------------------------------------------------------


def test_a_second_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match=r"zb .*chunk .*2"):
        ZB.orders(Shape(ranks=4, microbatches=8, chunks=2))


def test_a_limit_that_holds_no_activation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"limit of 6 .*\(7\)"):
        ActivationUnits(forward=7, limit=6)
