"""Orders of the pipeline schedules: goldens of other people's code, laws over all registered ones, refusals.

Closed forms are in test_closed_forms.py and test_closed_forms_zero_bubble.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, cast

import pytest
from asap import Times, asap
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from schedule_shapes import any_shape, golden_shape, goldens, legal, parse, shapes_of

from stepsim.schedules.orders.action import Action, ActionKind, Orders, Overlap
from stepsim.schedules.orders.in_flight import peak_activations
from stepsim.schedules.orders.overlapped import overlapped
from stepsim.schedules.orders.progress import stalls
from stepsim.schedules.orders.schedule import ActivationUnits, Costs, Shape, holders, stage_to_rank
from stepsim.schedules.orders.timeline import timeline
from stepsim.schedules.orders.validate import find_problems
from stepsim.schedules.pipeline import get, interleaved, names
from stepsim.schedules.unknown import UnknownEntry

OURS = {
    "GPipe": "gpipe",
    "1F1B": "1f1b",
    "Interleaved1F1B": "interleaved",
    "LoopedBFS": "looped-bfs",
    "InterleavedZeroBubble": "interleaved-zb",
    "h1": "zb-h1",
    "h2": "zb-h2",
    "ZBVZeroBubble": "zb-v",
    "zbv_hand": "zb-v",
    "DualPipe": "dualpipe",
    "DualPipeV": "dualpipev",
}
"""Our schedules by their names in the golden files. Schedules that search have test files of their own."""

durations = st.integers(1, 40)


@pytest.mark.parametrize("name", names())
def test_traits_are_those_of_the_orders(name: str) -> None:
    """On four ranks and sixteen microbatches, where every schedule shows what it does."""
    schedule = get(name)
    tried = (Shape(ranks=4, microbatches=16, chunks=chunks) for chunks in (2, schedule.chunks))
    shape = next(one for one in tried if legal(schedule, one))
    orders = schedule.orders(shape)
    steps = [step for order in orders for step in order]
    pairs = [step for step in steps if isinstance(step, Overlap)]
    kinds = {step.kind for step in steps if isinstance(step, Action)}
    assert schedule.splits_backward == (ActionKind.WEIGHT_GRAD in kinds)
    assert schedule.two_way == (stage_to_rank(schedule.rank_of, shape) is None)
    assert schedule.ends_meet == (0 in holders(shape.stages - 1, schedule.rank_of, shape))
    assert schedule.overlaps >= bool(pairs)
    if schedule.overlaps and not pairs:
        assert any(
            isinstance(step, Overlap)
            for order in overlapped(orders, shape, schedule.rank_of)
            for step in order
        )


def golden_costs(golden: dict[str, Any]) -> dict[Costs, dict[str, Any]]:
    """What was recorded, by its costs: a table with keys such as F10_B11_W7_C2, or the golden's own costs."""
    if "timing" not in golden:
        own = Costs(**{ours: golden[theirs] for ours, theirs in _COSTS.items()})
        return {own: {name: golden[name] for name in ("makespan", "max_span")}}
    recorded = {}
    for key, times in golden["timing"].items():
        numbers = (int(cost[1:]) for cost in key.split("_"))
        recorded[Costs(**dict(zip(_COSTS, numbers, strict=True)))] = times
    assert recorded
    return recorded


_COSTS = {"forward": "tF", "input_grad": "tB", "weight_grad": "tW", "latency": "tC"}


def oracle_times(costs: Costs) -> Times:
    """The same costs for the reference timing of the tests."""
    return Times(
        forward=costs.forward,
        input_grad=costs.input_grad,
        weight_grad=costs.weight_grad,
        latency=costs.latency,
    )


def assert_timing(name: str, golden: dict[str, Any], orders: Orders, shape: Shape) -> None:
    """Every recorded makespan, span and end, by the reference timing and by our own."""
    for costs, recorded in golden_costs(golden).items():
        reference = asap(orders, shape.stages, oracle_times(costs))
        ours = timeline(orders, shape, costs)
        clock = tuple(rank[-1].end for rank in ours.ranks)
        assert (reference.makespan, max(reference.spans)) == (recorded["makespan"], recorded["max_span"]), (
            name
        )
        assert (ours.makespan, ours.max_span) == (recorded["makespan"], recorded["max_span"]), name
        assert list(reference.clock) == list(clock) == recorded.get("clock", list(clock)), name


# Goldens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "pattern", "count"),
    [
        ("torch", "GPipe_*.json", 14),
        ("torch", "1F1B_*.json", 10),
        ("torch", "Interleaved1F1B_*.json", 23),
        ("torch", "LoopedBFS_*.json", 26),
        ("torch", "InterleavedZeroBubble_*.json", 23),
        ("torch", "ZBVZeroBubble_*.json", 14),
        ("torch", "DualPipeV_*.json", 7),
        ("megatron", "*.json", 46),
        ("dualpipe", "*.json", 12),
        ("zb", "h1_*.json", 10),
        ("zb", "h2_*.json", 8),
        ("zb", "zbv_hand_*.json", 10),
    ],
)
def test_schedules_are_those_of_the_goldens(shared: Path, folder: str, pattern: str, count: int) -> None:
    """Orders, placement, peaks, and under every cost set the makespan, the span and each rank's end."""
    found = goldens(shared / "data" / "goldens" / folder, pattern)
    assert len(found) == count
    for name, golden in found:
        schedule, shape = get(OURS[golden["schedule"]]), golden_shape(golden)
        orders = schedule.orders(shape)
        assert [[str(step) for step in order] for order in orders] == golden["actions"], name
        placed = golden.get("stage_to_rank")  # DualPipe's depends on the microbatch
        assert stage_to_rank(schedule.rank_of, shape) == (placed and tuple(placed)), name
        assert list(peak_activations(orders)) == golden["peak_act_chunks"], name
        assert_timing(name, golden, orders, shape)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["torch", "zb", "ilp"])
def test_timing_and_validator_on_schedules_of_others(shared: Path, folder: str) -> None:
    """Both timings, the peaks and the validator on lists that we only read."""
    found = goldens(shared / "data" / "goldens" / folder, "*.json")
    assert len(found) > 2
    for name, golden in found:
        ranks = golden.get("stage_to_rank") or list(range(golden["p"]))
        shape = Shape(ranks=golden["p"], microbatches=golden["m"], chunks=len(ranks) // golden["p"])
        orders = parse(golden["actions"])
        if "timing" in golden or "max_span" in golden:
            assert_timing(name, golden, orders, shape)
        peaks = golden.get("peak_act_chunks")
        assert peaks is None or list(peak_activations(orders)) == peaks, name
        assert find_problems(orders, shape, lambda stage, *_, ranks=ranks: ranks[stage]) == ()


# Laws over every registered schedule ---------------------------------------------------------------------


def test_all_schedules_are_found() -> None:
    assert set(names()) >= {*OURS.values(), "pipedream"}
    assert list(names()) == sorted(names())
    assert all(get(name).name == name for name in names())


@pytest.mark.parametrize("name", names())
@examples(15)
@given(data=st.data())
def test_orders_are_valid(name: str, data: st.DataObject) -> None:
    """Complete, on the right ranks, free of deadlock, and within the activations that the schedule states."""
    schedule, shape = get(name), data.draw(shapes_of(name))
    orders = schedule.orders(shape)
    assert find_problems(orders, shape, schedule.rank_of, schedule.in_flight) == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if get(name).in_flight])
@examples(20)
@given(data=st.data())
def test_peak_activations_are_as_stated(name: str, data: st.DataObject) -> None:
    """The bound is reached, so a planner may use it in place of the orders."""
    schedule, shape = get(name), data.draw(shapes_of(name))
    assert schedule.in_flight is not None
    stated = tuple(schedule.in_flight(rank, shape) for rank in range(shape.ranks))
    assert peak_activations(schedule.orders(shape)) == stated


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
@examples(15)
@given(data=st.data())
def test_no_schedule_beats_the_work_or_the_fill(name: str, data: st.DataObject) -> None:
    """A rank does all its work; the first microbatch passes every stage up and down."""
    schedule, shape = get(name), data.draw(shapes_of(name))
    f, b, w, c = *data.draw(st.tuples(durations, durations, durations)), data.draw(st.integers(0, 9))
    times = Times(forward=f, input_grad=b, weight_grad=w, latency=c)
    timing = asap(schedule.orders(shape), shape.stages, times)
    ways = {
        tuple(schedule.rank_of(s, k, shape) for s in range(shape.stages)) for k in range(shape.microbatches)
    }
    hops = min(sum(one != other for one, other in pairwise(way)) for way in ways)
    assert min(timing.spans) >= shape.microbatches * shape.chunks * (f + b + w)
    assert timing.makespan >= shape.stages * (f + b) + 2 * c * hops


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
@examples(15)
@given(data=st.data())
def test_both_timings_agree(name: str, data: st.DataObject) -> None:
    """Our own and the reference of the tests, rank by rank, with the costs that the shape was drawn with."""
    shape = data.draw(shapes_of(name))
    orders = get(name).orders(shape)
    reference, ours = asap(orders, shape.stages, oracle_times(shape.costs)), timeline(orders, shape)
    assert tuple(row[-1].end for row in ours.ranks) == reference.clock
    assert ours.spans == reference.spans


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
@given(shape=any_shape)
def test_orders_refuse_exactly_what_check_refuses(name: str, shape: Shape) -> None:
    """And what is accepted can be run."""
    schedule = get(name)
    if legal(schedule, shape):
        assert find_problems(schedule.orders(shape), shape, schedule.rank_of, schedule.in_flight) == ()
    else:
        with pytest.raises(ValueError, match=r"use |needs |leave it"):
            schedule.orders(shape)


# Refusals ------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(UnknownEntry) as refusal:
        get("interleave")
    assert (refusal.value.name, refusal.value.nearest) == ("interleave", "interleaved")
    assert refusal.value.known == names()
    assert "interleaved" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("1f1b", Shape(ranks=4, microbatches=8, chunks=2), "1f1b .*chunk .*2"),
        ("gpipe", Shape(ranks=4, microbatches=8, group=4), "group=4 means nothing"),
        ("interleaved", Shape(ranks=4, microbatches=8), "use 1f1b"),
        ("interleaved", Shape(ranks=1, microbatches=8, chunks=2), "one rank"),
        (
            "interleaved",
            Shape(ranks=8, microbatches=2, chunks=2),
            "2 microbatches .*8; use group=2",
        ),
        (
            "interleaved",
            Shape(ranks=4, microbatches=8, chunks=2, group=3),
            "4 ranks; use group=4, 5, 6, 7, 8",
        ),
        (
            "interleaved",
            Shape(ranks=4, microbatches=13, chunks=3),
            "use group=5, 6, 7, 8, 9, 10, .*13, or 12 or 16 microbatches .*4",
        ),
        (
            "interleaved",
            Shape(ranks=5, microbatches=12, chunks=2),
            "group of 2, .*5 ranks .*group=6, 7, 8, 9, 10, 11,",
        ),
        ("looped-bfs", Shape(ranks=2, microbatches=4, chunks=2, group=2), "group=2 means nothing"),
        (
            "looped-bfs",
            Shape(ranks=2, microbatches=4, memory=ActivationUnits(limit=4)),
            "limit of 4 means nothing",
        ),
        (
            "interleaved-zb",
            Shape(ranks=3, microbatches=7, chunks=2),
            "2 groups, .*6 or 9 microbatches, or group=3 to 7",
        ),
        (
            "interleaved-zb",
            Shape(ranks=4, microbatches=8, chunks=2, group=3),
            "4 ranks .*3; use group=4 to 8",
        ),
        ("zb-h1", Shape(ranks=4, microbatches=3), "4 or more .*4 ranks, not 3"),
        ("zb-h2", Shape(ranks=4, microbatches=6), "7 or more .*4 ranks, not 6"),
        ("zb-h2", Shape(ranks=4, microbatches=8, chunks=2), "zb-h2 .*chunk .*2"),
        ("zb-v", Shape(ranks=4, microbatches=8), "zb-v .*2 chunks .*1; use chunks=2"),
        ("dualpipe", Shape(ranks=3, microbatches=8), "so not 3 ranks; use 2 or 4"),
        ("dualpipe", Shape(ranks=1, microbatches=8), "so not 1 ranks; use 2"),
        ("dualpipe", Shape(ranks=4, microbatches=7), "8 or more .*4 ranks, not 7"),
        ("dualpipe", Shape(ranks=4, microbatches=9), "not 9; use 8 or 10"),
        (
            "dualpipev",
            Shape(ranks=4, microbatches=7, chunks=2),
            "8 or more .*4 ranks, not 7; .*zb-v",
        ),
        ("pipedream", Shape(ranks=4, microbatches=7, chunks=2), "pipedream .*chunk .*2"),
    ],
)
def test_a_refusal_says_what_would_do(name: str, shape: Shape, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get(name).check(shape)


@given(st.integers(2, 8), st.integers(1, 24), st.integers(2, 5), st.data())
def test_interleaved_takes_every_group_that_can_run(p: int, m: int, v: int, data: st.DataObject) -> None:
    """From min(p, m) to m. Refused is exactly what would have ranks wait for each other."""
    group = data.draw(st.integers(min(p, m), m))
    shape = Shape(ranks=p, microbatches=m, chunks=v, group=group)
    orders = tuple(interleaved._order(rank, shape) for rank in range(p))
    assert legal(get("interleaved"), shape) == (stalls(orders, shape) == ())


def test_what_megatron_and_torch_group_is_taken() -> None:
    """Megatron: m mod N is 0 or at least p. torch: any m that its rounds divide, m < p among them."""
    for p, m in product(range(2, 9), range(1, 33)):
        rounds = max(1, m // p)
        groups = {group for group in range(p, m + 1) if m % group == 0 or m % group >= p}
        groups |= set() if m % rounds else {m // rounds}
        for group in groups:
            for name in ("interleaved", "interleaved-zb"):
                get(name).check(Shape(ranks=p, microbatches=m, chunks=3, group=group))


@given(any_shape)
def test_the_groups_that_a_refusal_names_are_legal(shape: Shape) -> None:
    schedule = get("interleaved")
    try:
        schedule.check(shape)
    except ValueError as refusal:
        advice = str(refusal).partition("use group=")[2].partition(", or")[0]
        for group in [word for word in advice.replace(",", " ").split() if word.isdigit()]:
            schedule.check(replace(shape, group=int(group)))


@pytest.mark.parametrize("field", ["ranks", "microbatches", "chunks", "group"])
def test_a_shape_is_positive(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} .*1, not 0"):
        replace(Shape(ranks=2, microbatches=2), **cast(Any, {field: 0}))


# Notation --------------------------------------------------------------------------------------------------


@given(st.integers(0, 999), st.sampled_from(ActionKind), st.integers(0, 999))
def test_actions_read_what_they_print(stage: int, kind: ActionKind, microbatch: int) -> None:
    action = Action(stage, kind, microbatch)
    assert Action.parse(str(action)) == action


@pytest.mark.parametrize("text", ["", "2X0", "F0", "2F", "-1F0", "2F0 ", "2f0"])
def test_what_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an action"):
        Action.parse(text)
