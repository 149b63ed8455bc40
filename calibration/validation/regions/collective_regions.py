"""How errors of collectives grow with the distance from what logs show: regions of logs left out of the
fit.

Knows which logs to leave out: each alone (the residual inside the range), all of more NVLink domains than a
bound, all of more GPUs in a domain, all of one architecture of GPUs, all of one kind of fabric. The model
that turns constants into seconds is handed in, as in collective_constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ....hardware.deviations import Deviation
from ...fit.collective_constants import Observed, constants_of, fit_constants
from ...fit.growth import NORMAL_NINTH, LeftOut, growth_per_doubling, weighted_quantile

if TYPE_CHECKING:
    from ....hardware.collectives import CollectiveConstants

LARGE_BYTES = 1 << 20
DOMAIN_BOUNDS = (2, 4)
RANKS_BOUND = 8

CollectiveCase = Any
"""A measured sweep with its ``placement``, ``cluster`` and ``points``, as the model handed in knows it."""

Predict = Callable[[CollectiveCase, "CollectiveConstants"], Sequence[float]]
Tiers = dict[str, list[LeftOut]]


def collective_deviations(
    observed: Sequence[Observed[CollectiveCase]], predict: Predict, document: Mapping[str, Any]
) -> dict[str, Deviation]:
    """``collectives_node``, ``collectives_network``, and of each what a doubling of GPUs or NVLink domains
    and an unknown fabric or GPU add."""
    found: dict[str, Deviation] = {}
    inside: dict[str, float] = {}
    alone = _by_tier(_each_left_out(observed, predict, document))
    for tier, points in sorted(alone.items()):
        absolute = sorted((abs(point.error), 1.0) for point in points)
        inside[tier] = weighted_quantile(absolute, 0.9) / NORMAL_NINTH
        logs = len({point.group for point in points})
        found[f"collectives_{tier}"] = Deviation(
            sigma=inside[tier],
            source=f"stepsim calibrate residuals, each log left out: 90th percentile of {len(points)} sizes "
            f"of 1 MiB and more in {logs} logs",
        )
    for name, regions in (("beyond", _larger()), ("carried", _unknown(observed))):
        grown = _by_tier(_regions_left_out(observed, regions, inside, predict, document))
        for tier, members in sorted(grown.items()):
            found[f"collectives_{tier}_{name}"] = _grown(name, members)
    return found


def _grown(name: str, points: Sequence[LeftOut]) -> Deviation:
    regions = sorted({point.group.split(",")[0] for point in points})
    what = "a doubling; " if name == "beyond" else ""
    return Deviation(
        sigma=growth_per_doubling(points),
        source=f"{what}stepsim calibrate residuals, logs left out together ({', '.join(regions)}): "
        f"{len(points)} sizes of 1 MiB and more",
    )


Region = tuple[str, Callable[[CollectiveCase], float]]
"""A name, and how far a case is from all others when the region is left out; 0: it is not in the region."""


def _larger() -> Iterator[Region]:
    for bound in DOMAIN_BOUNDS:
        yield f"more than {bound} domains", partial(_domains_beyond, bound)
    yield f"more than {RANKS_BOUND} GPUs in a domain", partial(_ranks_beyond, RANKS_BOUND)


def _domains_beyond(bound: int, case: CollectiveCase) -> float:
    return max(0.0, math.log2(case.placement.domains / bound))


def _ranks_beyond(bound: int, case: CollectiveCase) -> float:
    return 0.0 if case.placement.domains > 1 else max(0.0, math.log2(case.placement.ranks / bound))


def _unknown(observed: Sequence[Observed[CollectiveCase]]) -> Iterator[Region]:
    cases = [one.case for one in observed]
    for name in sorted({case.cluster.gpu.architecture for case in cases}):
        yield name, partial(_is_of_architecture, name)
    for kind in sorted({case.cluster.interconnect.kind for case in cases if case.placement.domains > 1}):
        yield kind, partial(_is_on_fabric, kind)


def _is_of_architecture(name: str, case: CollectiveCase) -> float:
    return float(case.cluster.gpu.architecture == name)


def _is_on_fabric(kind: str, case: CollectiveCase) -> float:
    return float(case.placement.domains > 1 and case.cluster.interconnect.kind == kind)


def _each_left_out(
    observed: Sequence[Observed[CollectiveCase]], predict: Predict, document: Mapping[str, Any]
) -> Iterator[tuple[str, LeftOut]]:
    for one in observed:
        rest = [other for other in observed if other is not one]
        constants = constants_of(fit_constants(rest, predict, document), document)
        yield from _points(one, one.name, 1.0, 0.0, predict, constants)


def _regions_left_out(
    observed: Sequence[Observed[CollectiveCase]],
    regions: Iterator[Region],
    inside: Mapping[str, float],
    predict: Predict,
    document: Mapping[str, Any],
) -> Iterator[tuple[str, LeftOut]]:
    for name, far in regions:
        seen = [one for one in observed if not far(one.case)]
        if not 0 < len(seen) < len(observed):
            continue
        constants = constants_of(fit_constants(seen, predict, document), document)
        for one in observed:
            if distance := far(one.case):
                sigma = inside[_tier(one.case)]
                yield from _points(one, f"{name}, {one.name}", distance, sigma, predict, constants)


def _points(
    one: Observed[CollectiveCase],
    group: str,
    distance: float,
    sigma: float,
    predict: Predict,
    constants: CollectiveConstants,
) -> Iterator[tuple[str, LeftOut]]:
    """Tier and error of the large sizes of a log, whose bandwidth counts in training."""
    times = predict(one.case, constants)
    for (size, _), seconds, predicted in zip(one.case.points, one.seconds, times, strict=True):
        if size >= LARGE_BYTES:
            error = math.log(seconds / predicted)
            yield _tier(one.case), LeftOut(group=group, distance=distance, error=error, sigma=sigma)


def _tier(case: CollectiveCase) -> str:
    return "node" if case.placement.domains == 1 else "network"


def _by_tier(points: Iterator[tuple[str, LeftOut]]) -> Tiers:
    found: Tiers = {}
    for tier, point in points:
        found.setdefault(tier, []).append(point)
    return found


def measured_range(observed: Sequence[Observed[CollectiveCase]]) -> dict[str, Any]:
    """What logs reach, as deviations.yaml states it."""
    domains: dict[str, int] = {}
    for one in observed:
        if one.case.placement.domains > 1:
            kind = one.case.cluster.interconnect.kind
            domains[kind] = max(domains.get(kind, 0), one.case.placement.domains)
    return {
        "domains": dict(sorted(domains.items())),
        "ranks_in_a_domain": max(
            one.case.placement.ranks for one in observed if one.case.placement.domains == 1
        ),
        "architectures": sorted({one.case.cluster.gpu.architecture for one in observed}),
    }
