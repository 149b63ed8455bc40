"""Laws of the hardware catalogue and of the cluster: sane figures, and closed forms equal to the graph."""

from __future__ import annotations

import re
from pathlib import Path

import networkx as nx
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from stepsim.hardware import (
    Cluster,
    Fabric,
    Interconnect,
    default_fabric,
    get_gpu,
    get_interconnect,
    gpu_names,
    interconnect_names,
    node_for,
)
from stepsim.hardware.fabrics.clos import Clos
from stepsim.hardware.graph import routes
from stepsim.hardware.interconnect import NCCL_MESSAGE_CHUNK_BYTES

NETWORKS = tuple(name for name in interconnect_names() if get_interconnect(name).connects_hosts)


def cluster(
    gpu: str = "H100-SXM5-80GB",
    gpus: int = 16,
    gpus_per_node: int = 8,
    interconnect: str = "ib-ndr400-x8",
    **fabric: object,
) -> Cluster:
    return Cluster(
        gpu=get_gpu(gpu),
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        interconnect=get_interconnect(interconnect),
        fabric=Fabric(**fabric),  # type: ignore[arg-type]
    )


@st.composite
def clusters(draw: st.DrawFn, most_nodes: int = 12) -> Cluster:
    """Small clusters of every GPU, network and shape; units of 1 to 3 hosts give every tier of switches."""
    gpu = get_gpu(draw(st.sampled_from(gpu_names())))
    gpus_per_node = draw(st.integers(1, node_for(gpu).max_gpus))
    nodes = draw(st.integers(1, most_nodes))
    rack = draw(st.none() | st.integers(1, node_for(gpu).hosts_per_domain))
    return Cluster(
        gpu=gpu,
        gpus=draw(st.integers(1, gpus_per_node)) if nodes == 1 else nodes * gpus_per_node,
        gpus_per_node=gpus_per_node,
        interconnect=get_interconnect(draw(st.sampled_from(NETWORKS))),
        fabric=Fabric(
            kind=draw(st.sampled_from(("rail-optimized", "fat-tree"))),
            oversubscription=draw(st.sampled_from((0.5, 1.0, 1.7, 7.0))),
            nodes_per_leaf=draw(st.none() | st.integers(1, 3)),
            nodes_per_rack=rack,
        ),
    )


# The catalogue.


def test_catalogue_holds_every_key_of_the_case_schema(shared: Path) -> None:
    readme = (shared / "data/cases/README.md").read_text()
    gpus = re.search(r"^\| `hardware\.gpu` \| (.*) \|$", readme, re.MULTILINE)
    interconnects = re.search(r"^\| `hardware\.interconnect` \|.*?: (ib-.*) \|$", readme, re.MULTILINE)
    assert gpus
    assert interconnects
    wanted = set(gpus[1].split(", "))
    assert len(wanted) == 11
    assert wanted | {"H100-PCIe-80GB", "MI300X"} == set(gpu_names())
    wanted = {key.split(" ")[0] for key in re.sub(r"\([^)]*\)", "", interconnects[1]).split(", ")}
    assert len(wanted) == 13
    clouds = {"tcpxo-200-x8", "gcp-rdma400-x8"}  # of measured collectives, in no measured run
    assert wanted | clouds == set(interconnect_names())


def test_catalogue_has_the_figures_of_the_shared_table(shared: Path) -> None:
    table = yaml.safe_load((shared / "data/hardware.yaml").read_text())["gpus"]
    assert len(set(table) & set(gpu_names())) == 10
    for name in set(table) & set(gpu_names()):
        gpu, row = get_gpu(name), table[name]
        for dtype, peak in gpu.peak_flops.items():
            assert peak == pytest.approx(row["tflops"][dtype] * 1e12), (name, dtype)
        assert gpu.hbm_bytes == pytest.approx(row["hbm_gib_usable"] * 2**30)
        assert gpu.hbm_bytes_per_s == pytest.approx(row["hbm_gbps"] * 1e9)
        assert gpu.nvlink_bytes_per_s == pytest.approx((row.get("nvlink") or row["xgmi"])["gbps_dir"] * 1e9)
        assert gpu.sms == row.get("sms", row.get("cus"))
        assert gpu.tdp_w == row["tdp_w"]


@pytest.mark.parametrize("name", gpu_names())
def test_gpu_figures_are_sane(name: str) -> None:
    gpu = get_gpu(name)
    peaks = gpu.peak_flops
    assert 0 < peaks["fp32"] < peaks["tf32"] < peaks["bf16"] == peaks["fp16"]
    by_width = [peaks[dtype] for dtype in ("bf16", "fp8", "fp4") if dtype in peaks]
    assert by_width == sorted(set(by_width))
    assert ("fp8" in peaks) == (gpu.architecture != "ampere")
    assert ("fp4" in peaks) == (gpu.architecture == "blackwell")
    assert gpu.sram_bytes_per_s > gpu.l2_bytes_per_s > gpu.hbm_bytes_per_s > gpu.nvlink_bytes_per_s
    assert gpu.sram_bytes_per_sm * gpu.sms < gpu.l2_bytes < gpu.hbm_bytes
    assert gpu.nvlink_bytes_per_s > gpu.nccl_nvlink_bytes_per_s > gpu.pcie_bytes_per_s > 0
    assert 1e9 < gpu.boost_hz < 2.5e9
    assert 30 * 2**30 < gpu.hbm_bytes < 300 * 2**30
    assert 300 <= gpu.tdp_w <= 1400
    assert set(gpu.sources) == {"peaks", "memory", "cache", "nvlink", "pcie", "power"}
    assert all(len(source) >= 5 for source in gpu.sources.values())
    assert node_for(gpu).max_gpus * node_for(gpu).hosts_per_domain in (
        gpu.nvlink_domain,
        4 * gpu.nvlink_domain,
    )
    hash(gpu)


@pytest.mark.parametrize("name", NETWORKS)
def test_interconnect_agrees_with_its_name(name: str) -> None:
    net = get_interconnect(name)
    gigabits = net.link_bytes_per_s * net.links_per_host * 8 / 1e9
    if net.kind == "efa":
        assert gigabits == int(name.split("-")[1])
    else:
        rate, links = re.fullmatch(r"[a-z]+-[a-z]*(\d+)-x(\d)", name).groups()  # type: ignore[union-attr]
        assert (net.links_per_host, gigabits) == (int(links), int(rate) * int(links))
    assert 0.8 < net.efficiency < 1
    assert net.host_bytes_per_s == pytest.approx(gigabits / 8 * 1e9 * net.efficiency)
    assert 0 < net.switch_latency_s < net.latency_s
    cut = {"message_chunk"} if net.message_chunk_bytes != NCCL_MESSAGE_CHUNK_BYTES else set()
    paced = {"ring_step"} if net.ring_step_s else set()
    told = {"nccl_latency"} if net.nccl_latency_s else set()
    assert set(net.sources) == {"rate", "latency", "efficiency", "switch"} | cut | paced | told


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("ib-hdr200-x8", "azure_ndv4_a100_2n16g_allreduce_hdr"),
        ("ib-ndr400-x8", "h100_ib_8n64g_allreduce_mincta24_issue309"),
    ],
)
def test_efficiency_is_the_plateau_of_the_log(name: str, log: str, shared: Path) -> None:
    rows = (line.split() for line in (shared / f"data/nccl_logs/{log}.txt").read_text().splitlines())
    plateau = max(float(row[7]) for row in rows if len(row) > 7 and row[0].isdigit()) * 1e9
    assert get_interconnect(name).host_bytes_per_s == pytest.approx(plateau, rel=2e-3)


@pytest.mark.parametrize(("lookup", "typed", "meant"), [
    (get_gpu, "h100-sxm-80gb", "H100-SXM5-80GB"),
    (get_gpu, "GB200", "GB200-NVL72"),
    (get_interconnect, "ib-ndr-x8", "ib-ndr400-x8"),
])  # fmt: skip
def test_unknown_name_shows_the_nearest_and_all(lookup, typed: str, meant: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=f"{typed!r}. Did you mean {meant}\\?") as error:
        lookup(typed)
    assert all(
        name in str(error.value) for name in (gpu_names() if lookup is get_gpu else interconnect_names())
    )


# What a cluster refuses.


@pytest.mark.parametrize(("arguments", "message"), [
    ({"gpus": 20}, "nearest valid: 16 or 24"),
    ({"gpus": 0}, "at least one GPU"),
    ({"gpus_per_node": 16}, "holds 1 to 8 GPUs"),
    ({"gpu": "GB200-NVL72", "gpus_per_node": 8}, "NVL72 compute tray.* holds 1 to 4"),
    ({"interconnect": "nvlink-only"}, "'nvlink-only' has no network; known: ib-hdr200-x8, .*omnipath-100-x4"),
    ({"interconnect": "unknown"}, "'unknown' has no known rate; known: ib-hdr200-x8"),
    ({"kind": "nvlink"}, "exceed one NVLink domain \\(8 GPUs\\).*fabric 'nvlink' has no network"),
    ({"kind": "rail-optimised"}, "Did you mean rail-optimized"),
    ({"oversubscription": 0.0}, "oversubscription must be a positive number, not 0.0"),
    ({"nodes_per_leaf": 0}, "nodes_per_leaf must be at least 1, not 0"),
    ({"nodes_per_rack": 2}, "nodes_per_rack 2: an NVLink domain of H100-SXM5-80GB has 1"),
    ({"gpu": "GB200-NVL72", "gpus_per_node": 4, "gpus": 76, "interconnect": "nvlink-only"}, "72 GPUs"),
])  # fmt: skip
def test_refusals_say_what_would_be_valid(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [
    {"gpus": 8, "interconnect": "nvlink-only"},
    {"gpus": 8, "interconnect": "unknown"},
    {"gpus": 3},
    {"gpus": 8, "gpu": "A100-PCIe-80GB", "interconnect": "nvlink-only"},
    {"gpu": "GB200-NVL72", "gpus_per_node": 4, "gpus": 72, "interconnect": "nvlink-only"},
])  # fmt: skip
def test_one_nvlink_domain_or_host_needs_no_network(arguments: dict[str, object]) -> None:
    assert nx.is_connected(cluster(**arguments).graph())  # type: ignore[arg-type]


def test_default_fabric_is_the_published_shape() -> None:
    kinds = {name: default_fabric(get_interconnect(name)).kind for name in interconnect_names()}
    assert {name for name, kind in kinds.items() if kind == "fat-tree"} == {
        "efa-3200",
        "efa-400-x1",
        "omnipath-100-x4",
    }
    assert {name for name, kind in kinds.items() if kind == "nvlink"} == {"nvlink-only", "unknown"}


# The graph and the closed forms.


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
    graph = nx.Graph(built.graph())
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


# Published machines.


def test_hgx_h100_host() -> None:
    built = cluster(gpus=8, interconnect="nvlink-only")
    graph = built.graph()
    assert sum(vertex[0] == "nvswitch" for vertex in graph) == 4
    assert built.nvlink_domain == 8
    assert built.nic_bytes_per_s_per_gpu == 0
    assert {built.route(0, rank).tier for rank in range(1, 8)} == {"nvlink"}


def test_rails_of_h100_superpod() -> None:
    """Two units: an equal rail in a unit is one switch away, everything else three."""
    built = cluster(gpus=64 * 8)
    assert built.nic_bytes_per_s_per_gpu == pytest.approx(50e9 * 0.978)
    assert built.route(0, 31 * 8).switches == 1
    assert built.route(0, 31 * 8 + 1).switches == 3
    assert built.route(0, 32 * 8).switches == 3
    assert built.latency_s(0, 31 * 8) == pytest.approx(2.7e-6)
    assert built.latency_s(0, 32 * 8) == pytest.approx(2.7e-6 + 2 * 150e-9)


def test_nvl72_rack_is_one_domain_of_eighteen_hosts() -> None:
    built = cluster("GB200-NVL72", gpus=144, gpus_per_node=4, interconnect="ib-ndr400-x4")
    assert (built.nodes, built.nvlink_domain) == (36, 72)
    assert built.route(0, 71).tier == "nvlink"
    assert built.route(0, 72).tier == "network"
    assert sum(vertex[0] == "nvswitch" for vertex in built.graph()) == 2 * 18
    whole_racks = cluster("GB200-NVL72", 128, 4, "ib-ndr400-x4", nodes_per_rack=16)
    assert (whole_racks.nvlink_domain, whole_racks.domain_of(64)) == (64, 1)


def test_pcie_cards_are_joined_in_pairs() -> None:
    built = cluster("A100-PCIe-80GB", gpus=8, interconnect="nvlink-only")
    assert built.nvlink_domain == 2
    assert [built.route(0, rank).tier for rank in range(4)] == ["local", "nvlink", "pcie", "pcie"]
    assert [built.route(0, rank).hops for rank in range(4)] == [0, 1, 2, 2]
    assert built.intra_node_bytes_per_s_per_gpu < built.gpu.nccl_nvlink_bytes_per_s


def test_mi300x_has_a_link_to_every_peer() -> None:
    built = cluster("MI300X", gpus=8, interconnect="nvlink-only")
    links = [edge["link"].bytes_per_s for _, _, edge in built.graph().edges(data=True)]
    assert links == [pytest.approx(64e9)] * (8 * 7 // 2)
    assert built.route(0, 7).hops == 1


def test_efa_host_has_four_links_per_gpu_on_one_leaf() -> None:
    net: Interconnect = get_interconnect("efa-3200")
    built = Cluster(
        gpu=get_gpu("H100-SXM5-80GB"), gpus=32, gpus_per_node=8, interconnect=net, fabric=default_fabric(net)
    )
    assert [len(built.nics_of(rank)) for rank in range(8)] == [4] * 8
    assert [built.route(0, 8 * node + 3).switches for node in (1, 2, 3)] == [1, 3, 3]


def test_roce_latency_across_racks_is_the_measured_one() -> None:
    """OCI GB300: 3.15 to 3.25 us across racks (0.1 us of cable allowed)."""
    built = cluster(gpus=16, interconnect="roce-400-x8", nodes_per_leaf=1)
    assert 3.05e-6 < built.latency_s(0, 8) < 3.25e-6
