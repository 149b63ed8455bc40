"""A comparison of schedules for people (a rich table) and for programs (a list of rows)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...figures import TIMES, count, percent
from .compare import ComparedSchedule, ComparisonShape

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

HEADINGS = ("schedule", "v", "step", "bubble", "span", "bubble", "peak", "p2p", "weights")


def comparison_rows(entries: Sequence[ComparedSchedule]) -> list[dict[str, Any]]:
    """One object a schedule; ``refused`` is null or the reason, and then the figures are null."""
    return [_row(entry) for entry in entries]


def _row(entry: ComparedSchedule) -> dict[str, Any]:
    done = entry.timed
    figures: dict[str, float | None] = {
        "makespan": entry.makespan if done else None,
        "max_span": entry.max_span if done else None,
        "bubble_rate": done.bubble_rate if done else None,
        "bubble_rate_makespan": done.bubble_rate_makespan if done else None,
        "peak_activations": entry.peak_activations if done else None,
        "messages_per_microbatch": entry.messages if done else None,
        "p2p_volume": entry.p2p_volume if done else None,
        "weights": entry.weights if done else None,
    }
    head = {"schedule": entry.name, "title": entry.title, "v": entry.chunks}
    return {**head, **figures, "refused": entry.refused}


def print_comparison(entries: Sequence[ComparedSchedule], asked: ComparisonShape, console: Console) -> None:
    """What was asked, the schedules from fast to slow, and why others were refused."""
    from rich.text import Text

    console.print(Text(f"Pipeline schedules on {asked_line(asked)}", style="bold"))
    console.print(Text(costs_line(asked)))
    console.print()
    console.print(_table([entry for entry in entries if entry.timed], asked))
    for line in comparison_notes(entries, asked):
        console.print(Text(line, style="dim"))
    refused = [entry for entry in entries if entry.refused]
    if refused:
        console.print("\nDo not take this shape", style="bold")
    for entry in refused:
        console.print(Text(f"  {entry.name}: {entry.refused}"))


def asked_line(asked: ComparisonShape) -> str:
    """``8 ranks, 32 microbatches``."""
    return f"{count(asked.ranks)} ranks, {count(asked.microbatches)} microbatches"


def costs_line(asked: ComparisonShape) -> str:
    costs = asked.costs
    return (
        f"tf {costs.forward}, tb {costs.input_grad}, tw {costs.weight_grad} for a whole stage (a chunk takes "
        f"a v-th of it), tc {costs.latency}"
    )


def cells(entry: ComparedSchedule) -> tuple[str, ...]:
    """One row of the table, under HEADINGS."""
    done = entry.done
    return (
        entry.name,
        str(entry.chunks),
        f"{entry.makespan:,.6g}",
        percent(done.bubble_rate_makespan),
        f"{entry.max_span:,.6g}",
        percent(done.bubble_rate),
        f"{entry.peak_activations:.4g}",
        f"{entry.p2p_volume:.3g}{TIMES}",
        f"{entry.weights:.3g}{TIMES}",
    )


def comparison_notes(entries: Sequence[ComparedSchedule], asked: ComparisonShape) -> list[str]:
    """What the columns mean, a line each."""
    lines = [
        "step: makespan, if ranks wait for each other at its end; span: of the longest rank, if they do not",
        "bubble: idle share of the column before it; an overlapped pair lasts as long as its two parts",
        "peak: activations of whole stages that the fullest rank holds; p2p: messages over those of 1F1B",
        "weights: what the fullest rank keeps, copies and versions, over the weights of one stage",
    ]
    lines += [
        f"{entry.name} does not flush: it fills and drains once in a training run, not once in a step"
        for entry in entries
        if entry.timed and entry.timed.weight_versions
    ]
    over = [entry.name for entry in entries if entry.timed and _over(entry, asked)]
    if over:
        lines.append(f"over the memory limit of {asked.limit}: {', '.join(over)}")
    return lines


def _over(entry: ComparedSchedule, asked: ComparisonShape) -> bool:
    return asked.limit is not None and entry.peak_activations > asked.limit


def _table(entries: Sequence[ComparedSchedule], asked: ComparisonShape) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="")
    for name in HEADINGS:
        table.add_column(name, justify="left" if name == "schedule" else "right", no_wrap=True)
    for entry in entries:
        table.add_row(*map(Text, cells(entry)), style="dim" if _over(entry, asked) else "")
    return table
