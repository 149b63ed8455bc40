"""GPUs of different kinds in one job, for people at a terminal. Knows rich; computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..figures import count, seconds, signed_percent

if TYPE_CHECKING:
    from rich.console import Console

    from ..result.gpu_kinds import GpuKinds


def print_gpu_kinds(found: GpuKinds, step_time_s: float, console: Console) -> None:
    """How many there are of each, and the split that lets their stages end together."""
    from rich.text import Text

    console.print(Text.assemble("\n", ("GPUs of different kinds", "bold")))
    console.print("  " + ", ".join(f"{count(number)} {name}" for name, number in found.counts))
    split = found.balanced
    if split:
        layers = ", ".join(map(str, split.layers))
        room = "" if split.fits else ", which does not fit in memory"
        console.print(
            Text(
                f"  parallelism.stage_split [{layers}] would take {seconds(split.step_time_s)} "
                f"({signed_percent(split.step_time_s / step_time_s - 1)}){room}"
            )
        )
