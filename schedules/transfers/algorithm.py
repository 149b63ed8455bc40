"""What every collective algorithm is: a pure function from a group to a plan, for each of its collectives.

One file per algorithm in ``schedules/collectives``; each ends in ``ALGORITHM = Algorithm(...)`` and
is found by its name (``schedules.collectives.get("ring")``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .collective import Collective
from .group import Group
from .plan import Plan

Plans = Mapping[Collective, Callable[[Group], Plan]]


def any_group(group: Group) -> None:
    """The check of an algorithm that runs on every group."""
    del group


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A named algorithm. ``check(group)`` refuses a group with a ValueError that says what would do."""

    name: str
    title: str
    plans: Plans
    check: Callable[[Group], None] = any_group

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """What the algorithm can do."""
        return tuple(self.plans)

    def plan(self, collective: Collective | str, group: Group) -> Plan:
        """The collective on that group. Raises ValueError where the algorithm does not do it there."""
        known = {one.value: one for one in self.plans}
        if collective not in known:
            raise ValueError(f"{self.name} has no {str(collective)!r}; it has {', '.join(known)}")
        self.check(group)
        return self.plans[known[collective]](group)
