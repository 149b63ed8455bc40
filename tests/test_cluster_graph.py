"""Laws of a cluster's graph: it is connected, and closed forms of routes, bisection and switches equal it."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from small_clusters import cluster, clusters

from stepsim.hardware.cluster import Cluster
from stepsim.hardware.fabrics.clos import Clos


def routes(graph: nx.Graph, a: int, b: int) -> nx.Graph:
    """The graph as a message from GPU a to GPU b sees it: all other GPUs left out."""
    ends = {("gpu", a), ("gpu", b)}
    return graph.subgraph(vertex for vertex in graph if vertex[0] != "gpu" or vertex in ends)


@given(clusters())
def test_graph_is_connected_and_every_gpu_reaches_a_nic(built: Cluster) -> None:
    graph = built.graph()
    assert nx.is_connected(graph)
    for rank in range(built.gpus):
        links = [graph.edges[edge]["link"] for edge in graph.edges(("gpu", rank))]
        assert any(link.kind == "pcie" for link in links)
        nvlink = sum(link.bytes_per_s for link in links if link.kind == "nvlink")
        assert nvlink <= built.gpu.nvlink_bytes_per_s * (1 + 1e-9)
    assert all(
        data["link"].latency_s > 0 and data["link"].bytes_per_s > 0 for *_, data in graph.edges(data=True)
    )


@given(clusters(), st.data())
def test_routes_are_shortest_paths(built: Cluster, data: st.DataObject) -> None:
    graph = built.graph()
    a, b = (data.draw(st.integers(0, built.gpus - 1)) for _ in "ab")
    # The small addend breaks ties of latency by the number of hops.
    path = nx.shortest_path(
        routes(graph, a, b), ("gpu", a), ("gpu", b), weight=lambda _u, _v, edge: edge["latency_s"] + 1e-14
    )
    route = built.route(a, b)
    assert built.latency_s(a, b) == pytest.approx(nx.path_weight(graph, path, "latency_s"), abs=1e-15)
    assert route.hops == len(path) - 1
    assert route.switches == sum(vertex[0] in ("leaf", "spine", "core") for vertex in path)
    over_nvlink = a != b and nx.has_path(
        nx.subgraph_view(graph, filter_edge=lambda u, v: graph.edges[u, v]["link"].kind == "nvlink"),
        ("gpu", a),
        ("gpu", b),
    )
    assert (route.tier == "nvlink") == over_nvlink
    assert built.same_domain(a, b) == (over_nvlink or a == b)
    assert (route.tier == "network") == any(vertex[0] == "nic" for vertex in path)
    assert built.route(b, a) == route


@given(clusters())
def test_ranks_fill_hosts_and_domains_evenly(built: Cluster) -> None:
    ranks = range(built.gpus)
    assert [built.node_of(rank) for rank in ranks] == sorted(built.node_of(rank) for rank in ranks)
    assert {built.node_of(rank) for rank in ranks} == set(range(built.nodes))
    domains = [built.domain_of(rank) for rank in ranks]
    assert domains == sorted(domains)
    assert max(domains.count(domain) for domain in set(domains)) <= built.nvlink_domain
    links = [nic for rank in range(built.gpus_per_node) for nic in built.nics_of(rank)]
    assert set(links) == set(range(built.interconnect.links_per_host))


def bisection(built: Cluster) -> float:
    """Maximum flow from the NICs of the first half of the units to those of the rest."""
    assert built.switches is not None
    clos = built.switches
    half = clos.units // 2 * clos.nodes_per_unit if clos.units > 1 else clos.nodes // 2
    graph: Any = nx.Graph(built.graph())
    graph.remove_nodes_from([vertex for vertex in graph if vertex[0] in ("gpu", "nvswitch", "pcie")])
    for vertex in [vertex for vertex in graph if vertex[0] == "nic"]:
        # A NIC is taken at its own rate by the edge to its leaf; the end that it is tied to is unlimited.
        graph.add_edge(vertex, "first" if vertex[1] < half else "rest")
    flow: float = nx.maximum_flow_value(graph, "first", "rest", capacity="bytes_per_s")
    return flow


@given(clusters())
def test_bisection_is_the_closed_form(built: Cluster) -> None:
    assume(built.nodes > 1)
    assume(built.gpus == built.nodes * built.gpus_per_node)
    assert built.bisection_bytes_per_s == pytest.approx(bisection(built), rel=1e-6)


@pytest.mark.parametrize(("oversubscription", "share"), [(1.0, 1.0), (2.0, 0.5), (7.0, 1 / 7)])
def test_oversubscription_divides_the_bisection(oversubscription: float, share: float) -> None:
    built = cluster(gpus=64, oversubscription=oversubscription, nodes_per_leaf=2)
    assert bisection(built) == pytest.approx(4 * 8 * 50e9 * share)


def test_three_tiers_of_switches_have_full_bisection() -> None:
    """Five-switch routes need more leaves than a switch has ports."""
    built = cluster(gpus=9 * 8, nodes_per_leaf=1)
    assert built.switches is not None
    assert (built.switches.leaves, built.switches.pods) == (72, 3)
    assert built.bisection_bytes_per_s == pytest.approx(bisection(built)) == pytest.approx(4 * 8 * 50e9)
    assert built.route(0, 71).switches == 5
    assert built.route(0, 8).switches == 3


@pytest.mark.parametrize(("nodes", "leaves", "spines", "cores"), [
    (32, 8, 4, 0), (64, 16, 8, 0), (128, 32, 16, 0), (256, 64, 32, 0),
    (512, 128, 128, 64), (1024, 256, 256, 128), (2048, 512, 512, 256),
])  # fmt: skip
def test_switch_counts_of_the_superpod(nodes: int, leaves: int, spines: int, cores: int) -> None:
    """NVIDIA DGX SuperPOD with DGX B200, reference architecture, table of switch counts."""
    switches = cluster("B200-SXM-180GB", gpus=8 * nodes).switches
    assert switches is not None
    assert (switches.leaves, switches.spines, switches.cores) == (leaves, spines, cores)


@pytest.mark.parametrize(("units", "leaves", "spines"), [(1, 8, 4), (2, 16, 8), (18, 144, 72)])
def test_switch_counts_of_the_xdr_superpod(units: int, leaves: int, spines: int) -> None:
    """NVIDIA DGX SuperPOD with DGX B300 and Quantum-X800: units of 72 hosts."""
    switches = cluster("B300-SXM", gpus=8 * 72 * units, interconnect="ib-xdr800-x8").switches
    assert switches is not None
    assert (switches.units, switches.leaves, switches.spines) == (units, leaves, spines)


@given(
    nodes=st.integers(1, 5000),
    links=st.sampled_from((1, 4, 8, 32)),
    per_unit=st.integers(1, 32),
    rails=st.booleans(),
    ports=st.sampled_from((40, 64, 128)),
)
def test_every_leaf_port_and_link_is_counted_once(
    nodes: int, links: int, per_unit: int, rails: bool, ports: int
) -> None:
    clos = Clos(
        nodes=nodes,
        links_per_host=links,
        nodes_per_unit=per_unit,
        leaves_per_unit=links if rails else 1,
        switch_ports=ports,
        oversubscription=1.0,
    )
    assert sum(clos.links_below(leaf) for leaf in range(clos.leaves)) == nodes * links
    assert clos.leaf(nodes - 1, links - 1) == clos.leaves - 1
    assert clos.pod(clos.leaves - 1) == clos.pods - 1
    assert clos.pods == 1 or clos.leaves > ports
