"""A Comparison for people (rich tables) and for programs (one JSON object).

Knows no simulation; computes nothing but shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..figures import chance, gigabytes, large, percent, seconds, signed_percent
from ..result.result import SURE_TO_FIT
from .compare import Comparison, Difference

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Write = Callable[[float], str]


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Every figure of both sides and the difference (b - a), in SI units."""
    c = comparison
    return {
        "a": c.name_a,
        "b": c.name_b,
        "fields": [{"path": f.path, "a": f.a, "b": f.b} for f in c.fields],
        "step_time_s": {**_change(c.step_time_s), "ratio": float(c.step_time_s.b / c.step_time_s.a)},
        "tokens_per_second_per_gpu": _change(c.headline[0]),
        "mfu": _change(c.headline[1]),
        "mfu_causal": _change(c.headline[2]),
        "hfu": _change(c.headline[3]),
        "bubble_fraction": _change(c.headline[4]),
        "critical_path_s": {change.name: _change(change) for change in c.critical_path},
        "exposed_communication_s": {change.name: _change(change) for change in c.exposed},
        "waiting_for_peers_s": {change.name: _change(change) for change in c.waiting},
        "peak_memory_bytes": _change(c.peak_memory_bytes),
        "memory_bytes": {change.name: _change(change) for change in c.memory},
        "fits": {"a": c.fits_a, "b": c.fits_b},
        "fit_probability": {"a": c.fit_probability_a, "b": c.fit_probability_b},
        "cost": _cost_document(c),
    }


def _cost_document(c: Comparison) -> dict[str, Any] | None:
    """What both steps cost in money, and a trillion tokens; None without a price on both sides."""
    if not c.cost:
        return None
    per_step, per_trillion = c.cost
    return {
        "currency": c.currency,
        "per_step": _change(per_step),
        "per_trillion_tokens": _change(per_trillion),
    }


def _change(change: Difference) -> dict[str, float]:
    return {"a": float(change.a), "b": float(change.b), "difference": float(change.difference)}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """What differs, the headline of both, and where the time and the memory went."""
    from rich.text import Text

    c = comparison
    console.print(Text.assemble("A  ", (c.name_a, "bold")))
    console.print(Text.assemble("B  ", (c.name_b, "bold")))
    _section(console, "What differs in the scenario")
    console.print(_fields_table(c) if c.fields else "  nothing")
    _section(console, "The step")
    console.print(_headline_table(c))
    _section(console, "Where the time went (critical path)")
    total = Difference(name="step", a=c.step_time_s.a, b=c.step_time_s.b)
    parts = sorted(c.critical_path, key=lambda change: (-abs(change.difference), change.name))
    console.print(_changes_table((*parts, total), seconds, of=c.step_time_s.a))
    exposed = [change for change in c.exposed if change.a or change.b]
    if exposed:
        _section(console, "Exposed communication (mean of ranks)")
        console.print(_changes_table([_upper(change) for change in exposed], seconds, of=c.step_time_s.a))
    waiting = [change for change in c.waiting if change.a or change.b]
    if waiting:
        _section(console, "Waiting for late ranks of the same stage (mean of ranks)")
        console.print(_changes_table(waiting, seconds, of=c.step_time_s.a))
    _section(console, "Memory of the fullest pipeline rank")
    bill = [change for change in c.memory if change.a or change.b]
    console.print(_changes_table((*bill, c.peak_memory_bytes), gigabytes, of=c.peak_memory_bytes.a))


def _upper(change: Difference) -> Difference:
    return Difference(name=change.name.upper(), a=change.a, b=change.b)


def _section(console: Console, title: str) -> None:
    console.print(f"\n{title}", style="bold")


def _fields_table(comparison: Comparison) -> Table:
    from rich.text import Text

    table = _table("", "A", "B", justify="left")
    for field in comparison.fields:
        table.add_row(Text(f"  {field.path}"), Text(_value(field.a)), Text(_value(field.b)))
    return table


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.12g}"
    return "-" if value is None else str(value)


def _headline_table(comparison: Comparison) -> Table:
    c = comparison
    table = _table("", "A", "B", "B - A", "", justify="right")
    step = c.step_time_s
    relative = signed_percent(step.difference / step.a)
    table.add_row("  step time", seconds(step.a), seconds(step.b), _signed(step, seconds), relative)
    rate, *shares = c.headline
    relative = signed_percent(rate.difference / rate.a)
    table.add_row(f"  {rate.name}", _rate(rate.a), _rate(rate.b), _signed(rate, _rate), relative)
    for change in shares:
        points = _signed(change, _points)
        table.add_row(f"  {change.name}", percent(change.a), percent(change.b), points, "")
    table.add_row("  fits in memory", *_fits(c), "", "")
    for change in c.cost:
        relative = signed_percent(change.difference / change.a)
        price = _price_of(change)
        both = price(change.a), price(change.b)
        table.add_row(f"  {change.name}, {c.currency}", *both, _signed(change, price), relative)
    return table


def _fits(c: Comparison) -> tuple[str, ...]:
    """Whether each side fits, and how sure that is where a plan would not propose it."""
    sides = (c.fits_a, c.fit_probability_a), (c.fits_b, c.fit_probability_b)
    return tuple(
        "NO" if not fits else "yes" if sure is None or sure >= SURE_TO_FIT else f"with {chance(sure)}"
        for fits, sure in sides
    )


def _rate(value: float) -> str:
    return f"{value:,.1f}"


def _price_of(change: Difference) -> Write:
    """How both prices are written: to the cent, in four digits of the smaller where it is below 1, or in
    thousands and millions."""
    smaller = min(change.a, change.b)
    decimals = 3 - math.floor(math.log10(smaller)) if 0 < smaller < 1 else 2
    return lambda value: large(value) if value >= 1e4 else f"{value:,.{decimals}f}"


def _points(share: float) -> str:
    return f"{share * 100:.1f} points"


def _changes_table(changes: Sequence[Difference], write: Write, *, of: float) -> Table:
    """Rows of figures; the last column is the difference as a share of ``of``, the total of A."""
    from rich.text import Text

    table = _table("", "A", "B", "B - A", "of A's total", justify="right")
    for change in changes:
        share = signed_percent(change.difference / of) if _differs(change) else ""
        table.add_row(
            Text(f"  {change.name}"), write(change.a), write(change.b), _signed(change, write), share
        )
    return table


def _signed(change: Difference, write: Write) -> str:
    """The difference with its sign; empty where there is none."""
    if not _differs(change):
        return ""
    return ("+" if change.difference > 0 else "-") + write(abs(change.difference))


def _differs(change: Difference) -> bool:
    """Whether the figures differ by more than the order in which floats were added up."""
    return abs(change.difference) > 1e-9 * max(abs(change.a), abs(change.b))


def _table(first: str, *others: str, justify: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="")
    table.add_column(first, no_wrap=False)
    for name in others:
        table.add_column(name, justify="right" if justify == "right" else "left", no_wrap=justify == "right")
    return table
