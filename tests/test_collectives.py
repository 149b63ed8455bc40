"""Costs of collectives: the bytes of textbook rings, limits and monotonicity.

Bus bandwidth is nccl-tests' (doc/PERFORMANCE.md): payload times the factor of the collective, over time.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.hardware.cluster import Cluster
from stepsim.hardware.collectives import collective_constants
from stepsim.hardware.fabric import default_fabric
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import get_interconnect
from stepsim.sim.network.algorithms import logged
from stepsim.sim.network.collectives import (
    Distance,
    GroupPlacement,
    collective_curve,
    collective_transfer,
    message_transfer,
    payload_factor,
)
from stepsim.sim.network.measured import MeasuredNetwork
from stepsim.sim.network.place import place_of

KINDS = ("all_reduce", "all_gather", "reduce_scatter")
SYSTEMS = {
    "A100-SXM4-80GB": "ib-hdr200-x8",
    "H100-SXM5-80GB": "ib-ndr400-x8",
    "H200-SXM-141GB": "efa-3200",
    "B200-SXM-180GB": "roce-400-x8",
}

kinds = st.sampled_from(KINDS)
systems = st.sampled_from(sorted(SYSTEMS))
sizes = st.floats(1.0, 1e11)
local_ranks = st.integers(2, 8)
hosts = st.integers(1, 512)


def cluster_of(gpu: str, nodes: int = 512, interconnect: str = "", oversubscription: float = 1.0) -> Cluster:
    network = get_interconnect(interconnect or SYSTEMS[gpu])
    return Cluster(
        gpu=get_gpu(gpu),
        gpus=8 * nodes,
        gpus_per_node=8,
        interconnect=network,
        fabric=replace(default_fabric(network), oversubscription=oversubscription),
    )


def seconds(kind: str, size: float, placement: GroupPlacement, cluster: Cluster) -> float:
    return collective_transfer(kind, size, placement, cluster).solo_s


def bus_bytes_per_s(kind: str, size: float, placement: GroupPlacement, cluster: Cluster) -> float:
    return size * payload_factor(kind, placement.ranks) / seconds(kind, size, placement, cluster)


def nic_line_rate(cluster: Cluster) -> float:
    """Bytes per second of a GPU's share of its host's NICs."""
    network = cluster.interconnect
    return network.link_bytes_per_s * network.links_per_host / cluster.gpus_per_node


def payload_limit(kind: str, placement: GroupPlacement, cluster: Cluster) -> float:
    """Payload rate that the wires allow any algorithm.

    An all-reduce's payload enters each GPU once and leaves each of N domains 2(N-1)/N times; the
    others' (n-1)/n and (N-1)/N times.
    """
    twice = 2.0 if kind == "all_reduce" else 1.0
    n, domains = placement.ranks, placement.domains
    inside = cluster.gpu.nvlink_bytes_per_s * (1.0 if kind == "all_reduce" else n / (n - 1))
    if domains == 1:
        return inside
    edge = placement.fewest * nic_line_rate(cluster) * domains / (twice * (domains - 1))
    return min(inside, edge) if placement.fewest > 1 else edge


# Bytes ---------------------------------------------------------------------------------------------


@given(st.integers(2, 4096))
def test_an_all_reduce_moves_a_reduce_scatter_and_an_all_gather(n: int) -> None:
    """Patarasuk & Yuan 2009: 2(n-1)/n bytes per payload byte, the least that any algorithm can do."""
    assert payload_factor("all_gather", n) == payload_factor("reduce_scatter", n) == pytest.approx(1 - 1 / n)
    assert payload_factor("all_reduce", n) == pytest.approx(2 - 2 / n)


@pytest.mark.parametrize(
    ("kind", "limit"), [("all_reduce", 2.0), ("all_gather", 1.0), ("reduce_scatter", 1.0)]
)
def test_the_factor_of_many_ranks_is_the_limit(kind: str, limit: float) -> None:
    assert payload_factor(kind, 1) == 0.0
    assert payload_factor(kind, 10**9) == pytest.approx(limit, rel=1e-8)


@given(kinds, local_ranks, hosts, systems)
def test_every_link_carries_the_textbook_bytes(kind: str, local: int, domains: int, gpu: str) -> None:
    """Through each rank's NVLink go a ring's factor, a tree's chains up and down, or the switch's 1 + 1/g;
    out of a host a ring's factor, and a tree's payload once to one other host, half as much again to two
    others, twice to more."""
    placement, cluster = GroupPlacement(ranks=local * domains, domains=domains), cluster_of(gpu)
    factor, edge = payload_factor(kind, placement.ranks), min(domains / 2, 2.0)
    expected = {
        "ring": (factor, factor),
        "tree": (2 - 2 / local, edge),
        "nvls": (1 + 1 / local, 0.0),
        "nvls_tree": (1 + 1 / local, edge),
    }
    ways = logged(kind, place_of(placement, cluster, collective_constants()))
    assert {way.algorithm for way in ways} <= set(expected)
    for way in ways:
        nvlink, host = expected[way.algorithm]
        assert way.nvlink == pytest.approx(nvlink)
        assert way.nic * local == pytest.approx(host if domains > 1 else 0.0)


@given(kinds, sizes, local_ranks, hosts, systems)
def test_the_engine_is_told_what_the_chosen_curve_says(
    kind: str, size: float, local: int, domains: int, gpu: str
) -> None:
    placement, cluster = GroupPlacement(ranks=local * domains, domains=domains), cluster_of(gpu)
    curve = collective_curve(kind, size, placement, cluster)
    sent = collective_transfer(kind, size, placement, cluster)
    assert sent.solo_s == pytest.approx(curve.solo_s(size))
    weights = {
        "nvlink.out": curve.nvlink,
        "nvlink.in": curve.nvlink,
        "nic.out": curve.nic,
        "nic.in": curve.nic,
    }
    assert dict(sent.weights) == {link: weight for link, weight in weights.items() if weight}


@given(kinds, sizes, local_ranks, hosts, systems)
def test_every_way_can_be_forced(kind: str, size: float, local: int, domains: int, gpu: str) -> None:
    placement, cluster = GroupPlacement(ranks=local * domains, domains=domains), cluster_of(gpu)
    ways = logged(kind, place_of(placement, cluster, collective_constants()))
    forced = [
        collective_curve(kind, size, placement, cluster, algorithm=w.algorithm, protocol=w.protocol)
        for w in ways
    ]
    assert forced == list(ways)


@given(kinds, sizes, systems)
def test_one_rank_alone_pays_nothing(kind: str, size: float, gpu: str) -> None:
    assert seconds(kind, size, GroupPlacement(ranks=1, domains=1), cluster_of(gpu)) == 0.0


# Limits and order ----------------------------------------------------------------------------------


@given(kinds, local_ranks, hosts, systems)
def test_latency_is_left_of_a_small_payload_and_bandwidth_of_a_large_one(
    kind: str, local: int, domains: int, gpu: str
) -> None:
    placement, cluster = GroupPlacement(ranks=local * domains, domains=domains), cluster_of(gpu)
    latency_s = collective_transfer(kind, 1.0, placement, cluster).latency_s
    assert latency_s > 0
    assert seconds(kind, 0.0, placement, cluster) == latency_s
    large = bus_bytes_per_s(kind, 1e15, placement, cluster)
    assert bus_bytes_per_s(kind, 1e18, placement, cluster) == pytest.approx(large, rel=0.02)
    limit = payload_limit(kind, placement, cluster) * payload_factor(kind, placement.ranks)
    network = local * cluster.nic_bytes_per_s_per_gpu if domains > 1 else math.inf
    # Every 2 MiB of each channel wait for the pace of a ring that has one.
    pace_s = cluster.interconnect.ring_step_s / (2 * min(local, 8) * 2**21) if domains > 1 else 0.0
    a_ring = 1 / (1 / min(cluster.gpu.nccl_nvlink_bytes_per_s, network) + pace_s)
    # A ring of few ranks inside a domain pays for copying its own part: a third to half of a step.
    steps = 2 * (local - 1) if kind == "all_reduce" else local - 1
    own = (
        steps / (steps + 0.46)
        if domains == 1 and kind in ("all_reduce", "all_gather", "reduce_scatter")
        else 1
    )
    assert 0.9 * own * a_ring < large <= limit


@given(kinds, sizes, st.floats(1.0, 100.0), local_ranks, hosts, systems)
def test_more_bytes_never_take_less_time_nor_a_lower_rate(
    kind: str, size: float, more: float, local: int, domains: int, gpu: str
) -> None:
    """Of one algorithm and protocol; where NCCL's choice changes, the time may fall (docs/decisions/0004)."""
    placement, cluster = GroupPlacement(ranks=local * domains, domains=domains), cluster_of(gpu)
    slack = 1 + 1e-12
    for way in logged(kind, place_of(placement, cluster, collective_constants())):
        little, much = way.solo_s(size), way.solo_s(size * more)
        assert much * slack >= little
        assert size * more / much * slack >= size / little


@given(kinds, sizes, local_ranks, hosts, hosts, systems)
def test_more_nodes_are_never_faster(
    kind: str, size: float, local: int, few: int, more: int, gpu: str
) -> None:
    """With one algorithm and protocol."""
    cluster = cluster_of(gpu)
    near, far = (
        {
            (way.algorithm, way.protocol): way.solo_s(size)
            for way in logged(
                kind, place_of(GroupPlacement(ranks=local * n, domains=n), cluster, collective_constants())
            )
        }
        for n in sorted((few, few + more))
    )
    for way in near.keys() & far.keys():
        assert near[way] <= far[way] * (1 + 1e-12)


@given(
    kinds,
    st.floats(1e8, 1e11),
    st.sampled_from([(8, 1, 2), (8, 2, 4), (8, 4, 8), (16, 2, 4), (64, 8, 16)]),
    systems,
)
def test_spreading_a_group_over_more_nodes_is_never_faster(
    kind: str, size: float, spread: tuple[int, int, int], gpu: str
) -> None:
    """Of large payloads: a small all-reduce may gain, because NCCL's tree is a chain inside a host."""
    ranks, dense, sparse = spread
    cluster = cluster_of(gpu)
    near, far = GroupPlacement(ranks=ranks, domains=dense), GroupPlacement(ranks=ranks, domains=sparse)
    assert seconds(kind, size, near, cluster) <= seconds(kind, size, far, cluster) * (1 + 1e-12)


@given(kinds, sizes, local_ranks, hosts, systems)
def test_bus_bandwidth_stays_below_the_links(
    kind: str, size: float, local: int, domains: int, gpu: str
) -> None:
    """Below what any algorithm could do, though NVLS and trees of two send less than the factor counts."""
    placement, cluster = GroupPlacement(ranks=local * domains, domains=domains), cluster_of(gpu)
    limit = payload_limit(kind, placement, cluster) * payload_factor(kind, placement.ranks)
    assert bus_bytes_per_s(kind, size, placement, cluster) <= limit


@given(sizes, sizes, st.sampled_from(["domain", "unit", "fabric"]), systems)
def test_messages_grow_with_size_and_stay_below_their_link(
    size: float, more: float, distance: Distance, gpu: str
) -> None:
    cluster = cluster_of(gpu)
    small, large = (message_transfer(s, distance, cluster) for s in (size, size + more))
    assert small.solo_s <= large.solo_s * (1 + 1e-12)
    tier = "nvlink" if distance == "domain" else "nic"
    link = cluster.gpu.nvlink_bytes_per_s if tier == "nvlink" else nic_line_rate(cluster)
    assert large.ceiling_bytes_per_s <= link
    assert large.weights == ((tier, 1.0),)


@given(sizes, systems, st.floats(1.0, 16.0))
def test_farther_messages_are_never_faster(size: float, gpu: str, oversubscription: float) -> None:
    cluster = cluster_of(gpu, oversubscription=oversubscription)
    distances: tuple[Distance, ...] = ("domain", "unit", "fabric")
    times = [message_transfer(size, distance, cluster).solo_s for distance in distances]
    assert times == sorted(times)


@given(kinds, sizes, local_ranks, st.integers(1, 16), st.integers(1, 16), systems, st.floats(1.0, 16.0))
def test_oversubscribed_uplinks_slow_down_what_crosses_them(
    kind: str, size: float, local: int, per_unit: int, units: int, gpu: str, ratio: float
) -> None:
    """A ring enters and leaves each unit of hosts once, so the hosts of a unit share its uplinks."""
    domains = per_unit * units
    placement = GroupPlacement(ranks=local * domains, domains=domains, units=units)
    full, thin = cluster_of(gpu), cluster_of(gpu, oversubscription=ratio)
    free_s, slowed_s = seconds(kind, size, placement, full), seconds(kind, size, placement, thin)
    if units == 1 or per_unit >= ratio:
        assert slowed_s == free_s
    else:
        assert free_s <= slowed_s <= free_s * ratio / per_unit * (1 + 1e-12)


# Measured networks ---------------------------------------------------------------------------------


@given(kinds, sizes, local_ranks, st.integers(1, 64), systems, st.floats(1e8, 1e12))
def test_a_measured_network_slows_down_and_never_speeds_up(
    kind: str, size: float, local: int, domains: int, gpu: str, measured: float
) -> None:
    placement, cluster = GroupPlacement(ranks=local * domains, domains=domains), cluster_of(gpu, nodes=64)
    network = MeasuredNetwork(
        all_reduce_bytes_per_s=measured,
        all_gather_bytes_per_s=measured,
        reduce_scatter_bytes_per_s=measured,
        all_reduce_intra_bytes_per_s=measured,
    )
    slowed = collective_transfer(kind, size, placement, cluster, network)
    assert slowed.solo_s >= seconds(kind, size, placement, cluster) * (1 - 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_the_measured_collective_itself_is_reproduced(kind: str, share: float) -> None:
    """Of all GPUs and large: the rate that a run measured is the rate that it gets, below what we predict."""
    cluster = cluster_of("H100-SXM5-80GB", nodes=4)
    placement = GroupPlacement(ranks=32, domains=4)
    measured = share * bus_bytes_per_s(kind, float(1 << 30), placement, cluster)
    network = MeasuredNetwork.model_validate({f"{kind}_bytes_per_s": measured})
    slowed_s = collective_transfer(kind, 1e13, placement, cluster, network).solo_s
    reached = 1e13 * payload_factor(kind, 32) / slowed_s
    ideal = bus_bytes_per_s(kind, 1e13, placement, cluster)
    assert reached / ideal == pytest.approx(share, rel=0.02)
