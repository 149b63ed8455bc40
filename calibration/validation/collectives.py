"""Collectives beside measured ones: predicted and measured time of every size, and what the errors come to.

Knows rows and their figures. Does not know the files that measurements come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from ...hardware.cluster import Cluster
from ...hardware.collectives import CollectiveConstants, collective_constants
from ...sim.network.collectives import collective_curve
from ...sim.network.curve import Curve
from ...sim.network.group_placement import GroupPlacement
from ...sim.network.nccl.settings import NCCL_DEFAULTS, NcclSettings
from ...sim.network.place import Place, place_of
from ...sim.network.selection import curves_named, selected_curves, selected_names
from ...sim.reliability.study.statistics import quantile

LARGE_BYTES = 1 << 20
"""From here on bandwidth counts; below, latency does."""


@dataclass(frozen=True, kw_only=True)
class CollectiveCase:
    """One sweep over sizes: ``points`` are (bytes, seconds).

    ``algorithm`` and ``protocol`` are what its user forced, by our names; ``nccl`` holds NCCL's version.
    ``machine`` is what the cluster is the first GPUs of, where that is known: its fabric may bind.
    """

    log: str
    kind: str
    placement: GroupPlacement
    cluster: Cluster
    points: tuple[tuple[float, float], ...]
    algorithm: str | None = None
    protocol: str | None = None
    nccl: NcclSettings = NCCL_DEFAULTS
    machine: Cluster | None = None

    @cached_property
    def selected(self) -> tuple[tuple[str, str], ...] | None:
        """Algorithm and protocol that run at every point, whatever the constants; None where these decide."""
        return selected_names(
            self.kind,
            [size for size, _ in self.points],
            place_of(self.placement, self.cluster, collective_constants()),
            algorithm=self.algorithm,
            protocol=self.protocol,
            nccl=self.nccl,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One size of one log."""

    log: str
    kind: str
    bytes: float
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Predicted over measured time, minus one."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeErrors:
    """Absolute errors of ``rows`` sizes; the signed median shows which way."""

    rows: int
    median: float
    p90: float
    signed_median: float


def predicted_s(case: CollectiveCase, constants: CollectiveConstants) -> list[float]:
    """Seconds of every point of ``case``."""
    if case.kind == "sendrecv":  # its rate changes with the size
        return [
            collective_curve(case.kind, size, case.placement, case.cluster).solo_s(size)
            for size, _ in case.points
        ]
    found = _running(case, place_of(case.placement, case.cluster, constants))
    return [curve.solo_s(size) for curve, (size, _) in zip(found, case.points, strict=True)]


def _running(case: CollectiveCase, place: Place) -> list[Curve]:
    if case.selected is not None:
        return curves_named(case.selected, case.kind, place)
    sizes = [size for size, _ in case.points]
    return selected_curves(
        case.kind, sizes, place, algorithm=case.algorithm, protocol=case.protocol, nccl=case.nccl
    )


def compare(
    cases: Iterable[CollectiveCase],
    constants_for: Callable[[CollectiveCase], CollectiveConstants] | None = None,
) -> tuple[CollectiveRow, ...]:
    """Rows of every case, by the shipped constants or by those that ``constants_for`` gives for it."""
    rows: list[CollectiveRow] = []
    for case in cases:
        constants = constants_for(case) if constants_for else collective_constants()
        times = predicted_s(case, constants)
        rows += [
            CollectiveRow(
                log=case.log, kind=case.kind, bytes=size, measured_s=measured, predicted_s=predicted
            )
            for (size, measured), predicted in zip(case.points, times, strict=True)
        ]
    return tuple(rows)


def errors_by_size(rows: Iterable[CollectiveRow]) -> dict[str, SizeErrors | None]:
    """Figures of the ``large`` sizes (1 MiB and more) and the ``small`` ones; None where there are none."""
    rows = tuple(rows)
    return {
        "large": _figures([row.error for row in rows if row.bytes >= LARGE_BYTES]),
        "small": _figures([row.error for row in rows if row.bytes < LARGE_BYTES]),
    }


def by_log(rows: Iterable[CollectiveRow]) -> dict[str, dict[str, SizeErrors | None]]:
    """``errors_by_size`` of each log, in the order of the rows."""
    groups: dict[str, list[CollectiveRow]] = {}
    for row in rows:
        groups.setdefault(row.log, []).append(row)
    return {log: errors_by_size(members) for log, members in groups.items()}


def collectives_document(rows: Sequence[CollectiveRow]) -> dict[str, Any]:
    """Rows and summary as JSON has them."""
    return {
        "rows": [
            {
                "log": row.log,
                "kind": row.kind,
                "bytes": row.bytes,
                "measured_s": row.measured_s,
                "predicted_s": row.predicted_s,
                "error": row.error,
            }
            for row in rows
        ],
        "summary": {
            "all": _document(errors_by_size(rows)),
            "logs": {log: _document(figures) for log, figures in by_log(rows).items()},
        },
    }


def _document(figures: Mapping[str, SizeErrors | None]) -> dict[str, Any]:
    return {
        size: None
        if one is None
        else {"rows": one.rows, "median": one.median, "p90": one.p90, "signed_median": one.signed_median}
        for size, one in figures.items()
    }


def _figures(errors: Sequence[float]) -> SizeErrors | None:
    if not errors:
        return None
    absolute = sorted(map(abs, errors))
    return SizeErrors(
        rows=len(errors),
        median=median(absolute),
        p90=quantile(absolute, 0.9),
        signed_median=median(errors),
    )
