"""Curves of a user's own collectives: one for each kind and group, judged on sizes that it did not see.

Knows how many sizes a curve needs, and which link bounds its rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....hardware.calibrated.models import CPU
from ....hardware.collective_curve import CollectiveCurve
from ....hardware.provenance import Provenance
from ...readers.measured import MeasuredCollective
from ...readers.named_gpus import StatedGpu, chip_of
from ..collectives import FittedCurve, SizeSweep, fit_curve

SIZES = 4
"""Sizes that a curve of three constants needs at least."""
_EVERY = 4  # one size in so many is held out in turn
# Memory of one host: no process without a GPU hands more than that to another.
_CPU_BYTES_PER_S = 1e12


Points = Sequence[tuple[float, float]]
"""Measured points as (bytes, seconds)."""


@dataclass(frozen=True, kw_only=True)
class OwnCurve:
    """A fitted curve, with its intervals, and the curve as the simulator reads it."""

    fitted: FittedCurve
    curve: CollectiveCurve


def fit_collectives(
    gpu: StatedGpu, points: Iterable[MeasuredCollective], source: str, *, replicas: int = 100
) -> tuple[tuple[OwnCurve, ...], tuple[str, ...]]:
    """A curve for each (kind, ranks, domains) with enough sizes, and notes on those with too few."""
    groups: dict[tuple[str, int, int], list[MeasuredCollective]] = {}
    for point in points:
        groups.setdefault((point.kind, point.ranks, point.domains), []).append(point)
    curves, notes = [], []
    for (kind, ranks, domains), members in sorted(groups.items()):
        sizes = {point.bytes for point in members}
        if len(sizes) < SIZES:
            notes.append(f"{kind} of {ranks} ranks: {len(sizes)} sizes; a curve needs {SIZES}")
            continue
        curves.append(_own_curve(gpu, kind, ranks, domains, members, source, replicas))
    return tuple(curves), tuple(notes)


def _own_curve(
    gpu: StatedGpu,
    kind: str,
    ranks: int,
    domains: int,
    members: Sequence[MeasuredCollective],
    source: str,
    replicas: int,
) -> OwnCurve:
    points = tuple(sorted((point.bytes, point.seconds) for point in members))
    sweep = SizeSweep(
        kind=kind,
        architecture=CPU if gpu == CPU else chip_of(gpu).architecture,
        tier="node" if domains == 1 else "network",
        ranks=ranks,
        domains=domains,
        ceiling_bytes_per_s=_ceiling(gpu, kind, ranks),
        points=points,
    )
    fitted = fit_curve(sweep, replicas=replicas)
    curve = CollectiveCurve(
        kind=kind,
        ranks=ranks,
        domains=domains,
        alpha_s=fitted.alpha_s.value,
        gamma_s=fitted.gamma_s.value,
        bytes_per_s=fitted.bytes_per_s.value,
        low_bytes=points[0][0],
        high_bytes=points[-1][0],
        provenance=Provenance(source=source, points=len(points)),
    )
    plain, corrected = (_held_out_errors(curve, sweep, corrects) for corrects in (False, True))
    # Corrections follow steps of the library and the noise of single sizes alike: they must earn their place.
    earned = bool(corrected) and float(np.median(corrected)) < float(np.median(plain))
    if earned:
        curve = replace(curve, corrections=_corrections(curve, points))
    return OwnCurve(fitted=fitted, curve=_recorded(curve, points, corrected if earned else plain))


def _recorded(curve: CollectiveCurve, points: Points, unseen: Sequence[float]) -> CollectiveCurve:
    """``curve`` with its residuals over ``points`` and over sizes that a fit did not see."""
    errors = [abs(curve.solo_s(size) / seconds - 1) for size, seconds in points]
    record = replace(
        curve.provenance,
        median_residual=float(np.median(errors)),
        p90_residual=float(np.quantile(errors, 0.9)),
    )
    if unseen:
        record = replace(
            record, held_out_median=float(np.median(unseen)), held_out_p90=float(np.quantile(unseen, 0.9))
        )
    return replace(curve, provenance=record)


def _held_out_errors(curve: CollectiveCurve, sweep: SizeSweep, corrects: bool) -> list[float]:
    """Errors of each inner size by a fit on the others, fold by fold; empty with too few sizes."""
    sizes = sorted({size for size, _ in sweep.points})
    inner, errors = sizes[1:-1], []
    if len(sizes) - len(inner[::_EVERY]) < SIZES + 1:
        return []
    for first in range(_EVERY):
        out = set(inner[first::_EVERY])
        seen = tuple(point for point in sweep.points if point[0] not in out)
        rest = fit_curve(replace(sweep, points=seen), replicas=0)
        found = replace(
            curve,
            alpha_s=rest.alpha_s.value,
            gamma_s=rest.gamma_s.value,
            bytes_per_s=rest.bytes_per_s.value,
        )
        if corrects:
            found = replace(found, corrections=_corrections(found, seen))
        errors += [abs(found.solo_s(size) / seconds - 1) for size, seconds in sweep.points if size in out]
    return errors


def _corrections(curve: CollectiveCurve, points: Points) -> tuple[tuple[float, float], ...]:
    """Measured over the form at every size: the median where a size was measured several times."""
    by_size: dict[float, list[float]] = {}
    for size, seconds in points:
        by_size.setdefault(size, []).append(seconds / curve.solo_s(size))
    return tuple((size, float(np.median(ratios))) for size, ratios in sorted(by_size.items()))


def _ceiling(gpu: StatedGpu, kind: str, ranks: int) -> float:
    """The payload rate that a GPU's own links allow at most, whatever the network."""
    if gpu == CPU:
        return _CPU_BYTES_PER_S
    chip = chip_of(gpu)
    gathers = kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    return max(chip.nvlink_bytes_per_s, chip.pcie_bytes_per_s) / ((ranks - 1) / ranks if gathers else 1.0)
