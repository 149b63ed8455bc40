"""A timed schedule for people at a terminal: title, timeline, figures.

Knows rich; computes nothing. Everything can be read without colour.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...figures import count, percent
from ..drawing import palette
from . import text
from .rows import rows
from .timed import TimedSchedule

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LEGIBLE_RANKS = 12  # up to here every rank's peak is written by itself; beyond, equal neighbours share


def print_schedule(schedule: TimedSchedule, console: Console) -> None:
    """Print all of it, as wide as ``console`` allows."""
    from rich.text import Text

    console.print(Text.assemble((schedule.title, "bold"), "  ", schedule.name))
    console.print(f"{shape_line(schedule)}; {costs_line(schedule)}")
    console.print()
    _print_timeline(schedule, console)
    console.print()
    console.print(_figures(schedule))


def shape_line(schedule: TimedSchedule) -> str:
    """``p = 4 ranks, m = 8 microbatches, v = 2 chunks per rank``."""
    shape = schedule.shape
    group = f" in groups of {shape.group}" if shape.group else ""
    return ", ".join(
        [
            f"p = {shape.ranks} rank{'' if shape.ranks == 1 else 's'}",
            f"m = {count(shape.microbatches)} microbatch{'' if shape.microbatches == 1 else 'es'}{group}",
            f"v = {shape.chunks} chunk{'' if shape.chunks == 1 else 's'} per rank",
        ]
    )


def costs_line(schedule: TimedSchedule) -> str:
    """``tf 1, tb 1, tw 1 per chunk, tc 0``."""
    costs = schedule.shape.costs
    return f"tf {costs.forward}, tb {costs.input_grad}, tw {costs.weight_grad} per chunk, tc {costs.latency}"


def peaks_by_rank(schedule: TimedSchedule) -> list[tuple[str, int]]:
    """Ranks and the chunk activations that each of them holds at most; equal neighbours of many together."""
    found: list[tuple[int, int, int]] = []
    for rank, peak in enumerate(schedule.peaks):
        if found and found[-1][2] == peak and len(schedule.peaks) > LEGIBLE_RANKS:
            found[-1] = found[-1][0], rank, peak
        else:
            found.append((rank, rank, peak))
    return [(f"{first}" if first == last else f"{first}-{last}", peak) for first, last, peak in found]


def _print_timeline(schedule: TimedSchedule, console: Console) -> None:
    from rich.text import Text

    tracks, last = rows(schedule, 1), float(schedule.makespan)
    names = [track.name for track in tracks]
    margin = max(map(len, names)) + 2
    width = text.columns(tracks, last, max(20, console.width - margin))
    plain = console.color_system is None or console.options.ascii_only
    filler, few_colours = "-" if plain else " ", console.color_system in ("standard", "windows")
    for name, track in zip(names, tracks, strict=True):
        row = text.line(track, last, width, filler=filler, few_colours=few_colours)
        console.print(Text.assemble(name.ljust(margin), row), no_wrap=True, crop=False, overflow="ignore")
    kinds = {box.kind for track in tracks for box in track.work}
    key = [f"{kind} {words}" for kind, words in palette.WORDS.items() if kind in kinds]
    if len({box.chunk for track in tracks for box in track.work}) > 1:
        key.append("small letters on odd chunks" if schedule.stage_to_rank else "small letters the other way")
    key += [f"{text.IDLE} idle", _scale(width, schedule.makespan)]
    console.print(" " * margin + "   ".join(key), style="dim")


def _scale(columns: int, time: int) -> str:
    if columns == time:
        return "one column is 1 unit of time"
    if columns > time:
        return f"{columns / time:.4g} columns are 1 unit of time"
    return f"one column is {time / columns:.4g} units of time"


def _figures(schedule: TimedSchedule) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column()
    for what, figure, remark in _lines(schedule):
        table.add_row(what, Text(figure, style="bold"), remark)
    return table


def _lines(schedule: TimedSchedule) -> Iterator[tuple[str, str, str]]:
    busy = f"every rank computes for {count(schedule.work)}"
    yield "makespan", count(schedule.makespan), f"from the first action to the last; {busy}"
    yield "bubble", percent(schedule.bubble_rate_makespan), "idle share of the makespan"
    yield "max span", count(schedule.max_span), "longest of a rank from its own first action to its last"
    yield "bubble", percent(schedule.bubble_rate), "idle share of the longest span"
    what = "peak activations"
    chunk = "whole stages" if schedule.shape.chunks == 1 else f"chunks, each 1/{schedule.shape.chunks} stage"
    by_rank = ", ".join(f"{peak} (rank {ranks})" for ranks, peak in peaks_by_rank(schedule))
    yield what, count(max(schedule.peaks)), f"{chunk}: {by_rank}"
