"""How sure a prediction of memory is: the probability that a run whose peak was predicted really fits.

Knows measured_memory.yaml, which ``stepsim calibrate residuals`` writes. For each framework, whose presets
share allocator and buffers, it says how far measured peaks lie from predicted ones, and which runs ran or ran
out of memory. Does not know what a peak is made of, except how much of it comes and goes.

The logarithm of true over predicted peak is a shift, which is larger where more of the peak comes and goes,
plus a spread times Student's t with four degrees of freedom. Allocators fragment, and sources leave out
things that are sometimes large, so that errors have heavy tails. A run also needs a margin beyond its peak,
since no allocator uses all of a GPU. Only failures tell how large it is, and frameworks differ in it: where
no failure is known the margin is in doubt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from ...hardware.files.shipped_yaml import load_shipped
from ..scenario.software.rules import framework_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..result.step import StageMemory

Reals = TypeVar("Reals", float, "NDArray[np.float64]")

FILE = "measured_memory.yaml"

HALF = 0.5
"""Share of the peak that comes and goes for which a framework's shift is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpread:
    """What is known of the logarithm of true over predicted peak, for runs of one kind.

    ``shift`` is its mean where half of the peak is allocated and freed within the step; above zero, runs hold
    more than predicted. ``moving`` is the growth of the mean from a peak without such memory to one that is
    all of it. ``spread`` multiplies Student's t. ``margin``, a logarithm too, is what a run needs beyond its
    peak, and ``doubt`` its standard deviation. ``source`` says where they are from.
    """

    shift: float
    moving: float
    spread: float
    margin: float
    doubt: float
    source: str

    def fits(self, room: Reals, moving: Reals) -> Reals:
        """The probability that a run of this kind fits, as in MeasuredMemory.fits."""
        needed = self.shift + self.moving * (moving - HALF) + self.margin
        return below((room - needed) / math.hypot(self.spread, self.doubt))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Spreads of ``frameworks`` by their names, and of all ``other`` ones, whose memory hardly anyone
    measured."""

    frameworks: Mapping[str, MemorySpread]
    other: MemorySpread

    def fits(self, framework: str, room: Reals, moving: Reals) -> Reals:
        """The probability that a run with that framework fits, for numbers or arrays. ``room`` is the
        logarithm of capacity over predicted peak, ``moving`` the share of the peak that comes and goes."""
        return self.frameworks.get(framework, self.other).fits(room, moving)


@cache
def measured_memory() -> MeasuredMemory:
    """What measured runs say of predictions of memory, from the file of the package (FILE)."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return memory_from_document(load_shipped(text))


def memory_from_document(document: Mapping[str, Any]) -> MeasuredMemory:
    """Measured memory read from a document as ``stepsim calibrate residuals`` writes it."""
    return MeasuredMemory(
        frameworks={name: MemorySpread(**entry) for name, entry in document["frameworks"].items()},
        other=MemorySpread(**document["other"]),
    )


def fit_probability(software: str, stages: Iterable[StageMemory]) -> float:
    """The probability that every rank of a run with that software fits. Errors of one run are one error, so
    that the fullest rank decides."""
    room, moving = room_of(stages)
    return float(measured_memory().fits(framework_name(software), room, moving))


def framework_name(software: str) -> str:
    """The name of a preset's framework; empty for software of no known framework."""
    framework = framework_of(software)
    return framework.name if framework else ""


def room_of(stages: Iterable[StageMemory]) -> tuple[float, float]:
    """Two figures of the fullest rank: the logarithm of its capacity over what it needs, and the share of
    that need which comes and goes."""
    fullest = max(stages, key=lambda stage: stage.needed_bytes / stage.capacity_bytes)
    return math.log(fullest.capacity_bytes / fullest.needed_bytes), fullest.moving_share


def below(deviations: Reals) -> Reals:
    """The probability that Student's t with four degrees of freedom is at most so much.

    Source: Shaw 2006, Sampling Student's T distribution, J. Comput. Finance 9 (closed form for four degrees).

    >>> below(0.0), round(below(2.1318), 4)
    (0.5, 0.95)
    """
    y = deviations / (4.0 + deviations * deviations) ** 0.5
    share: Reals = 0.5 + y * (3.0 - y * y) / 4.0
    return share
