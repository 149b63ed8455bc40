"""The cluster as a networkx graph: every GPU, NVSwitch, NIC and network switch, and the links between them.

Knows networkx, and where each vertex stands. Vertices are tuples that name what they are:

    ("gpu", rank)  ("nic", node, link)  ("pcie", node)  ("nvswitch", domain, k)
    ("leaf", i)  ("spine", pod, k)  ("core", group, k)

Every vertex has ``kind``, every edge has its ``link`` (a Link) and, for networkx's own
algorithms, ``bytes_per_s`` and ``latency_s`` of it. Edges are full duplex. Paths for messages must
not run through other GPUs, which do not forward: see ``routes``.
"""

from __future__ import annotations

from itertools import combinations, groupby
from typing import TYPE_CHECKING, Any, Protocol

from .fabrics.clos import Clos
from .host_links import RoutedCluster
from .link import NVLINK_LATENCY_S, PCIE_LATENCY_S, Link, LinkKind

if TYPE_CHECKING:
    import networkx as nx

    from .fabrics.links import LinkTable

Vertex = tuple[str, *tuple[int, ...]]


class Wired(RoutedCluster, Protocol):
    """What the graph reads of a cluster in addition."""

    @property
    def switches(self) -> Clos | None: ...

    def node_of(self, rank: int) -> int: ...

    def nics_of(self, rank: int) -> range: ...


def build_graph(cluster: Wired) -> nx.Graph[Vertex]:
    """The whole graph. Its size grows with the cluster: for looking, drawing and checking."""
    import networkx as nx

    graph: nx.Graph[Vertex] = nx.Graph()
    _add_vertices(graph, "gpu", range(cluster.gpus))
    _add_nvlink(graph, cluster)
    if cluster.nvlink_domain < min(cluster.gpus_per_node, cluster.gpus):
        _add_host_bridges(graph, cluster)
    if cluster.switches is not None:
        _add_nics(graph, cluster, cluster.switches)
        _add_switch_tiers(graph, cluster, cluster.switches)
    return graph


def directed_graph(links: LinkTable) -> nx.DiGraph[Vertex]:
    """Every directed link of a topology as an edge; ``bytes_per_s`` of parallel cables is added up.

    Edges have ``kind``, ``latency_s`` and ``ids``, the link ids of their cables. Vertices are named as in
    ``links.py``. Size grows with the cluster: the oracle of closed forms, and for looking.
    """
    import networkx as nx
    import numpy as np

    graph: nx.DiGraph[Vertex] = nx.DiGraph()
    ids = np.arange(len(links))
    for link, rate, latency, kind in zip(
        ids.tolist(), links.bytes_per_s(ids), links.latency_s(ids), links.kinds(ids), strict=True
    ):
        ends = links.ends(link)
        if ends is None:
            continue
        if not graph.has_edge(*ends):
            graph.add_edge(*ends, bytes_per_s=0.0, latency_s=float(latency), kind=kind, ids=[])
        graph.edges[ends]["bytes_per_s"] += float(rate)
        graph.edges[ends]["ids"].append(link)
    for vertex in graph:
        graph.nodes[vertex]["kind"] = vertex[0]
    return graph


def _add_vertices(graph: nx.Graph[Vertex], kind: str, indices: Any) -> None:
    graph.add_nodes_from(((kind, index) for index in indices), kind=kind)


def _join(graph: nx.Graph[Vertex], a: Vertex, b: Vertex, link: Link) -> None:
    graph.add_node(a, kind=a[0])
    graph.add_node(b, kind=b[0])
    graph.add_edge(a, b, link=link, bytes_per_s=link.bytes_per_s, latency_s=link.latency_s)


def _add_nvlink(graph: nx.Graph[Vertex], cluster: Wired) -> None:
    """NVSwitch planes, over which each GPU spreads its links evenly; or direct links where there are none."""
    planes = cluster.node.nvswitches
    for number, members in groupby(range(cluster.gpus), key=cluster.domain_of):
        domain = list(members)
        if planes:
            rate = cluster.gpu.nvlink_bytes_per_s / planes
            link = Link(kind="nvlink", bytes_per_s=rate, latency_s=NVLINK_LATENCY_S / 2)
            for rank in domain:
                for plane in range(planes):
                    _join(graph, ("gpu", rank), ("nvswitch", number, plane), link)
        else:
            rate = cluster.gpu.nvlink_bytes_per_s / max(1, cluster.gpu.nvlink_domain - 1)
            link = Link(kind="nvlink", bytes_per_s=rate, latency_s=NVLINK_LATENCY_S)
            for a, b in combinations(domain, 2):
                _join(graph, ("gpu", a), ("gpu", b), link)


def _add_host_bridges(graph: nx.Graph[Vertex], cluster: Wired) -> None:
    """The PCIe root of a host whose GPUs NVLink does not all join."""
    link = Link(kind="pcie", bytes_per_s=cluster.gpu.pcie_bytes_per_s, latency_s=PCIE_LATENCY_S)
    for rank in range(cluster.gpus):
        _join(graph, ("gpu", rank), ("pcie", cluster.node_of(rank)), link)


def _add_nics(graph: nx.Graph[Vertex], cluster: Wired, clos: Clos) -> None:
    net = cluster.interconnect
    pcie = Link(kind="pcie", bytes_per_s=cluster.gpu.pcie_bytes_per_s, latency_s=PCIE_LATENCY_S)
    cable = Link(
        kind="nic",
        bytes_per_s=net.link_bytes_per_s,
        latency_s=net.latency_s / 2 - PCIE_LATENCY_S,
        efficiency=net.efficiency,
    )
    for rank in range(cluster.gpus):
        node = cluster.node_of(rank)
        for nic in cluster.nics_of(rank):
            _join(graph, ("gpu", rank), ("nic", node, nic), pcie)
            _join(graph, ("nic", node, nic), ("leaf", clos.leaf(node, nic)), cable)


def _add_switch_tiers(graph: nx.Graph[Vertex], cluster: Wired, clos: Clos) -> None:
    """Uplinks of leaves and spines. An edge is a bundle: its rate may be a fraction of a cable's."""
    net = cluster.interconnect

    def bundle(kind: LinkKind, rate: float) -> Link:
        return Link(kind=kind, bytes_per_s=rate, latency_s=net.switch_latency_s, efficiency=net.efficiency)

    if not clos.spines_per_pod:
        return
    pod_rates = [0.0] * clos.pods
    for leaf in range(clos.leaves):
        up = clos.links_below(leaf) * net.link_bytes_per_s / clos.oversubscription
        pod_rates[clos.pod(leaf)] += up
        for spine in range(clos.spines_per_pod):
            _join(
                graph,
                ("leaf", leaf),
                ("spine", clos.pod(leaf), spine),
                bundle("uplink", up / clos.spines_per_pod),
            )
    for pod, rate in enumerate(pod_rates):
        for spine in range(clos.spines_per_pod):
            for core in range(clos.cores_per_group):
                link = bundle("core", rate / clos.spine_oversubscription / clos.cores)
                _join(graph, ("spine", pod, spine), ("core", spine, core), link)
