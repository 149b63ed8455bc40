"""A step in which a rank stops: who waits for it, in which communication, since when, and until when.

Figures, as part of the JSON document, and for people at a terminal. Simulates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .figures import count, seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Ranks that wait for ever in communications of one ``axis``: the ``operation`` that the first of them is
    in, how many ``ranks`` end up there, and since when the first and the last of them do nothing else.
    """

    axis: str
    operation: str
    ranks: int
    first_s: float
    last_s: float


@dataclass(frozen=True, kw_only=True)
class Waiters:
    """Ranks by how they are joined to one that stopped: of ``ranks``, so many ``blocked``, the first at
    ``first_s`` (None: none is) in a communication of ``axis``.
    """

    name: str
    ranks: int
    blocked: int
    first_s: float | None
    axis: str


@dataclass(frozen=True, kw_only=True)
class Hang:
    """Times count from the start of the step. ``stopped`` ranks at ``at_s``; ``finished`` ranks had done all
    of their step. ``entered_s`` is when the first of the communications that never end was entered, and
    ``watchdog_s`` later the watchdog ends the job.
    """

    at_s: float
    stopped: int
    finished: int
    blocked: tuple[Blocked, ...]
    waiters: tuple[Waiters, ...]
    entered_s: float
    watchdog_s: float

    @property
    def ends_s(self) -> float:
        """When the watchdog ends the job."""
        return self.entered_s + self.watchdog_s


def hang_document(found: Hang) -> dict[str, Any]:
    """Every figure, in SI units."""
    return {
        "at_s": float(found.at_s),
        "stopped_ranks": found.stopped,
        "finished_ranks": found.finished,
        "blocked": [
            {
                "axis": one.axis,
                "operation": one.operation,
                "ranks": one.ranks,
                "first_s": float(one.first_s),
                "last_s": float(one.last_s),
            }
            for one in found.blocked
        ],
        "who_waits": [
            {
                "relation": one.name,
                "ranks": one.ranks,
                "blocked": one.blocked,
                "first_s": None if one.first_s is None else float(one.first_s),
                "axis": one.axis or None,
            }
            for one in found.waiters
        ],
        "watchdog": {
            "timeout_s": float(found.watchdog_s),
            "counts_from_s": float(found.entered_s),
            "ends_job_s": float(found.ends_s),
        },
    }


def print_hang(found: Hang, healthy_s: float, console: Console) -> None:
    """Who is blocked where, and when the watchdog ends it."""
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
