"""A record of real faults as text and tables for a terminal, and as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....hardware.quantities import DAY_S
from ...figures import count, lasting
from ...reliability.study.fits import FittedLaw
from ...reliability.study.recorded import RecordFigures

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DOUBTFUL = 0.05
"""A law with a smaller p-value does not hold."""


def print_record(found: RecordFigures, console: Console) -> None:
    """Print what the record holds, its classes, and the fitted laws."""
    for line in _lines(found):
        console.print(line, highlight=False)
    console.print()
    console.print(_classes(found))
    for title, laws in (("Times between incidents", found.arrivals), ("Times of repair", found.repairs)):
        if laws:
            console.print(_laws(title, laws))


def _lines(found: RecordFigures) -> Iterator[str]:
    record = found.record
    failed = len({fault.host for fault in record.faults})
    yield (
        f"{count(len(record.faults))} faults of {count(failed)} among {count(record.hosts)} hosts in "
        f"{record.length_s / DAY_S:.0f} days"
    )
    yield f"a host fails every {1 / found.per_host_day:,.0f} days; {found.away:.1f} hosts are away on average"
    yield f"rates of hosts have a coefficient of variation of {found.frailty:.2f} (node_frailty.gamma_cv)"
    drift = (
        "no trend" if abs(found.trend) < 1.96 else "more and more" if found.trend > 0 else "fewer and fewer"
    )
    yield f"rate over time: {drift} (Laplace {found.trend:+.2f} standard deviations)"


def _classes(found: RecordFigures) -> Table:
    rows = [
        (one.level, one.of, count(one.faults), f"{one.per_host_day:.2e}", _lasting(one.repair_s))
        for one in found.classes
    ]
    return _table("What failed", ("level", "class", "faults", "a host and day", "median repair"), rows, 2)


def _laws(title: str, laws: Sequence[FittedLaw]) -> Table:
    rows = [
        (
            one.law,
            f"{one.shape:.3f}",
            lasting(one.scale_s),
            lasting(one.mean_s),
            f"{one.aic - laws[0].aic:+,.0f}",
            f"{one.distance:.3f}",
            f"{one.p_value:.3f}" + ("" if one.p_value >= DOUBTFUL else " (does not hold)"),
        )
        for one in laws
    ]
    columns = ("law", "shape", "scale", "mean", "AIC", "KS distance", "p-value")
    return _table(title, columns, rows, 1)


def _table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], labels: int) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < labels else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _lasting(seconds: float | None) -> str:
    return "-" if seconds is None else lasting(seconds)


def record_document(found: RecordFigures) -> dict[str, Any]:
    """Every figure as plain values."""
    record = found.record
    return {
        "file": record.file,
        "hosts": record.hosts,
        "hosts_that_failed": len({fault.host for fault in record.faults}),
        "faults": len(record.faults),
        "length_s": record.length_s,
        "rate_per_host_day": found.per_host_day,
        "mean_hosts_away": found.away,
        "trend_deviations": found.trend,
        "frailty_cv": found.frailty,
        "classes": [
            {
                "level": one.level,
                "class": one.of,
                "faults": one.faults,
                "rate_per_host_day": one.per_host_day,
                "median_repair_s": one.repair_s,
            }
            for one in found.classes
        ],
        "between_incidents": [_law(one) for one in found.arrivals],
        "repairs": [_law(one) for one in found.repairs],
    }


def _law(one: FittedLaw) -> dict[str, Any]:
    return {
        "law": one.law,
        "shape": one.shape,
        "scale_s": one.scale_s,
        "mean_s": one.mean_s,
        "log_likelihood": one.log_likelihood,
        "aic": one.aic,
        "ks_distance": one.distance,
        "p_value": one.p_value,
    }
