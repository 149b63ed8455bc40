"""Which links hold communications below their own ceilings, and for how long.

A communication that runs at its ceiling costs nothing here; for one that shares a full link, the time and
the bytes of each stretch are added up by link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..network.sharing import Demand, Link

SLACK = 1e-9
"""Share by which rounding may part a rate from its ceiling, and a full link from its capacity."""


@dataclass(slots=True)
class SlowedStretch:
    """What one kind of communication did while a link held it."""

    seconds: float = 0.0
    bytes: float = 0.0


class SlowedWhile(NamedTuple):
    """``link`` held a flow below its ceiling between two times: of a collective by its op, of a flow beside
    the block by -1 for the first, -2 for the second.
    """

    since: float
    until: float
    flow: int
    link: Link
    rate: float


@dataclass
class Slowed:
    """Sums by demand (its identity) and link. ``demands`` keeps the demands alive."""

    sums: dict[tuple[int, Link], SlowedStretch] = field(default_factory=dict)
    demands: dict[int, Demand] = field(default_factory=dict)

    def add(self, demand: Demand, link: Link, seconds: float, rate: float) -> None:
        """Add a stretch of so many seconds in which ``link`` held ``demand`` at ``rate``, in payload bytes
        per second."""
        self.demands[id(demand)] = demand
        sums = self.sums.get((id(demand), link))
        if sums is None:
            sums = self.sums[id(demand), link] = SlowedStretch()
        sums.seconds += seconds
        sums.bytes += seconds * rate


def binding(demand: Demand, rate: float, capacity: Mapping[Link, float]) -> Link | None:
    """The link that holds ``demand``, with its links to itself, at ``rate``; None: its own ceiling."""
    if rate >= demand.ceiling * (1 - SLACK):
        return None
    full = (link for link, weight in demand.weights if weight * rate >= capacity[link] * (1 - SLACK))
    return next(full, None)
