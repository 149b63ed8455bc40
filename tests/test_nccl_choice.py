"""NCCL's choice of algorithm and protocol: its channels, its own time model, the quickest of what is legal.

Numbers are those of the project's table of hardware facts (section 3), read in NCCL 2.28.9 and checked
there against measured plateaus; the measured logs say which algorithm must have run.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.hardware.cluster import Cluster
from stepsim.hardware.fabric import default_fabric
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.hardware.interconnect import get_interconnect
from stepsim.hardware.node import node_for
from stepsim.schedules import collectives
from stepsim.schedules.transfers.collective import Collective
from stepsim.schedules.transfers.group import Group
from stepsim.sim.network.nccl.choice import allowed, choose, table
from stepsim.sim.network.nccl.constants import ARCHITECTURES, NcclAlgorithm, NcclProtocol
from stepsim.sim.network.nccl.model import (
    TUNED,
    bus_gb_per_s,
    bytes_per_s,
    combinations,
    latency_us,
    seconds,
)
from stepsim.sim.network.nccl.paths import Communicator, Paths, communicator_on, ring_within_a_node

AR, AG = Collective.ALL_REDUCE, Collective.ALL_GATHER
A, P = NcclAlgorithm, NcclProtocol
GIB = 1 << 30

A100, H100, H800, B200 = "A100-SXM4-80GB", "H100-SXM5-80GB", "H800-SXM5-80GB", "B200-SXM-180GB"
HDR, NDR = "ib-hdr200-x8", "ib-ndr400-x8"


def on(
    gpu: str, nodes: int, network: str = "", local: int = 8, *, cpu: str = "intel", sharp: bool = False
) -> Communicator:
    interconnect = get_interconnect(network or (HDR if gpu == A100 else NDR))
    cluster = Cluster(
        gpu=get_gpu(gpu),
        gpus=8 * max(nodes, 2),
        gpus_per_node=8,
        interconnect=interconnect,
        fabric=default_fabric(interconnect),
    )
    return communicator_on(cluster, ranks=local * nodes, domains=nodes, cpu=cpu, sharp=sharp)


def on_racks(gpu: str, domains: int) -> Cluster:
    """So many full NVLink domains, and one host more."""
    interconnect = get_interconnect(NDR)
    found = Cluster(
        gpu=get_gpu(gpu),
        gpus=node_for(get_gpu(gpu)).max_gpus,
        gpus_per_node=node_for(get_gpu(gpu)).max_gpus,
        interconnect=interconnect,
        fabric=default_fabric(interconnect),
    )
    return replace(found, gpus=found.gpus_per_node + domains * max(found.nvlink_domain, found.gpus_per_node))


# Channels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "nodes", "channels", "gb_per_s", "of_the_communicator"),
    [
        (A100, 1, 12, 20, 24),
        (H100, 1, 12, 30, 24),
        (H800, 1, 8, 20, 16),
        (B200, 1, 16, 45, 32),
        (A100, 2, 8, 24, 16),
        (H100, 2, 8, 48, 16),
        (B200, 4, 8, 48, 16),
    ],
)
def test_the_channels_of_known_systems(
    gpu: str, nodes: int, channels: int, gb_per_s: float, of_the_communicator: int
) -> None:
    """Section 3.2: ring C x bw, and the communicator's channels as logs print them."""
    comm = on(gpu, nodes)
    assert comm.ring.channels == channels
    assert comm.ring.intra_bytes_per_s == pytest.approx(gb_per_s * 1e9)
    assert comm.channels == of_the_communicator


def test_the_search_gives_up_far_below_the_best_rate_so_far() -> None:
    """54 GB/s bear 3 channels of 18, but 40 comes first and 18 is less than 0.49 of it: 1 x 40, doubled."""
    paths = ring_within_a_node(ARCHITECTURES["ampere"], 54e9)
    assert paths == Paths(channels=2, intra_bytes_per_s=20e9, inter_bytes_per_s=20e9)


@pytest.mark.parametrize(("gpu", "gb_per_s"), [(H100, 40), (B200, 80)])
def test_nvls_has_a_head_for_each_gpu(gpu: str, gb_per_s: float) -> None:
    paths = on(gpu, 1).nvls
    assert paths == Paths(channels=8, intra_bytes_per_s=gb_per_s * 1e9, inter_bytes_per_s=0.0)


def test_nvls_needs_three_gpus_and_switches_that_multicast() -> None:
    assert on(H100, 1, local=2).nvls is None
    assert on(H100, 1, local=3).nvls is not None
    assert on(A100, 1).nvls is None


def test_nvls_carries_what_its_algorithm_says() -> None:
    """Heads + 1 of them, (n+1)/n payloads: the search and the transfers count the same link."""
    for gpu in (H100, B200):
        paths = on(gpu, 1).nvls
        assert paths is not None
        payload = paths.channels * paths.intra_bytes_per_s
        carried = collectives.get("nvls").plan("all_reduce", Group(local=8)).traffic(0).sent
        assert payload * carried <= get_gpu(gpu).nccl_nvlink_bytes_per_s < payload * carried * 1.1


@pytest.mark.parametrize("gpu", [name for name in gpu_names() if get_gpu(name).architecture != "cdna3"])
@pytest.mark.parametrize("domains", [1, 2])
def test_every_gpu_of_the_catalogue_has_channels(gpu: str, domains: int) -> None:
    """Also pairs of cards, whose hosts NVLink does not join, and racks of 72."""
    local = max(2, on_racks(gpu, 1).nvlink_domain)
    comm = communicator_on(on_racks(gpu, domains), ranks=local * domains, domains=domains)
    assert 0 < comm.channels <= 32
    for kind in TUNED:
        assert 0 < choose(kind, GIB, comm).predicted_s < 1


# Bandwidths and latencies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "nodes", "algorithm", "bus"),
    [
        (A100, 1, A.RING, 240),
        (A100, 2, A.RING, 192),
        (H100, 1, A.RING, 360),
        (H100, 2, A.RING, 384),
        (H800, 1, A.RING, 160),
        (B200, 1, A.RING, 720),
        (H100, 1, A.NVLS, 476),
        (B200, 1, A.NVLS, 829),
        (H100, 2, A.NVLS_TREE, 462),
        (H100, 4, A.NVLS_TREE, 364),
        (B200, 2, A.NVLS_TREE, 768),
    ],
)
def test_the_bus_bandwidths_of_known_systems(gpu: str, nodes: int, algorithm: A, bus: float) -> None:
    """Section 3.2, columns "ring C x bw (bus)" and "NVLS"."""
    comm = on(gpu, nodes)
    assert bus_gb_per_s(algorithm, P.SIMPLE, AR, comm) == pytest.approx(bus, rel=2e-3)
    factor = 2 * (comm.ranks - 1) / comm.ranks
    assert bytes_per_s(algorithm, P.SIMPLE, AR, comm) * factor == pytest.approx(bus * 1e9, rel=2e-3)


@pytest.mark.parametrize(
    ("comm", "algorithm", "protocol", "kind", "microseconds"),
    [
        (on(H100, 1), A.RING, P.SIMPLE, AR, 8.4 + 14 * 3.4),
        (on(H100, 1), A.RING, P.LL128, AG, 14.0 + 7 * 1.9),
        (on(H100, 4), A.RING, P.SIMPLE, AR, 8.4 + 56 * 3.4 + 6 * 14.0),
        (on(H100, 4), A.RING, P.LL, AG, 6.6 + 28 * 1.0 + 3 * 2.7),
        (on(H100, 4, cpu="amd"), A.RING, P.LL, AG, 6.6 + 28 * 2.0 + 3 * 2.7),
        (on(H100, 4, cpu="amd"), A.RING, P.SIMPLE, AG, 8.4 + 28 * 6.0 + 3 * 14.0),
        (on(H100, 4), A.TREE, P.LL, AR, 6.8 + 2 * (7 * 0.6 + 2 * 5.0)),
        (on(H100, 1), A.NVLS, P.SIMPLE, AR, 25.0),
        (on(H100, 4), A.NVLS_TREE, P.SIMPLE, AR, 25.0 + 4 * 20.9),
        (on(H100, 4, sharp=True), A.NVLS, P.SIMPLE, AR, 25.0 + 18.0),
        (on(H100, 4, sharp=True), A.COLLNET_DIRECT, P.SIMPLE, AR, 2 * (3.7 + 7 * 0.4) + 31.0),
        (on(H100, 4, sharp=True), A.COLLNET_CHAIN, P.SIMPLE, AR, 14 * 2.8 + 30.0),
        (on(H100, 4, local=1), A.PAT, P.SIMPLE, AG, 8.0 + 2 * 14.0 / 3.5 + 2.8 * 4),
        (on(H100, 4, local=1), A.RING, P.LL, AG, 6.6 + 3 * 5.0),
        (on(H100, 1), A.RING, P.LL, Collective.BROADCAST, 6.6 + 0.6),
        (on(H100, 2), A.RING, P.SIMPLE, Collective.REDUCE, 8.4 + 14.0),
        (replace(on(H100, 2), same_channels=False), A.RING, P.SIMPLE, Collective.REDUCE, 8.4 + 16 * 14.0),
        (replace(on(H100, 1), nvlink=False), A.TREE, P.LL128, AR, 14.0 + 14 * 1.9),
        (replace(on(H100, 2), network_latency_s=3e-6), A.TREE, P.SIMPLE, AR, 8.4 + 2 * (28.0 + 14.0 + 6.0)),
    ],
)
def test_latencies_by_hand(
    comm: Communicator, algorithm: A, protocol: P, kind: Collective, microseconds: float
) -> None:
    """Section 3.1, "Latency (us) = base + terms"."""
    assert latency_us(algorithm, protocol, kind, comm) == pytest.approx(microseconds)


@pytest.mark.parametrize(
    ("comm", "algorithm", "protocol", "kind", "bus"),
    [
        (on(H100, 1), A.RING, P.LL, AR, 141.0),
        (on(H100, 2), A.RING, P.LL, AR, 39.0),
        (on(H100, 3, cpu="amd"), A.RING, P.LL, AR, 19.0),
        (on(H100, 1), A.RING, P.LL128, AG, 0.92 * 360),
        (on(H100, 2), A.RING, P.LL128, AG, 8 * 36.7),
        (on(H100, 2), A.TREE, P.SIMPLE, AR, 8 * 41.4),
        (on(A100, 3), A.TREE, P.SIMPLE, AR, 8 * 17.8),
        (on(A100, 1), A.TREE, P.LL128, AR, 0.92 * 240 * 7 / 9),
        (on(A100, 1), A.TREE, P.LL, AR, 0.92 * 240 / 3.8),
        (on(B200, 3), A.TREE, P.LL128, AR, 8 * 20.0),
        (on(H100, 1), A.NVLS, P.SIMPLE, AG, 320 * 0.85 * 7 / 8 * 7 / 8),
        (on(H100, 4, sharp=True), A.COLLNET_DIRECT, P.SIMPLE, AR, 384 * 0.85),
        (on(H100, 4, sharp=True), A.COLLNET_DIRECT, P.SIMPLE, AG, 8 * 0.9 * 48),
        (on(H100, 4, local=1), A.PAT, P.SIMPLE, AG, 0.75 * 48),
        (on(H100, 4, local=1), A.TREE, P.SIMPLE, AR, 0.85 * 0.92 * 48),
    ],
)
def test_bandwidths_by_hand(
    comm: Communicator, algorithm: A, protocol: P, kind: Collective, bus: float
) -> None:
    """Section 3.1, "Bandwidth (v2.28.9)" and the table of constants."""
    assert bus_gb_per_s(algorithm, protocol, kind, comm) == pytest.approx(bus, rel=1e-3)


def test_the_rate_between_nodes_counts_from_three_nodes_on() -> None:
    uneven = Paths(channels=4, intra_bytes_per_s=40e9, inter_bytes_per_s=20e9)
    two, three = (replace(on(H100, nodes, sharp=True), ring=uneven) for nodes in (2, 3))
    assert bus_gb_per_s(A.RING, P.SIMPLE, AR, two) == 160
    assert bus_gb_per_s(A.RING, P.SIMPLE, AR, three) == 80
    # CollNet: always the rate within; and with two GPUs to a NIC 1.5 times the bytes.
    assert bus_gb_per_s(A.COLLNET_CHAIN, P.SIMPLE, AR, three) == 160
    assert bus_gb_per_s(A.COLLNET_DIRECT, P.SIMPLE, AR, three) == pytest.approx(160 / 1.5 * 0.85)


def test_corrections_by_size() -> None:
    """A tree at 1 MB has half of its bandwidth (2^14 times 64 B); a ring between nodes more latency."""
    one, many = on(H100, 1), on(H100, 2)
    rate = bytes_per_s(A.TREE, P.SIMPLE, AR, one)
    at_a_megabyte = seconds(A.TREE, P.SIMPLE, AR, 1 << 20, one)
    assert at_a_megabyte == pytest.approx(64.4e-6 + (1 << 20) / (0.5 * rate))
    assert seconds(A.TREE, P.SIMPLE, AR, 1 << 29, one) == pytest.approx(64.4e-6 + (1 << 29) / rate)
    assert seconds(A.TREE, P.SIMPLE, AR, 63, one) == pytest.approx(64.4e-6 + 63 / rate, rel=1e-9)
    ring = bytes_per_s(A.RING, P.SIMPLE, AR, many)
    assert seconds(A.RING, P.SIMPLE, AR, 64 * 256, many) == pytest.approx(1.4 * 131.6e-6 + 64 * 256 / ring)
    assert seconds(A.RING, P.SIMPLE, AR, 64 * 255, many) == pytest.approx(131.6e-6 + 64 * 255 / ring)


# What is legal --------------------------------------------------------------------------------------


def legal(kind: str, comm: Communicator) -> set[str]:
    return {algorithm.value for algorithm, _ in combinations(Collective(kind), comm)}


@pytest.mark.parametrize(
    ("kind", "comm", "expected"),
    [
        ("all_reduce", on(A100, 1), {"Ring", "Tree"}),
        ("all_reduce", on(H100, 1), {"Ring", "Tree", "NVLS"}),
        ("all_reduce", on(H100, 2), {"Ring", "Tree", "NVLSTree"}),
        (
            "all_reduce",
            on(H100, 2, sharp=True),
            {"Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain"},
        ),
        ("all_gather", on(H100, 1), {"Ring", "NVLS"}),
        ("all_gather", on(H100, 2), {"Ring"}),
        ("reduce_scatter", on(H100, 2, sharp=True), {"Ring", "NVLS", "CollNetDirect"}),
        ("reduce_scatter", on(H100, 2, "ib-ndr400-x4", sharp=True), {"Ring"}),
        ("all_gather", on(H100, 2, local=1), {"Ring", "PAT"}),
        ("broadcast", on(H100, 2, sharp=True), {"Ring"}),
        ("reduce", on(H100, 1), {"Ring"}),
    ],
)
def test_enabled_sets(kind: str, comm: Communicator, expected: set[str]) -> None:
    """Section 3.1, "Enabled sets"."""
    assert legal(kind, comm) == expected


def test_only_ring_and_tree_have_the_low_latency_protocols() -> None:
    comm = on(H100, 2, sharp=True)
    for algorithm, protocol in combinations(AR, comm):
        assert protocol is P.SIMPLE or algorithm in (A.RING, A.TREE)
    for without in (replace(comm, ll128=False), replace(comm, nvlink=False)):
        assert P.LL128 not in {protocol for _, protocol in combinations(AR, without)}


# The choice -----------------------------------------------------------------------------------------

kinds = st.sampled_from(TUNED)
sizes = st.integers(1, 1 << 36)
comms = st.builds(
    on,
    st.sampled_from([A100, H100, H800, B200]),
    st.integers(2, 64),
    local=st.sampled_from([1, 2, 4, 8]),
    cpu=st.sampled_from(["intel", "amd", "other"]),
    sharp=st.booleans(),
)


@given(kinds, sizes, comms)
def test_the_choice_is_the_quickest_of_what_is_legal(kind: Collective, size: int, comm: Communicator) -> None:
    chosen = choose(kind, size, comm)
    times = {pair: seconds(*pair, kind, size, comm) for pair in combinations(kind, comm)}
    assert chosen.predicted_s == min(times.values()) == times[chosen.algorithm, chosen.protocol]
    assert 0 < chosen.predicted_s < math.inf
    assert 1 <= chosen.channels <= comm.channels or chosen.algorithm in (A.NVLS, A.NVLS_TREE)


@given(kinds, sizes, comms, st.sampled_from(["Ring", "^Tree", "ring,tree", "^NVLSTree,NVLS"]))
def test_asking_for_less_is_never_quicker(kind: Collective, size: int, comm: Communicator, algo: str) -> None:
    assert choose(kind, size, comm, nccl_algo=algo).predicted_s >= choose(kind, size, comm).predicted_s


@given(kinds, sizes, comms)
def test_every_choice_has_an_algorithm_that_runs_there(
    kind: Collective, size: int, comm: Communicator
) -> None:
    """What a simulator needs to join them: the transfers of the chosen algorithm on that group."""
    group = Group(local=comm.local, nodes=comm.nodes)
    for each in table(kind, size, comm):
        assert collectives.get(each.algorithm.schedule).plan(kind, group).steps > 0


@pytest.mark.parametrize(
    ("comm", "algorithm", "protocol"),
    [
        (on(A100, 1), A.RING, P.SIMPLE),
        (on(H100, 1), A.NVLS, P.SIMPLE),
        (on(H100, 2), A.NVLS_TREE, P.SIMPLE),
        (on(H100, 16), A.RING, P.SIMPLE),
    ],
)
def test_small_all_reduces_take_ll_and_large_ones_simple(
    comm: Communicator, algorithm: A, protocol: P
) -> None:
    small, large = choose("all_reduce", 8, comm), choose("all_reduce", 8 * GIB, comm)
    assert small.protocol is P.LL
    assert small.algorithm is (A.TREE if comm.nodes > 1 else A.RING)
    assert (large.algorithm, large.protocol) == (algorithm, protocol)


def test_pat_is_for_few_bytes_on_many_nodes_of_one_gpu() -> None:
    comm = on(H100, 64, local=1)
    assert choose("all_gather", 1024, comm).algorithm is A.PAT
    assert choose("all_gather", GIB, comm).algorithm is A.RING


def test_small_messages_get_fewer_channels() -> None:
    """Section 3.2: while bytes < channels · threads · threshold; LL rings by rank."""
    comm = on(H100, 1)
    by_size = {size: choose("all_gather", size, comm, nccl_proto="LL").channels for size in (8, 1 << 16, GIB)}
    assert by_size == {8: 1, 1 << 16: 2, GIB: 24}
    assert choose("all_reduce", GIB, comm).channels == 16
    assert choose("all_reduce", 1 << 18, comm, nccl_algo="Ring", nccl_proto="Simple").channels == 8


# NCCL_ALGO and NCCL_PROTO ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {"LL", "LL128", "Simple"}),
        ("simple", {"Simple"}),
        ("LL,ll128", {"LL", "LL128"}),
        ("^LL128", {"LL", "Simple"}),
        ("allreduce:LL;broadcast:Simple", {"LL"}),
        ("broadcast:Simple", {"LL", "LL128", "Simple"}),
        ("LL;allreduce:^LL", {"LL128", "Simple"}),
    ],
)
def test_the_lists_of_nccl(value: str | None, expected: set[str]) -> None:
    assert allowed("NCCL_PROTO", value, AR, NcclProtocol) == expected


def test_overrides_are_obeyed() -> None:
    comm = on(H100, 2)
    assert choose("all_reduce", GIB, comm, nccl_algo="Ring").algorithm is A.RING
    assert choose("all_reduce", 8, comm, nccl_proto="Simple").protocol is P.SIMPLE
    assert {each.algorithm for each in table("all_reduce", 8, comm, nccl_algo="^Ring,Tree")} == {A.NVLS_TREE}


@pytest.mark.parametrize(
    ("kind", "variables", "what"),
    [
        ("all_to_all", {}, "NCCL chooses no algorithm for 'all_to_all'; it does for all_reduce"),
        ("all_reduce", {"nccl_algo": "Rnig"}, r"NCCL_ALGO names 'Rnig'\. Did you mean Ring\? Known: Tree"),
        ("all_reduce", {"nccl_proto": "LL64"}, "NCCL_PROTO names 'LL64'"),
        ("all_reduce", {"nccl_algo": "allreduc:Ring"}, "NCCL_ALGO names 'allreduc'. Did you mean allreduce"),
        ("all_gather", {"nccl_algo": "Tree"}, "leave nothing for all_gather on 16 ranks .* can run Ring/LL,"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, variables: dict[str, str], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        choose(kind, GIB, on(H100, 2), **variables)


def test_other_machines_are_refused() -> None:
    with pytest.raises(ValueError, match="no rows for 'cdna3'; it has ampere, hopper, blackwell"):
        on("MI300X", 1)
    with pytest.raises(ValueError, match="10 ranks over 4 nodes: use at least 2, as many on every node"):
        replace(on(H100, 1), ranks=10, nodes=4)


# Measured logs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of a log, and the communicator that it was measured on."""

    log: str
    kind: str
    size: int
    time_s: float
    bus_gb_per_s: float
    comm: Communicator
    nccl_algo: str | None


LOGS = {
    "oci_a100_1n8g_allreduce": on(A100, 1),
    "azure_ndv4_a100_2n16g_allreduce_hdr": on(A100, 2),
    "dgxc_h100_1n8g_allreduce": on(H100, 1),
    "h100_ib_2n16g_allreduce_issue309": on(H100, 2),
    "h100_ib_2n16g_allreduce_ring_issue309": on(H100, 2),
    "h100_ib_4n32g_allreduce_issue309": on(H100, 4),
    "h100_ib_8n64g_allreduce_issue309": on(H100, 8),
    "h100_ib_8n64g_allreduce_mincta24_issue309": on(H100, 8),
    "nebius_2n16g_allreduce_dstack": on(H100, 2),
    "nebius_h200_2n16g_allreduce": on("H200-SXM-141GB", 2),
    "lambda_b200_2n16g_allreduce_dstack": on(B200, 2),
    "vultr_b200_1n8g_allgather": on(B200, 1),
    "vultr_b200_1n8g_allreduce": on(B200, 1),
    "vultr_b200_1n8g_reducescatter": on(B200, 1),
    "vultr_b200_2n16g_allgather": on(B200, 2),
    "vultr_b200_2n16g_allreduce": on(B200, 2),
}


def rows(shared: Path) -> Iterator[Row]:
    with (shared / "data" / "nccl_logs.csv").open() as file:
        for row in csv.DictReader(file):
            if row["log"] in LOGS:
                yield Row(
                    log=row["log"],
                    kind=row["collective"],
                    size=int(row["size_B"]),
                    time_s=float(row["time_us"]) * 1e-6,
                    bus_gb_per_s=float(row["busbw_GBps"]),
                    comm=LOGS[row["log"]],
                    nccl_algo="Ring" if "_ring_" in row["log"] else None,
                )


def test_nothing_but_switches_that_reduce_explains_more_than_a_ring_can(shared: Path) -> None:
    """Where a log's bus bandwidth is above the ring's, NCCL must have taken NVLS or NVLSTree there."""
    seen = set()
    for row in rows(shared):
        ring = bus_gb_per_s(A.RING, P.SIMPLE, Collective(row.kind), row.comm)
        if row.bus_gb_per_s > 1.03 * ring:
            assert choose(row.kind, row.size, row.comm).algorithm in (A.NVLS, A.NVLS_TREE), row
            seen.add(row.log)
    assert len(seen) == 7


def test_rings_are_chosen_where_only_rings_fit_the_plateau(shared: Path) -> None:
    """A100 has no switch that reduces; all_gather and reduce_scatter reach the ring's plateau and no more."""
    for row in rows(shared):
        ring_only = row.kind != "all_reduce" or row.comm.architecture == "ampere"
        if ring_only and row.size >= GIB:
            chosen = choose(row.kind, row.size, row.comm)
            assert (chosen.algorithm, chosen.protocol) == (A.RING, P.SIMPLE)


BANDS = [  # from, below, lowest and highest geometric mean of predicted over measured: section 3.5
    (GIB, 1 << 60, 0.79, 1.055),
    (1 << 26, GIB, 0.60, 1.10),
    (1 << 20, 1 << 26, 0.49, 0.84),
    (1 << 15, 1 << 20, 0.45, 0.97),
    (1, 1 << 15, 0.42, 0.94),
]


@pytest.mark.parametrize(("low", "high", "least", "most"), BANDS)
def test_nccls_model_is_as_good_as_it_is_known_to_be(
    shared: Path, low: int, high: int, least: float, most: float
) -> None:
    """Section 3.5: about right for the largest sizes, optimistic by up to 2 below 64 MB."""
    ratios: dict[str, list[float]] = {}
    for row in rows(shared):
        if low <= row.size < high:
            predicted_s = choose(row.kind, row.size, row.comm, nccl_algo=row.nccl_algo).predicted_s
            ratios.setdefault(row.log, []).append(math.log(predicted_s / row.time_s))
    assert len(ratios) >= 12
    for log, logs in ratios.items():
        assert least <= math.exp(sum(logs) / len(logs)) <= most, log


def test_rings_by_force_cost_what_the_log_of_rings_says(shared: Path) -> None:
    """NCCL_ALGO=Ring on 2 x 8 H100 against the same hosts left to choose.

    Logs of github.com/NVIDIA/nccl-tests/issues/309.
    """
    by_log: dict[str, list[Row]] = {}
    for row in rows(shared):
        if row.log.startswith("h100_ib_2n16g") and row.size >= GIB:
            by_log.setdefault(row.log, []).append(row)
    free, forced = by_log["h100_ib_2n16g_allreduce_issue309"], by_log["h100_ib_2n16g_allreduce_ring_issue309"]
    comm = on(H100, 2)
    for one, other in zip(free, forced, strict=False):
        assert one.size == other.size
        gain = other.time_s / one.time_s
        predicted = [
            choose("all_reduce", one.size, comm, nccl_algo=algo).predicted_s for algo in ("Ring", None)
        ]
        assert predicted[0] / predicted[1] == pytest.approx(gain, rel=0.06)
