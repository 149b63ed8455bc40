"""What every network shape can do: say which switches and cables it has, and which of them a message crosses.

Knows messages as flows between leaf switches, and the two rules of equal-cost routing: an ideal spread
divides a flow, a hash picks one way for it. Does not know hosts: they hang on leaf switches by planes,
links and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .inputs import Ports
    from .links import Ids, LinkFamily

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


@dataclass(frozen=True, kw_only=True)
class RouteFlows:
    """Parts of messages: arrays of equal length.

    ``route`` numbers the message that a part belongs to, ``weight`` is its share of the payload, ``key`` the
    hash of its ends. ``source`` and ``target`` are leaf switches of ``plane``. Hashed flows stay whole.
    """

    route: Ids
    weight: NDArray[np.float64]
    key: NDArray[np.uint64]
    source: Ids
    target: Ids
    plane: Ids
    hashed: bool

    def take(self, chosen: NDArray[np.bool_] | Ids) -> RouteFlows:
        """The ``chosen`` flows alone, in the order of ``chosen``."""
        return replace(
            self,
            route=self.route[chosen],
            weight=self.weight[chosen],
            key=self.key[chosen],
            source=self.source[chosen],
            target=self.target[chosen],
            plane=self.plane[chosen],
        )

    def fan_out(self, ways: int, stage: int) -> tuple[RouteFlows, Ids, Ids]:
        """The flows over ``ways`` equal ways: the flows, the way of each, and which flow each came from.

        Every ``stage`` hashes anew, as switches with seeds of their own do.
        """
        count = len(self.route)
        if ways == 1 or self.hashed:
            origin = np.arange(count)
            return self, (hashed(self.key, stage) % np.uint64(ways)).astype(np.int64), origin
        origin = np.repeat(np.arange(count), ways)
        parts = self.take(origin)
        return replace(parts, weight=parts.weight / ways), np.tile(np.arange(ways), count), origin


@dataclass(frozen=True, kw_only=True)
class LinkCrossing:
    """Links that flows cross at one point of their way.

    ``family`` counts the network's own families, ``local`` the links in it. ``order`` sorts the crossings of
    one route from its source to its target.
    """

    order: int
    family: int
    route: Ids
    local: Ids
    weight: NDArray[np.float64]


class Network(Protocol):
    """Switches between hosts, in closed form."""

    @property
    def planes(self) -> int:
        """Disjoint copies of the network, with one port of every host link in each."""

    @property
    def tiers(self) -> tuple[tuple[str, int], ...]:
        """Names and numbers of switches, those nearest to the hosts first."""

    @property
    def nodes(self) -> int:
        """Hosts that it has ports for."""

    def leaf(self, node: Ids, link: Ids) -> Ids:
        """The switch, counted within a plane, that this link of the host is plugged into."""

    def families(self, net: Ports) -> tuple[LinkFamily, ...]:
        """Cables between switches; each direction is a family of its own."""

    def crossings(self, flows: RouteFlows) -> Iterator[LinkCrossing]:
        """The cables that each flow crosses."""

    def bisection_bytes_per_s(self, net: Ports) -> float:
        """Line rate from the first half of the hosts to the rest."""


def hashed(key: NDArray[np.uint64], stage: int) -> NDArray[np.uint64]:
    """A well-mixed function of ``key`` and the stage (the finalizer of SplitMix64, Steele et al. 2014)."""
    mixed = key + np.uint64((_GOLDEN * (stage + 1)) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX_1)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX_2)
    return mixed ^ (mixed >> np.uint64(31))


def flow_key(seed: int, source: Ids, target: Ids, flow: Ids) -> NDArray[np.uint64]:
    """The hash of source NIC, target NIC and flow number."""
    key = np.full(source.shape, seed % 2**64, dtype=np.uint64)
    for part in (source, target, flow):
        key = hashed(key ^ part.astype(np.uint64), 0)
    return key
