"""Tables that are refused: each wrong cell is shown with what is right, and no pipeline is told where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from broken_tables import table
from hypothesis import given
from hypothesis import strategies as st

from stepsim.schedules.orders.table import table_of
from stepsim.schedules.orders.table_file import parse_table
from stepsim.schedules.orders.validate import find_problems
from stepsim.sim.scenario.table_files import read_table

CELLS = {
    "1X0": "is not an action; expected <stage><F|B|I|W><microbatch>, as in 2F0, a pair, as in "
    "(0F3;3B1)OVERLAP_F_B, or an empty cell",
    "1f0": "or an empty cell; did you mean 1F0?",
    "1 F 0": "or an empty cell; did you mean 1F0?",
    "1_F0": "or an empty cell; did you mean 1F0?",
    "F0": "is not an action; expected <stage><F|B|I|W><microbatch>",
    "1F": "is not an action; expected <stage><F|B|I|W><microbatch>",
    "-1F0": "or an empty cell; did you mean 1F0?",
    "Rank 1": "is not an action; expected <stage><F|B|I|W><microbatch>",
    "\u0661F0": "is not an action; expected <stage><F|B|I|W><microbatch>",
    "1F0;1B0": "is not an action; cells are separated by commas",
    "1F0\t1B0": "is not an action; cells are separated by commas",
    "1SEND_F0": "is not a computation: this is a table with communication (compute_comms), and only the "
    'table without is read; write it with _dump_csv(file, format="compute_only")',
    "1RECV_B0": "is not a computation",
    "1UNSHARD": "is not a computation",
    "1REDUCE_GRAD": "is not a computation",
    "1BW0": "is how torch 2.5 wrote a whole backward: write 1B0, and I in place of that table's B",
    "(1B0;1F1)OVERLAP_F_B": "is not an overlapped pair; expected a forward, then a whole backward; did you "
    "mean (1F1;1B0)OVERLAP_F_B?",
    "(1F1;1B0)": "did you mean (1F1;1B0)OVERLAP_F_B?",
    "(1f1;1b0)overlap_f_b": "did you mean (1F1;1B0)OVERLAP_F_B?",
    "(1F1;1I0)OVERLAP_F_B": "expected a forward, then a whole backward, as in (0F3;3B1)OVERLAP_F_B",
    "(1F1)OVERLAP_F_B": "expected a forward, then a whole backward, as in (0F3;3B1)OVERLAP_F_B",
    "1F" + "9" * 5000: "is not an action",
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
    assert lines[3].startswith("mine.csv: row 2 (rank 1), column 3: '0Y0' is not an action")
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
    with pytest.raises(ValueError, match=r"table\.csv:1:5: .*UTF-8"):
        read_table(path)


def test_orders_without_a_file_are_named_by_rank_and_action() -> None:
    with pytest.raises(
        ValueError, match=r"^rank 1, action 0 \(1F0\) has stage 1 on rank 1, but rank 0, action 1"
    ):
        table_of(table("0F0 1B0 0B0", "1F0"))
    with pytest.raises(ValueError, match="no rank"):
        table_of(())


@given(st.text(st.sampled_from("0123FBIW;()\"', \r\nOVERLAP_"), max_size=60))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        found = parse_table(text, "mine.csv")
    except ValueError as refusal:
        assert str(refusal).startswith("mine.csv: ")  # noqa: PT017 - every refusal names the file
    else:
        find_problems(found.orders, found.shape, found.rank_of)
