"""torch's lowered lists and calls: as recorded, as the installed torch lowers, and what must hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import message_laws as laws
import pytest
from asap import Times, asap
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.bare import ActionTimes, bare_programs
from rendezvous import rendezvous
from schedule_shapes import golden_shape, goldens, parse, schedules_and_shapes
from torch_notation import text

from stepsim.schedules.orders.action import Action, ActionKind, Orders
from stepsim.schedules.orders.overlapped import overlapped
from stepsim.schedules.orders.schedule import (
    Placement,
    Schedule,
    Shape,
    loop_placement,
    stage_to_rank,
    two_way_placement,
)
from stepsim.schedules.p2p.ends import Ends
from stepsim.schedules.p2p.instructions import Instruction, MessageGroup, Recv, RunAction, Send, Wait
from stepsim.schedules.p2p.point_to_point import point_to_point
from stepsim.schedules.p2p.torch_lowering import (
    FsdpCall,
    StageCall,
    lowered,
    with_messages,
)
from stepsim.schedules.pipeline import get, interleaved
from stepsim.sim.engine.replay import replay
from stepsim.sim.program.check import program_problems


@st.composite
def torch_can_run(draw: st.DrawFn) -> tuple[Schedule, Shape]:
    """A schedule that gives each stage one rank, with a shape."""
    schedule, shape = draw(schedules_and_shapes())
    assume(stage_to_rank(schedule.rank_of, shape) is not None)
    return schedule, shape


TIMES = Times(forward=3, input_grad=4, weight_grad=2, latency=1)


def placed(ranks: Sequence[int]) -> Placement:
    return lambda stage, microbatch, shape: ranks[stage]


def written(lists: Sequence[Sequence[Any]]) -> list[list[str]]:
    return [[text(entry) for entry in entries] for entries in lists]


# As recorded ---------------------------------------------------------------------------------------------


def test_lowered_orders_are_those_that_torch_logged(shared: Path) -> None:
    """Every entry of every golden that has the lowered list."""
    seen = set()
    for name, golden in goldens(shared / "data" / "goldens" / "torch", "*.json"):
        if "comms" in golden:
            shape, rank_of = golden_shape(golden), placed(golden["stage_to_rank"])
            assert written(lowered(parse(golden["actions"]), shape, rank_of)) == golden["comms"], name
            seen.add(golden["schedule"])
    assert seen == {
        "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble",
        "DualPipeV",
    }  # fmt: skip


def test_calls_of_gpipe_and_1f1b(shared: Path) -> None:
    """Every call that torch makes with one stage per rank; the last is FSDP's."""
    logged = 0
    for name, golden in goldens(shared / "data" / "goldens" / "torch", "*.json"):
        if "runtime" not in golden:
            continue
        schedule, shape = get(golden["schedule"].lower()), golden_shape(golden)
        programs = point_to_point(schedule.orders(shape), shape, schedule.rank_of, "torch")
        calls = [[call for one in program for call in torch_calls(one)] for program in programs]
        assert [[*ours, f"{rank}REDUCE_GRAD"] for rank, ours in enumerate(calls)] == golden["runtime"], name
        logged += 1
    assert logged == 12


def torch_calls(instruction: Instruction) -> list[str]:
    """In the notation of the goldens."""
    match instruction:
        case RunAction(step):
            return [str(step)]
        case Wait(part):
            return [f"wait[{text(part)}]"]
        case MessageGroup(parts, blocking):
            named = "+".join(map(text, parts))
            return [f"post[{named}]", f"wait[{named}]"] if blocking else [f"post[{named}]"]


@pytest.mark.slow
def test_laws_hold_for_the_orders_of_torch(shared: Path) -> None:
    """Those of schedules that are not registered here too, and of larger shapes."""
    for _, golden in goldens(shared / "data" / "goldens" / "torch", "*.json"):
        orders, shape = parse(golden["actions"]), golden_shape(golden)
        rank_of = placed(golden["stage_to_rank"])
        programs = point_to_point(orders, shape, rank_of, "torch")
        laws.actions_keep_their_order(programs, orders)
        laws.every_needed_result_travels_once(programs, orders, shape, rank_of)
        laws.inputs_are_there_before_use(programs, shape, rank_of)
        laws.two_ranks_list_their_messages_alike(lone(programs))
        laws.both_ends_post_in_the_same_order(programs, directions_apart=False)
        assert max(rendezvous(programs, TIMES)) >= asap(orders, shape.stages, TIMES).makespan


def lone(programs: laws.Programs) -> laws.Programs:
    """Without calls of several parts, which have a communicator of their own."""
    return [
        [one for one in program if not isinstance(one, MessageGroup) or len(one.parts) == 1]
        for program in programs
    ]


# As the installed torch lowers ---------------------------------------------------------------------------


def torch_schedules() -> Any:
    pytest.importorskip("torch")
    from torch.distributed.pipelining import schedules

    return schedules


SHAPES = [
    (2, 1, 2),
    (2, 4, 3),
    (3, 3, 2),
    (3, 6, 4),
    (4, 8, 2),
    (4, 8, 5),
    (5, 10, 3),
    (8, 16, 4),
    (8, 19, 2),
]


@pytest.mark.torch
@pytest.mark.parametrize(
    "name",
    [
        "ScheduleInterleaved1F1B",
        "ScheduleLoopedBFS",
        "ScheduleInterleavedZeroBubble",
        "ScheduleZBVZeroBubble",
        "ScheduleDualPipeV",
    ],
)
def test_tables_of_torch_are_lowered_as_torch_lowers_them(name: str) -> None:
    """Its own tables against its own lists."""
    module = torch_schedules()
    from torch.nn import Identity

    compared = 0
    for p, m, v in SHAPES:
        chunks = 2 if name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV") else v
        v_shaped = name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
        if (name == "ScheduleDualPipeV" and m < 2 * p) or ("Interleaved" in name and m % max(1, m // p)):
            continue
        mine = [0, 2 * p - 1] if v_shaped else list(range(0, p * chunks, p))
        stages = [
            SimpleNamespace(
                stage_index=stage, num_stages=p * chunks, group=None, group_rank=0, group_size=p,
                has_backward=False, stage_index_to_group_rank={}, submod=Identity(),
            )
            for stage in mine
        ]  # fmt: skip
        theirs = getattr(module, name)(stages, n_microbatches=m)
        ranks = [theirs.stage_index_to_group_rank[stage] for stage in range(p * chunks)]
        orders = parse([[str(a) for a in theirs.pipeline_order[r] if a is not None] for r in range(p)])
        ours = lowered(orders, Shape(ranks=p, microbatches=m, chunks=chunks), placed(ranks))
        assert written(ours) == [list(map(str, theirs.pipeline_order_with_comms[r])) for r in range(p)]
        compared += 1
    assert compared >= 5


@pytest.mark.torch
@given(torch_can_run(), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_any_order_is_lowered_as_torch_lowers_it(drawn: tuple[Schedule, Shape], active_stages: int) -> None:
    """Each pass of torch's but the optional one, over the orders of every schedule that torch could run."""
    module = torch_schedules()
    schedule, shape = drawn
    ranks = stage_to_rank(schedule.rank_of, shape)
    assert ranks is not None
    orders = schedule.orders(shape)
    theirs = torch_lists(module, orders, shape, ranks, active_stages)
    ours = lowered(orders, shape, schedule.rank_of, active_stages=active_stages)
    assert written(ours) == written(theirs)


@pytest.mark.torch
def test_pairs_are_lowered_as_torch_lowers_them() -> None:
    """Combined steps of many chunks: a rank frees two stages at once, in the order of torch's set."""
    module = torch_schedules()
    for p, m, v in [(2, 4, 4), (3, 9, 6), (5, 10, 5), (8, 16, 5)]:
        shape = Shape(ranks=p, microbatches=m, chunks=v)
        orders = overlapped(interleaved.orders(shape), shape, loop_placement)
        ranks = [stage % p for stage in range(shape.stages)]
        for active_stages in (1, 2, 3, 5):
            theirs = torch_lists(module, orders, shape, ranks, active_stages)
            ours = lowered(orders, shape, loop_placement, active_stages=active_stages)
            assert written(ours) == written(theirs)


def torch_lists(
    module: Any, orders: Orders, shape: Shape, ranks: Sequence[int], active_stages: int
) -> list[list[Any]]:
    lists = {}
    for rank, order in enumerate(orders):
        actions = [module._Action.from_str(str(step)) for step in order]
        lists[rank] = module._add_reduce_grad(
            module._add_unshard_reshard(actions, active_stages), shape.microbatches
        )
    found = module._add_send_recv(lists, ranks.__getitem__, shape.stages)
    return [found[rank] for rank in range(shape.ranks)]


@pytest.mark.torch
def test_torch_steps_through_our_messages_as_recorded(shared: Path) -> None:
    """Its own step simulation, which flags messages that never meet. It knows no FSDP, nor do its lists."""
    module = torch_schedules()
    stepped = 0
    for name, golden in goldens(shared / "data" / "goldens" / "torch", "*.json"):
        if "simulate_comms_compute" not in golden:
            continue
        shape, ranks = golden_shape(golden), golden["stage_to_rank"]
        orders = parse(golden["actions"])
        ours = with_messages(orders, Ends(orders=orders, shape=shape, rank_of=placed(ranks)))
        lists = {
            rank: [module._Action.from_str(text(one)) for one in entries] for rank, entries in enumerate(ours)
        }
        steps = module._simulate_comms_compute(lists, ranks.__getitem__, shape.stages)
        found = [[str(one or "") for one in steps[rank]] for rank in range(shape.ranks)]
        assert found == golden["simulate_comms_compute"], name
        stepped += 1
    assert stepped == 59


# Laws ----------------------------------------------------------------------------------------------------


@given(torch_can_run())
def test_a_rank_computes_only_on_gathered_stages_and_reduces_each_once(
    drawn: tuple[Schedule, Shape],
) -> None:
    schedule, shape = drawn
    for entries in lowered(schedule.orders(shape), shape, schedule.rank_of):
        held: set[int] = set()
        reduced: list[int] = []
        used: set[int] = set()
        for entry in entries:
            match entry:
                case StageCall(FsdpCall.UNSHARD, stage):
                    assert stage not in held
                    held.add(stage)
                case StageCall(FsdpCall.RESHARD, stage):
                    held.remove(stage)
                case StageCall(FsdpCall.REDUCE_GRAD, stage):
                    reduced.append(stage)
                case Action(stage, _, _):
                    assert stage in held
                    assert stage not in reduced
                    assert len(held) <= 3
                    used.add(stage)
        assert not held
        assert sorted(reduced) == sorted(used)


@given(torch_can_run())
def test_lone_messages_between_two_ranks_stand_in_one_order(drawn: tuple[Schedule, Shape]) -> None:
    """One stream per pair of ranks carries them without a deadlock."""
    schedule, shape = drawn
    programs = point_to_point(schedule.orders(shape), shape, schedule.rank_of, "torch")
    laws.two_ranks_list_their_messages_alike(lone(programs))


@given(torch_can_run(), st.integers(0, 5))
@settings(deadline=None, max_examples=50)
def test_the_engine_runs_what_torch_posts(drawn: tuple[Schedule, Shape], latency: int) -> None:
    """No deadlock on its streams, and no faster than messages that wait for nothing."""
    schedule, shape = drawn
    times = ActionTimes(forward_s=3, input_grad_s=4, weight_grad_s=2, latency_s=latency)
    programs = bare_programs(schedule, shape, times, "torch")
    assert program_problems(programs) == ()
    makespan = replay(programs).makespan_s
    assert makespan >= replay(bare_programs(schedule, shape, times, "async")).makespan_s - 1e-9
    if latency == 0:
        asynchronous = Times(forward=3, input_grad=4, weight_grad=2)
        assert makespan >= asap(schedule.orders(shape), shape.stages, asynchronous).makespan - 1e-9


def test_lone_messages_have_a_stream_for_each_pair_of_ranks() -> None:
    """As in torch's process group; calls of several parts share one."""
    times = ActionTimes(forward_s=1, input_grad_s=1, weight_grad_s=1, latency_s=0.1)
    for name, chunks, streams in (
        ("interleaved", 2, {"compute", "pp 0", "pp 2"}),
        ("gpipe", 1, {"compute", "pp 0", "pp 2"}),
        ("1f1b", 1, {"compute", "pp 0", "pp 2", "pp"}),
    ):
        shape = Shape(ranks=4, microbatches=8, chunks=chunks)
        ops = bare_programs(get(name), shape, times, "torch").classes[1].ops
        assert {op.stream for op in ops} == streams, name


# Choice and refusals -------------------------------------------------------------------------------------


def test_1f1b_with_fewer_microbatches_than_ranks_runs_from_its_lowered_list() -> None:
    """Its own runtime refuses them; a call of two parts on one rank would face two calls on the next."""
    schedule = get("1f1b")
    fewer, enough = Shape(ranks=4, microbatches=3), Shape(ranks=4, microbatches=4)
    for shape, fuses in ((fewer, False), (enough, True)):
        programs = point_to_point(schedule.orders(shape), shape, schedule.rank_of, "torch")
        assert any(len(one.parts) > 1 for program in programs for one in laws.exchanges(program)) is fuses


def test_receives_of_a_lowered_list_are_posted_before_their_turn() -> None:
    schedule, shape = get("interleaved"), Shape(ranks=2, microbatches=4, chunks=2)
    program = point_to_point(schedule.orders(shape), shape, schedule.rank_of, "torch")[1]
    recv = Recv(Action(0, ActionKind.FORWARD, 2), 0)
    post, wait = program.index(MessageGroup((recv,), blocking=False)), program.index(Wait(recv))
    assert any(isinstance(one, RunAction) for one in program[post:wait])
    sends = [one.part for one in program if isinstance(one, Wait) and isinstance(one.part, Send)]
    assert all(isinstance(one, Wait) for one in program[-len(sends) :])


def test_a_stage_on_two_ranks_is_refused() -> None:
    orders = parse([["0F0", "1F1"], ["0F1", "1F0"]])
    with pytest.raises(ValueError, match=r"microbatch .*async .*batched"):
        point_to_point(orders, Shape(ranks=2, microbatches=2), two_way_placement, "torch")


def test_orders_that_cannot_be_run_are_refused() -> None:
    orders = parse([["0B0", "0F0"], ["1B0", "1F0"]])
    orders = (orders[0], orders[1][::-1])
    with pytest.raises(ValueError, match="rank 0 at 0B0; rank 1 at 1F0"):
        lowered(orders, Shape(ranks=2, microbatches=1), loop_placement)
