"""Tables of actions as files, in the CSV format of torch.distributed.pipelining.

One row per rank, rank 0 first; one cell per step: ``2F0`` (stage 2, forward, microbatch 0; B is a whole
backward, I its input gradient, W its weight gradient), ``(0F3;3B1)OVERLAP_F_B`` (two actions run as one),
or nothing (an idle step: kept out, as orders say nothing of time). Rows may differ in length. Knows cells
and text; table.py infers what pipeline a table is for, validate.py says whether it can be run.

Source: torch 2.13 ``torch/distributed/pipelining/schedules.py``, ``_dump_csv`` and ``_load_csv`` with
``format="compute_only"``, ``_Action``.
"""

from __future__ import annotations

import csv
import io
import re

from .action import Order, Orders, Step, parse_step
from .table import ActionTable, table_of

_SHOWN = 10
_NO_TABLE = 1_000
"""From so many wrong cells on a file is not a table, and is not read to its end."""
_TEXT_SHOWN = 40

# What torch lowers a table to, or wrote before 2.6.
_COMMUNICATION = re.compile(r"[0-9]+(?:SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)[0-9]*")
_OLD_BACKWARD = re.compile(r"([0-9]+)BW([0-9]+)")
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\).*")


def format_table(orders: Orders) -> str:
    r"""The text of a file.

    >>> format_table(((parse_step("0F0"), parse_step("0B0")),))
    '0F0,0B0\r\n'
    """
    out = io.StringIO(newline="")
    csv.writer(out).writerows([str(step) for step in order] for order in orders)
    return out.getvalue()


def parse_table(text: str, source: str) -> ActionTable:
    """The table that ``text`` is; ``source`` names it in messages.

    Raises ValueError naming ``source``, row (from 1), rank, column (from 1) and text of a cell, and what is
    expected there.
    """
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as mistake:
        raise ValueError(f"{source}: not a CSV file: {mistake}") from None
    if not any(cell.strip() for row in rows for cell in row):
        raise ValueError(f"{source}: the file is empty; expected one row per rank, of cells as in 2F0")
    orders, columns = _steps(rows, source)

    def where(rank: int, position: int | None) -> str:
        if position is None:
            return f"row {rank + 1} (rank {rank})"
        return _cell(rows, rank, columns[rank][position])

    try:
        return table_of(orders, where)
    except ValueError as mistake:
        raise ValueError(f"{source}: {mistake}") from None


def _steps(rows: list[list[str]], source: str) -> tuple[Orders, list[list[int]]]:
    """What the cells hold, and the column of each step. Raises ValueError with all that hold no step."""
    orders: list[Order] = []
    columns: list[list[int]] = []
    wrong: list[tuple[int, int, str]] = []
    for rank, row in enumerate(rows):
        steps: list[Step] = []
        columns.append([])
        if len(wrong) > _NO_TABLE:
            break
        for column, cell in enumerate(row):
            text = re.sub(r"\s*([();])\s*", r"\1", cell.strip())
            if not text:
                continue
            try:
                steps.append(parse_step(text))
                columns[-1].append(column)
            except ValueError:
                wrong.append((rank, column, text))
                if len(wrong) > _NO_TABLE:
                    break
        orders.append(tuple(steps))
    if wrong:
        shown = [f"{source}: {_cell(rows, r, column)} {_mistake(text)}" for r, column, text in wrong[:_SHOWN]]
        least = "at least " if len(wrong) > _NO_TABLE else ""
        more = [f"{source}: and {least}{len(wrong) - _SHOWN:,} more"] if len(wrong) > _SHOWN else []
        raise ValueError("\n".join([*shown, *more]))
    return tuple(orders), columns


def _cell(rows: list[list[str]], rank: int, column: int) -> str:
    text = rows[rank][column]
    shown = text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}..."
    return f"row {rank + 1} (rank {rank}), column {column + 1}: {shown!r}"


# What is wrong with a cell ---------------------------------------------------------------------------------


def _mistake(text: str) -> str:
    if _COMMUNICATION.fullmatch(text):
        return (
            "is not a computation: this is a table with communication (compute_comms), and only the table "
            'without is read; write it with _dump_csv(file, format="compute_only")'
        )
    if old := _OLD_BACKWARD.fullmatch(text):
        stage, microbatch = old.groups()
        return (
            f"is how torch 2.5 wrote a whole backward: write {stage}B{microbatch}, and I in place of that "
            "table's B (an input gradient)"
        )
    if text.startswith("("):
        return f"is not an overlapped pair; expected a forward, then a whole backward{_nearest_pair(text)}"
    if re.search(r"[;\t|]", text):
        return "is not an action; cells are separated by commas"
    nearest = _step(re.sub(r"[\s_:.-]", "", text).upper())
    hint = f"; did you mean {nearest}?" if nearest else ""
    return (
        "is not an action; expected <stage><F|B|I|W><microbatch>, as in 2F0, a pair, as in "
        f"(0F3;3B1)OVERLAP_F_B, or an empty cell{hint}"
    )


def _nearest_pair(text: str) -> str:
    """The pair that these parts make one way round or the other, else an example."""
    if found := _PAIR.fullmatch(text.upper()):
        for one, other in (found.groups(), found.groups()[::-1]):
            if pair := _step(f"({one};{other})OVERLAP_F_B"):
                return f"; did you mean {pair}?"
    return ", as in (0F3;3B1)OVERLAP_F_B"


def _step(text: str) -> Step | None:
    try:
        return parse_step(text)
    except ValueError:
        return None
