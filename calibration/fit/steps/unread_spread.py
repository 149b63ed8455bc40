"""How far reading a trainer's code moves a step.

A trainer whose code nobody read is predicted with a generic preset, which stands for all trainers of its
kind. Every source's trainer was read; so each of its families is predicted with the generic preset, too, and
how far the two predictions are apart is what reading was worth. No measured step is in it. Sources count
alike, and in each its families do. The scale is that of a normal distribution which holds nine in ten of the
moves, as intervals are asked to, and not that of one with their median: where most trainers do as the generic
preset says, the others are far from it. The spread of a generic preset is found from its own sources, pooled
with that of all sources, which counts as ALL of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ....hardware.deviations import Deviation
from ....sim.evidence.interval import LEVEL
from ....sim.evidence.measured_steps import OTHERS
from ....sim.figures import significant
from ..growth import NORMAL_NINTH, weighted_quantile

ALL = 10.0
"""Sources for which the spread of all counts beside the own sources of one generic preset: the ninth decile
of fewer is what one of them shows. What no curve knows of a GPU's steps is pooled alike
(``MeasuredSteps.pooled``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A family of ``source``: by how much of a logarithm its step ``moved`` when its trainer was read, in
    place of the ``generic`` preset."""

    source: str
    generic: str
    moved: float


def fit_unread(moves: Sequence[Move]) -> dict[str, Deviation]:
    """The spread of steps whose trainer nobody has read, for each generic preset and for all OTHERS; empty
    without moves."""
    if not moves:
        return {}
    of_all = _ninth(moves)
    found = {OTHERS: Deviation(sigma=significant(of_all / NORMAL_NINTH), source=_shown(moves, of_all))}
    for generic in sorted({move.generic for move in moves}):
        own = [move for move in moves if move.generic == generic]
        sources, ninth = len({move.source for move in own}), _ninth(own)
        pooled = math.sqrt((sources * ninth**2 + ALL * of_all**2) / (sources + ALL))
        source = f"{_shown(own, ninth)}, beside {of_all:.1%} of all kin"
        found[generic] = Deviation(sigma=significant(pooled / NORMAL_NINTH), source=source)
    return dict(sorted(found.items()))


def _ninth(moves: Sequence[Move]) -> float:
    """Within how much of a logarithm nine in ten of the moves are."""
    many = Counter(move.source for move in moves)
    sizes = sorted((abs(move.moved), 1.0 / many[move.source]) for move in moves)
    return weighted_quantile(sizes, LEVEL)


def _shown(moves: Sequence[Move], ninth: float) -> str:
    sources = len({move.source for move in moves})
    return (
        f"stepsim calibrate residuals: {len(moves)} families of {sources} sources, each told with its"
        f" trainer's preset and with its kin's; nine in ten within {ninth:.1%}"
    )
