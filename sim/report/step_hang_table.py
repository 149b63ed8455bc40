"""A step in which a rank stops, for people at a terminal: who is blocked, and when a watchdog ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..figures import count, seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..result.step_hang import Hang


def print_hang(found: Hang, healthy_s: float, console: Console) -> None:
    """Print which ranks are blocked in which communication, and when the watchdog ends the job."""
    ranks = "1 rank" if found.stopped == 1 else f"{count(found.stopped)} ranks"
    console.print(f"  {ranks} stopped at {seconds(found.at_s)}: the step never ends", style="bold")
    console.print(f"  healthy step {seconds(healthy_s)}, to which all other figures belong")
    if found.finished:
        console.print(f"  {count(found.finished)} ranks had ended their step; the next one blocks them")
    console.print(
        f"  the watchdog ends the job at {seconds(found.ends_s)}: {seconds(found.watchdog_s)} after the "
        f"first communication that never ends was entered, at {seconds(found.entered_s)}\n"
    )
    console.print(_blocked(found))
    console.print()
    console.print(_waiters(found))


def _blocked(found: Hang) -> Table:
    table = _table("blocked in", "ranks", "first at", "last at", "first in")
    for one in found.blocked:
        ranks = count(one.ranks)
        table.add_row(
            f"  {one.axis.upper()}", ranks, seconds(one.first_s), seconds(one.last_s), one.operation
        )
    return table


def _waiters(found: Hang) -> Table:
    table = _table("who waits", "ranks", "blocked", "first at", "in")
    for one in found.waiters:
        first = "-" if one.first_s is None else seconds(one.first_s)
        table.add_row(f"  {one.name}", count(one.ranks), count(one.blocked), first, one.axis.upper())
    return table


def _table(name: str, *titles: str) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=24)
    for _ in titles[:-1]:
        table.add_column(justify="right", no_wrap=True)
    table.add_column()
    table.add_row(f"  {name}", *titles)
    return table
