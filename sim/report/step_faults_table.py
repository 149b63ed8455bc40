"""What faults cost a step, for people at a terminal. Knows rich; computes nothing but differences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..figures import count, percent, seconds, signed_percent
from ..result.step_faults import WAITING, Relation, StepFaults
from .captions import peers_title
from .compare import Difference
from .step_hang_table import print_hang

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ABOVE_S = 1e-9
"""Below this, a wait is rounding."""

SHOWN = 5
"""Faults that are shown of many: those whose mending gains most."""


def print_step_faults(found: StepFaults, console: Console) -> None:
    """The slowdown, where the time went, and who waits for whom."""
    from rich.text import Text

    console.print(Text.assemble("\n", ("Faults", "bold"), f": {'; '.join(found.faults)}"))
    if found.hang:
        print_hang(found.hang, found.healthy_step_time_s, console)
        return
    console.print(
        f"  step {seconds(found.step_time_s)}, healthy {seconds(found.healthy_step_time_s)}: "
        f"{found.slowdown:.4f} times as long ({signed_percent(found.slowdown - 1)})"
    )
    if found.least_s is not None:
        console.print(
            "  shorter, since what is late leaves shared links to what is awaited; no fault can make it less "
            f"than {seconds(found.least_s)}, the healthy step with nothing shared"
        )
    if len(found.faults) > 1:
        for fault, step_s in zip(found.faults, found.without_s, strict=False):
            ratio = step_s / found.healthy_step_time_s
            console.print(f"  without {fault}: {seconds(step_s)}, {ratio:.4f} times", markup=False)
        if not found.without_s:
            _print_gains(found, console)
    console.print(f"  {count(found.classes_after)} classes of ranks, healthy {count(found.classes_before)}\n")
    console.print(_changes("critical path", _path(found), found))
    console.print()
    console.print(_changes("waiting, mean of ranks", _waits(found), found))
    if found.relations:
        console.print()
        console.print(_relations(found.relations))


def _print_gains(found: StepFaults, console: Console) -> None:
    """The parts that are worth most to mend, of many."""
    known = [(gain_s, fault) for fault, gain_s in zip(found.faults, found.gains_s, strict=False) if gain_s]
    for gain_s, fault in sorted(known, reverse=True)[:SHOWN]:
        share = percent(gain_s / found.step_time_s, 2)
        console.print(f"  mending {fault} gains {seconds(gain_s)} ({share})", markup=False)
    if found.gains_s:
        none = sum(gain_s is not None and gain_s <= ABOVE_S for gain_s in found.gains_s)
        console.print(f"  mending {count(none)} of {count(len(found.gains_s))} by itself gains nothing")


def _path(found: StepFaults) -> list[Difference]:
    before = {part.name: part.seconds for part in found.critical_path_before}
    after = {part.name: part.seconds for part in found.critical_path_after}
    changes = [
        Difference(name=name, a=before.get(name, 0.0), b=after.get(name, 0.0)) for name in {**before, **after}
    ]
    return sorted(changes, key=lambda change: (-abs(change.difference), change.name))


def _waits(found: StepFaults) -> list[Difference]:
    sides = found.before.waiting_s, found.after.waiting_s
    changes = (Difference(name=_title(name), a=sides[0][name], b=sides[1][name]) for name in WAITING)
    return [change for change in changes if max(change.a, change.b) > ABOVE_S]


def _title(name: str) -> str:
    return "other stages (bubble)" if name == "bubble" else peers_title(name)


def _changes(title: str, changes: Iterable[Difference], found: StepFaults) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=24)
    for _ in range(4):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(f"  {title}", "healthy", "now", "more", "of step")
    for change in changes:
        more = f"{'-' if change.difference < 0 else '+'}{seconds(abs(change.difference))}"
        share = percent(change.difference / found.healthy_step_time_s)
        table.add_row(f"  {change.name}", seconds(change.a), seconds(change.b), more, share)
    return table


def _relations(relations: tuple[Relation, ...]) -> Table:
    """More work and more waiting of each kind of rank, and what most of the waiting is for."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=24)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_column()
    table.add_row("  who waits", "ranks", "more work", "more waiting", "most for")
    for relation in relations:
        before, after = relation.before, relation.after
        more = {name: after.waiting_s[name] - before.waiting_s[name] for name in WAITING}
        most = max(more, key=lambda name: more[name])
        table.add_row(
            f"  {relation.name}",
            count(relation.ranks),
            _signed(after.work_s - before.work_s),
            _signed(after.total_waiting_s - before.total_waiting_s),
            f"{_title(most)} {_signed(more[most])}" if more[most] > ABOVE_S else "nothing",
        )
    return table


def _signed(value_s: float) -> str:
    if abs(value_s) <= ABOVE_S:
        return "0 s"
    return f"{'-' if value_s < 0 else '+'}{seconds(abs(value_s))}"
