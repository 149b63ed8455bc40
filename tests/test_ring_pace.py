"""Rings whose every step waits for the network (EFA), and what a job's own measurement says of them."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.calibration.cases.case import read_cases
from stepsim.hardware.cluster import Cluster
from stepsim.hardware.interconnect import get_interconnect, interconnect_names
from stepsim.sim.network.collectives import (
    REFERENCE_BYTES,
    GroupPlacement,
    collective_curve,
    collective_transfer,
    payload_factor,
)
from stepsim.sim.network.measured import MeasuredNetwork
from stepsim.sim.network.nccl.paths import communicator_on
from stepsim.sim.network.transfer import Transfer, in_turn
from stepsim.sim.scenario.blocks import ClusterSpec
from stepsim.sim.scenario.machine import cluster_of

SHARDED = ("all_gather", "reduce_scatter")


def p5(gpus: int) -> Cluster:
    spec = ClusterSpec(gpu="H100-SXM5-80GB", gpus=gpus, gpus_per_node=8, interconnect="efa-3200")
    return cluster_of(spec)


def unpaced(cluster: Cluster) -> Cluster:
    return replace(cluster, interconnect=replace(cluster.interconnect, ring_step_s=0.0))


@given(
    st.sampled_from(SHARDED), st.integers(2, 32), st.floats(1e3, 4e9), st.sampled_from(["LL128", "Simple"])
)
def test_every_step_of_a_ring_over_efa_takes_its_pace(
    kind: str, hosts: int, size: float, protocol: str
) -> None:
    cluster, placement = p5(8 * hosts), GroupPlacement(ranks=8 * hosts, domains=hosts)
    pace_s = (placement.ranks - 1) * cluster.interconnect.ring_step_s
    curve = collective_curve(kind, size, placement, cluster, algorithm="ring", protocol=protocol)
    free = collective_curve(kind, size, placement, unpaced(cluster), algorithm="ring", protocol=protocol)
    moving_s = size * curve.seconds_per_byte
    assert curve.solo_s(size) == pytest.approx(max(free.solo_s(size), pace_s + moving_s))


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_no_other_way_is_paced(algorithm: str) -> None:
    """Not LL, whose lines are few and on their way at once; not trees; not rings inside a host."""
    for placement, protocol in (
        (GroupPlacement(ranks=64, domains=8), "LL"),
        (GroupPlacement(ranks=8, domains=1), "LL128"),
    ):
        cluster = p5(64)
        paced, free = (
            collective_curve("all_reduce", 1e6, placement, one, algorithm=algorithm, protocol=protocol)
            for one in (cluster, unpaced(cluster))
        )
        assert paced.solo_s(1e6) == free.solo_s(1e6)


def test_only_efa_and_tcpx_are_known_to_pace() -> None:
    for name in interconnect_names():
        net = get_interconnect(name)
        assert not net.ring_step_s or net.kind in ("efa", "tcpx")
        assert not net.nccl_latency_s or net.kind == "efa"
    comm = communicator_on(p5(64), ranks=64, domains=8)
    assert comm.network_latency_s == 75e-6
    assert communicator_on(p5(64), ranks=8, domains=1).network_latency_s == 0.0


def test_jobs_measured_this_pace(shared: Path) -> None:
    """1 GiB over all GPUs of unchecked jobs, copies of the list interface included."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for case in read_cases(shared / "data" / "cases" / "hf_nanotron_h100.yaml"):
        network = case.measured_network
        if case.hardware.gpus < 64 or not network or (network.all_reduce_intra_gbps or 0) < 440:
            continue
        for kind in SHARDED:
            rate, inside = getattr(network, f"{kind}_gbps"), getattr(network, f"{kind}_intra_gbps")
            host = GroupPlacement(ranks=8, domains=1)
            copies_s = REFERENCE_BYTES * payload_factor(kind, 8) / (inside * 1e9)
            copies_s -= collective_transfer(kind, REFERENCE_BYTES, host, p5(64)).solo_s
            whole_s = REFERENCE_BYTES * payload_factor(kind, case.hardware.gpus) / (rate * 1e9)
            times[kind, case.hardware.gpus].append(whole_s - copies_s)
    assert {gpus for _, gpus in times} == {64, 128, 256, 512}
    for (kind, gpus), found in times.items():
        placement = GroupPlacement(ranks=gpus, domains=gpus // 8)
        predicted_s = collective_transfer(kind, REFERENCE_BYTES, placement, p5(gpus)).solo_s
        assert predicted_s == pytest.approx(median(found), rel=0.08), (kind, gpus)


@pytest.mark.parametrize("kind", SHARDED)
def test_copies_of_the_list_interface_are_not_the_links(kind: str) -> None:
    cluster, whole, host = p5(64), GroupPlacement(ranks=64, domains=8), GroupPlacement(ranks=8, domains=1)
    found = {}
    for where, placement in (("", whole), ("_intra", host)):
        taken_s = collective_transfer(kind, REFERENCE_BYTES, placement, cluster).solo_s + 0.9e-3
        rate = REFERENCE_BYTES * payload_factor(kind, placement.ranks) / taken_s
        found[f"{kind}{where}_bytes_per_s"] = f"{rate!r} B/s"
    own = MeasuredNetwork.model_validate(found)
    plain = collective_transfer(kind, 1e9, whole, cluster)
    assert collective_transfer(kind, 1e9, whole, cluster, own).solo_s == pytest.approx(plain.solo_s)
    alone = MeasuredNetwork.model_validate({name: v for name, v in found.items() if "intra" not in name})
    assert collective_transfer(kind, 1e9, whole, cluster, alone).solo_s > plain.solo_s


@given(st.lists(st.tuples(st.floats(0, 1e-3), st.floats(1.0, 1e9), st.floats(1e6, 1e12)), min_size=1))
def test_transfers_in_turn_take_their_times_together(parts: list[tuple[float, float, float]]) -> None:
    each = [Transfer(latency, size, rate) for latency, size, rate in parts]
    whole = in_turn(each)
    assert whole.solo_s == pytest.approx(math.fsum(one.solo_s for one in each), rel=1e-6)
    assert whole.bytes == pytest.approx(math.fsum(one.bytes for one in each))
    assert whole.latency_s == pytest.approx(math.fsum(one.latency_s for one in each))
