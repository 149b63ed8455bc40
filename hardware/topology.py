"""Routes between GPUs as arrays: which links each message crosses, and with what share of it.

Puts hosts (``host_links.py``) and a network shape (``fabrics``) together. Everything is a closed form of
the two GPUs' numbers, so cost follows the number of routes asked for, not the size of the cluster. Does
not know loads or time.

A GPU with several NICs deals its messages to all of them, the i-th to the i-th of the target's. With
PXN a message for another rail first goes over NVLink to the neighbour on the target's rail, as NCCL does
(ncclPxnDisable 0, since NCCL 2.12).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .fabric import Ecmp, network_of
from .fabrics.links import Ids, LinkTable
from .fabrics.network import Network, RouteFlows, flow_key
from .fabrics.tiers import Tiers
from .fabrics.torus import Torus
from .host_links import BRIDGE_IN, BRIDGE_OUT, NIC_IN, NIC_OUT, PCIE_IN, PCIE_OUT, HostLinks, RoutedCluster
from .routes import RoutePart, Routes, gpu_vectors, joined

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_HOST_FAMILIES = 8
_AT_SWITCHES = 8  # orders below are host links on the way out
_AFTER_SWITCHES = 1 << 20


class Topology(Protocol):
    """Links with ids, and the links of any route. ``gpus`` counts the GPUs that a route may name."""

    @property
    def gpus(self) -> int: ...

    @property
    def links(self) -> LinkTable: ...

    @property
    def bisection_bytes_per_s(self) -> float: ...

    def links_of(self, a: ArrayLike, b: ArrayLike, flow: ArrayLike = 0) -> Routes: ...


@dataclass(frozen=True)
class RegularTopology:
    """The topology of a cluster whose fabric has a closed form; ``topology_of`` makes it."""

    cluster: RoutedCluster
    network: Network | None

    def as_trunks(self) -> RegularTopology:
        """The topology with one link for each trunk of equal-cost cables: for ideal spreads over many."""
        if isinstance(self.network, Tiers | Torus):
            return replace(self, network=self.network.as_trunks())
        return self

    def trunk_of(self, link: int) -> tuple[int, int]:
        """The link of ``as_trunks`` that stands for a link between switches, and how many it stands for."""
        family = int(self.links.family_of(np.array([link]))[0])
        if not isinstance(self.network, Tiers | Torus) or family < _HOST_FAMILIES:
            return link, 1
        local, cables = self.network.trunk_of(family - _HOST_FAMILIES, int(link - self.links.first[family]))
        return int(self.as_trunks().links.first[family]) + local, cables

    @property
    def gpus(self) -> int:
        """GPUs that routes may name: those of a published cluster, else those of the job."""
        if self.network is None or self.network.nodes == 1:
            return self.cluster.gpus
        return max(self.cluster.gpus, self.network.nodes * self.cluster.gpus_per_node)

    @cached_property
    def hosts(self) -> HostLinks:
        return HostLinks(self.cluster, self.network, self.gpus)

    @cached_property
    def links(self) -> LinkTable:
        switched = self.network.families(self.cluster.interconnect) if self.network else ()
        return LinkTable(self.hosts.families() + switched)

    @property
    def bisection_bytes_per_s(self) -> float:
        """Line rate from the first half of the hosts to the rest; 0 without a network."""
        return self.network.bisection_bytes_per_s(self.cluster.interconnect) if self.network else 0.0

    def links_of(self, a: ArrayLike, b: ArrayLike, flow: ArrayLike = 0) -> Routes:
        """The links from GPUs ``a`` to GPUs ``b``, vectors of equal length (numbers are broadcast).

        ``flow`` tells messages between the same NICs apart: under hashed ECMP each is routed by itself.

        Raises:
            ValueError: a GPU that is not there.
        """
        a, b, flow = gpu_vectors(a, b, flow, self.gpus)
        parts: list[RoutePart] = []
        near = self.hosts.in_domain(a, b)
        ids = np.arange(len(a))
        parts += self._nvlink(ids[near & (a != b)], a, b, 0)
        beside = ~near & (a // self.cluster.gpus_per_node == b // self.cluster.gpus_per_node)
        if beside.any():
            parts += self._over_bridge(ids[beside], a, b)
        far = ids[~near & ~beside]
        if len(far):
            parts += self._over_network(far, a, b, flow)
        return joined(len(a), parts, merge=self.hosts.channels > 1)

    def _nvlink(self, ids: Ids, a: Ids, b: Ids, order: int) -> list[RoutePart]:
        hops = self.hosts.nvlink(a[ids], b[ids])
        return [self._part(order + hop, family, ids, local) for hop, (family, local) in enumerate(hops)]

    def _over_bridge(self, ids: Ids, a: Ids, b: Ids) -> list[RoutePart]:
        return [self._part(0, BRIDGE_OUT, ids, a[ids]), self._part(1, BRIDGE_IN, ids, b[ids])]

    def _over_network(self, ids: Ids, a: Ids, b: Ids, flow: Ids) -> list[RoutePart]:
        parts: list[RoutePart] = []
        sender = a.copy()
        if self.cluster.fabric.pxn:
            sender[ids] = self._forwarder(a[ids], b[ids])
            parts += self._nvlink(ids[sender[ids] != a[ids]], a, sender, 0)
        sends, gets = self._channels(sender[ids], b[ids], flow[ids])
        origin, channel, share = sends
        route, from_gpu, to_gpu = ids[origin], sender[ids][origin], b[ids][origin]
        width = self.hosts.channels
        parts += [
            self._part(3, PCIE_OUT, route, from_gpu * width + channel, share),
            self._part(_AFTER_SWITCHES + 1, PCIE_IN, route, to_gpu * width + gets, share),
        ]
        flows, nics = self._flows(route, (from_gpu, channel), (to_gpu, gets), share, flow[ids][origin])
        network = self.network
        assert network is not None  # the cluster refuses hosts without a network
        parts += [
            self._part(4, NIC_OUT, flows.route, nics[0] * network.planes + flows.plane, flows.weight),
            self._part(
                _AFTER_SWITCHES, NIC_IN, flows.route, nics[1] * network.planes + flows.plane, flows.weight
            ),
        ]
        for crossing in network.crossings(flows):
            family = _HOST_FAMILIES + crossing.family
            order = _AT_SWITCHES + crossing.order
            parts.append(self._part(order, family, crossing.route, crossing.local, crossing.weight))
        return parts

    def _forwarder(self, a: Ids, b: Ids) -> Ids:
        """The GPU beside ``a`` on the rail of ``b``; ``a`` if it is on that rail or NVLink does not reach."""
        per_node = self.cluster.gpus_per_node
        beside = a // per_node * per_node + b % per_node
        same_rail = self.hosts.nics(a)[0] == self.hosts.nics(b)[0]
        return np.where(same_rail | ~self.hosts.in_domain(a, beside), a, beside)

    def _channels(self, a: Ids, b: Ids, flow: Ids) -> tuple[tuple[Ids, Ids, np.ndarray], Ids]:
        """Over which of their NICs messages go: number, channel and share; and the receiver's channel."""
        sends, gets = self.hosts.nics(a)[1], self.hosts.nics(b)[1]
        if self.cluster.fabric.ecmp == "hashed":
            origin, channel = np.arange(len(a)), flow % sends
            share = np.ones(len(a))
        else:
            origin, channel = np.nonzero(np.arange(self.hosts.channels) < sends[:, None])
            share = 1.0 / sends[origin]
        return (origin, channel, share), channel % gets[origin]

    def _flows(
        self, route: Ids, source: tuple[Ids, Ids], target: tuple[Ids, Ids], share: np.ndarray, flow: Ids
    ) -> tuple[RouteFlows, tuple[Ids, Ids]]:
        """Flows between leaf switches in every plane, and the NICs at either end, counted over all hosts."""
        network, cluster = self.network, self.cluster
        assert network is not None
        links, per_node = cluster.interconnect.links_per_host, cluster.gpus_per_node
        ports = [(gpu // per_node, self.hosts.nics(gpu)[0] + channel) for gpu, channel in (source, target)]
        nics = [node * links + link for node, link in ports]
        flows = RouteFlows(
            route=route,
            weight=share,
            key=flow_key(cluster.fabric.seed, nics[0], nics[1], flow),
            source=network.leaf(*ports[0]),
            target=network.leaf(*ports[1]),
            plane=np.zeros_like(route),
            hashed=cluster.fabric.ecmp == "hashed",
        )
        flows, plane, origin = flows.fan_out(network.planes, 0)
        return replace(flows, plane=plane), (nics[0][origin], nics[1][origin])

    def _part(
        self, order: int, family: int, route: Ids, local: Ids, weight: np.ndarray | None = None
    ) -> RoutePart:
        shares = np.ones(len(route)) if weight is None else weight
        return RoutePart(order=order, route=route, link=self.links.first[family] + local, weight=shares)


def topology_of(cluster: RoutedCluster) -> Topology:
    """The topology of ``cluster``, by the module of ``fabrics`` that its fabric names."""
    fabric = cluster.fabric
    if fabric.kind == "custom":
        from .custom_topology import custom_topology

        return custom_topology(fabric, cluster.gpus)
    if not cluster.interconnect.connects_hosts:
        return RegularTopology(cluster, None)
    network = network_of(fabric, cluster.interconnect, cluster.nodes)
    return RegularTopology(cluster, network)


__all__ = ["Ecmp", "RegularTopology", "Routes", "Topology", "topology_of"]
