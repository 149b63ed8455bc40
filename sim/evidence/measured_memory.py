"""How sure a prediction of memory is: the probability that a run whose peak was predicted does fit.

Knows measured_memory.yaml, which ``stepsim calibrate residuals`` writes: how far measured peaks, and runs
that ran or ran out of memory, lie from what was predicted, by framework, whose presets share allocator and
buffers. Does not know what a peak is made of, but for how much of it comes and goes.

The logarithm of true over predicted peak is a shift, more where more of the peak comes and goes, plus a
spread times Student's t with four degrees of freedom: allocators fragment, and sources leave out what is
sometimes large, so errors have heavy tails. A run needs a margin besides, since no allocator uses all of a
GPU. How large it is only failures tell, and frameworks differ in it: where none is told it is in doubt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from ..scenario.software.rules import framework_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..result.step import StageMemory

Reals = TypeVar("Reals", float, "NDArray[np.float64]")

FILE = "measured_memory.yaml"

HALF = 0.5
"""Share of the peak that comes and goes at which a framework's shift is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpread:
    """Of the logarithm of true over predicted peak: its ``shift`` where half of the peak comes and goes, by
    how much that grows from a peak of which nothing does to one of which all does (``moving``), its
    ``spread``, and where they are from. Above a shift of zero, runs hold more than predicted. ``margin``: a
    run needs so much more than its peak, a logarithm, and its standard deviation is ``doubt``."""

    shift: float
    moving: float
    spread: float
    margin: float
    doubt: float
    source: str

    def fits(self, room: Reals, moving: Reals) -> Reals:
        """As MeasuredMemory.fits, of runs of this kind."""
        needed = self.shift + self.moving * (moving - HALF) + self.margin
        return below((room - needed) / math.hypot(self.spread, self.doubt))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """``frameworks`` by their names; ``other`` for those whose memory hardly anyone measured."""

    frameworks: Mapping[str, MemorySpread]
    other: MemorySpread

    def fits(self, framework: str, room: Reals, moving: Reals) -> Reals:
        """The probability that a run with that framework fits: ``room`` is the logarithm of capacity over
        predicted peak, ``moving`` the share of the peak that comes and goes. Numbers or arrays."""
        return self.frameworks.get(framework, self.other).fits(room, moving)


@cache
def measured_memory() -> MeasuredMemory:
    """What measured runs say of predictions of memory, from the file of the package (FILE)."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return memory_from_document(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def memory_from_document(document: Mapping[str, Any]) -> MeasuredMemory:
    """Measured memory read from a document as ``stepsim calibrate residuals`` writes it."""
    return MeasuredMemory(
        frameworks={name: MemorySpread(**entry) for name, entry in document["frameworks"].items()},
        other=MemorySpread(**document["other"]),
    )


def fit_probability(software: str, stages: Iterable[StageMemory]) -> float:
    """The probability that every rank of a run with that software fits: errors of one run are one error, so
    that the fullest rank decides."""
    room, moving = room_of(stages)
    return float(measured_memory().fits(framework_name(software), room, moving))


def framework_name(software: str) -> str:
    """The name of the framework that a preset is of; empty for software of no known framework."""
    framework = framework_of(software)
    return framework.name if framework else ""


def room_of(stages: Iterable[StageMemory]) -> tuple[float, float]:
    """Of the fullest rank, the logarithm of its capacity over what it needs, and the share of that which
    comes and goes."""
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
