"""What GPUs that differ cost a step, for people at a terminal. Knows rich; computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..figures import count, percent, seconds, signed_percent

if TYPE_CHECKING:
    from rich.console import Console

    from ..result.variation import StepVariation


def print_variation(found: StepVariation, console: Console) -> None:
    """The spread, what it costs, and how far draws are apart."""
    from rich.text import Text

    console.print(Text.assemble("\n", ("GPUs differ", "bold")))
    console.print(
        f"  the slowest has {percent(found.slowest)} of its speed, the mean GPU {percent(found.mean, 2)}"
    )
    console.print(
        f"  step {seconds(found.draws[0].step_time_s)}, of equal GPUs {seconds(found.equal_step_time_s)}: "
        f"{signed_percent(found.draws[0].step_time_s / found.equal_step_time_s - 1)}"
    )
    if found.by_speed:
        step_s = found.by_speed.step.step_time_s
        console.print(
            f"  ranks placed by speed: {seconds(step_s)} "
            f"({signed_percent(step_s / found.draws[0].step_time_s - 1)})"
        )
    if len(found.draws) > 1:
        steps = [one.step_time_s for one in found.draws]
        console.print(
            f"  of {count(len(steps))} draws {signed_percent(found.mean_slowdown - 1)} on average, "
            f"{seconds(min(steps))} to {seconds(max(steps))}"
        )
