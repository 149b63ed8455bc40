"""DualPipe's calls: group by group as recorded, and what must hold for them. Orders are the recorded ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import message_laws as laws
import pytest
from asap import Times, asap
from oracles.bare import ActionTimes, bare_programs
from rendezvous import rendezvous
from schedule_shapes import goldens, parse

from stepsim.schedules.orders.action import ActionKind, Orders, parts
from stepsim.schedules.orders.schedule import (
    Placement,
    Schedule,
    Shape,
    loop_placement,
    two_way_placement,
    v_placement,
)
from stepsim.schedules.p2p.instructions import Instruction, MessageGroup, RunAction, Send
from stepsim.schedules.p2p.point_to_point import point_to_point
from stepsim.schedules.pipeline import get
from stepsim.sim.engine.replay import replay
from stepsim.sim.program.check import program_problems

TIMES = Times(forward=5, input_grad=4, weight_grad=3, latency=2)

Recorded = tuple[str, Orders, Shape, Placement, list[list[str]]]


def recorded(shared: Path) -> Iterator[Recorded]:
    for name, golden in goldens(shared / "data" / "goldens" / "dualpipe", "*.json"):
        both_ways = golden["schedule"] == "DualPipe"
        shape = Shape(ranks=golden["p"], microbatches=golden["m"], chunks=1 if both_ways else 2)
        placement = two_way_placement if both_ways else v_placement
        yield name, parse(golden["actions"]), shape, placement, golden["full"]


def call(instruction: Instruction) -> str:
    """In the notation of the goldens."""
    if isinstance(instruction, RunAction):
        return str(instruction.step)
    assert isinstance(instruction, MessageGroup)
    assert instruction.blocking
    named = (f"{'send->' if isinstance(part, Send) else 'recv<-'}{part.peer}" for part in instruction.parts)
    return f"p2p[{'+'.join(named)}]"


def test_calls_of_dualpipe_and_dualpipev(shared: Path) -> None:
    found = [name for name, *_ in recorded(shared)]
    assert len([name for name in found if name.startswith("DualPipeV")]) == len(found) / 2 == 6
    for name, orders, shape, rank_of, full in recorded(shared):
        programs = point_to_point(orders, shape, rank_of, "batched")
        assert [[call(one) for one in program] for program in programs] == full, name


def test_laws_of_messages_hold_for_dualpipe(shared: Path) -> None:
    """Messages from one rank to another are paired by their order alone, whichever way they go."""
    for _, orders, shape, rank_of, _ in recorded(shared):
        programs = point_to_point(orders, shape, rank_of, "batched")
        laws.actions_keep_their_order(programs, orders)
        laws.every_needed_result_travels_once(programs, orders, shape, rank_of)
        laws.inputs_are_there_before_use(programs, shape, rank_of)
        laws.both_ends_post_in_the_same_order(programs, directions_apart=False)


def test_ranks_never_wait_for_each_other(shared: Path) -> None:
    """By the reference timing, and on the engine's streams; no faster than messages that block nobody."""
    for name, orders, shape, rank_of, _ in recorded(shared):
        programs = point_to_point(orders, shape, rank_of, "batched")
        makespan = max(rendezvous(programs, TIMES))
        assert makespan >= asap(orders, shape.stages, TIMES).makespan, name
        times = ActionTimes(forward_s=5, input_grad_s=4, weight_grad_s=3, latency_s=2)
        written = bare_programs(as_schedule(name, orders, rank_of), shape, times, "batched")
        assert program_problems(written) == (), name
        assert replay(written).makespan_s == pytest.approx(makespan), name


def as_schedule(name: str, orders: Orders, rank_of: Placement) -> Schedule:
    return Schedule(name=name, title=name, orders=lambda _: orders, check=lambda _: None, rank_of=rank_of)


def test_tables_of_torch_can_be_run_so_too(shared: Path) -> None:
    """Odd numbers of ranks and other numbers of microbatches among them."""
    tables = goldens(shared / "data" / "goldens" / "torch", "DualPipeV_*.json")
    assert {golden["p"] for _, golden in tables} >= {3, 8}
    for name, golden in tables:
        orders = parse(golden["actions"])
        shape = Shape(ranks=golden["p"], microbatches=golden["m"], chunks=2)
        programs = point_to_point(orders, shape, v_placement, "batched")
        laws.inputs_are_there_before_use(programs, shape, v_placement)
        laws.both_ends_post_in_the_same_order(programs, directions_apart=False)
        assert max(rendezvous(programs, TIMES)) >= asap(orders, shape.stages, TIMES).makespan, name


def test_torch_runs_dualpipev_too(shared: Path) -> None:
    for name, orders, shape, rank_of, _ in recorded(shared):
        if rank_of is v_placement:
            programs = point_to_point(orders, shape, rank_of, "torch")
            laws.inputs_are_there_before_use(programs, shape, rank_of)
            laws.two_ranks_list_their_messages_alike(programs)
            assert max(rendezvous(programs, TIMES)) >= asap(orders, shape.stages, TIMES).makespan, name


def test_every_action_follows_all_that_was_made_before_it_but_what_is_kept(shared: Path) -> None:
    """A result leaves at once, or after the next step: with the group before the step after that."""
    kept = 0
    for name, orders, shape, rank_of, _ in recorded(shared):
        for program in point_to_point(orders, shape, rank_of, "batched"):
            steps: list[int] = []  # computes before each call
            made: dict[object, int] = {}
            for one in program:
                if isinstance(one, RunAction):
                    made |= dict.fromkeys(parts(one.step), len(steps))
                    steps.append(len(steps))
                    continue
                assert isinstance(one, MessageGroup)
                for part in one.parts:
                    if isinstance(part, Send):
                        lag = len(steps) - made[part.action] - 1
                        assert lag == 0 or (lag == 1 and part.action.kind is ActionKind.FORWARD), (name, part)
                        kept += lag
    assert kept


@pytest.mark.parametrize(
    ("orders", "problem"),
    [
        ([["0F0", "0B0"], ["1F0", "1B0"]], "rank 0 has stage 0; use async"),
        ([["0F0", "3F0", "3B0", "0B0"], ["1F0", "2F0", "2B0", "1B0"]], "rank 0 overlaps nothing; use async"),
        (
            [["0F0", "2F0", "(2F1;2B0)OVERLAP_F_B", "4F0"], ["1F0"]],
            "rank 0 has stages 0, 2, 4; use async",
        ),
    ],
)
def test_other_orders_are_refused(orders: list[list[str]], problem: str) -> None:
    shape = Shape(ranks=2, microbatches=1, chunks=2)
    with pytest.raises(ValueError, match=problem):
        point_to_point(parse(orders), shape, v_placement, "batched")


def test_schedules_of_other_frameworks_are_refused() -> None:
    schedule, shape = get("interleaved"), Shape(ranks=2, microbatches=4, chunks=2)
    with pytest.raises(ValueError, match="overlaps nothing; use async"):
        point_to_point(schedule.orders(shape), shape, loop_placement, "batched")
