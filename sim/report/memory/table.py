"""The memory bill of one pipeline rank as a table: predicted, textbook, and why they differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...evidence.measured_memory import fit_probability
from ...figures import GB, gigabytes, large, seconds
from ...result.result import SURE_TO_FIT, fit_words
from .bill import bill

if TYPE_CHECKING:
    from rich.console import Console

    from ...result.step import StageMemory
    from ...scenario.models import Scenario

MB = 1e6
KINDS = {"ll": "LL", "ll128": "LL128", "simple": "Simple", "shared": "shared", "nvls": "NVLS"}
"""Buffers of a communicator, in NCCL's words."""


def print_memory(run: Scenario, memory: Sequence[StageMemory], stage: StageMemory, console: Console) -> None:
    """The bill of ``stage``, with its peak (and when, where that is known) and what is left of the GPU; then
    how sure the job is to fit, which its fullest rank in ``memory`` decides, where that is in doubt."""
    from rich.table import Table

    moment = f"at {stage.peak_action or 'the start'}"
    moment += "" if math.isnan(stage.peak_s) else f" {seconds(stage.peak_s)}"
    console.print(f"pipeline rank {stage.pp}: N = {large(stage.parameters)} parameters; peak {moment}")
    table = Table(box=None, padding=(0, 1), header_style="")
    table.add_column(" term", no_wrap=True)
    for name in ("GB", "textbook"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("formula", overflow="fold")
    table.add_column("why", overflow="fold")
    total = 0.0
    for line in bill(run, stage):
        textbook = "" if line.textbook_bytes is None else f"{line.textbook_bytes / GB:,.2f}"
        total += line.textbook_bytes or 0.0
        table.add_row(f" {line.name}", f"{line.bytes / GB:,.2f}", textbook, line.formula, line.why)
    table.add_row(" peak", f"{stage.peak_bytes / GB:,.2f}", f"{total / GB:,.2f}", "", "")
    console.print(table)
    if stage.communicators:
        _print_communicators(stage, console)
    left = stage.capacity_bytes - stage.peak_bytes
    verdict = f"{gigabytes(left)} left" if left >= 0 else f"does not fit: {gigabytes(-left)} too much"
    console.print(f" of {gigabytes(stage.capacity_bytes)}: {verdict}")
    sure = fit_probability(run.software.name, memory)
    if all(one.fits for one in memory) and sure < SURE_TO_FIT:
        console.print(f" the job {fit_words(sure)}")


def _print_communicators(stage: StageMemory, console: Console) -> None:
    """What ``communication`` is made of, in MB: a row a group, a column a kind of buffer that occurs."""
    from rich.table import Table

    kinds = [kind for kind in KINDS if any(getattr(one, kind) for one in stage.communicators)]
    table = Table(box=None, padding=(0, 1), header_style="")
    table.add_column(" communicator", no_wrap=True)
    for name in ("ranks", "channels", *(f"{KINDS[kind]} MB" for kind in kinds), "MB"):
        table.add_column(name, justify="right")
    for one in stage.communicators:
        sizes = (f"{getattr(one, kind) / MB:,.0f}" for kind in kinds)
        table.add_row(f" {one.name}", f"{one.ranks:,}", str(one.channels), *sizes, f"{one.total / MB:,.0f}")
    console.print(table)
