"""Tables as files between us and torch: each reads what the other writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_shapes import goldens, parse, schedules_and_shapes

from stepsim.schedules.orders.schedule import Schedule, Shape
from stepsim.schedules.orders.table import table_of
from stepsim.schedules.pipeline import get
from stepsim.sim.scenario.table_files import read_table, write_table


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
        with pytest.raises(AssertionError, match="both rank"):
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
    with pytest.raises(ValueError, match=r"row 1 \(rank 0\), column 1: '0UNSHARD'"):
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
