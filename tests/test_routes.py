"""Routes as arrays: equal to networkx's shortest paths, whole flows and even spreads, and cheap to number."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topologies import KINDS, as_cluster, cluster_of, network_of, regular, topologies

from stepsim.hardware.graph import directed_graph
from stepsim.hardware.topology import RegularTopology, topology_of

FEW = settings(max_examples=60)


def seen_by(graph: nx.DiGraph, topology: RegularTopology, a: int, b: int, *, forwards: bool) -> nx.DiGraph:
    """The graph without GPUs that do not forward; dragonflies route minimally, through two groups at most."""
    hosts = {("gpu", a), ("gpu", b)}
    if forwards:
        per_node = topology.cluster.gpus_per_node
        hosts.add(("gpu", a // per_node * per_node + b % per_node))
    kept = [vertex for vertex in graph if vertex[0] != "gpu" or vertex in hosts]
    if topology.cluster.fabric.kind == "dragonfly":
        network = network_of(topology)
        node = [g // topology.cluster.gpus_per_node // network.nodes_per_router for g in (a, b)]
        groups = {router // network.routers for router in node}
        kept = [v for v in kept if v[0] != "router" or v[1] // network.routers in groups]
    return graph.subgraph(kept)


@FEW
@given(topologies(), st.data())
def test_routes_are_shortest_paths_of_the_graph(topology: RegularTopology, data: st.DataObject) -> None:
    """Same hops, every link leads on from where the last one ended, and kinds are those of the path."""
    graph = directed_graph(topology.links)
    a, b = (data.draw(st.integers(0, topology.cluster.gpus - 1)) for _ in "ab")
    routes = topology.links_of([a], [b])
    if a == b:
        assert routes.hops.tolist() == [0.0]
        return
    pxn = topology.cluster.fabric.pxn
    seen = seen_by(graph, topology, a, b, forwards=pxn)
    # PXN prefers NVLink to switches; an NVLink domain is never left, whatever the hops.
    near = bool(topology.hosts.in_domain(np.array([a]), np.array([b]))[0])

    def cost(u: tuple, v: tuple, edge: dict) -> float:
        return 0.1 if edge["kind"] == "nvlink" else 1.0

    path = nx.shortest_path(seen, ("gpu", a), ("gpu", b), weight=cost)
    best = [seen.edges[pair]["kind"] for pair in pairwise(path)]
    ids, weights = routes.of(0)
    ends = [topology.links.ends(link) for link in ids.tolist()]
    assert all(pair is not None and graph.has_edge(*pair) for pair in ends)
    assert routes.hops[0] == pytest.approx(len(path) - 1)
    by_kind: dict[str, float] = {}
    for kind, weight in zip(topology.links.kinds(ids), weights, strict=True):
        by_kind[kind] = by_kind.get(kind, 0.0) + weight
    if topology.cluster.fabric.kind != "dragonfly":  # cables of equal ways may lie in or between groups
        assert by_kind == pytest.approx({kind: best.count(kind) for kind in set(best)})
    assert near == (set(by_kind) == {"nvlink"})
    # What flows into a vertex flows out of it: one unit from a to b.
    net: dict[tuple, float] = {}
    for (u, v), weight in zip(ends, weights, strict=True):  # type: ignore[misc]
        net[u] = net.get(u, 0.0) + weight
        net[v] = net.get(v, 0.0) - weight
    assert {vertex: round(left, 9) for vertex, left in net.items() if abs(left) > 1e-9} == {
        ("gpu", a): 1.0,
        ("gpu", b): -1.0,
    }


@FEW
@given(topologies(ecmp="hashed"), st.data())
def test_a_hashed_flow_stays_whole_and_in_order(topology: RegularTopology, data: st.DataObject) -> None:
    gpus = st.lists(st.integers(0, topology.cluster.gpus - 1), min_size=6, max_size=6)
    a, b, flow = data.draw(gpus), data.draw(gpus), data.draw(gpus)
    routes, again = topology.links_of(a, b, flow), topology.links_of(a, b, flow)
    assert routes.link.tolist() == again.link.tolist()
    assert set(routes.weight.tolist()) <= {1.0}
    for route, (start, end) in enumerate(zip(a, b, strict=True)):
        ends = [topology.links.ends(link) for link in routes.of(route)[0].tolist()]
        walk = [("gpu", start), *(pair[1] for pair in ends if pair)]
        assert [pair[0] for pair in ends if pair] == walk[:-1]
        assert walk[-1] == ("gpu", end)


@FEW
@given(topologies(ecmp="hashed"), st.data())
def test_a_hashed_way_is_one_of_the_spread_ways(topology: RegularTopology, data: st.DataObject) -> None:
    a, b = (data.draw(st.integers(0, topology.cluster.gpus - 1)) for _ in "ab")
    spread = topology_of(as_cluster(topology, ecmp="spread", seed=0))
    assert set(topology.links_of(a, b).link.tolist()) <= set(spread.links_of(a, b).link.tolist())
    assert topology.links_of(a, b).hops[0] == pytest.approx(spread.links_of(a, b).hops[0])


@FEW
@given(topologies(kinds=("rail-optimized", "fat-tree")), st.data())
def test_routes_are_those_of_the_cluster(topology: RegularTopology, data: st.DataObject) -> None:
    """``Cluster.route`` is the older closed form, held to its own graph in test_cluster_graph."""
    cluster = as_cluster(topology, pxn=False)
    a, b = (data.draw(st.integers(0, cluster.gpus - 1)) for _ in "ab")
    route, links = cluster.route(a, b), topology_of(cluster)
    ids, weights = links.links_of(a, b).of(0)
    if route.tier != "nvlink":
        assert weights.sum() == pytest.approx(route.hops)
    assert float(weights @ links.links.latency_s(ids)) == pytest.approx(route.latency_s, abs=1e-15)


@FEW
@given(topologies(kinds=("rail-optimized", "fat-tree")))
def test_cables_add_up_to_the_bundles_of_the_cluster_graph(topology: RegularTopology) -> None:
    bundles: Any = cluster_of(topology).graph()
    graph: Any = directed_graph(topology.links)
    spines = network_of(topology).spines_per_pod
    cores = network_of(topology).cores_per_group
    for u, v, edge in bundles.edges(data=True):
        if edge["link"].kind in ("uplink", "core", "nic", "pcie"):
            pair = [
                (x[0], x[1] * spines + x[2])
                if x[0] == "spine"
                else (x[0], x[1] * cores + x[2])
                if x[0] == "core"
                else x
                for x in (u, v)
            ]
            for ends in (pair, pair[::-1]):
                assert graph.edges[tuple(ends)]["bytes_per_s"] == pytest.approx(edge["bytes_per_s"])


@FEW
@given(topologies(), st.data())
def test_a_trunk_carries_what_its_cables_do(topology: RegularTopology, data: st.DataObject) -> None:
    trunks = topology.as_trunks()
    a, b = (data.draw(st.integers(0, topology.cluster.gpus - 1)) for _ in "ab")
    use = []
    for one in (topology, trunks):
        ids, weights = one.links_of(a, b).of(0)
        use.append(max(weights / one.links.bytes_per_s(ids), default=0.0))
        assert weights.sum() == pytest.approx(topology.links_of(a, b).hops[0])
    assert use[0] == pytest.approx(use[1])
    assert len(trunks.links_of(a, b).link) <= len(topology.links_of(a, b).link)


@pytest.mark.slow
@FEW
@given(topologies())
def test_every_id_has_one_name(topology: RegularTopology) -> None:
    used = [link for link in range(len(topology.links)) if topology.links.ends(link)]
    names = [topology.links.name(link) for link in used]
    assert len(set(names)) == len(names)
    assert (topology.links.bytes_per_s(np.array(used)) > 0).all()
    assert nx.is_strongly_connected(directed_graph(topology.links))


def test_names_say_what_is_joined() -> None:
    topology = KINDS["rail-optimized"]()
    names = {topology.links.name(link) for link in topology.links_of(0, 9).link.tolist()}
    assert {"gpu 0 -> nic 0.0", "nic 0.0 -> leaf 0", "leaf 0 -> spine 0 #1", "nic 1.1 -> gpu 9"} <= names


def test_collisions_of_a_hash_are_real() -> None:
    """As many flows as uplinks leave 1 / e of them idle and put several on others, as balls in bins."""
    topology = regular("rail-optimized", gpus=64 * 8, ecmp="hashed")
    a = np.arange(256)
    routes = topology.links_of(a, a + 256)
    up = routes.link[np.array(topology.links.kinds(routes.link)) == "uplink"]
    used, flows = np.unique(up, return_counts=True)
    assert 0.5 < len(used) / (2 * 256) < 0.75  # 256 flows, 256 uplinks, both directions
    assert flows.max() >= 3
    other = regular("rail-optimized", gpus=64 * 8, ecmp="hashed", seed=1).links_of(a, a + 256)
    assert (other.link != routes.link).any()
    flow = topology.links_of([0] * 64, [300] * 64, np.arange(64))
    assert len(set(flow.link.tolist())) > 12


def test_pxn_changes_rails_inside_the_host() -> None:
    plain, forwarded = KINDS["rail-optimized"](), KINDS["rail-optimized"](pxn=True)
    kinds = [set(one.links.kinds(one.links_of(0, 9).link)) for one in (plain, forwarded)]
    assert kinds == [{"pcie", "nic", "uplink"}, {"nvlink", "pcie", "nic"}]
    assert forwarded.links_of(0, 9).hops.tolist() == plain.links_of(0, 9).hops.tolist() == [6.0]
    assert forwarded.links_of(0, 8).link.tolist() == plain.links_of(0, 8).link.tolist()


@pytest.mark.parametrize("kind", ["rail-optimized", "fat-tree", "dragonfly", "torus"])
def test_nothing_grows_with_the_cluster(kind: str) -> None:
    topology = KINDS[kind](
        gpus=131_072, ecmp="hashed", **cast(Any, {"nodes_per_leaf": None} if kind != "torus" else {})
    )
    ranks = np.random.default_rng(0).integers(0, 131_072, (2, 4096))
    routes = topology.links_of(*ranks)
    assert routes.count == 4096
    assert len(routes.link) < 4096 * 64
    assert topology.links.name(len(topology.links) - 1)


def test_loads_are_sums_of_weights() -> None:
    topology = KINDS["fat-tree"]()
    routes = topology.links_of([0, 1, 8], [8, 9, 0])
    loads = routes.loads(len(topology.links), np.array([2.0, 1.0, 4.0]))
    assert loads.sum() == pytest.approx((routes.hops * [2, 1, 4]).sum())


@pytest.mark.parametrize("gpu", [-1, 16])
def test_a_gpu_that_is_not_there(gpu: int) -> None:
    with pytest.raises(ValueError, match=f"GPU {gpu}: .*0 to 15"):
        KINDS["rail-optimized"](gpus=16).links_of(0, gpu)


@pytest.mark.parametrize("link", [-1, 10**9])
def test_a_link_that_is_not_there(link: int) -> None:
    with pytest.raises(ValueError, match=f"id {link}: 0 to"):
        KINDS["rail-optimized"]().links.name(link)
