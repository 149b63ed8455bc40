"""Hosts without switches: a group has the links between its own GPUs, and no others."""

from __future__ import annotations

import pytest

from stepsim.hardware.cluster import Cluster
from stepsim.hardware.fabric import default_fabric
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import get_interconnect
from stepsim.sim.network.collectives import (
    GroupPlacement,
    collective_transfer,
    message_transfer,
    payload_factor,
    ring_step_transfer,
)

PAYLOAD = 4e9
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def host(gpu: str, gpus: int = 0) -> Cluster:
    held = gpus or get_gpu(gpu).nvlink_domain
    network = get_interconnect("nvlink-only")
    return Cluster(
        gpu=get_gpu(gpu),
        gpus=held,
        gpus_per_node=held,
        interconnect=network,
        fabric=default_fabric(network),
    )


def bus_rate(kind: str, ranks: int, cluster: Cluster) -> float:
    sent = collective_transfer(kind, PAYLOAD, GroupPlacement(ranks=ranks, domains=1), cluster)
    return payload_factor(kind, ranks) * sent.ceiling_bytes_per_s


@pytest.mark.parametrize("gpu", ["GH200-96GB", "MI300X", "MI355X"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_group_is_faster_than_the_links_between_its_gpus(gpu: str, kind: str) -> None:
    cluster = host(gpu)
    link = cluster.gpu.nvlink_bytes_per_s / (cluster.gpu.nvlink_domain - 1)
    for ranks in range(2, cluster.gpu.nvlink_domain + 1):
        assert bus_rate(kind, ranks, cluster) <= (ranks - 1) * link


@pytest.mark.parametrize("gpu", ["GH200-96GB", "MI300X"])
def test_a_message_has_one_link(gpu: str) -> None:
    cluster = host(gpu)
    link = cluster.gpu.nvlink_bytes_per_s / (cluster.gpu.nvlink_domain - 1)
    assert message_transfer(PAYLOAD, "domain", cluster).ceiling_bytes_per_s <= link
    assert ring_step_transfer(PAYLOAD, cluster).ceiling_bytes_per_s <= link


def test_switches_give_each_pair_all_links() -> None:
    cluster = host("H100-SXM5-80GB", 8)
    assert [cluster.share_of_links(ranks) for ranks in (1, 2, 8)] == [1.0, 1.0, 1.0]
    assert bus_rate("all_gather", 2, cluster) > cluster.gpu.nvlink_bytes_per_s / 2


def test_a_whole_host_has_all_links() -> None:
    assert host("GH200-96GB").share_of_links(4) == host("MI300X").share_of_links(8) == 1.0
    assert host("GH200-96GB").share_of_links(2) == pytest.approx(1 / 3)
