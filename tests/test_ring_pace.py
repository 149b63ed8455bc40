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
from stepsim.sim.network.nccl.settings import NcclSettings
from stepsim.sim.network.transfer import Transfer, in_turn
from stepsim.sim.scenario.blocks import ClusterSpec
from stepsim.sim.scenario.machine import cluster_of

SHARDED = ("all_gather", "reduce_scatter")
CHANNELS = 16  # of rings over hosts of eight GPUs: twice the eight that NCCL's search finds
CHUNKS = {"LL": (32 * 1024.0, 1 / 4), "LL128": (576_000.0, 1 / 4), "Simple": (2.0**21, 1.0)}
"""Payload of a ring's chunk, and the pace in times of Simple's. Buffers have eight places: of 64 KiB, half of
it flags; of 640 threads' 120 words, one in 16 a flag; of 512 KiB, of which Simple takes four for a chunk."""
PLAYBOOK = NcclSettings(proto="Simple", version=(2, 18))


def p5(gpus: int) -> Cluster:
    spec = ClusterSpec(gpu="H100-SXM5-80GB", gpus=gpus, gpus_per_node=8, interconnect="efa-3200")
    return cluster_of(spec)


def unpaced(cluster: Cluster) -> Cluster:
    return replace(cluster, interconnect=replace(cluster.interconnect, ring_step_s=0.0))


@given(st.sampled_from(SHARDED), st.integers(2, 32), st.floats(1e3, 4e9), st.sampled_from(sorted(CHUNKS)))
def test_every_step_of_a_ring_over_efa_takes_its_pace(
    kind: str, hosts: int, size: float, protocol: str
) -> None:
    """In each loop over the payload, and a fourth of it where four times as many chunks are on their way."""
    cluster, placement = p5(8 * hosts), GroupPlacement(ranks=8 * hosts, domains=hosts)
    chunk, share = CHUNKS[protocol]
    loops = max(1.0, size / (placement.ranks * CHANNELS * chunk))
    pace_s = loops * (placement.ranks - 1) * cluster.interconnect.ring_step_s * share
    curve = collective_curve(kind, size, placement, cluster, algorithm="ring", protocol=protocol)
    free = collective_curve(kind, size, placement, unpaced(cluster), algorithm="ring", protocol=protocol)
    moving_s = size * curve.seconds_per_byte
    assert curve.solo_s(size) == pytest.approx(max(free.solo_s(size), pace_s + moving_s))


@pytest.mark.parametrize(("algorithm", "hosts"), [("tree", 8), ("tree", 1), ("ring", 1)])
@pytest.mark.parametrize("protocol", sorted(CHUNKS))
def test_no_other_way_is_paced(algorithm: str, hosts: int, protocol: str) -> None:
    """Not trees; not rings inside a host."""
    cluster, placement = p5(64), GroupPlacement(ranks=8 * hosts, domains=hosts)
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
    """1 GiB over all GPUs of unchecked jobs, without the copies of the list interface, as Simple moves it."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for case in read_cases(shared / "data" / "cases" / "hf_nanotron_h100.yaml"):
        network = case.measured_network
        if case.hardware.gpus < 16 or not network or (network.all_reduce_intra_gbps or 0) < 440:
            continue
        for kind in SHARDED:
            rate, inside = getattr(network, f"{kind}_gbps"), getattr(network, f"{kind}_intra_gbps")
            host = GroupPlacement(ranks=8, domains=1)
            copies_s = REFERENCE_BYTES * payload_factor(kind, 8) / (inside * 1e9)
            copies_s -= collective_transfer(kind, REFERENCE_BYTES, host, p5(64)).solo_s
            whole_s = REFERENCE_BYTES * payload_factor(kind, case.hardware.gpus) / (rate * 1e9)
            times[kind, case.hardware.gpus].append(whole_s - copies_s)
    assert {gpus for _, gpus in times} == {16, 32, 64, 128, 256, 512}
    for (kind, gpus), found in times.items():
        placement = GroupPlacement(ranks=gpus, domains=gpus // 8)
        predicted_s, quicker_s = (
            collective_transfer(kind, REFERENCE_BYTES, placement, p5(gpus), nccl=nccl).solo_s
            for nccl in (PLAYBOOK, NcclSettings(proto="LL128"))
        )
        assert predicted_s == pytest.approx(median(found), rel=0.08), (kind, gpus)
        if gpus >= 128:  # over fewer hosts the bytes take about as long as the pace
            assert quicker_s < 0.8 * min(found), (kind, gpus)


def test_a_measurement_is_held_against_what_nccl_ran() -> None:
    """Links are as they should be where a job measured what its own protocol takes."""
    cluster, whole = p5(256), GroupPlacement(ranks=256, domains=32)
    alone = collective_transfer("all_gather", REFERENCE_BYTES, whole, cluster, nccl=PLAYBOOK)
    rate = REFERENCE_BYTES * payload_factor("all_gather", 256) / alone.solo_s
    own = MeasuredNetwork.model_validate({"all_gather_bytes_per_s": f"{rate!r} B/s"})
    found = collective_transfer("all_gather", 1e7, whole, cluster, own, nccl=PLAYBOOK)
    assert found.solo_s == pytest.approx(
        collective_transfer("all_gather", 1e7, whole, cluster, nccl=PLAYBOOK).solo_s
    )
    slow = collective_transfer("all_gather", 1e9, whole, cluster, own)
    assert slow.solo_s > 1.5 * collective_transfer("all_gather", 1e9, whole, cluster).solo_s


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
