"""Network shapes: published counts, capacities against networkx, graph files, and refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from law_examples import examples
from topologies import cluster_of, network_of, regular, topologies

from stepsim.hardware.cluster import Cluster
from stepsim.hardware.custom_topology import CustomTopology
from stepsim.hardware.fabric import Fabric, fabric_kinds
from stepsim.hardware.fabric import network_of as switches_of
from stepsim.hardware.fabrics.torus import most_cubic
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.graph import directed_graph
from stepsim.hardware.graph_file import read_graph
from stepsim.hardware.interconnect import get_interconnect
from stepsim.hardware.published import PUBLISHED
from stepsim.hardware.topology import RegularTopology

EXAMPLE = Path(__file__).parents[1] / "hardware" / "graphs" / "two-hosts.yaml"


def published(kind: str, **changes: Any) -> RegularTopology:
    facts = PUBLISHED.get(kind)
    given: dict[str, Any] = {"gpu": facts.gpus[0], "interconnect": facts.interconnects[0], "gpus": 64}
    return regular(kind, **(given | changes))


# Published clusters.


@pytest.mark.parametrize(("kind", "tiers", "gpus"), [
    ("selene", {"leaf": 224, "spine": 224, "core": 112}, 4480),
    ("eos", {"leaf": 144, "spine": 160, "core": 96}, 4608),
    ("meta-24k-roce", {"leaf": 1536, "spine": 128, "core": 16}, 24_576),
    ("meta-24k-infiniband", {"leaf": 768, "spine": 768, "core": 384}, 24_576),
    ("megascale", {"leaf": 192, "spine": 192, "core": 96}, 12_288),
    ("alibaba-hpn", {"leaf": 240, "spine": 120}, 15_360),
])  # fmt: skip
def test_published_clusters_have_their_tiers(kind: str, tiers: dict[str, int], gpus: int) -> None:
    topology, facts = published(kind), PUBLISHED.get(kind)
    assert topology.network is not None
    assert dict(topology.network.tiers) == tiers
    assert topology.gpus == gpus
    assert facts.sources
    assert any("unverified" in text for text in [*facts.facts.values(), *facts.sources])


def test_published_figures_are_the_shared_ones(shared: Path) -> None:
    import yaml

    table = yaml.safe_load((shared / "data/hardware.yaml").read_text())["clusters"]
    assert published("selene").gpus == table["Selene"]["gpus"]
    assert published("eos").gpus == table["Eos"]["gpus"]
    assert published("meta-24k-roce").gpus == table["Meta-Llama3-RoCE"]["gpus"]
    assert published("megascale").gpus == table["MegaScale"]["gpus"]
    hpn = table["Alibaba-HPN"]
    assert published("alibaba-hpn").gpus == hpn["gpus_per_pod"] == hpn["segments"] * hpn["gpus_per_segment"]
    assert network_of(published("alibaba-hpn")).oversubscription == pytest.approx(
        hpn["tor_oversub"], rel=1e-3
    )


def capacity(topology: RegularTopology, kind: str) -> float:
    """Line rate of all links of a kind, one direction."""
    families = [family for family in topology.links.families if family.kind == kind]
    ids = np.arange(families[0].count)
    return float(families[0].bytes_per_s(ids).sum())


def test_meta_tapers_one_to_seven_above_the_pods() -> None:
    topology = published("meta-24k-roce")
    hosts = capacity(topology, "nic")
    assert capacity(topology, "uplink") == pytest.approx(2 * hosts)
    assert capacity(topology, "core") == pytest.approx(hosts / 7)
    assert topology.bisection_bytes_per_s == pytest.approx(12_288 * 50e9 / 7)


def test_hpn_planes_stay_apart() -> None:
    topology = published("alibaba-hpn")
    ids, weights = topology.links_of(0, 8 * 128 + 1).of(0)
    for link, weight in zip(ids.tolist(), weights, strict=True):
        (kind, *a), (other, *b) = topology.links.ends(link)  # type: ignore[misc]
        if {kind, other} == {"leaf", "spine"}:
            leaf, spine = (a[0], b[0]) if kind == "leaf" else (b[0], a[0])
            assert leaf // 120 == spine // 60
            assert weight == pytest.approx(1 / 120)
    assert topology.links_of(0, 8).hops.tolist() == [4.0]


def test_megascale_uplinks_are_twice_as_fast_as_hosts() -> None:
    topology = published("megascale")
    uplink = next(family for family in topology.links.families if family.kind == "uplink")
    assert uplink.bytes_per_s(np.zeros(1, dtype=np.int64))[0] == pytest.approx(50e9)
    assert uplink.cables == 1


@pytest.mark.parametrize(("changes", "message"), [
    ({"gpu": "H100-SXM5-80GB"}, "Selene has A100-SXM4-80GB, not H100-SXM5-80GB"),
    ({"interconnect": "roce-200-x8"}, "Selene .*ib-hdr200-x8, not roce-200-x8"),
    ({"gpus": 4488}, "Selene .*4480 GPUs, .*4488"),
    ({"gpus_per_node": 4}, "Selene .*8 GPUs .*4"),
    ({"oversubscription": 2.0}, "'selene' .*oversubscription"),
    ({"nodes_per_leaf": 2}, "takes no nodes_per_leaf"),
])  # fmt: skip
def test_a_published_cluster_refuses_what_contradicts_it(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        published("selene", **changes)


# Capacities.


def maximum_flow(topology: RegularTopology, first: set[int]) -> float:
    """From the NICs of hosts ``first`` to those of the rest."""
    graph: Any = directed_graph(topology.links)
    graph.remove_nodes_from([v for v in graph if v[0] in ("gpu", "nvswitch", "pcie")])
    for vertex in [v for v in graph if v[0] == "nic"]:
        graph.add_edge(*((("from",), vertex) if vertex[1] in first else (vertex, ("to",))))
    return float(nx.maximum_flow_value(graph, ("from",), ("to",), capacity="bytes_per_s"))


@pytest.mark.slow
@examples(25)
@given(topologies(kinds=("rail-optimized", "fat-tree")))
def test_bisection_of_tapered_trees_is_the_maximum_flow(topology: RegularTopology) -> None:
    clos = cluster_of(topology).switches
    assert clos is not None
    half = clos.units // 2 * clos.nodes_per_unit if clos.units > 1 else clos.nodes // 2
    wanted = maximum_flow(topology, set(range(half)))
    assert cluster_of(topology).bisection_bytes_per_s == pytest.approx(wanted)


@pytest.mark.parametrize("spine", [1.0, 2.0, 7.0])
def test_a_tapered_core_limits_the_bisection(spine: float) -> None:
    topology = regular("fat-tree", gpus=80 * 8, nodes_per_leaf=1, spine_oversubscription=spine)
    assert network_of(topology).pods == 3
    assert topology.bisection_bytes_per_s == pytest.approx(maximum_flow(topology, set(range(40))))


@pytest.mark.parametrize("size", [(4, 4, 2), (4, 2, 2), (6, 3, 1), (2, 2, 2), (4, 1, 1)])
@pytest.mark.parametrize("oversubscription", [1.0, 4.0])
def test_bisection_of_a_torus(size: tuple[int, int, int], oversubscription: float) -> None:
    topology = regular("torus", gpus=8 * math.prod(size), dimensions=size, oversubscription=oversubscription)
    half = {n for n in range(math.prod(size)) if n % size[0] < size[0] // 2}
    assert topology.bisection_bytes_per_s == pytest.approx(maximum_flow(topology, half))


def test_bisection_of_a_dragonfly() -> None:
    topology = regular("dragonfly", gpus=16 * 8, nodes_per_leaf=1, routers_per_group=4, global_links=2)
    assert network_of(topology).groups == 4
    assert topology.bisection_bytes_per_s == pytest.approx(maximum_flow(topology, set(range(8))))


@given(st.integers(2, 40), st.integers(1, 4), st.integers(1, 8))
def test_every_two_groups_of_a_dragonfly_are_joined(nodes: int, routers: int, links: int) -> None:
    assume(-(-nodes // routers) <= routers * links + 1)
    topology = regular(
        "dragonfly", gpus=8 * nodes, nodes_per_leaf=1, routers_per_group=routers, global_links=links
    )
    fly = network_of(topology)
    between: dict[tuple[int, int], int] = {}
    used: dict[int, int] = {}
    for local in range(fly.groups * (fly.groups - 1) * fly.trunk):
        (_, a), (_, b) = fly.global_ends(local)
        pair = (a // routers, b // routers)
        between[pair] = between.get(pair, 0) + 1
        used[a] = used.get(a, 0) + 1
    assert set(between.values()) <= {fly.trunk}
    assert len(between) == fly.groups * (fly.groups - 1)
    assert max(used.values(), default=0) <= links


@pytest.mark.parametrize(
    ("nodes", "size"), [(64, (4, 4, 4)), (24, (4, 3, 2)), (7, (7, 1, 1)), (1, (1, 1, 1))]
)
def test_the_most_cubic_torus(nodes: int, size: tuple[int, int, int]) -> None:
    assert most_cubic(nodes) == size


@pytest.mark.parametrize(("kind", "options", "message"), [
    ("torus", {"dimensions": (3, 2, 1)}, "3 x 2 x 1 .*6 hosts, .*4; .*2 x 2 x 1"),
    ("dragonfly", {"routers_per_group": 60}, "ib-ndr400-x8 .*64 ports"),
    ("dragonfly", {"routers_per_group": 1, "global_links": 1}, "need 4 groups, but 1 routers with 1 global"),
    ("fat-tree", {"levels": 4}, "levels .*2 .*or 3 .*not 4"),
    ("fat-tree", {"levels": 3, "nodes_per_leaf": 4}, "levels 3: 1 leaf switch.*choose levels 2"),
    ("fat-tree", {"levels": 2, "nodes_per_leaf": 1, "gpus": 800}, "100 leaf .*64 ports"),
    ("fat-tree", {"pxn": True}, "'fat-tree' .*pxn; .*rail-optimized"),
    ("torus", {"ecmp": "hash"}, "mean hashed"),
    ("torus", {"seed": 3}, "seed 3"),
    ("custom", {}, "needs file"),
])  # fmt: skip
def test_fabrics_that_cannot_be_built_are_refused(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        regular(kind, **({"nodes_per_leaf": 1} if kind == "dragonfly" else {}) | options)


@pytest.mark.parametrize("levels", [2, 3])
def test_levels_are_what_was_asked_for(levels: int) -> None:
    topology = regular("fat-tree", gpus=64 * 8, nodes_per_leaf=1, levels=levels)
    assert len(network_of(topology).tiers) == levels


@pytest.mark.parametrize("kind", [kind for kind in fabric_kinds() if kind != "custom"])
def test_every_kind_has_its_switches(kind: str) -> None:
    fabric = Fabric(kind=kind)
    assert (switches_of(fabric, get_interconnect("ib-ndr400-x8"), 64) is None) == (kind == "nvlink")


# Custom graphs.


def custom(path: Path, gpus: int = 4, **options: Any) -> CustomTopology:
    cluster = Cluster(
        gpu=get_gpu("H100-SXM5-80GB"),
        gpus=gpus,
        gpus_per_node=2,
        interconnect=get_interconnect("ib-ndr400-x8"),
        fabric=Fabric(kind="custom", file=str(path), **options),
    )
    assert isinstance(cluster.topology, CustomTopology)
    return cluster.topology


def test_the_example_graph_has_its_routes() -> None:
    topology = custom(EXAMPLE)
    assert topology.links_of([0, 0, 0, 1], [0, 1, 2, 2]).hops.tolist() == [0, 1, 4, 6]
    links, weights = topology.links_of(1, 2).of(0)
    names = {topology.links.name(link): weight for link, weight in zip(links.tolist(), weights, strict=True)}
    assert names["switch leaf1 -> switch spine0"] == names["switch spine1 -> switch leaf0"] == 0.5
    assert names["gpu 1 -> nic 1"] == 1.0
    assert topology.bisection_bytes_per_s == pytest.approx(2 * 50e9)


def test_hashed_ways_through_a_custom_graph() -> None:
    topology = custom(EXAMPLE, ecmp="hashed")
    routes = topology.links_of([1] * 32, [2] * 32, range(32))
    assert set(routes.weight.tolist()) == {1.0}
    assert set(routes.hops.tolist()) == {6.0}
    assert len({tuple(routes.of(r)[0].tolist()) for r in range(32)}) == 2


def test_graphml_is_the_same_graph(tmp_path: Path) -> None:
    graph: Any = nx.Graph()
    for number, edge in enumerate(read_graph(EXAMPLE)):
        graph.add_edge(
            edge.source,
            edge.target,
            bandwidth=f"{edge.bytes_per_s} B/s",
            latency=f"{edge.latency_s} s",
            id=number,
        )
    nx.write_graphml(graph, tmp_path / "g.graphml")
    same = custom(tmp_path / "g.graphml")
    assert same.links_of([0, 1], [2, 2]).hops.tolist() == [4, 6]
    assert same.bisection_bytes_per_s == pytest.approx(2 * 50e9)


GOOD = "{ from: gpu 0, to: switch s, bandwidth: 400 Gb/s, latency: 1 us }"


@pytest.mark.parametrize(("edge", "message"), [
    ("{ from: gpu 1, to: switch s, bandwidth: 400, latency: 1 us }", "line 3: bandwidth: 400"),
    ("{ from: gpu 1, to: switch s, bandwidth: 400 Gb, latency: 1 us }", "bandwidth: '400 Gb'"),
    ("{ from: gpu 1, to: switch s, bandwidth: 0 Gb/s, latency: 1 us }", "line 3: bandwidth '0 Gb/s' is zero"),
    ("{ from: gpu 1, to: switch s, bandwidth: 1 Gb/s }", "line 3: latency"),
    ("{ from: gpu 1, to: router s, bandwidth: 1 Gb/s, latency: 1 us }", "to: 'router s'"),
    ("{ from: gpu one, to: switch s, bandwidth: 1 Gb/s, latency: 1 us }", "GPUs.*0"),
    ("{ from: gpu 2, to: switch s, bandwidth: 1 Gb/s, latency: 1 us }", "gpu 1.*2 GPUs"),
    ("{ from: gpu 1, to: gpu 1, bandwidth: 1 Gb/s, latency: 1 us }", "from .*to .*'gpu 1'"),
    ("{ from: switch s, to: gpu 0, bandwidth: 1 Gb/s, latency: 1 us }", "already given .line 2"),
    ("{ from: gpu 1, to: switch s, bandwith: 1 Gb/s, latency: 1 us }", "mean bandwidth"),
    ("{ from: gpu 1, to: switch s, bandwidth: 1 Gb/s, latency: 1 us, kind: fibre }", "kind: .*'fibre'"),
    ("{ from: gpu 1, to: switch s, bandwidth: 1 Gb/s, latency: 1 us, one_way: maybe }", "one_way must"),
    ("{ from: gpu 1, from: gpu 2 }", "line 3: from .*twice"),
    ("{ from: [1] }", "line 3: from .*text"),
    ("gpu 1", "line 3: .*from, to"),
    ("{ from: gpu 1", "valid YAML"),
])  # fmt: skip
def test_mistakes_in_a_graph_file_are_found_by_line(edge: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text(f"edges:\n  - {GOOD}\n  - {edge}\n")
    with pytest.raises(ValueError, match=message) as mistake:
        read_graph(path)
    assert str(path) in str(mistake.value)


@pytest.mark.parametrize(("name", "text", "message"), [
    ("g.txt", "", "ends in .yaml, .yml or .graphml"),
    ("g.graphml", "<graphml", "valid XML"),
    ("g.yaml", "links: []", "edges"),
    ("g.yaml", "edges: []", "edges"),
    ("g.yaml", "edges:\n - {from: nic 0, to: switch 1, bandwidth: 1 Gb/s, latency: 1 us}", "gpu 0"),
])  # fmt: skip
def test_files_that_hold_no_graph(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_graph(tmp_path / name)


def test_a_graph_with_too_few_gpus_or_no_way(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"4 GPUs.*8"):
        custom(EXAMPLE, gpus=8)
    path = tmp_path / "g.yaml"
    path.write_text(
        f"edges:\n  - {GOOD}\n  - {GOOD.replace('gpu 0', 'gpu 1').replace('switch s', 'switch t')}\n"
    )
    with pytest.raises(ValueError, match="gpu 0 to gpu 1"):
        custom(path, gpus=2).links_of(0, 1)


def test_a_job_of_one_host_sits_in_the_whole_cluster() -> None:
    topology = published("selene", gpus=8)
    assert topology.gpus == 4480
    assert topology.links_of(0, 4479).hops[0] == pytest.approx(8)
    assert topology.links_of(0, 7).hops.tolist() == [2.0]


@pytest.mark.parametrize(("kind", "options", "route"), [
    ("torus", {}, (6, 3)), ("dragonfly", {"nodes_per_leaf": 1}, (5, 2)), ("selene", {"pxn": True}, (6, 1)),
])  # fmt: skip
def test_the_route_of_the_cluster_counts_hops_and_switches(
    kind: str, options: dict[str, Any], route: tuple[int, int]
) -> None:
    built = published(kind, **options) if kind == "selene" else regular(kind, **options)
    found = cluster_of(built).route(0, 3 * 8 + 1)
    assert (found.tier, found.hops, found.switches) == ("network", *route)
    assert kind == "selene" or nx.is_connected(cluster_of(built).graph())
    extra = 2 * 0.855e-6 / 2 if kind == "selene" else 0.0
    net = built.cluster.interconnect
    assert found.latency_s == pytest.approx(
        net.latency_s + (found.switches - 1) * net.switch_latency_s + extra
    )
