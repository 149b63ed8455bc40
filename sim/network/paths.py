"""Links of the fabric that communications cross, as the engine sees them: by name, with weights.

A weight counts bytes per byte that a member sends through its NIC (a transfer's weight on ``nic.out``), so
that one path serves all sizes and collectives of a group. Where a class of equal communicators is replayed
once, a link stands for all links of its class, and a weight for all of the equal communicators that cross
one of them. Knows no routes: sim/fold finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Path = tuple[tuple[str, float], ...]
"""Links by name, each with its weight."""


@dataclass(frozen=True, kw_only=True)
class Paths:
    """``capacity`` by link, in bytes per second; paths of ``collectives`` by (class, communicator, pattern),
    of ``messages`` by (sending class, receiving class). What is not here crosses no link that can bind.
    """

    capacity: Mapping[str, float] = field(default_factory=dict)
    collectives: Mapping[tuple[int, str, str], Path] = field(default_factory=dict)
    messages: Mapping[tuple[int, int], Path] = field(default_factory=dict)

    def routed(self, r: int) -> frozenset[str]:
        """Communicators of class ``r`` that cross links of the fabric."""
        return frozenset(name for number, name, _ in self.collectives if number == r)


NO_PATHS = Paths()
