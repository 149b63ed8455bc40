"""The pipeline schedules, found by name: every module of this folder that ends in ``SCHEDULE = ...``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ..orders.schedule import Schedule
from ..unknown import unknown


def get(name: str) -> Schedule:
    """The schedule of that name. Raises ValueError with the nearest and all known names.

    >>> get("1f1b").title
    '1F1B (PipeDream-flush)'
    """
    known = _found()
    if name in known:
        return known[name]
    raise unknown("pipeline schedule", name, known)


def names() -> tuple[str, ...]:
    """Names of all schedules, in alphabetical order."""
    return tuple(_found())


@cache
def _found() -> dict[str, Schedule]:
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    schedules = [module.SCHEDULE for module in modules if hasattr(module, "SCHEDULE")]
    return {schedule.name: schedule for schedule in sorted(schedules, key=lambda schedule: schedule.name)}
