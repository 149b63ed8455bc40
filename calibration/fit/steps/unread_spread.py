"""How far reading a trainer's code moves a step.

Whoever trains with code that nobody read is told what its kin does. Every source's trainer was read; so each
of its families is told as its kin's, too, and how far the two predictions are apart is what reading was
worth. No measured step is in it. Sources count alike, and in each its families do; the scale is that of a
normal distribution with their median, as of all residuals here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ....hardware.deviations import NORMAL_MEDIAN, Deviation
from ....sim.evidence.measured_steps import OTHERS
from ....sim.figures import significant
from ..growth import weighted_quantile

FEW = 5
"""Sources that a kin needs to speak for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A family of ``source``: by how much of a logarithm its step ``moved`` when its trainer was read, of
    which the kin's preset is ``kin``."""

    source: str
    kin: str
    moved: float


def fit_unread(moves: Sequence[Move]) -> dict[str, Deviation]:
    """By the preset of kin with FEW sources, and of all OTHERS; nothing of no moves."""
    kins = sorted({move.kin for move in moves})
    own = {kin: [move for move in moves if move.kin == kin] for kin in kins}
    spoken = {kin: some for kin, some in own.items() if len({move.source for move in some}) >= FEW}
    return {kin: _of(some) for kin, some in {**spoken, OTHERS: list(moves)}.items() if some}


def _of(moves: Sequence[Move]) -> Deviation:
    many = Counter(move.source for move in moves)
    found = weighted_quantile(sorted((abs(move.moved), 1.0 / many[move.source]) for move in moves), 0.5)
    source = (
        f"stepsim calibrate residuals: {len(moves)} families of {len(many)} sources, each told with its"
        f" trainer's preset and with its kin's; median {found:.1%}"
    )
    return Deviation(sigma=significant(NORMAL_MEDIAN * found), source=source)
