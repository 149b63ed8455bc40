"""Links inside hosts and from NICs to leaf switches, and the parts of a route that lie there.

NVLink through NVSwitches counts as one link per GPU and direction: its switch planes share every
message evenly. Numbers of links are closed forms of rank, host and NIC.

Families, in this order: NVLink (out and in of a GPU, or one per ordered pair), host bridge out and in,
GPU to NIC and back, NIC to leaf and back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from .fabrics.links import Ids, LinkFamily, Vertex, constant
from .fabrics.tiers import reversed_family
from .link import NVLINK_LATENCY_S, PCIE_LATENCY_S, LinkKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .fabric import Fabric
    from .fabrics.network import Network
    from .gpu import Gpu
    from .interconnect import Interconnect
    from .node import Node

NVLINK_OUT, NVLINK_IN, BRIDGE_OUT, BRIDGE_IN, PCIE_OUT, PCIE_IN, NIC_OUT, NIC_IN = range(8)


Ranks = TypeVar("Ranks", int, Ids)
"""One number of a GPU, or a vector of them."""


class RoutedCluster(Protocol):
    """What routes read of a cluster (``cluster.py``)."""

    @property
    def gpu(self) -> Gpu: ...

    @property
    def gpus(self) -> int: ...

    @property
    def gpus_per_node(self) -> int: ...

    @property
    def interconnect(self) -> Interconnect: ...

    @property
    def fabric(self) -> Fabric: ...

    @property
    def node(self) -> Node: ...

    @property
    def nodes(self) -> int: ...

    @property
    def nvlink_domain(self) -> int: ...

    def domain_of(self, rank: Ranks) -> Ranks: ...


@dataclass(frozen=True)
class HostLinks:
    """The hosts of ``cluster``, hung on ``network``; ``gpus`` counts those of the whole fabric."""

    cluster: RoutedCluster
    network: Network | None
    gpus: int

    @cached_property
    def channels(self) -> int:
        """The most NICs that one GPU owns."""
        return max(1, -(-self.cluster.interconnect.links_per_host // self.cluster.gpus_per_node))

    @property
    def switched(self) -> bool:
        """Whether NVLink runs through NVSwitches; else every two GPUs of a domain have their own link."""
        return self.cluster.node.nvswitches > 0

    @property
    def peers(self) -> int:
        """Other GPUs of a full NVLink domain."""
        return self.cluster.nvlink_domain - 1

    def domain(self, gpu: Ids) -> Ids:
        return self.cluster.domain_of(gpu)

    def nics(self, gpu: Ids) -> tuple[Ids, Ids]:
        """First of the GPU's links among those of its host, and how many it has."""
        links, per_node = self.cluster.interconnect.links_per_host, self.cluster.gpus_per_node
        local = gpu % per_node
        first = local * links // per_node
        return first, np.maximum(1, (local + 1) * links // per_node - first)

    def families(self) -> tuple[LinkFamily, ...]:
        gpu, net = self.cluster.gpu, self.cluster.interconnect
        hosts = -(-self.gpus // self.cluster.gpus_per_node)
        if self.switched:
            nvlink = self._both(
                "nvlink", self.gpus, gpu.nvlink_bytes_per_s, NVLINK_LATENCY_S / 2, self._switch_ends
            )
        else:
            rate = gpu.nvlink_bytes_per_s / max(1, gpu.nvlink_domain - 1)
            pairs = self.gpus * self.peers
            gaps = self._gaps(self._pair_ends, self.peers)
            nvlink = self._both("nvlink", pairs, rate, NVLINK_LATENCY_S, self._pair_ends, gaps=gaps)
            nvlink = (nvlink[0], _none(nvlink[1]))  # an ordered pair is a direction already
        bridge = self._both("pcie", self.gpus, gpu.pcie_bytes_per_s, PCIE_LATENCY_S, self._bridge_ends)
        if self.cluster.nvlink_domain >= min(self.cluster.gpus_per_node, self.gpus):
            bridge = (_none(bridge[0]), _none(bridge[1]))
        if self.network is None:
            return nvlink + bridge
        planes = self.network.planes
        pcie = self._both(
            "pcie",
            self.gpus * self.channels,
            gpu.pcie_bytes_per_s,
            PCIE_LATENCY_S,
            self._pcie_ends,
            gaps=self._gaps(self._pcie_ends, self.channels),
        )
        cables = hosts * net.links_per_host * planes
        cable_s = net.latency_s / 2 - PCIE_LATENCY_S
        rate = net.link_bytes_per_s / planes
        return (
            nvlink + bridge + pcie + self._both("nic", cables, rate, cable_s, self._nic_ends, net.efficiency)
        )

    def _both(
        self,
        kind: LinkKind,
        count: int,
        rate: float,
        latency_s: float,
        ends: Callable[[int], tuple[Vertex, Vertex] | None],
        efficiency: float = 1.0,
        gaps: int = 0,
    ) -> tuple[LinkFamily, LinkFamily]:
        out = LinkFamily(
            kind=kind,
            count=count,
            latency_s=latency_s,
            bytes_per_s=constant(rate),
            ends=ends,
            efficiency=efficiency,
            gaps=gaps,
        )
        return out, reversed_family(out)

    def _gaps(self, ends: Callable[[int], object], per_gpu: int) -> int:
        """Free ids of a family with ``per_gpu`` ids a GPU; hosts are alike, so one is counted."""
        in_host = min(self.gpus, self.cluster.gpus_per_node)
        free = sum(ends(local) is None for local in range(in_host * per_gpu))
        return free * (self.gpus // in_host)

    def _switch_ends(self, local: int) -> tuple[Vertex, Vertex]:
        return ("gpu", local), ("nvswitch", int(self.domain(np.array(local))))

    def _pair_ends(self, local: int) -> tuple[Vertex, Vertex] | None:
        gpu, step = divmod(local, self.peers)
        per_node = self.cluster.gpus_per_node
        first = gpu // per_node * per_node + gpu % per_node // (self.peers + 1) * (self.peers + 1)
        other = first + (gpu - first + step + 1) % (self.peers + 1)
        same_host = other < self.gpus and other // per_node == gpu // per_node
        return (("gpu", gpu), ("gpu", other)) if same_host else None

    def _bridge_ends(self, local: int) -> tuple[Vertex, Vertex]:
        return ("gpu", local), ("pcie", local // self.cluster.gpus_per_node)

    def _pcie_ends(self, local: int) -> tuple[Vertex, Vertex] | None:
        gpu, channel = divmod(local, self.channels)
        first, count = self.nics(np.array(gpu))
        if channel >= count:
            return None
        return ("gpu", gpu), ("nic", gpu // self.cluster.gpus_per_node, int(first) + channel)

    def _nic_ends(self, local: int) -> tuple[Vertex, Vertex]:
        network = self.network
        assert network is not None
        link, plane = divmod(local, network.planes)
        node, port = divmod(link, self.cluster.interconnect.links_per_host)
        tier, count = network.tiers[0]
        leaf = int(network.leaf(np.array(node), np.array(port)))
        return ("nic", node, port), (tier, plane * (count // network.planes) + leaf)

    def nvlink(self, a: Ids, b: Ids) -> list[tuple[int, Ids]]:
        """The NVLink links that messages cross from GPUs ``a`` to GPUs ``b`` of the same domains, in order:
        for each hop the family of links, and the links' numbers within it.

        Through an NVSwitch there are two hops, out of ``a`` and into ``b``; between GPUs that are joined
        directly there is one, whose link is counted by the peers of ``a``.
        """
        if self.switched:
            return [(NVLINK_OUT, a), (NVLINK_IN, b)]
        per_node, size = self.cluster.gpus_per_node, self.peers + 1
        first = a // per_node * per_node + a % per_node // size * size
        return [(NVLINK_OUT, a * self.peers + (b - first - (a - first) - 1) % size)]

    def in_domain(self, a: Ids, b: Ids) -> NDArray[np.bool_]:
        return np.equal(self.domain(a), self.domain(b))


def _none(family: LinkFamily) -> LinkFamily:
    """The family without links: families keep their places."""
    return LinkFamily(
        kind=family.kind,
        count=0,
        latency_s=family.latency_s,
        bytes_per_s=family.bytes_per_s,
        ends=family.ends,
        efficiency=family.efficiency,
    )
