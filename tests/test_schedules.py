"""Orders of the pipeline schedules: goldens, closed forms, laws over all registered ones."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from asap import Times, asap
from hypothesis import assume, given
from hypothesis import strategies as st
from schedule_shapes import any_shape, golden_shape, goldens, legal, parse, schedules_and_shapes

from stepsim.schedules.orders.action import Action, Kind
from stepsim.schedules.orders.in_flight import peak_activations
from stepsim.schedules.orders.schedule import Schedule, Shape, stage_to_rank
from stepsim.schedules.orders.validate import find_problems
from stepsim.schedules.pipeline import get, names

OURS = {"GPipe": "gpipe", "1F1B": "1f1b", "Interleaved1F1B": "interleaved"}
"""Names in the golden files."""

durations = st.integers(1, 40)


def golden_times(key: str) -> Times:
    """Of a key such as F10_B11_W7_C2."""
    forward, input_grad, weight_grad, latency = (int(cost[1:]) for cost in key.split("_"))
    return Times(forward=forward, input_grad=input_grad, weight_grad=weight_grad, latency=latency)


# Goldens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        ("torch", "GPipe_*.json"),
        ("torch", "1F1B_*.json"),
        ("torch", "Interleaved1F1B_*.json"),
        ("megatron", "*.json"),
    ],
)
def test_goldens(shared: Path, folder: str, pattern: str) -> None:
    """Orders, peaks, and under every cost set the makespan, the span and each rank's end."""
    for name, golden in goldens(shared / "data" / "goldens" / folder, pattern):
        schedule, shape = get(OURS[golden["schedule"]]), golden_shape(golden)
        orders = schedule.orders(shape)
        assert [[str(action) for action in order] for order in orders] == golden["actions"], name
        assert stage_to_rank(schedule.rank_of, shape) == tuple(golden["stage_to_rank"]), name
        assert list(peak_activations(orders)) == golden["peak_act_chunks"], name
        assert_timing(name, golden, shape.stages)


@pytest.mark.parametrize("folder", ["torch", "zb", "ilp"])
def test_reference_timing_on_schedules_of_others(shared: Path, folder: str) -> None:
    """The timing oracle itself: V placements, split backwards, other frameworks' lists."""
    found = goldens(shared / "data" / "goldens" / folder, "*.json")
    assert len(found) > 2
    for name, golden in found:
        ranks = golden.get("stage_to_rank") or list(range(golden["p"]))
        if "timing" in golden:
            assert_timing(name, golden, len(ranks))
        peaks = golden.get("peak_act_chunks")
        assert peaks is None or list(peak_activations(parse(golden["actions"]))) == peaks, name
        shape = Shape(ranks=golden["p"], microbatches=golden["m"], chunks=len(ranks) // golden["p"])
        assert (
            find_problems(parse(golden["actions"]), shape, lambda stage, *_, ranks=ranks: ranks[stage]) == ()
        )


def assert_timing(name: str, golden: dict[str, Any], stages: int) -> None:
    assert golden["timing"], name
    for key, expected in golden["timing"].items():
        timeline = asap(parse(golden["actions"]), stages, golden_times(key))
        assert timeline.makespan == expected["makespan"], (name, key)
        assert max(timeline.spans) == expected["max_span"], (name, key)
        assert list(timeline.clock) == expected["clock"], (name, key)


# Closed forms of the makespan, times per chunk -----------------------------------------------------------


def makespan(name: str, shape: Shape, f: int, bf: int, c: int = 0) -> float:
    schedule = get(name)
    times = Times(forward=f, input_grad=bf, weight_grad=0, latency=c)
    return asap(schedule.orders(shape), shape.stages, times).makespan


@given(st.integers(1, 9), st.integers(1, 24), durations, durations, st.integers(0, 100))
def test_gpipe_makespan(p: int, m: int, f: int, bf: int, c: int) -> None:
    """Huang 2019, section 2.3; with latency exact for any c."""
    assert makespan("gpipe", Shape(ranks=p, microbatches=m), f, bf, c) == (m + p - 1) * (f + bf) + 2 * c * (
        p - 1
    )


@given(st.integers(1, 9), st.integers(1, 24), durations, durations, st.integers(0, 100))
def test_1f1b_makespan(p: int, m: int, f: int, bf: int, c: int) -> None:
    """Narayanan 2021, section 2.2.1; asynchronous latency is never hidden, for any c and m."""
    messages = 2 * (m + p - 2 - (m + p - 2) // p)
    assert makespan("1f1b", Shape(ranks=p, microbatches=m), f, bf, c) == (m + p - 1) * (f + bf) + messages * c


@given(st.integers(2, 7), st.integers(1, 4), st.integers(2, 4), durations, durations, st.data())
def test_interleaved_makespan(p: int, groups: int, v: int, f: int, bf: int, data: st.DataObject) -> None:
    """Narayanan 2021, section 2.2.2; latency is hidden after the first fill, up to the time of a chunk."""
    c = data.draw(st.integers(0, min(f, bf)))
    shape = Shape(ranks=p, microbatches=groups * p, chunks=v)
    expected = (shape.microbatches * v + p - 1) * (f + bf) + 2 * c * (p * v - 1)
    assert makespan("interleaved", shape, f, bf, c) == expected


@given(st.integers(2, 6), st.integers(1, 4), st.integers(2, 4), st.integers(1, 4), durations, durations)
def test_interleaved_makespan_does_not_depend_on_the_group(
    p: int, groups: int, v: int, size: int, f: int, bf: int
) -> None:
    """Without latency, for any legal group size; m is a multiple of p."""
    m = groups * p
    shape = Shape(ranks=p, microbatches=m, chunks=v, group=min(m, p + size - 1))
    if legal(get("interleaved"), shape):
        assert makespan("interleaved", shape, f, bf) == (m * v + p - 1) * (f + bf)


def test_bubbles_published_for_eight_ranks() -> None:
    """AMD-AGI/Primus schedule replay, p = 8, m = 32: 21.88 % (1F1B) and 10.94 % (interleaved, 2 chunks)."""
    for name, chunks, percent in (("1f1b", 1, 21.88), ("interleaved", 2, 10.94)):
        shape = Shape(ranks=8, microbatches=32, chunks=chunks)
        ideal = 32 * chunks * 3
        assert 100 * (makespan(name, shape, 1, 2) / ideal - 1) == pytest.approx(percent, abs=0.005)


# Laws over every registered schedule ---------------------------------------------------------------------


def test_all_schedules_are_found() -> None:
    assert set(names()) >= set(OURS.values())
    assert list(names()) == sorted(names())
    assert all(get(name).name == name for name in names())


@given(schedules_and_shapes())
def test_orders_are_valid(drawn: tuple[Schedule, Shape]) -> None:
    """Complete, on the right ranks, free of deadlock, and within the activations that the schedule states."""
    schedule, shape = drawn
    orders = schedule.orders(shape)
    assert find_problems(orders, shape, schedule.rank_of, schedule.in_flight) == ()


@given(schedules_and_shapes())
def test_peak_activations_are_as_stated(drawn: tuple[Schedule, Shape]) -> None:
    """The bound is reached, so a planner may use it in place of the orders."""
    schedule, shape = drawn
    assume(schedule.in_flight is not None)
    assert schedule.in_flight is not None
    stated = tuple(schedule.in_flight(rank, shape) for rank in range(shape.ranks))
    assert peak_activations(schedule.orders(shape)) == stated


@given(schedules_and_shapes(), durations, durations, durations, st.integers(0, 9))
def test_no_schedule_beats_the_work_or_the_fill(
    drawn: tuple[Schedule, Shape], f: int, b: int, w: int, c: int
) -> None:
    """A rank does all its work; the first microbatch passes every stage up and down."""
    schedule, shape = drawn
    times = Times(forward=f, input_grad=b, weight_grad=w, latency=c)
    timeline = asap(schedule.orders(shape), shape.stages, times)
    work = shape.microbatches * shape.chunks * (f + b + w)
    ways = {
        tuple(schedule.rank_of(s, k, shape) for s in range(shape.stages)) for k in range(shape.microbatches)
    }
    hops = min(sum(one != other for one, other in pairwise(way)) for way in ways)
    assert min(timeline.spans) >= work
    assert timeline.makespan >= shape.stages * (f + b) + 2 * c * hops


@given(st.sampled_from(names()), any_shape)
def test_orders_refuse_exactly_what_check_refuses(name: str, shape: Shape) -> None:
    """And what is accepted can be run."""
    schedule = get(name)
    if legal(schedule, shape):
        assert find_problems(schedule.orders(shape), shape, schedule.rank_of, schedule.in_flight) == ()
    else:
        with pytest.raises(ValueError, match=r"use |needs |leave it out"):
            schedule.orders(shape)


# Refusals ------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'interleave'\. Did you mean interleaved\? Known: .*1f1b.*gpipe"):
        get("interleave")


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("1f1b", Shape(ranks=4, microbatches=8, chunks=2), "one chunk per rank, not 2"),
        ("gpipe", Shape(ranks=4, microbatches=8, group=4), "group=4 means nothing"),
        ("interleaved", Shape(ranks=4, microbatches=8), "with one chunk, use 1f1b"),
        ("interleaved", Shape(ranks=1, microbatches=8, chunks=2), "one rank needs no pipeline"),
        (
            "interleaved",
            Shape(ranks=8, microbatches=2, chunks=2),
            "2 microbatches in groups of 8; use group=2",
        ),
        (
            "interleaved",
            Shape(ranks=4, microbatches=8, chunks=2, group=3),
            "smaller than the 4 ranks; use group=4, 8",
        ),
        (
            "interleaved",
            Shape(ranks=3, microbatches=8, chunks=2),
            "group of 2, but there are 3 ranks; use group=4, 5, 8, or 6 or 9 microbatches in groups of 3",
        ),
    ],
)
def test_a_refusal_says_what_would_do(name: str, shape: Shape, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get(name).check(shape)


@given(any_shape)
def test_the_groups_that_a_refusal_names_are_legal(shape: Shape) -> None:
    schedule = get("interleaved")
    try:
        schedule.check(shape)
    except ValueError as refusal:
        advice = str(refusal).partition("use group=")[2].partition(", or")[0]
        for group in [word for word in advice.replace(",", " ").split() if word.isdigit()]:
            advised = Shape(
                ranks=shape.ranks, microbatches=shape.microbatches, chunks=shape.chunks, group=int(group)
            )
            schedule.check(advised)


@pytest.mark.parametrize("field", ["ranks", "microbatches", "chunks", "group"])
def test_a_shape_is_positive(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} of at least 1, not 0"):
        Shape(**{"ranks": 2, "microbatches": 2, field: 0})


# Notation --------------------------------------------------------------------------------------------------


@given(st.integers(0, 999), st.sampled_from(Kind), st.integers(0, 999))
def test_actions_read_what_they_print(stage: int, kind: Kind, microbatch: int) -> None:
    action = Action(stage, kind, microbatch)
    assert Action.parse(str(action)) == action


@pytest.mark.parametrize("text", ["", "2X0", "F0", "2F", "-1F0", "2F0 ", "2f0"])
def test_what_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an action"):
        Action.parse(text)
