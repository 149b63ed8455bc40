"""Standard deviations of what predictions are made of, each with its source (deviations.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .catalogue import read

NORMAL_MEDIAN = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

NORMAL_P90 = 1.6449
"""Standard deviations to either side of the mean that hold nine in ten values of a normal distribution."""

NORMAL_MEAN = 1 / 0.7979
"""Standard deviation of a normal distribution over its mean absolute deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """A standard deviation ``sigma`` of the natural logarithm of measured over predicted, and where it is
    from."""

    sigma: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollectives:
    """What logs of collectives reach: the most NVLink domains by kind of fabric, the most GPUs of one domain,
    and the GPU architectures that have one."""

    domains: Mapping[str, int]
    ranks_in_a_domain: int
    architectures: tuple[str, ...]


def deviations_document() -> dict[str, Any]:
    """The content of deviations.yaml, unchecked."""
    return read(Path(__file__).with_name("deviations.yaml"))


@cache
def shipped_deviations() -> dict[str, Deviation]:
    """Deviations by name, from deviations.yaml. Names that end in ``_beyond...`` are of one doubling."""
    return {
        name: Deviation(sigma=float(entry["sigma"]), source=str(entry["source"]))
        for name, entry in deviations_document()["sigmas"].items()
    }


@cache
def measured_collectives() -> MeasuredCollectives:
    """What measured collectives say of intervals, from deviations.yaml."""
    found = deviations_document()["collectives"]
    return MeasuredCollectives(
        domains={kind: int(count) for kind, count in found["domains"].items()},
        ranks_in_a_domain=int(found["ranks_in_a_domain"]),
        architectures=tuple(found["architectures"]),
    )
