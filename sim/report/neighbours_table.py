"""What jobs on one fabric cost one another, for people at a terminal. Knows rich; computes nothing."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from ..figures import count, seconds, signed_percent

if TYPE_CHECKING:
    from rich.console import Console

    from ..result.neighbours import StepNeighbours


def print_neighbours(found: StepNeighbours, console: Console) -> None:
    """A line for each job on the fabric: its step beside the others, and alone."""
    from rich.table import Table
    from rich.text import Text

    console.print(Text.assemble("\n", ("Jobs on the same fabric", "bold")))
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_row("  job", "hosts", "alone", "beside", "")
    table.add_row(
        "  this one",
        "",
        seconds(found.alone_s),
        seconds(found.step_time_s),
        signed_percent(found.slowdown - 1),
    )
    for one in found.others:
        table.add_row(
            Text(f"  {one.name:.40}"),
            count(len(one.hosts)),
            seconds(one.alone_s),
            seconds(one.step_time_s),
            signed_percent(one.slowdown - 1),
        )
    console.print(table)
    if found.placements:
        slowdowns = sorted(one.slowdown - 1 for one in found.placements)
        steps = [one.step_time_s for one in found.placements]
        console.print(
            f"  on {count(len(steps))} random placements {signed_percent(fmean(slowdowns))} on average, "
            f"{signed_percent(slowdowns[0])} to {signed_percent(slowdowns[-1])}; "
            f"steps {seconds(min(steps))} to {seconds(max(steps))}"
        )
