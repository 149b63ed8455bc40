"""Pieces of a payload on the network: chunks that fill a tree, messages that their receivers fetch.

And what NCCL takes on hosts whose NICs hang on the CPU.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.calibration.readers.nccl_log import parse_log
from stepsim.calibration.validation.collectives import LARGE_BYTES, compare
from stepsim.cli.collective_logs import case_of, read_logs
from stepsim.hardware.cluster import Cluster
from stepsim.hardware.collectives import collective_constants
from stepsim.hardware.fabric import default_fabric
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import get_interconnect, interconnect_names
from stepsim.hardware.own_interconnect import OwnInterconnect, interconnect_from
from stepsim.sim.network.algorithms import logged_curves
from stepsim.sim.network.chunks import KIB, LARGEST_CHUNK_BYTES, NetworkMessages, TreeChunks
from stepsim.sim.network.collectives import collective_curve
from stepsim.sim.network.group_placement import GroupPlacement, placement_in_a_row
from stepsim.sim.network.nccl.choice import legal_choices
from stepsim.sim.network.nccl.constants import ARCHITECTURES, NcclProtocol
from stepsim.sim.network.nccl.paths import Communicator, communicator_on
from stepsim.sim.network.nccl.settings import NcclSettings
from stepsim.sim.network.nccl.versions import Version
from stepsim.sim.network.place import place_of

TREE = TreeChunks(
    channels=8, local_stages=12, network_stages=8, local_bytes_per_s=40e9, network_bytes_per_s=20e9
)
WAITS = NetworkMessages(
    parts=1, most_channels=8, least_bytes=4096, wire=2.0, eager_bytes=4097, rendezvous_s=5e-6
)
BYTES_PER_S = 40e9
FULL = TREE.channels * LARGEST_CHUNK_BYTES


def through_s(tree: TreeChunks, payload_bytes: float) -> float:
    return tree.through_s(payload_bytes, payload_bytes / BYTES_PER_S)


def gh200(nodes: int, network: str = "slingshot-200-x4", gpu: str = "GH200-96GB", local: int = 4) -> Cluster:
    interconnect = get_interconnect(network)
    return Cluster(
        gpu=get_gpu(gpu),
        gpus=local * nodes,
        gpus_per_node=local,
        interconnect=interconnect,
        fabric=default_fabric(interconnect),
    )


def communicator(cluster: Cluster, version: Version) -> Communicator:
    domains = cluster.gpus // cluster.nvlink_domain
    return communicator_on(cluster, ranks=cluster.gpus, domains=domains, version=version)


# Chunks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [KIB, 64 * KIB, LARGEST_CHUNK_BYTES])
def test_a_chunk_alone_passes_every_stage_at_its_own_rate(share: float) -> None:
    expected = 12 * share / 40e9 + 8 * share / 20e9
    assert through_s(TREE, 8 * share) == pytest.approx(expected)


def test_many_chunks_follow_one_another_at_the_busiest_links_pace() -> None:
    """And each stage between hosts takes what all that are under way need of a NIC."""
    interval_s = FULL / BYTES_PER_S
    filled_s = 12 * LARGEST_CHUNK_BYTES / 40e9 + 8 * interval_s
    for number in (10, 11, 1000):
        assert through_s(TREE, number * FULL) == pytest.approx(filled_s + (number - 1) * interval_s)


def test_two_chunks_share_a_nic() -> None:
    two_s = 2 * LARGEST_CHUNK_BYTES / 20e9
    expected = 12 * LARGEST_CHUNK_BYTES / 40e9 + 8 * two_s + FULL / BYTES_PER_S
    assert two_s < FULL / BYTES_PER_S
    assert through_s(TREE, 2 * FULL) == pytest.approx(expected)


@given(st.floats(1, 1e11), st.floats(1, 4), st.sampled_from([None, 1, 4, 10]))
def test_more_takes_longer_and_never_less_than_it_moves(
    payload: float, factor: float, depth: int | None
) -> None:
    tree = replace(TREE, depth=depth)
    assert through_s(tree, payload) >= payload / BYTES_PER_S * (1 - 1e-12)
    assert through_s(replace(tree, depth=None), payload * factor) >= through_s(
        replace(tree, depth=None), payload
    ) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("mib", "kib"), [(1, 32), (4, 64), (16, 64), (32, 128), (64, 128), (128, 256), (256, 512), (4096, 512)]
)
def test_chunks_grow_with_the_payload_before_2_22(mib: int, kib: int) -> None:
    """16 hosts of four: a depth of 4 - 1 + log2(16) = 7, by hand from NCCL's three loops."""
    assert replace(TREE, depth=7).chunk_bytes(mib * KIB * KIB) == kib * KIB


@pytest.mark.parametrize("gpu", ["A100-SXM4-80GB", "L40S", "H100-SXM5-80GB", "B200-SXM-180GB", "MI300X"])
def test_trees_of_every_architecture_that_nccl_knows_are_cut_in_chunks(gpu: str) -> None:
    """Ada is Ampere to NCCL's tables, which have no row for AMD's."""
    cluster = gh200(4, "ib-ndr400-x8", gpu, local=8)
    at = place_of(placement_in_a_row(32, cluster.nvlink_domain, 8), cluster, collective_constants())
    trees = {curve.protocol: curve for curve in logged_curves("tree", "all_reduce", at)}
    assert (trees["Simple"].chunks is not None) == (cluster.gpu.collectives_as in ARCHITECTURES)


# Messages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "fetched"),
    [(8, False), (2048, False), (2048.5, False), (2049, True), (4096, True), (65536, True)],
)
def test_what_is_larger_than_eager_waits(payload: float, fetched: bool) -> None:
    """LL sends twice the payload: 2 KiB of it are 4 KiB, the last that goes unasked."""
    assert (WAITS.asking_s(payload) > 0) == fetched


def test_channels_and_parts_make_messages_small_again() -> None:
    ring = replace(WAITS, parts=64, least_bytes=64 * 4096)
    assert ring.asking_s(64 * 2048) == 0.0
    assert ring.asking_s(8 * 64 * 4096) == 5e-6


def test_a_fetched_message_costs_each_hop_once() -> None:
    """A tree over 16 hosts passes the network eight times, up and down."""
    network = get_interconnect("slingshot-200-x4")
    cluster = gh200(16)
    eager = replace(cluster, interconnect=replace(network, rendezvous_s=0.0))
    group = GroupPlacement(ranks=64, domains=16)
    for payload, hops in ((2048.0, 0), (4096.0, 8)):
        here, there = (collective_curve("all_reduce", payload, group, one) for one in (cluster, eager))
        assert (here.algorithm, here.protocol) == ("tree", "LL")
        # Waiting also makes the pipeline longer that the payload has to fill: a little more than the waits.
        waited_s = here.solo_s(payload) - there.solo_s(payload)
        assert hops * network.rendezvous_s <= waited_s <= hops * network.rendezvous_s * 1.05


def test_only_slingshot_has_its_receivers_fetch() -> None:
    kinds = {
        get_interconnect(name).kind for name in interconnect_names() if get_interconnect(name).rendezvous_s
    }
    assert kinds == {"slingshot"}


def test_a_described_network_may_fetch_too() -> None:
    own = OwnInterconnect.model_validate(
        {"rate": "200 Gb/s", "nics_per_node": 4, "eager": "4 KiB", "rendezvous": "9 us"}
    )
    network = interconnect_from(own)
    assert (network.eager_bytes, network.rendezvous_s) == (4096.0, 9e-6)
    slingshot = OwnInterconnect.model_validate({"extends": "slingshot-200-x4", "rendezvous": "9 us"})
    assert interconnect_from(slingshot).eager_bytes == 4097.0
    assert {"eager"} == {one.field for one in interconnect_from(slingshot).carried} & {"eager", "rendezvous"}
    with pytest.raises(ValueError, match="eager"):
        OwnInterconnect.model_validate({"rate": "200 Gb/s", "nics_per_node": 4, "rendezvous": "9 us"})


# NICs on the CPU ------------------------------------------------------------------------------------


def test_ll128_is_off_through_the_cpu_until_nccl_knows_c2c() -> None:
    old, new = (communicator(gh200(2), version) for version in ((2, 26), (2, 27)))
    assert (old.ll128, new.ll128) == (False, True)
    assert (old.ring.inter_bytes_per_s, new.ring.inter_bytes_per_s) == (12e9, 24e9)
    protocols = {choice.protocol for choice in legal_choices("all_reduce", 1e6, old)}
    assert protocols == {NcclProtocol.LL, NcclProtocol.SIMPLE}


def test_others_have_ll128_whatever_the_version() -> None:
    hosts = gh200(2, "ib-ndr400-x8", "H100-SXM5-80GB", 8)
    assert communicator(hosts, (2, 20)).ll128
    alone = communicator_on(gh200(2), ranks=4, domains=1, version=(2, 20))
    assert alone.ll128


# Logs -----------------------------------------------------------------------------------------------


def test_the_line_on_a_logs_source_may_name_nccls_version() -> None:
    head = ["## gpu: GH200-96GB", "## nodes: 2", "## gpus_per_node: 4", "## fabric: Slingshot-11, 200 Gb/s"]
    rows = [
        "## collective: all_reduce",
        "## ranks: 8",
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        "1048576 262144 float sum -1 100.0 10.49 18.35 0 100.0 10.49 18.35 0",
    ]
    named = parse_log([*head, "## source: tests, nccl 2.23.4, plugin 1.13.0", *rows], "x")
    stated = parse_log([*head, "## source: nccl 2.23.4", "## nccl: 2.28.9", *rows], "x")
    neither = parse_log([*head, "## source: github.com/NVIDIA/nccl-tests/issues/309", *rows], "x")
    assert (named.nccl, stated.nccl, neither.nccl) == ("2.23.4", "2.28.9", None)
    assert case_of(named).nccl == NcclSettings(version=(2, 23))


def test_slingshot_is_answered_without_its_logs(shared: Path) -> None:
    """No constant is fitted on them: what NCCL and libfabric state, and one published wait of two hosts."""
    files = sorted((shared / "data" / "second" / "nccl_logs").glob("alps_gh200_*_allreduce_slingshot.txt"))
    cases = read_logs(files).cases
    assert len(cases) == 3
    for case in cases:
        errors = [abs(row.error) for row in compare([case]) if row.bytes >= LARGE_BYTES]
        assert median(errors) < 0.20
