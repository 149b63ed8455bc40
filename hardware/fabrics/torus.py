"""3-D torus: every host has a switch of its own, joined to the next one along each axis and back around.

Routing is dimension-ordered (x, then y, then z), the shorter way around each ring; a target that is
exactly opposite is as near both ways, and the flow is divided or hashed. Other minimal ways, which turn
in between, are not used.

Sources: Dally and Seitz 1987 (dimension order); Adiga et al., Blue Gene/L torus interconnection network,
IBM J. Res. Dev. 49 (2005); Jouppi et al., TPU v4, ISCA 2023 (4 x 4 x 4 blocks as a 3-D torus).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from .links import Ids, LinkFamily, Vertex, constant
from .network import LinkCrossing, RouteFlows

if TYPE_CHECKING:
    from .inputs import Options, Ports


@dataclass(frozen=True, kw_only=True)
class Torus:
    """``size`` hosts along x, y and z; x runs fastest.

    Each side of a host has ``cables`` parallel cables; ``oversubscription`` is the host's network rate over
    that of one side. In a ring of two both sides are the same neighbour and one of them is left out.
    ``trunked`` marks what ``as_trunks`` gives.
    """

    size: tuple[int, int, int]
    links_per_host: int
    oversubscription: float = 1.0
    planes: int = 1
    trunked: bool = False

    def as_trunks(self) -> Torus:
        """One link for all parallel cables of a side, which an even spread loads alike."""
        return replace(self, trunked=True)

    def trunk_of(self, family: int, local: int) -> tuple[int, int]:
        """The trunk (its number in the same family of ``as_trunks``) of a cable, and how many it holds."""
        del family  # every side has as many
        return local // self.cables, self.cables

    @property
    def nodes(self) -> int:
        return prod(self.size)

    @property
    def tiers(self) -> tuple[tuple[str, int], ...]:
        return (("router", self.nodes),)

    @property
    def cables(self) -> int:
        return 1 if self.trunked else max(1, ceil(self.links_per_host / self.oversubscription - 1e-9))

    def leaf(self, node: Ids, link: Ids) -> Ids:
        return node + 0 * link

    def stride(self, axis: int) -> int:
        return prod(self.size[:axis])

    def families(self, net: Ports) -> tuple[LinkFamily, ...]:
        """Two families an axis, forwards and backwards, numbered by the host that sends."""
        side = net.link_bytes_per_s * self.links_per_host / self.oversubscription

        def family(axis: int, way: int) -> LinkFamily:
            def ends(local: int) -> tuple[Vertex, Vertex] | None:
                length, node = self.size[axis], local // self.cables
                if length == 1 or (length == 2 and way < 0):
                    return None
                return ("router", node), ("router", self.neighbour(node, axis, way))

            alone = self.size[axis] == 1 or (self.size[axis] == 2 and way < 0)
            return LinkFamily(
                kind="torus",
                count=self.nodes * self.cables,
                latency_s=net.switch_latency_s,
                bytes_per_s=constant(side / self.cables),
                ends=ends,
                efficiency=net.efficiency,
                cables=self.cables,
                gaps=self.nodes * self.cables if alone else 0,
            )

        return tuple(family(axis, way) for axis in range(3) for way in (1, -1))

    def neighbour(self, node: int, axis: int, way: int) -> int:
        stride, length = self.stride(axis), self.size[axis]
        place = node // stride % length
        return node + ((place + way) % length - place) * stride

    def crossings(self, flows: RouteFlows) -> Iterator[LinkCrossing]:
        here = flows.source
        order = 0
        for axis, length in enumerate(self.size):
            if length == 1:
                continue
            stride = self.stride(axis)
            place, goal = here // stride % length, flows.target // stride % length
            yield from self._ring(flows, here, axis, (goal - place) % length, order)
            here = here + (goal - place) * stride
            order += length // 2

    def _ring(
        self, flows: RouteFlows, here: Ids, axis: int, ahead: Ids, order: int
    ) -> Iterator[LinkCrossing]:
        """Flows at ``here`` go ``ahead`` places along one axis."""
        length, stride = self.size[axis], self.stride(axis)
        opposite = (2 * ahead == length) & (length > 2)
        parts, way, origin = _two_ways(flows, opposite, axis)
        back = np.where(opposite[origin], way == 1, 2 * ahead[origin] > length)
        left = np.where(back, length - ahead[origin], ahead[origin])
        node, sign = here[origin], np.where(back, -1, 1)
        for step in range(int(left.max(initial=0))):
            moves = np.flatnonzero(left > step)
            spread, cable, sender = parts.take(moves).fan_out(self.cables, 8 * axis + 16 + step)
            sender = moves[sender]
            for sense in (1, -1):
                chosen = sign[sender] == sense
                if chosen.any():
                    yield LinkCrossing(
                        order=order + step,
                        family=2 * axis + (sense < 0),
                        route=spread.route[chosen],
                        local=node[sender[chosen]] * self.cables + cable[chosen],
                        weight=spread.weight[chosen],
                    )
            place = node // stride % length
            node = node + ((place + sign) % length - place) * stride

    def bisection_bytes_per_s(self, net: Ports) -> float:
        """Across the longest axis, cut in half, at most what the hosts of the smaller half can send."""
        longest = max(self.size)
        half = longest // 2
        if not half:
            return 0.0
        section = self.nodes // longest
        sides = section * (2 if longest > 2 else 1)
        host = net.link_bytes_per_s * self.links_per_host
        return min(sides * host / self.oversubscription, half * section * host)


def _two_ways(flows: RouteFlows, opposite: np.ndarray, axis: int) -> tuple[RouteFlows, Ids, Ids]:
    """Flows to an opposite target in both ways (or in a hashed one), all others as they are."""
    count = len(flows.route)
    if flows.hashed:
        return flows.fan_out(2, 4 + axis)
    origin = np.repeat(np.arange(count), np.where(opposite, 2, 1))
    second = np.zeros(len(origin), dtype=np.int64)
    second[1:] = origin[1:] == origin[:-1]
    parts = flows.take(origin)
    weight = parts.weight / np.where(opposite[origin], 2, 1)
    return (
        RouteFlows(
            route=parts.route,
            weight=weight,
            key=parts.key,
            source=parts.source,
            target=parts.target,
            plane=parts.plane,
            hashed=False,
        ),
        second,
        origin,
    )


def network(fabric: Options, interconnect: Ports, nodes: int) -> Torus:
    """The stated shape, or the one with the smallest sum of sides.

    Raises:
        ValueError: the stated dimensions do not hold these hosts.
    """
    size = fabric.dimensions or most_cubic(nodes)
    if prod(size) != nodes:
        shape = " x ".join(map(str, size))
        nearest = " x ".join(map(str, most_cubic(nodes)))
        raise ValueError(
            f"dimensions {shape} hold {prod(size)} hosts, but the job has {nodes}; for example {nearest}"
        )
    return Torus(
        size=size, links_per_host=interconnect.links_per_host, oversubscription=fabric.oversubscription
    )


def most_cubic(nodes: int) -> tuple[int, int, int]:
    """Three factors with the smallest sum, largest first.

    >>> most_cubic(64), most_cubic(24), most_cubic(7)
    ((4, 4, 4), (4, 3, 2), (7, 1, 1))
    """
    shapes = [
        (nodes // (b * c), b, c)
        for c in range(1, round(nodes ** (1 / 3)) + 2)
        if nodes % c == 0
        for b in range(c, int((nodes // c) ** 0.5) + 1)
        if nodes // c % b == 0
    ]
    return min(shapes, key=lambda shape: (sum(shape), -shape[0]))
