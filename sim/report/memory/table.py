"""The memory bill of one pipeline rank as a table: predicted, textbook, and why they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..figures import GB, gigabytes, large, seconds
from .bill import bill

if TYPE_CHECKING:
    from rich.console import Console

    from ..result import Result, StageMemory


def print_memory(result: Result, stage: StageMemory, console: Console) -> None:
    """The bill of ``stage``, with its peak and what is left of the GPU."""
    from rich.table import Table

    moment = f"at {stage.peak_action or 'the start'} {seconds(stage.peak_s)}"
    console.print(f"pipeline rank {stage.pp}: N = {large(stage.parameters)} parameters; peak {moment}")
    table = Table(box=None, padding=(0, 1), header_style="")
    table.add_column(" term", no_wrap=True)
    for name in ("GB", "textbook"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("formula", overflow="fold")
    table.add_column("why", overflow="fold")
    total = 0.0
    for line in bill(result, stage):
        textbook = "" if line.textbook_bytes is None else f"{line.textbook_bytes / GB:,.2f}"
        total += line.textbook_bytes or 0.0
        table.add_row(f" {line.name}", f"{line.bytes / GB:,.2f}", textbook, line.formula, line.why)
    table.add_row(" peak", f"{stage.peak_bytes / GB:,.2f}", f"{total / GB:,.2f}", "", "")
    console.print(table)
    left = stage.capacity_bytes - stage.peak_bytes
    verdict = f"{gigabytes(left)} left" if left >= 0 else f"does not fit: {gigabytes(-left)} too much"
    console.print(f" of {gigabytes(stage.capacity_bytes)}: {verdict}")
