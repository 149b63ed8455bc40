"""Tables as files: what is written is read again, and a table that is read is a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asap import Stuck, Times, asap
from broken_tables import TWO_WAY, TWO_WAY_SHAPE, Drawn, broken_tables, valid_tables
from hypothesis import given
from oracles.bare import ActionTimes, bare_programs
from oracles.messages_of_tables import find_problems as find_message_problems
from schedule_shapes import any_shape, goldens, legal, parse, schedules_and_shapes

from stepsim.schedules.orders.in_flight import peak_activations
from stepsim.schedules.orders.schedule import ActivationUnits, Schedule, Shape, two_way_placement
from stepsim.schedules.orders.table import ActionTable, schedule_of, table_of
from stepsim.schedules.orders.table_file import format_table, parse_table
from stepsim.schedules.orders.timeline import timeline
from stepsim.schedules.orders.validate import find_problems
from stepsim.schedules.pipeline import get, names
from stepsim.sim.engine.replay import replay
from stepsim.sim.scenario.table_files import read_table, write_table

ONE_F_ONE_B = "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n"


# Written and read again ------------------------------------------------------------------------------------


@given(schedules_and_shapes())
def test_what_is_written_is_read_again(drawn: tuple[Schedule, Shape]) -> None:
    """Orders, shape and placement of every schedule, and the same text again."""
    schedule, shape = drawn
    orders = schedule.orders(shape)
    text = format_table(orders)
    found = parse_table(text, "table.csv")
    assert found.orders == orders
    assert format_table(found.orders) == text
    assert_same_pipeline(found, shape, schedule)


def assert_same_pipeline(found: ActionTable, shape: Shape, schedule: Schedule) -> None:
    assert found.shape == Shape(ranks=shape.ranks, microbatches=shape.microbatches, chunks=shape.chunks)
    assert all(
        found.rank_of(stage, k, found.shape) == schedule.rank_of(stage, k, shape)
        for stage in range(shape.stages)
        for k in range(shape.microbatches)
    )


@given(valid_tables())
def test_any_valid_table_is_read_again(drawn: Drawn) -> None:
    """Split backwards, pairs and two ways too."""
    found = parse_table(format_table(drawn.orders), "table.csv")
    assert found.orders == drawn.orders
    assert found.shape.stages == drawn.shape.stages
    assert find_problems(found.orders, found.shape, found.rank_of) == ()


@given(broken_tables())
def test_a_broken_table_is_refused_by_the_reader_or_the_validator(drawn: Drawn) -> None:
    """What the reader takes, it takes as it is; what is sound by itself needs no other shape or placement."""
    try:
        found = parse_table(format_table(drawn.orders), "table.csv")
    except ValueError as refusal:
        assert str(refusal).startswith("table.csv: ")  # noqa: PT017 - every refusal names the file
        assert find_problems(drawn.orders, drawn.shape, drawn.rank_of)
        return
    assert found.orders == drawn.orders
    if not find_problems(found.orders, found.shape, found.rank_of):
        try:
            asap(found.orders, found.shape.stages, Times(forward=1, input_grad=1, weight_grad=1))
        except Stuck:
            pytest.fail("accepted, but ranks wait for each other")


def test_a_file_is_as_torch_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "1f1b.csv"
    orders = get("1f1b").orders(Shape(ranks=2, microbatches=2))
    write_table(orders, path)
    assert path.read_bytes() == ONE_F_ONE_B.encode()
    assert read_table(path) == read_table(str(path)) == table_of(orders)


@pytest.mark.slow
def test_goldens_are_read_again(shared: Path) -> None:
    """Every order of other projects, with its placement."""
    for folder in ("torch", "zb", "dualpipe", "megatron", "ilp"):
        for name, golden in goldens(shared / "data" / "goldens" / folder, "*.json"):
            orders = parse(golden["actions"])
            found = parse_table(format_table(orders), name)
            assert found.orders == orders, name
            assert (found.shape.ranks, found.shape.microbatches) == (golden["p"], golden["m"]), name
            if "stage_to_rank" in golden:
                assert found.ways == (tuple(golden["stage_to_rank"]),), name
            assert find_problems(found.orders, found.shape, found.rank_of) == (), name
            assert find_message_problems(found.orders, found.shape, found.rank_of, "async") == (), name


@pytest.mark.parametrize(
    "text",
    [
        ONE_F_ONE_B.replace("\r\n", "\n"),
        ONE_F_ONE_B.rstrip(),
        "\ufeff" + ONE_F_ONE_B,
        ONE_F_ONE_B.replace(",", " , "),
        ONE_F_ONE_B.replace("1F0", ",,1F0,").replace("0B1", "0B1,,,"),
        ONE_F_ONE_B.replace("0F0", '"0F0"').replace("1F1", "01F001"),
    ],
    ids=["line ends", "no last line end", "byte order mark", "spaces", "idle cells", "quotes and zeros"],
)
def test_another_spelling_is_the_same_table(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    assert read_table(path).orders == get("1f1b").orders(Shape(ranks=2, microbatches=2))


def test_a_two_way_table_has_two_placements() -> None:
    found = parse_table(format_table(TWO_WAY), "table.csv")
    assert found == ActionTable(orders=TWO_WAY, shape=TWO_WAY_SHAPE, ways=((0, 1), (1, 0)))
    assert all(
        found.rank_of(s, k, found.shape) == two_way_placement(s, k, TWO_WAY_SHAPE)
        for s in range(2)
        for k in range(4)
    )
    spaced = format_table(TWO_WAY).replace(";", " ; ").replace("(", "( ")
    assert parse_table(spaced, "table.csv") == found


@pytest.mark.parametrize("name", names())
def test_a_table_has_the_traits_of_its_schedule(name: str) -> None:
    schedule = get(name)
    tried = (Shape(ranks=4, microbatches=16, chunks=chunks) for chunks in (2, schedule.chunks))
    shape = next(one for one in tried if legal(schedule, one))
    table = schedule_of(table_of(schedule.orders(shape)), "mine")
    assert (table.two_way, table.ends_meet) == (schedule.two_way, schedule.ends_meet)
    assert (table.splits_backward, table.overlaps) == (schedule.splits_backward, True)


# A table as a schedule -------------------------------------------------------------------------------------


@given(schedules_and_shapes())
def test_a_table_is_a_schedule(drawn: tuple[Schedule, Shape]) -> None:
    """With the orders, the placement and the peaks of the one that wrote it."""
    schedule, shape = drawn
    orders = schedule.orders(shape)
    ours = schedule_of(table_of(orders), "mine")
    asked = Shape(ranks=shape.ranks, microbatches=shape.microbatches, chunks=ours.chunks, costs=shape.costs)
    ours.check(asked)
    assert ours.orders(asked) == orders
    assert ours.in_flight is not None
    assert tuple(ours.in_flight(rank, asked) for rank in range(shape.ranks)) == peak_activations(orders)
    assert find_problems(ours.orders(asked), asked, ours.rank_of, ours.in_flight) == ()
    assert timeline(ours.orders(asked), asked) == timeline(orders, shape)


def test_a_table_runs_in_the_engine() -> None:
    schedule, shape = get("interleaved"), Shape(ranks=2, microbatches=4, chunks=2)
    ours = schedule_of(parse_table(format_table(schedule.orders(shape)), "table.csv"), "mine")
    times = ActionTimes(forward_s=1.0, input_grad_s=2.0, weight_grad_s=3.0, latency_s=0.5)
    for rule in ("async", "blocking"):
        expected = replay(bare_programs(schedule, shape, times, rule)).makespan_s
        assert replay(bare_programs(ours, shape, times, rule)).makespan_s == expected


@given(any_shape)
def test_a_table_refuses_every_other_shape(shape: Shape) -> None:
    ours = schedule_of(table_of(get("1f1b").orders(Shape(ranks=2, microbatches=3))), "mine")
    if (shape.ranks, shape.microbatches, shape.chunks, shape.group) == (2, 3, 1, None):
        return
    for ask in (ours.check, ours.orders):
        with pytest.raises(ValueError, match=r"mine .*(p=2, m=3, v=1|group)"):
            ask(shape)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"group": 2}, "mine .*group=2"),
        (
            {"memory": ActivationUnits(limit=2)},
            "mine .*limit of 2",
        ),
    ],
    ids=["group", "memory"],
)
def test_a_table_refuses_what_would_change_nothing(extra: dict[str, Any], message: str) -> None:
    ours = schedule_of(table_of(get("1f1b").orders(Shape(ranks=2, microbatches=3))), "mine")
    with pytest.raises(ValueError, match=message):
        ours.check(Shape(ranks=2, microbatches=3, **extra))


def test_a_refused_shape_is_told_which_would_do() -> None:
    ours = schedule_of(table_of(get("1f1b").orders(Shape(ranks=2, microbatches=3))), "mine")
    with pytest.raises(ValueError, match="use ranks=2, microbatches=3, chunks=1") as refusal:
        ours.check(Shape(ranks=2, microbatches=8))
    assert "p=2, m=3, v=1 (ranks, microbatches, chunks" in str(refusal.value)
    assert "not for p=2, m=8, v=1" in str(refusal.value)
