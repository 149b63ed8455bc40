"""What a record of real faults says: rates by class, laws of their times and repairs, hosts that fail more.

Knows records and fits; the campaign of a job on a record is asked like any other (ask.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ....hardware.quantities import DAY_S
from ..planning.record import FaultRecord
from .fits import FEWEST, FittedLaw, fits, frailty, trend


@dataclass(frozen=True, kw_only=True)
class ClassFigures:
    """Faults of one class: how many, for each host and day, and the median of their repairs."""

    level: str
    of: str
    faults: int
    per_host_day: float
    repair_s: float | None


@dataclass(frozen=True, kw_only=True)
class RecordFigures:
    """The figures of a record. ``arrivals`` are laws of the times between incidents (faults of one moment
    are one), ``repairs`` those of the time that a host was away, the best first; () with too few.

    ``trend`` is Laplace's (fits.py), ``frailty`` how hosts differ, ``away`` the mean number of hosts away.
    """

    record: FaultRecord
    classes: tuple[ClassFigures, ...]
    arrivals: tuple[FittedLaw, ...]
    repairs: tuple[FittedLaw, ...]
    trend: float
    frailty: float
    away: float

    @property
    def per_host_day(self) -> float:
        """Faults of one host in a day."""
        return len(self.record.faults) / self.record.hosts / (self.record.length_s / DAY_S)


def record_figures(record: FaultRecord) -> RecordFigures:
    """The figures of a record."""
    faults = record.faults
    moments = sorted({fault.at_s for fault in faults})
    away = [fault.repair_s for fault in faults if fault.repair_s is not None]
    counts = Counter(fault.host for fault in faults)
    return RecordFigures(
        record=record,
        classes=_classes(record),
        arrivals=_fitted([after - before for before, after in pairwise(moments)]),
        repairs=_fitted([seconds for seconds in away if seconds > 0]),
        trend=trend([fault.at_s for fault in faults], record.length_s),
        frailty=frailty([counts.get(host, 0) for host in range(record.hosts)]),
        away=sum(record.away_s(fault) for fault in faults) / record.length_s,
    )


def _fitted(times_s: Sequence[float]) -> tuple[FittedLaw, ...]:
    return fits(times_s) if len(times_s) >= FEWEST else ()


def _classes(record: FaultRecord) -> tuple[ClassFigures, ...]:
    found: dict[tuple[str, str], list[float | None]] = {}
    for fault in record.faults:
        found.setdefault((fault.level, fault.of), []).append(fault.repair_s)
    days = record.length_s / DAY_S
    return tuple(
        ClassFigures(
            level=level,
            of=of,
            faults=len(repairs),
            per_host_day=len(repairs) / record.hosts / days,
            repair_s=median(known) if (known := [one for one in repairs if one is not None]) else None,
        )
        for (level, of), repairs in sorted(found.items(), key=lambda one: -len(one[1]))
    )
