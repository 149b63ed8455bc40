"""How far a fit may be trusted: residuals of families that it did not see, intervals from fits on others.

Knows families of measurements and any fit. A fifth of the families is held out, by a hash of their
names; intervals are of fits on as many families drawn with replacement.

Sources: Efron & Tibshirani 1993 (bootstrap of groups).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....hardware.gpu import Gpu
from ....hardware.profile import GpuProfile
from ....hardware.provenance import Provenance
from ...readers.measurements import Measurement
from ..curve_fit import predicted_seconds, provenance

FEW = 3
"""Points, or families, below which nothing is fitted or drawn."""
_HELD_OUT = 5  # one family in so many

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A way to fit: ``fitted`` gives a profile for points, ``constants`` reads what was fitted from it.

    ``shown`` gives the profile whose prices are compared, where that is another.
    """

    gpu: Gpu
    fitted: Callable[[Sequence[Measurement]], GpuProfile]
    constants: Callable[[GpuProfile], dict[str, float]]
    shown: Callable[[GpuProfile], GpuProfile] = lambda profile: profile


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The profile of a fit on all points, its record, and the intervals of its constants."""

    profile: GpuProfile
    record: Provenance
    intervals: dict[str, Interval]


def held_out(family: str) -> bool:
    """Whether points of that family are kept from the fit whose residual is stated."""
    return zlib.crc32(family.encode()) % _HELD_OUT == 0


def judged(way: Fit, points: Sequence[Measurement], replicas: int) -> Judged:
    """The fit on all ``points``, judged by what it did not see."""
    profile = way.fitted(points)
    source = ", ".join(sorted({point.source for point in points}))
    record = provenance(source, points, way.gpu, way.shown(profile))
    train = [point for point in points if not held_out(point.family)]
    test = [point for point in points if held_out(point.family)]
    if len(train) >= FEW and test:
        unseen = way.shown(way.fitted(train))
        errors = [abs(predicted_seconds(point, way.gpu, unseen) / point.seconds - 1) for point in test]
        record = replace(
            record, held_out_median=float(np.median(errors)), held_out_p90=float(np.quantile(errors, 0.9))
        )
    return Judged(profile=profile, record=record, intervals=_intervals(way, points, profile, replicas))


def _intervals(
    way: Fit, points: Sequence[Measurement], profile: GpuProfile, replicas: int
) -> dict[str, Interval]:
    """What holds nine in ten of each constant's replicas, and the constant itself."""
    families = sorted({point.family for point in points})
    if replicas < 2 or len(families) < FEW:
        return {}
    draw, best = np.random.default_rng(0), way.constants(profile)
    found: dict[str, list[float]] = {name: [value] for name, value in best.items()}
    for _ in range(replicas):
        drawn = [families[i] for i in draw.integers(0, len(families), len(families))]
        some = [point for family in drawn for point in points if point.family == family]
        for name, value in way.constants(way.fitted(some)).items():
            if name in found:  # a draw may lack a head dimension, or have one more by interpolation
                found[name].append(value)
    return {
        name: (
            min(best[name], float(np.quantile(values, 0.05))),
            max(best[name], float(np.quantile(values, 0.95))),
        )
        for name, values in found.items()
    }
