"""Leaf, spine and core switches with every cable numbered, and the way up and down between them.

The same shape serves the plans of ``clos.py`` and the published clusters, which state their own counts.
Leaf l of a pod has ``uplinks`` parallel cables to every spine of the pod; spine k of every pod has
``core_cables`` to each core of group k. Planes are disjoint copies of all that (dual-ToR networks).

A message goes up as far as it must and comes down the only way there is: up to a spine and, between pods, to
a core of that spine's group, then down to the spine of the same number in the target's pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from .links import Ids, LinkFamily, Vertex
from .network import LinkCrossing, RouteFlows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .clos import Clos
    from .inputs import Ports

UP, DOWN, TO_CORE, FROM_CORE = range(4)


@dataclass(frozen=True, kw_only=True)
class Tiers:
    """Counts of one plane. ``Clos`` says what units and pods are.

    ``uplink_rate`` is the line rate of a cable between switches over that of a host's port. What goes up from
    a leaf is the capacity of its ports to hosts over ``oversubscription``, shared evenly by its cables, and
    the same again at the spines; ``full_unit`` counts the ports of a last unit as if it were full.
    ``trunked`` marks what ``as_trunks`` gives.
    """

    nodes: int
    links_per_host: int
    nodes_per_unit: int
    leaves_per_unit: int
    leaves_per_pod: int
    spines_per_pod: int
    cores_per_group: int
    oversubscription: float
    spine_oversubscription: float = 1.0
    planes: int = 1
    uplink_rate: float = 1.0
    full_unit: bool = True
    trunked: bool = False

    def as_trunks(self) -> Tiers:
        """All spines of a pod as one vertex, and all cores: the links of an ideal spread, one for each trunk.

        An even spread loads the cables of a trunk alike, so a trunk of their summed rate stands for them, and
        a route has one link where it had a thousand.
        """
        cores = min(1, self.cores_per_group)
        return replace(self, spines_per_pod=min(1, self.spines_per_pod), cores_per_group=cores, trunked=True)

    def trunk_of(self, family: int, local: int) -> tuple[int, int]:
        """The trunk (its number in the same family of ``as_trunks``) of a cable, and how many it holds."""
        if family in (UP, DOWN):
            return local // (self.uplinks * self.spines_per_pod), self.uplinks * self.spines_per_pod
        cables = self.spines_per_pod * self.cores_per_group * self.core_cables
        return local // cables, cables

    def trunk_end(self, name: str) -> str:
        """The vertex of ``as_trunks`` that stands for one named as ``spine 5``."""
        kind, _, number = name.partition(" ")
        if kind == "spine":
            return f"spines {int(number) // self.spines_per_pod}"
        return f"cores {int(number) // self.cores}" if kind == "core" else name

    @property
    def leaves(self) -> int:
        return ceil(self.nodes / self.nodes_per_unit) * self.leaves_per_unit

    @property
    def pods(self) -> int:
        return ceil(self.leaves / self.leaves_per_pod)

    @property
    def spines(self) -> int:
        return self.pods * self.spines_per_pod

    @property
    def cores(self) -> int:
        return self.cores_per_group * self.spines_per_pod

    @property
    def tiers(self) -> tuple[tuple[str, int], ...]:
        named = (("leaf", self.leaves), (self._names[0], self.spines), (self._names[1], self.cores))
        return tuple((name, count * self.planes) for name, count in named if count)

    @property
    def _names(self) -> tuple[str, str]:
        return ("spines", "cores") if self.trunked else ("spine", "core")

    @property
    def ports_below(self) -> float:
        """Ports to hosts of a full leaf."""
        return self.nodes_per_unit * self.links_per_host / self.leaves_per_unit

    @property
    def uplinks(self) -> int:
        """Parallel cables from a leaf to each spine of its pod."""
        if self.trunked or not self.spines_per_pod:
            return min(1, self.spines_per_pod)
        up = self.ports_below / self.oversubscription / self.uplink_rate
        return max(1, ceil(up / self.spines_per_pod - 1e-9))

    @property
    def core_cables(self) -> int:
        """Parallel cables from a spine to each core of its group."""
        if self.trunked or not self.cores_per_group:
            return min(1, self.cores_per_group)
        up = self.leaves_per_pod * self.ports_below / self.oversubscription / self.spine_oversubscription
        return max(1, ceil(up / self.uplink_rate / (self.spines_per_pod * self.cores_per_group) - 1e-9))

    def leaf(self, node: Ids, link: Ids) -> Ids:
        return node // self.nodes_per_unit * self.leaves_per_unit + link % self.leaves_per_unit

    def pod(self, leaf: Ids) -> Ids:
        return leaf // self.leaves_per_pod

    def links_below(self, leaf: Ids) -> NDArray[np.float64]:
        """Ports in use towards hosts; fewer in a last unit that is not full, unless ``full_unit``."""
        first = leaf // self.leaves_per_unit * self.nodes_per_unit
        hosts = np.minimum(self.nodes_per_unit, self.nodes - first)
        if self.full_unit:
            hosts = np.full_like(hosts, self.nodes_per_unit)
        # Links are dealt to the unit's leaves in turn, so the first leaves may have one more.
        per_host = (self.links_per_host - leaf % self.leaves_per_unit - 1) // self.leaves_per_unit + 1
        return (hosts * per_host).astype(np.float64)

    def families(self, net: Ports) -> tuple[LinkFamily, ...]:
        """Leaf to spine and back, spine to core and back, in the order of UP, DOWN, TO_CORE, FROM_CORE."""
        if not self.spines_per_pod:
            return ()
        port = net.link_bytes_per_s / self.planes
        per_leaf, per_spine = self.spines_per_pod * self.uplinks, self.cores_per_group * self.core_cables

        def up_rate(local: Ids) -> NDArray[np.float64]:
            below = self.links_below(local // per_leaf % self.leaves)
            return below * (port / self.oversubscription / per_leaf)

        def core_rate(local: Ids) -> NDArray[np.float64]:
            below = self._pod_links(local // per_spine % self.spines // self.spines_per_pod)
            ratio = self.oversubscription * self.spine_oversubscription
            return below * (port / ratio / (self.spines_per_pod * per_spine))

        def pair(kind: str, count: int, cables: int) -> tuple[LinkFamily, LinkFamily]:
            ends, rate = (self._up_ends, up_rate) if kind == "uplink" else (self._core_ends, core_rate)
            up = LinkFamily(
                kind="uplink" if kind == "uplink" else "core",
                count=count * self.planes,
                latency_s=net.switch_latency_s,
                bytes_per_s=rate,
                ends=ends,
                efficiency=net.efficiency,
                cables=cables,
            )
            return up, reversed_family(up)

        found = pair("uplink", self.leaves * per_leaf, self.uplinks)
        return found + pair("core", self.spines * per_spine, self.core_cables) if self.cores else found

    def _pod_links(self, pod: Ids) -> NDArray[np.float64]:
        """Links of hosts into the leaves of each pod."""
        leaves = np.arange(self.leaves)
        totals = np.bincount(leaves // self.leaves_per_pod, self.links_below(leaves), self.pods)
        return np.asarray(totals, dtype=np.float64)[pod]

    def _up_ends(self, local: int) -> tuple[Vertex, Vertex]:
        leaf, spine = divmod(local // self.uplinks, self.spines_per_pod)
        plane, index = divmod(leaf, self.leaves)
        pod = index // self.leaves_per_pod
        return ("leaf", leaf), (self._names[0], plane * self.spines + pod * self.spines_per_pod + spine)

    def _core_ends(self, local: int) -> tuple[Vertex, Vertex]:
        spine, core = divmod(local // self.core_cables, self.cores_per_group)
        plane, group = spine // self.spines, spine % self.spines_per_pod
        return (self._names[0], spine), (
            self._names[1],
            plane * self.cores + group * self.cores_per_group + core,
        )

    def crossings(self, flows: RouteFlows) -> Iterator[LinkCrossing]:
        rising = flows.take(flows.source != flows.target)
        if not len(rising.route):
            return
        at_spine, spine, _ = rising.fan_out(self.spines_per_pod, 1)
        yield self._leaf_cables(at_spine, spine, at_spine.source, order=0, family=UP, stage=2)
        yield self._leaf_cables(at_spine, spine, at_spine.target, order=3, family=DOWN, stage=5)
        between = self.pod(at_spine.source) != self.pod(at_spine.target)
        at_spine, spine = at_spine.take(between), spine[between]
        if len(at_spine.route):
            at_core, core, origin = at_spine.fan_out(self.cores_per_group, 3)
            way = (spine[origin], core)
            yield self._core_cables(at_core, way, at_core.source, order=1, family=TO_CORE, stage=4)
            yield self._core_cables(at_core, way, at_core.target, order=2, family=FROM_CORE, stage=6)

    def _leaf_cables(
        self, flows: RouteFlows, spine: Ids, leaf: Ids, *, order: int, family: int, stage: int
    ) -> LinkCrossing:
        parts, cable, origin = flows.fan_out(self.uplinks, stage)
        bundle = (parts.plane * self.leaves + leaf[origin]) * self.spines_per_pod + spine[origin]
        local = bundle * self.uplinks + cable
        return LinkCrossing(order=order, family=family, route=parts.route, local=local, weight=parts.weight)

    def _core_cables(
        self, flows: RouteFlows, way: tuple[Ids, Ids], leaf: Ids, *, order: int, family: int, stage: int
    ) -> LinkCrossing:
        parts, cable, origin = flows.fan_out(self.core_cables, stage)
        spine, core = way[0][origin], way[1][origin]
        global_spine = parts.plane * self.spines + self.pod(leaf[origin]) * self.spines_per_pod + spine
        local = (global_spine * self.cores_per_group + core) * self.core_cables + cable
        return LinkCrossing(order=order, family=family, route=parts.route, local=local, weight=parts.weight)

    def bisection_bytes_per_s(self, net: Ports) -> float:
        """Bisection bandwidth as of ``Clos``; the host ports of all planes count."""
        from .clos import Clos

        clos = Clos(
            nodes=self.nodes,
            links_per_host=self.links_per_host,
            nodes_per_unit=self.nodes_per_unit,
            leaves_per_unit=self.leaves_per_unit,
            switch_ports=max(self.leaves_per_pod, 1) if self.pods == 1 else 2 * self.leaves_per_pod,
            oversubscription=self.oversubscription,
            spine_oversubscription=self.spine_oversubscription,
            levels=3 if self.pods > 1 else None,
        )
        return clos.bisection_links * net.link_bytes_per_s


def reversed_family(family: LinkFamily) -> LinkFamily:
    """The links of the family's cables in the other direction."""

    def ends(local: int) -> tuple[Vertex, Vertex] | None:
        found = family.ends(local)
        return (found[1], found[0]) if found else None

    return replace(family, ends=ends)


def tiers_of(clos: Clos) -> Tiers:
    """The planned switches of ``clos``."""
    return Tiers(
        nodes=clos.nodes,
        links_per_host=clos.links_per_host,
        nodes_per_unit=clos.nodes_per_unit,
        leaves_per_unit=clos.leaves_per_unit,
        leaves_per_pod=clos.leaves_per_pod,
        spines_per_pod=clos.spines_per_pod,
        cores_per_group=clos.cores_per_group,
        oversubscription=clos.oversubscription,
        spine_oversubscription=clos.spine_oversubscription,
        full_unit=False,
    )
