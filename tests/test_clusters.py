"""Clusters: what they refuse, which need no network, their default fabric, and machines as published."""

from __future__ import annotations

import networkx as nx
import pytest
from small_clusters import cluster

from stepsim.hardware.cluster import Cluster
from stepsim.hardware.fabric import default_fabric
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import Interconnect, get_interconnect, interconnect_names

# What a cluster refuses.


@pytest.mark.parametrize(("arguments", "message"), [
    ({"gpus": 20}, "nearest valid: 16 or 24"),
    ({"gpus": 0}, "one GPU"),
    ({"gpus_per_node": 16}, "holds 1 to 8 GPUs"),
    ({"gpu": "GB200-NVL72", "gpus_per_node": 8}, "NVL72 compute tray.* holds 1 to 4"),
    ({"interconnect": "nvlink-only"}, "'nvlink-only' .*ib-hdr200-x8, .*omnipath-100-x4"),
    ({"interconnect": "unknown"}, "'unknown'.*ib-hdr200-x8"),
    ({"kind": "nvlink"}, r"\(8 GPUs\).*fabric 'nvlink'"),
    ({"kind": "rail-optimised"}, "mean rail-optimized"),
    ({"oversubscription": 0.0}, "oversubscription .*0.0"),
    ({"nodes_per_leaf": 0}, "nodes_per_leaf .*1, not 0"),
    ({"nodes_per_rack": 2}, "nodes_per_rack 2:.*H100-SXM5-80GB.*1"),
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
    without_rails = {
        name for name in kinds if get_interconnect(name).kind in ("efa", "omnipath", "slingshot")
    }
    assert {name for name, kind in kinds.items() if kind == "fat-tree"} == without_rails
    assert {"efa-3200", "efa-400-x1", "omnipath-100-x4", "slingshot-200-x4"} <= without_rails
    assert {name for name, kind in kinds.items() if kind == "nvlink"} == {"nvlink-only", "unknown"}


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
