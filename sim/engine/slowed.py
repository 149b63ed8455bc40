"""Which links hold communications below their own ceilings, and for how long.

A communication that runs at its ceiling costs nothing here; for one that shares a full link, the time and
the bytes of each stretch are added up by link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..network.sharing import Demand, Link

SLACK = 1e-9


@dataclass(slots=True)
class Stretch:
    """What one kind of communication did while a link held it."""

    seconds: float = 0.0
    bytes: float = 0.0


@dataclass
class Slowed:
    """Sums by demand (its identity) and link. ``demands`` keeps the demands alive."""

    sums: dict[tuple[int, Link], Stretch] = field(default_factory=dict)
    demands: dict[int, Demand] = field(default_factory=dict)

    def add(self, demand: Demand, link: Link, seconds: float, rate: float) -> None:
        """One stretch at a constant rate."""
        self.demands[id(demand)] = demand
        sums = self.sums.setdefault((id(demand), link), Stretch())
        sums.seconds += seconds
        sums.bytes += seconds * rate


def binding(
    demand: Demand, rate: float, others: Iterable[tuple[Demand, float]], capacity: Mapping[Link, float]
) -> Link | None:
    """The link that holds ``demand`` at ``rate``; None: its own ceiling. ``others`` share links with it.

    Of several full ones that where it has the largest share: everyone has one where none has more.
    """
    if rate >= demand.ceiling * (1 - SLACK):
        return None
    load = {link: weight * rate for link, weight in demand.weights}
    most = dict.fromkeys(load, 0.0)
    for other, its_rate in others:
        for link, weight in other.weights:
            if link in load:
                load[link] += weight * its_rate
                most[link] = max(most[link], other.heaviest * its_rate)
    full = [link for link, total in load.items() if total >= capacity[link] * (1 - SLACK)]
    return min(full, key=lambda link: most[link], default=None)
