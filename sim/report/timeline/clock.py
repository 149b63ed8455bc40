"""The unit in which a timeline writes its times. Knows figures; does not know what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...figures import seconds


@dataclass(frozen=True, kw_only=True)
class TimeScale:
    """``unit(last)`` names the axis's unit and says how many of it are one of the boxes' times.

    ``last`` is where the axis ends. ``say`` writes one time for whoever points at a box.
    """

    unit: Callable[[float], tuple[str, float]]
    say: Callable[[float], str]


SECONDS = TimeScale(unit=lambda last_s: ("s", 1.0) if last_s >= 1 else ("ms", 1e3), say=seconds)


def counted(unit: str) -> TimeScale:
    """Times that are multiples of a unit of the schedule's own.

    >>> counted("tF").say(2.5)
    '2.5 tF'
    """
    return TimeScale(unit=lambda _: (unit, 1.0), say=lambda time: f"{time:g} {unit}")
