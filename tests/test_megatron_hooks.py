"""Megatron's calls beside the actions: combined steps, and when gradients and parameters travel."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from law_examples import examples
from schedule_shapes import golden_shape, goldens, schedules_and_shapes, shapes_of
from small_scenarios import lowered, scenario

from stepsim.schedules.orders.action import ActionKind, Orders, Overlap, actions_of, parts
from stepsim.schedules.orders.in_flight import peak_activations
from stepsim.schedules.orders.overlapped import overlapped
from stepsim.schedules.orders.progress import stalls
from stepsim.schedules.orders.schedule import Schedule, Shape, loop_placement, stage_to_rank
from stepsim.schedules.orders.validate import validate
from stepsim.schedules.p2p.megatron_hooks import GIVES_GRADIENT, Hook, HookCall, Hooked
from stepsim.schedules.p2p.megatron_hooks import hooked as hooked_rank
from stepsim.schedules.p2p.point_to_point import point_to_point
from stepsim.schedules.pipeline import get, interleaved


def hooked(orders: Orders, shape: Shape, *, aligned: bool = True) -> list[tuple[Hooked, ...]]:
    return [hooked_rank(rank, order, shape, aligned=aligned) for rank, order in enumerate(orders)]


# As recorded ---------------------------------------------------------------------------------------------


def test_synchronisation_calls_are_where_megatron_logged_them(shared: Path) -> None:
    """Every call of every golden that logs them, in its place between the actions."""
    logged = Counter[int]()
    for name, golden in goldens(shared / "data" / "goldens" / "megatron", "*.json"):
        if "hooks" in golden:
            shape = golden_shape(golden)
            orders = get("1f1b" if shape.chunks == 1 else "interleaved").orders(shape)
            assert [list(map(str, one)) for one in hooked(orders, shape)] == golden["hooks"], name
            logged[shape.chunks] += 1
    assert logged == {1: 8, 2: 10, 3: 7}


def test_combined_steps_are_those_that_megatron_logged(shared: Path) -> None:
    logged = 0
    for name, golden in goldens(shared / "data" / "goldens" / "megatron", "*.json"):
        if "moe_overlap" in golden:
            orders = combined(golden_shape(golden))
            named = [[str(step).replace("OVERLAP_F_B", "OVERLAP") for step in order] for order in orders]
            assert named == golden["moe_overlap"], name
            logged += 1
    assert logged == 17


def combined(shape: Shape) -> Orders:
    return overlapped(interleaved.orders(shape), shape, loop_placement)


@st.composite
def interleaved_by_megatron(draw: st.DrawFn) -> Shape:
    """Only others interleave fewer microbatches than ranks, or a last group smaller than the ranks."""
    shape = draw(shapes_of("interleaved"))
    last = shape.microbatches % interleaved.group_size(shape)
    assume(shape.microbatches >= shape.ranks and (last == 0 or last >= shape.ranks))
    return shape


# Laws ----------------------------------------------------------------------------------------------------


@examples(20)
@given(interleaved_by_megatron())
def test_combined_steps_do_the_same_work_with_one_activation_more(shape: Shape) -> None:
    """The same forwards and the same backwards in the same order; nothing deadlocks."""
    pairs, plain = combined(shape), interleaved.orders(shape)
    validate(pairs, shape, loop_placement)
    for kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
        assert [[a for a in actions_of(order) if a.kind is kind] for order in pairs] == [
            [a for a in actions_of(order) if a.kind is kind] for order in plain
        ]
    most = shape.microbatches * shape.chunks
    for more, held in zip(peak_activations(pairs), peak_activations(plain), strict=True):
        assert more == min(held + 1, most)


@pytest.mark.slow
def test_combined_steps_run_to_their_end_or_are_refused() -> None:
    """Of all grouped shapes: refused are only last groups smaller than the ranks, as Megatron does.

    Alone, forwards and backwards wait for each other up to a last group of 2p - 3 - N.
    """
    refused = 0
    for p, v, m in product(range(2, 6), range(2, 5), range(1, 15)):
        for group in range(min(p, m), m + 1):
            shape, last = Shape(ranks=p, microbatches=m, chunks=v, group=group), m % group
            try:
                interleaved.check(shape)
            except ValueError:
                continue
            if (2 if v == 2 else 1) <= last <= 2 * p - 2 - group:
                refused += 1
                with pytest.raises(ValueError, match="deadlock"):
                    combined(shape)
            else:
                assert not stalls(combined(shape), shape), shape
    assert refused == 35


def test_a_refusal_of_pairs_names_who_waits_for_whom() -> None:
    with pytest.raises(ValueError, match=r"rank 0, action 11 .* waits for 5F3 .* ranks 0 and 2"):
        combined(Shape(ranks=3, microbatches=4, chunks=3))


@examples(20)
@given(interleaved_by_megatron())
def test_messages_of_combined_steps_need_a_rule_that_knows_pairs(shape: Shape) -> None:
    orders, rank_of = combined(shape), loop_placement
    assert point_to_point(orders, shape, rank_of, "torch")
    if any(isinstance(step, Overlap) for order in orders for step in order):
        with pytest.raises(ValueError, match=r"async .*torch"):
            point_to_point(orders, shape, rank_of, "prefetch")


@given(schedules_and_shapes(), st.booleans())
def test_every_stage_is_reduced_once_after_its_last_backward(
    drawn: tuple[Schedule, Shape], aligned: bool
) -> None:
    """All at once by a call, or bucket by bucket in the last backward itself: never both, never neither."""
    schedule, shape = drawn
    assume(stage_to_rank(schedule.rank_of, shape))  # DualPipe's copies reduce when all is there
    orders = schedule.orders(shape)
    for rank, entries in enumerate(hooked(orders, shape, aligned=aligned)):
        assert tuple(one for one in entries if not isinstance(one, Hook)) == orders[rank]
        gives = [action for action in actions_of(orders[rank]) if action.kind in GIVES_GRADIENT]
        final = {action.stage: action for action in gives}
        enabled, reduced, ended = True, Counter[int](), set()
        for entry in entries:
            match entry:
                case Hook(HookCall.ENABLE | HookCall.DISABLE as call, None):
                    enabled = call is HookCall.ENABLE
                case Hook(HookCall.REDUCE, int(stage)):
                    assert stage in ended
                    assert enabled
                    reduced[stage] += 1
                case Hook(HookCall.GATHER, stage):
                    assert aligned
                case step:
                    assert not isinstance(step, Hook)
                    for action in parts(step):
                        if action.kind not in GIVES_GRADIENT:
                            continue
                        ended |= {action.stage} if action == final[action.stage] else set()
                        if enabled:
                            assert action == final[action.stage]
                            reduced[action.stage] += 1
        assert reduced == dict.fromkeys(final, 1)
        assert enabled


@given(schedules_and_shapes())
def test_parameters_are_gathered_once_and_ahead_of_use(drawn: tuple[Schedule, Shape]) -> None:
    schedule, shape = drawn
    assume(shape.chunks > 1)
    for entries in hooked(schedule.orders(shape), shape):
        gathered: list[int | None] = []
        used: dict[int, None] = {}
        for entry in entries:
            match entry:
                case Hook(HookCall.GATHER, stage):
                    gathered.append(stage)
                case Hook():
                    pass
                case step:
                    used |= dict.fromkeys(action.stage for action in parts(step))
                    assert used.keys() <= set(gathered)
        assert gathered == list(used)


@given(interleaved_by_megatron())
def test_ranks_reduce_in_the_same_slot(shape: Shape) -> None:
    """Rank r reduces the chunk that ended with its backward j-r right after its backward j."""
    orders = get("interleaved").orders(shape)
    slots: dict[int, set[int]] = {}
    for rank, entries in enumerate(hooked(orders, shape)):
        backwards = 0
        for entry in entries:
            if isinstance(entry, Hook):
                if entry.call is HookCall.REDUCE and backwards < shape.microbatches * shape.chunks:
                    assert entry.stage is not None
                    slots.setdefault(entry.stage // shape.ranks, set()).add(backwards - rank)
            else:
                backwards += sum(action.kind is ActionKind.BACKWARD for action in parts(entry))
    assert all(len(found) == 1 for found in slots.values())


@pytest.mark.parametrize("chunks", [2, 3, 4])
def test_a_step_gathers_where_the_order_says(chunks: int) -> None:
    """With one bucket a stage, each call of the order is a gather of the program, between the same steps."""
    run = scenario(
        pp=2, vpp=chunks, dp=2, zero=1, num_layers=4 * chunks, schedule="interleaved", gpu="H100-SXM5-80GB",
        software={"preset": "megatron-core-2024", "gradients": {"bucket_elements": math.inf}},
    )  # fmt: skip
    step = lowered(run)
    for rank, order in enumerate(step.plan.orders):
        wanted = [
            "gather" if isinstance(entry, Hook) else str(entry)
            for entry in hooked_rank(rank, order, step.plan.shape)
            if not isinstance(entry, Hook) or entry.call is HookCall.GATHER
        ]
        ran = [""]
        for op in step.programs.classes[rank].ops:
            if op.name == "parameter all_gather":
                ran.append("gather")
            elif op.stream == "compute" and op.action and op.action != ran[-1]:
                ran.append(op.action)  # what awaits gathers is several ops
        assert ran[1:] == wanted


def test_buckets_of_every_stage_unless_aligned() -> None:
    shape = Shape(ranks=2, microbatches=2, chunks=2)
    orders = get("interleaved").orders(shape)
    entries = hooked(orders, shape, aligned=False)[1]
    assert " ".join(map(str, entries)) == "DIS 1F0 1F1 3F0 3B0 3F1 EN 3B1 DIS 1B0 EN 1B1 DIS EN"
