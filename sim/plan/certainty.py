"""How sure a plan is: whether a layout fits, and which of the best is the best.

Errors of a simulator are shared between layouts: where one is too fast by its GEMM curve, so are all, each by
its share of GEMMs. So intervals of layouts must not be held against each other. Here the constants are drawn
anew many times, the same for all layouts: each part of an interval moves all layouts by their shares of it,
and each value of each field all layouts that have it (sim/evidence/measured_layouts.py). What is drawn for a
part or a value depends on its name alone, never on which layouts there are, nor on their order.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..evidence.measured_layouts import FOLLOWS, measured_layouts
from ..evidence.measured_memory import framework_name, measured_memory
from ..result.step import LENGTHENS, SHORTENS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..result.step import IntervalPart
    from ..scenario.models import Scenario

    Floats = NDArray[np.float64]

SAMPLES = 4000
"""Draws: a probability is known to within 0.008."""

_FREEDOM = 4
TIED = 0.9
"""The best layout is among those that are tied with this probability."""


class NeededMemory(Protocol):
    """Memory of many layouts: what the fullest rank needs, what it holds of that throughout the step, and its
    capacity."""

    @property
    def needed_bytes(self) -> Floats: ...
    @property
    def held_bytes(self) -> Floats: ...
    @property
    def capacity_bytes(self) -> Floats: ...


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A layout that may be the best: its predicted step time in seconds, or what else is to be small in
    proportion to it; the parts of its interval, and its fields."""

    value: float
    parts: tuple[IntervalPart, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Certainty:
    """How sure a choice is among contenders, in their order.

    For each, the probability that it is the best, and by what share it is slower than the best (a geometric
    mean). ``ties`` are the places of the fewest contenders among which the best is with probability TIED.
    """

    probability_best: tuple[float, ...]
    expected_regret: tuple[float, ...]
    ties: tuple[int, ...]


def fit_probability(scenario: Scenario, screened: NeededMemory) -> Floats:
    """The probability that each layout fits when the job runs."""
    needed = np.maximum(screened.needed_bytes, 1.0)
    room = np.log(screened.capacity_bytes / needed)
    moving = 1.0 - screened.held_bytes / needed
    return measured_memory().fits(framework_name(scenario.software.name), room, moving)


def certainty_of(contenders: Sequence[Contender]) -> Certainty:
    """How sure it is which contender is the best. ValueError without any."""
    if not contenders:
        raise ValueError("of no layout at all none is the best")
    logs = np.stack([_drawn(one) for one in contenders])
    behind = logs - logs.min(axis=0)
    wins = np.bincount(logs.argmin(axis=0), minlength=len(contenders)) / SAMPLES
    order = sorted(range(len(contenders)), key=lambda place: (-wins[place], contenders[place].value))
    reached = np.cumsum(wins[order])
    ties = order[: int(np.searchsorted(reached, TIED)) + 1]
    return Certainty(
        probability_best=tuple(wins.tolist()),
        expected_regret=tuple(np.expm1(behind.mean(axis=1)).tolist()),
        ties=tuple(sorted(ties)),
    )


def _drawn(one: Contender) -> Floats:
    """Logarithms of its value, one for each draw of the constants; waits only lengthen it, a kernel that
    may be faster only shortens it."""
    factor = np.ones(SAMPLES)
    for part in one.parts:
        drawn = _normal(part.name)
        if part.kind in LENGTHENS:
            drawn = np.maximum(drawn, 0.0)
        elif part.kind in SHORTENS:
            drawn = np.minimum(drawn, 0.0)
        factor += part.share * np.expm1(part.sigma * drawn)
    found = np.log(one.value * np.maximum(factor, 1e-3))
    each = measured_layouts().field_sigma / 2**0.5
    for field, value in one.settings.items():
        if field not in FOLLOWS:
            found = found + each * _heavy(f"{field}={value!r}")
    return found


@lru_cache(maxsize=1024)
def _normal(name: str) -> Floats:
    """Random errors, in standard deviations, of the part of intervals that has this ``name``: the same for
    all layouts."""
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(SAMPLES)


@lru_cache(maxsize=1024)
def _heavy(name: str) -> Floats:
    """Random errors, in units of the spread, of the value of a field that has this ``name``: the same for all
    layouts that have the value."""
    return np.random.default_rng(zlib.crc32(name.encode())).standard_t(_FREEDOM, SAMPLES)
