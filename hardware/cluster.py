"""GPUs, hosts and network put together: who shares what with whom, and how far apart two ranks are.

Knows positions in closed form: nothing here grows with the number of GPUs. Does not know ranks'
roles (tensor, data, pipeline) nor what they send. The networkx graph of the same cluster is built
when someone asks for it, and a test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from .fabric import Fabric, plan_switches
from .fabrics.clos import Clos
from .gpu import Gpu
from .interconnect import Interconnect, networks_between_hosts
from .link import NVLINK_LATENCY_S, PCIE_LATENCY_S
from .node import Node, node_for
from .published import PUBLISHED

if TYPE_CHECKING:
    import networkx as nx

    from .graph import Vertex
    from .host_links import Ranks
    from .topology import Topology

STAGED_SHARE = 10.0 / 24.0
"""Share of PCIe's rate that is left where GPUs cannot read each other's memory, so that every message is
staged in the host's: NCCL's own search counts 24 GB/s between RTX 4090 under one root and 10 GB/s across
sockets (github.com/NVIDIA/nccl-tests/issues/307)."""

Tier = Literal["local", "nvlink", "pcie", "network"]


@dataclass(frozen=True, slots=True)
class Route:
    """The way of a message between two GPUs.

    ``hops`` counts links, ``switches`` the network switches among what it crosses; ``latency_s`` is
    one way for an empty message. Tier ``pcie`` is left where NVLink does not join a whole host.
    """

    tier: Tier
    hops: int
    switches: int
    latency_s: float


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """``gpus`` GPUs, ``gpus_per_node`` of them in a host. Ranks fill host after host.

    ``host`` is the kind of host; None: the one that the GPU is sold in. ``latency`` multiplies the latency of
    every communication; 1 is what was measured.

    Raises:
        ValueError: a host that is not full beside others; more GPUs in a host than it holds; hosts
            outside one NVLink domain without a network, or with one of unknown rate; what a published
            cluster does not have.
    """

    gpu: Gpu
    gpus: int
    gpus_per_node: int
    interconnect: Interconnect
    fabric: Fabric
    host: Node | None = None
    latency: float = 1.0

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_network()

    def _check_sizes(self) -> None:
        held = self.node.max_gpus
        if not 1 <= self.gpus_per_node <= held:
            raise ValueError(
                f"gpus_per_node {self.gpus_per_node}: a host with {self.gpu.name} ({self.node.name}) "
                f"holds 1 to {held} GPUs"
            )
        if self.gpus < 1:
            raise ValueError(f"gpus {self.gpus}: a cluster has at least one GPU")
        over = self.gpus % self.gpus_per_node
        if self.gpus > self.gpus_per_node and over:
            below = self.gpus - over
            raise ValueError(
                f"gpus {self.gpus}: with {self.gpus_per_node} GPUs per host the last one would be partly "
                f"filled; nearest valid: {below} or {below + self.gpus_per_node}"
            )
        trays = self.fabric.nodes_per_rack
        if trays is not None and trays > self.node.hosts_per_domain:
            raise ValueError(
                f"nodes_per_rack {trays}: an NVLink domain of {self.gpu.name} has "
                f"{self.node.hosts_per_domain} host(s)"
            )

    def _check_network(self) -> None:
        if published := PUBLISHED.records().get(self.fabric.kind):
            published.check(self.gpu.name, self.gpus, self.gpus_per_node, self.interconnect.name)
        if self.nodes == 1 or self.gpus <= self.nvlink_domain:
            return
        where = f"{self.gpus} GPUs in {self.nodes} hosts exceed one NVLink domain ({self.nvlink_domain} GPUs)"
        if not self.interconnect.connects_hosts:
            known = ", ".join(networks_between_hosts())
            why = "has no network" if self.interconnect.kind == "none" else "has no known rate"
            raise ValueError(f"{where}, and interconnect {self.interconnect.name!r} {why}; known: {known}")
        if self.fabric.kind == "nvlink":
            raise ValueError(f"{where}: fabric 'nvlink' has no network; choose rail-optimized or fat-tree")

    @property
    def node(self) -> Node:
        """GPUs, NICs and links of one host."""
        return self.host or node_for(self.gpu)

    @property
    def nodes(self) -> int:
        """Hosts of the cluster; a single one may not be full."""
        return -(-self.gpus // self.gpus_per_node)

    @cached_property
    def nvlink_domain(self) -> int:
        """GPUs of one full NVLink domain: a host, the hosts of a rack, or a bridged pair of cards."""
        if self.node.hosts_per_domain > 1:
            return (self.fabric.nodes_per_rack or self.node.hosts_per_domain) * self.gpus_per_node
        return max(1, min(self.gpu.nvlink_domain, self.gpus_per_node))

    @property
    def domains(self) -> int:
        """NVLink domains with GPUs of the job; the last may hold fewer."""
        return self.domain_of(self.gpus - 1) + 1

    @property
    def gpus_of_whole_domain(self) -> int:
        """GPUs that the hosts of one NVLink domain hold, whether the job uses them or not."""
        if self.node.hosts_per_domain > 1:
            return self.node.hosts_per_domain * self.gpus_per_node
        return self.nvlink_domain

    @property
    def nic_bytes_per_s_per_gpu(self) -> float:
        """A GPU's share of its host's links, usable rate per direction; 0 without a network."""
        return self.interconnect.host_bytes_per_s / self.gpus_per_node

    @property
    def intra_node_bytes_per_s_per_gpu(self) -> float:
        """Rate that NCCL counts as usable between GPUs of a host, per direction: NVLink's, or half of PCIe's
        where NVLink leaves some to the host bridge (both neighbours of a ring share one slot's lanes)."""
        if self.nvlink_domain >= min(self.gpus_per_node, self.gpus):
            return self.gpu.nccl_nvlink_bytes_per_s
        return self.gpu.pcie_bytes_per_s / 2 * (1.0 if self.gpu.peer_access else STAGED_SHARE)

    def share_of_links(self, members: int) -> float:
        """The share of a GPU's NVLinks that lead to the ``members`` of its domain that take part, itself one.

        All where switches join them; where every two GPUs have links of their own, those to the others idle.
        """
        if self.node.nvswitches or members < 2:
            return 1.0
        return min(1.0, (members - 1) / max(1, self.gpu.nvlink_domain - 1))

    @property
    def bisection_bytes_per_s(self) -> float:
        """Line rate from the first half of the leaf units (of the hosts) to the rest; 0 without a network."""
        if self.switches:
            return self.switches.bisection_links * self.interconnect.link_bytes_per_s
        return self.topology.bisection_bytes_per_s if self.interconnect.connects_hosts else 0.0

    @cached_property
    def topology(self) -> Topology:
        """Every link with an id, and the links of any route, in closed form."""
        from .topology import topology_of

        return topology_of(self)

    @cached_property
    def switches(self) -> Clos | None:
        """Switches of a rail-optimized fabric or a fat tree in closed form; None for every other kind."""
        if not self.interconnect.connects_hosts:
            return None
        return plan_switches(self.fabric, self.interconnect, self.nodes)

    def node_of(self, rank: int) -> int:
        """The host that the rank is on."""
        return rank // self.gpus_per_node

    def domain_of(self, rank: Ranks) -> Ranks:
        """Which NVLink domain the rank is in, or each of them. A host's GPUs never straddle two, bridged
        pairs aside."""
        size, per_node = self.nvlink_domain, self.gpus_per_node
        if size >= per_node:
            return rank // size
        return rank // per_node * -(-per_node // size) + rank % per_node // size

    def same_domain(self, a: int, b: int) -> bool:
        """Whether NVLink joins the GPUs of both ranks."""
        return self.domain_of(a) == self.domain_of(b)

    def same_node(self, a: int, b: int) -> bool:
        """Whether both ranks are on one host."""
        return self.node_of(a) == self.node_of(b)

    def nics_of(self, rank: int) -> range:
        """Links of the host that belong to this GPU; neighbours share one where there are fewer than GPUs."""
        links, local = self.interconnect.links_per_host, rank % self.gpus_per_node
        if not links:
            return range(0)
        first = local * links // self.gpus_per_node
        return range(first, max(first + 1, (local + 1) * links // self.gpus_per_node))

    def route(self, a: int, b: int) -> Route:
        """The quickest way between two ranks' GPUs that no third GPU forwards."""
        if a == b:
            return Route("local", 0, 0, 0.0)
        if self.same_domain(a, b):
            return Route("nvlink", 2 if self.node.nvswitches else 1, 0, NVLINK_LATENCY_S)
        if self.same_node(a, b):
            return Route("pcie", 2, 0, 2 * PCIE_LATENCY_S)
        if self.switches is None:
            return self._route_by_links(a, b)
        switches = self._switches_between(a, b)
        latency_s = self.interconnect.latency_s + (switches - 1) * self.interconnect.switch_latency_s
        return Route("network", switches + 3, switches, latency_s)

    def _route_by_links(self, a: int, b: int) -> Route:
        """The route over the numbered links; with PXN the GPU that forwards is on the way."""
        links = self.topology.links
        ids, weights = self.topology.links_of(a, b).of(0)
        ends = (links.ends(link) for link in ids.tolist())
        inside = ("gpu", "nic", "pcie", "nvswitch")
        into_switches = [pair is not None and pair[1][0].split(" ")[0] not in inside for pair in ends]
        hops, switches = round(float(weights.sum())), round(float(weights @ into_switches))
        return Route("network", hops, switches, float(weights @ links.latency_s(ids)))

    def latency_s(self, a: int, b: int) -> float:
        """Seconds from GPU ``a`` to GPU ``b``, one way, for an empty message."""
        return self.route(a, b).latency_s

    def _switches_between(self, a: int, b: int) -> int:
        clos = self.switches
        assert clos is not None  # _check_network refuses hosts without a network
        leaves_a = {clos.leaf(self.node_of(a), nic) for nic in self.nics_of(a)}
        leaves_b = {clos.leaf(self.node_of(b), nic) for nic in self.nics_of(b)}
        return min(clos.switches_between(i, j) for i in leaves_a for j in leaves_b)

    def graph(self) -> nx.Graph[Vertex]:
        """Every GPU, NVSwitch, NIC and switch, with a Link on each edge (vertices: ``hardware/graph.py``).

        Built anew at each call, and large for large clusters: the simulator never needs it.
        """
        from .graph import build_graph, directed_graph

        if self.switches is None and self.interconnect.connects_hosts:
            return directed_graph(self.topology.links).to_undirected()
        return build_graph(self)
