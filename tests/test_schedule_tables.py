"""Tables as files: what is written is read again, by us and by torch; what is wrong is shown in its cell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from asap import Stuck, Times, asap
from broken_tables import TWO_WAY, TWO_WAY_SHAPE, Drawn, broken_tables, table, valid_tables
from hypothesis import given
from hypothesis import strategies as st
from schedule_shapes import any_shape, goldens, parse, schedules_and_shapes

from stepsim.schedules.messages.validate import find_problems as find_message_problems
from stepsim.schedules.orders.in_flight import peak_activations
from stepsim.schedules.orders.schedule import Memory, Schedule, Shape, two_way_placement
from stepsim.schedules.orders.table import Table, schedule_of, table_of
from stepsim.schedules.orders.table_file import format_table, parse_table, read_table, write_table
from stepsim.schedules.orders.timeline import timeline
from stepsim.schedules.orders.validate import find_problems
from stepsim.schedules.pipeline import get
from stepsim.sim.engine.replay import replay
from stepsim.sim.step.bare import ActionTimes, bare_programs

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


def assert_same_pipeline(found: Table, shape: Shape, schedule: Schedule) -> None:
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
    assert found == Table(orders=TWO_WAY, shape=TWO_WAY_SHAPE, ways=((0, 1), (1, 0)))
    assert all(
        found.rank_of(s, k, found.shape) == two_way_placement(s, k, TWO_WAY_SHAPE)
        for s in range(2)
        for k in range(4)
    )
    spaced = format_table(TWO_WAY).replace(";", " ; ").replace("(", "( ")
    assert parse_table(spaced, "table.csv") == found


# Refused ---------------------------------------------------------------------------------------------------

CELLS = {
    "1X0": "is no action; expected <stage><F|B|I|W><microbatch>, as in 2F0, a pair, as in "
    "(0F3;3B1)OVERLAP_F_B, or an empty cell",
    "1f0": "or an empty cell; did you mean 1F0?",
    "1 F 0": "or an empty cell; did you mean 1F0?",
    "1_F0": "or an empty cell; did you mean 1F0?",
    "F0": "is no action; expected <stage><F|B|I|W><microbatch>",
    "1F": "is no action; expected <stage><F|B|I|W><microbatch>",
    "-1F0": "or an empty cell; did you mean 1F0?",
    "Rank 1": "is no action; expected <stage><F|B|I|W><microbatch>",
    "\u0661F0": "is no action; expected <stage><F|B|I|W><microbatch>",
    "1F0;1B0": "is no action; cells are separated by commas",
    "1F0\t1B0": "is no action; cells are separated by commas",
    "1SEND_F0": "is no computation: this is a table with communication (compute_comms), and only the table "
    'without is read; write it with _dump_csv(file, format="compute_only")',
    "1RECV_B0": "is no computation",
    "1UNSHARD": "is no computation",
    "1REDUCE_GRAD": "is no computation",
    "1BW0": "is how torch 2.5 wrote a whole backward: write 1B0, and I in place of that table's B",
    "(1B0;1F1)OVERLAP_F_B": "is no overlapped pair; expected a forward, then a whole backward; did you mean "
    "(1F1;1B0)OVERLAP_F_B?",
    "(1F1;1B0)": "did you mean (1F1;1B0)OVERLAP_F_B?",
    "(1f1;1b0)overlap_f_b": "did you mean (1F1;1B0)OVERLAP_F_B?",
    "(1F1;1I0)OVERLAP_F_B": "expected a forward, then a whole backward, as in (0F3;3B1)OVERLAP_F_B",
    "(1F1)OVERLAP_F_B": "expected a forward, then a whole backward, as in (0F3;3B1)OVERLAP_F_B",
    "1F" + "9" * 5000: "is no action",
}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell[:20])
def test_a_cell_that_is_no_action_is_told_what_is(cell: str) -> None:
    shown = repr(cell if len(cell) <= 40 else f"{cell[:40]}...")
    with pytest.raises(ValueError, match=re.escape(f"{shown} ")) as refusal:
        parse_table(f"0F0,0B0\r\n,{cell},1B0\r\n", "mine.csv")
    assert str(refusal.value).startswith(f"mine.csv: row 2 (rank 1), column 2: {shown} is ")
    assert CELLS[cell] in str(refusal.value)


def test_all_wrong_cells_are_shown_up_to_ten() -> None:
    with pytest.raises(ValueError, match="row 1") as refusal:
        parse_table("\r\n".join(["0X0,0F0,0Y0"] * 6), "mine.csv")
    lines = str(refusal.value).splitlines()
    assert len(lines) == 11
    assert lines[3].startswith("mine.csv: row 2 (rank 1), column 3: '0Y0' is no action")
    assert lines[-1] == "mine.csv: and 2 more"


NO_PIPELINES = {
    "nothing": ("", "the file is empty; expected one row per rank, of cells as in 2F0"),
    "nothing but cells": ("\n , ,\n", "the file is empty"),
    "open quote": ('0F0,"0B0\n', "not a CSV file: unexpected end of data"),
    "text after a quote": ('0F0,"0B0"x\n', "not a CSV file: ',' expected after '\"'"),
    "no row for a rank": (
        "0F0,0B0\n\n1F0,1B0\n",
        "row 2 (rank 1) has no action: every rank of a pipeline holds a stage; if there is no such",
    ),
    "no action for a rank": ("0F0,0B0\n,,\n", "row 2 (rank 1) has no action"),
    "a stage is missing": (
        "0F0,0B0\n1F0,1B0\n3F0,3B0\n",
        "row 3 (rank 2), column 1: '3F0' is of stage 3, but no action is of stage 2: each stage has",
    ),
    "stages from 1": (
        "1F0,1B0\n2F0,2B0\n",
        "row 1 (rank 0), column 1: '1F0' is of stage 1, but no action is of stage 0",
    ),
    "microbatches from 1": (
        "0F1,0B1\n1F1,1B1\n",
        "row 1 (rank 0), column 1: '0F1' is of microbatch 1, but no action is of microbatch 0: each",
        "microbatch has its number, 0, 1, 2 and so on",
    ),
    "a microbatch is missing": (
        "0F0,0B0,0F2,0B2\n",
        "column 3: '0F2' is of microbatch 2, but no action is of microbatch 1",
    ),
    "a huge microbatch": (
        f"0F0,0B0,0F{10**9}\n",
        f"column 3: '0F{10**9}' is of microbatch {10**9}, but no action is of microbatch 1",
    ),
    "forward and backward apart": (
        "0F0,0B0,,1B0\n1F0\n",
        "row 2 (rank 1), column 1: '1F0' has stage 1 on rank 1, but row 1 (rank 0), column 4: '1B0' has",
        "it on rank 0: a microbatch passes a stage on one rank, forward and backward",
    ),
    "a stage on two ranks": (
        "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3,1F1,1B1\n1F0,1B0,1F2,1B2,1F3,1B3\n",
        "row 2 (rank 1), column 1: '1F0' has stage 1 on rank 1, but row 1 (rank 0), column 9: '1F1' has",
        "it on rank 0: a stage is on one rank, or in a two-way table (DualPipe) on one for the first half",
        "of the microbatches and on another for the second half",
    ),
    "two ways that are not even": (
        "0F0,0F1,1F1,1B1,0B0,0B1\n1F0,1B0\n",
        "row 2 (rank 1) holds 0 stages (none), but row 1 (rank 0) holds 2 stages (0, 1) for the second half",
        "of the microbatches: every",
    ),
    "half a way": (
        "0F0,1F1,1B1,0B0\n1F0,1B0\n",
        "none of the microbatches 1 to 1 passes stage 0, which they need as well",
    ),
    "other numbers of chunks": (
        "0F0,2F0,2B0,0B0\n1F0,1B0\n",
        "row 2 (rank 1) holds 1 stage (1), but row 1 (rank 0) holds 2 stages (0, 2): every rank of stepsim",
        "holds the same number of stages",
    ),
}


@pytest.mark.parametrize("why", NO_PIPELINES)
def test_a_table_of_no_pipeline_is_told_where(why: str) -> None:
    text, *words = NO_PIPELINES[why]
    with pytest.raises(ValueError, match=re.escape(words[0])) as refusal:
        parse_table(text, "mine.csv")
    assert str(refusal.value).startswith("mine.csv: ")
    assert " ".join(words) in str(refusal.value)


def test_what_is_no_text_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"0F0,\xff\xfe")
    with pytest.raises(ValueError, match=r"table\.csv: not a CSV file: it is not text in UTF-8"):
        read_table(path)


def test_orders_without_a_file_are_named_by_rank_and_action() -> None:
    with pytest.raises(
        ValueError, match=r"^rank 1, action 0 \(1F0\) has stage 1 on rank 1, but rank 0, action 1"
    ):
        table_of(table("0F0 1B0 0B0", "1F0"))
    with pytest.raises(ValueError, match="the table has no rank"):
        table_of(())


@given(st.text(st.sampled_from("0123FBIW;()\"', \r\nOVERLAP_"), max_size=60))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        found = parse_table(text, "mine.csv")
    except ValueError as refusal:
        assert str(refusal).startswith("mine.csv: ")  # noqa: PT017 - every refusal names the file
    else:
        find_problems(found.orders, found.shape, found.rank_of)


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
        with pytest.raises(ValueError, match=r"table mine (is for p=2, m=3, v=1|does not group)"):
            ask(shape)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"group": 2}, "table mine does not group its microbatches, so group=2 means nothing"),
        ({"memory": Memory(limit=2)}, "table mine holds what it holds, so a memory limit of 2 means nothing"),
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
    assert "is for p=2, m=3, v=1 (ranks, microbatches, chunks per rank)" in str(refusal.value)
    assert "not for p=2, m=8, v=1" in str(refusal.value)


# torch -----------------------------------------------------------------------------------------------------


class _Stage:
    """As much of a pipeline stage as torch's schedules ask of it when they are made."""

    def __init__(self, shape: Shape) -> None:
        self.num_stages = shape.stages
        self.group_size = shape.ranks
        self.group_rank = 0
        self.stage_index = 0
        self.group = None
        self.is_first = True


def runtime(shape: Shape) -> Any:
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    return schedules._PipelineScheduleRuntime([_Stage(shape)], shape.microbatches, loss_fn=lambda *_: None)


@pytest.mark.torch
@given(drawn=schedules_and_shapes(), halves=st.booleans())
def test_torch_reads_what_we_write_and_we_what_it_writes(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Schedule, Shape], halves: bool
) -> None:
    """Byte for byte, and it lowers every table; a stage on two ranks is what torch cannot do."""
    schedule, shape = drawn
    orders = schedule.orders(shape)
    folder = tmp_path_factory.mktemp("tables")
    ours, theirs = folder / "ours.csv", folder / "theirs.csv"
    write_table(orders, ours)
    torch_schedule = runtime(shape)
    if len(table_of(orders).ways) == 2:
        with pytest.raises(AssertionError, match="assigned to both rank"):
            torch_schedule._load_csv(str(ours), format="compute_only")
        return
    torch_schedule._load_csv(str(ours), format="compute_only")
    actions = [[str(action) for action in row] for row in torch_schedule.pipeline_order.values()]
    assert actions == [[str(step) for step in order] for order in orders]
    torch_schedule._dump_csv(str(theirs), format="compute_only")
    assert theirs.read_bytes() == ours.read_bytes()
    assert read_table(theirs) == table_of(orders)


@pytest.mark.torch
def test_torch_reads_pairs_and_split_backwards(tmp_path: Path, shared: Path) -> None:
    """DualPipeV and zero-bubble orders of torch itself."""
    read = 0
    for name, golden in goldens(shared / "data" / "goldens" / "torch", "*.json"):
        orders = parse(golden["actions"])
        shape = Shape(ranks=golden["p"], microbatches=golden["m"], chunks=golden["v"])
        write_table(orders, tmp_path / "ours.csv")
        torch_schedule = runtime(shape)
        torch_schedule._load_csv(str(tmp_path / "ours.csv"), format="compute_only")
        torch_schedule._dump_csv(str(tmp_path / "theirs.csv"), format="compute_only")
        assert read_table(tmp_path / "theirs.csv").orders == orders, name
        read += any("OVERLAP" in cell or "W" in cell for row in golden["actions"] for cell in row)
    assert read > 5


@pytest.mark.torch
def test_tables_of_torch_with_communication_are_refused(tmp_path: Path) -> None:
    shape = Shape(ranks=2, microbatches=2)
    path = tmp_path / "table.csv"
    write_table(get("1f1b").orders(shape), path)
    torch_schedule = runtime(shape)
    torch_schedule._load_csv(str(path), format="compute_only")
    torch_schedule._dump_csv(str(path))
    with pytest.raises(ValueError, match=r"row 1 \(rank 0\), column 1: '0UNSHARD' is no computation"):
        read_table(path)


@pytest.mark.torch
def test_torchs_own_tables_with_idle_steps_are_read(tmp_path: Path) -> None:
    """Its interleaved schedules pad their rows with idle steps, written as empty cells."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    shape = Shape(ranks=4, microbatches=8, chunks=2)
    torch_schedule = runtime(shape)
    ours = get("interleaved").orders(shape)
    torch_schedule.pipeline_order = {
        rank: [None] * rank + [schedules._Action.from_str(str(step)) for step in order] + [None] * 2
        for rank, order in enumerate(ours)
    }
    torch_schedule._dump_csv(str(tmp_path / "theirs.csv"), format="compute_only")
    assert b",," in (tmp_path / "theirs.csv").read_bytes()
    assert read_table(tmp_path / "theirs.csv").orders == ours
