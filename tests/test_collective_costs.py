"""Costs of every collective algorithm: weights and steps of its own plan, NCCL's choice by version, refusals.

What the plans deliver is proven in ``test_collective_algorithms``; here the closed forms that price them are
held against the same plans, and the costs against the closed forms.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_communicators import choose
from small_clusters import cluster

from stepsim import load_scenario, simulate
from stepsim.cli.collective_logs import read_logs
from stepsim.hardware.cluster import Cluster
from stepsim.hardware.collectives import collective_constants
from stepsim.hardware.fabric import default_fabric
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import get_interconnect
from stepsim.schedules import collectives as schedules
from stepsim.schedules.transfers.collective import CollectiveKind
from stepsim.schedules.transfers.group import RankGroup
from stepsim.schedules.transfers.loads import counted, steps_between_nodes
from stepsim.sim.network.collectives import collective_curve, collective_transfer, placement_in_a_row
from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.network.nccl.cost_model import bytes_per_s, combinations
from stepsim.sim.network.nccl.paths import communicator_on
from stepsim.sim.network.nccl.settings import NcclSettings
from stepsim.sim.network.nccl.versions import parse_version
from stepsim.sim.network.place import Place, place_of
from stepsim.sim.network.selection import NAMES, known_names, named, selected_curves
from stepsim.sim.scenario.models import Scenario

GIB = float(1 << 30)
SYSTEMS = {
    "A100-SXM4-80GB": "ib-hdr200-x8",
    "H100-SXM5-80GB": "ib-ndr400-x8",
    "H200-SXM-141GB": "efa-3200",
    "B200-SXM-180GB": "roce-400-x8",
}
KINDS = {"send_recv": "sendrecv"}
"""Names of nccl-tests for what schedules call otherwise."""

SIDES = (1, 2, 3, 4, 5, 8)
GROUPS = [(local, nodes) for local in SIDES for nodes in SIDES if local * nodes > 1]
PRICED = [(name, kind) for name in schedules.names() for kind in schedules.get(name).collectives]


def cluster_of(gpu: str = "H100-SXM5-80GB", nodes: int = 64, network: str = "") -> Cluster:
    interconnect = get_interconnect(network or SYSTEMS[gpu])
    return Cluster(
        gpu=get_gpu(gpu),
        gpus=8 * nodes,
        gpus_per_node=8,
        interconnect=interconnect,
        fabric=default_fabric(interconnect),
    )


def place(local: int, nodes: int, cluster: Cluster | None = None) -> Place:
    placement = GroupPlacement(ranks=local * nodes, domains=nodes)
    return place_of(placement, cluster or cluster_of(), collective_constants())


# Loads are what the plans move ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), PRICED)
def test_loads_are_the_steps_and_bytes_of_the_plan(name: str, kind: CollectiveKind) -> None:
    """On groups of up to 8 nodes of up to 8 ranks; rings share what leaves a node among its NICs."""
    algorithm = schedules.get(name)
    seen = 0
    for local, nodes in GROUPS:
        group = RankGroup(local=local, nodes=nodes)
        try:
            plan = algorithm.plan(kind, group)
        except ValueError:
            with pytest.raises(ValueError, match="at least"):
                algorithm.loads(kind, group)
            continue
        seen += 1
        loads, moved = algorithm.loads(kind, group), counted(plan, steps_between_nodes(plan))
        assert (loads.steps, loads.local) == (moved.steps, moved.local)
        if name == "ring":
            edges = [[plan.traffic(rank, "network") for rank in group.members(n)] for n in range(nodes)]
            most = max(max(sum(t.sent for t in e), sum(t.received for t in e)) for e in edges)
            assert loads.network == Fraction(most) / local
            rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
            assert loads.network_steps == rounds * (nodes - 1)
        else:
            assert (loads.network, loads.network_steps) == (moved.network, moved.network_steps)
    assert seen > 6


@pytest.mark.parametrize(("name", "kind"), PRICED)
@settings(max_examples=12)
@given(gpu=st.sampled_from(sorted(SYSTEMS)), local=st.integers(1, 8), nodes=st.integers(1, 8))
def test_the_weights_of_a_cost_are_the_bytes_of_its_plan(
    name: str, kind: CollectiveKind, gpu: str, local: int, nodes: int
) -> None:
    """Of every registered algorithm that is not refused; pairs pass NVLink on their way out too."""
    if local * nodes == 1:
        return
    cluster, placement = cluster_of(gpu), GroupPlacement(ranks=local * nodes, domains=nodes)
    try:
        curve = collective_curve(KINDS.get(kind, kind), GIB, placement, cluster, algorithm=name)
    except ValueError:
        return
    group = RankGroup(local=local, nodes=nodes)
    plan = schedules.get(name).plan(kind, group)
    local_most, most = plan.busiest("local"), plan.busiest("network")
    inside, outside = max(local_most.sent, local_most.received), max(most.sent, most.received)
    if name == "ring":
        outside = schedules.get("ring").loads(kind, group).network
    if name == "pairwise" and local > 1:
        inside += outside
    if name == "send-recv":
        assert (curve.nvlink, curve.nic) == ((0.0, 1.0) if nodes > 1 else (1.0, 0.0))
        return
    assert curve.nvlink == pytest.approx(float(inside) if local > 1 else 0.0)
    assert curve.nic == pytest.approx(float(outside))
    assert curve.steps == plan.steps
    # No quicker than the links that it says it uses.
    rate = GIB / curve.solo_s(GIB)
    assert rate * curve.nvlink <= cluster.gpu.nvlink_bytes_per_s
    assert rate * curve.nic <= cluster.interconnect.link_bytes_per_s * cluster.interconnect.links_per_host / 8


def test_every_registered_algorithm_has_a_price() -> None:
    assert {named(name) for name in schedules.names() if name != "send-recv"} | {"pairs"} == set(
        known_names()
    )


@pytest.mark.parametrize(
    ("algorithm", "kind", "local", "nodes", "cluster", "says"),
    [
        ("nvls", "all_reduce", 8, 1, cluster_of("A100-SXM4-80GB"), "A100-SXM4-80GB has none"),
        ("nvls", "all_reduce", 8, 2, cluster_of("H200-SXM-141GB"), r"\(SHARP\).* efa-3200 is efa"),
        ("sharp", "all_reduce", 8, 2, cluster_of("B200-SXM-180GB"), "HDR.*roce-400"),
        ("sharp", "all_reduce", 8, 1, cluster_of(), "2 nodes"),
        ("sharp", "all_gather", 8, 2, cluster_of(network="ib-ndr400-x4"), "NCCL .*collnet-direct"),
        ("pat", "all_gather", 8, 2, cluster_of(), "NCCL .*pat .*all_gather .*8 ranks"),
        ("pat", "all_reduce", 1, 4, cluster_of(), "pat .*'all_reduce'; .*all_gather"),
        ("tree", "all_gather", 8, 2, cluster_of(), "tree .*ring .*LL,"),
        ("halving", "all_reduce", 8, 2, cluster_of(), "mean halving-doubling"),
    ],
)
def test_what_the_hardware_cannot_run_is_refused(
    algorithm: str, kind: str, local: int, nodes: int, cluster: Cluster, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        selected_curves(kind, [GIB], place(local, nodes, cluster), algorithm=algorithm)


@pytest.mark.parametrize("name", ["sharp", "SHARP", "CollNetDirect", "collnet_direct", "collnet-direct"])
def test_names_are_those_of_nccl_too(name: str) -> None:
    (curve,) = selected_curves("all_reduce", [GIB], place(8, 4), algorithm=name)
    assert (curve.algorithm, curve.protocol) == ("collnet-direct", "Simple")


def test_sharp_and_pat_need_fewer_steps_than_a_ring() -> None:
    """The reason that they are there: an all_reduce of few bytes on many nodes."""
    for name, kind, at in (("sharp", "all_reduce", place(8, 64)), ("pat", "all_gather", place(1, 64))):
        (theirs,), (ring,) = (selected_curves(kind, [1e3], at, algorithm=one) for one in (name, "ring"))
        assert theirs.steps < ring.steps / 5
        assert theirs.solo_s(1e3) < ring.solo_s(1e3)


def test_phases_add_up() -> None:
    """2-D rings: within, between, within; a flat exchange of the same bytes uses both tiers at once."""
    (phases,), (flat,) = (
        selected_curves("all_reduce", [GIB], place(8, 8), algorithm=name, protocol="Simple")
        for name in ("hierarchical", "halving-doubling")
    )
    at = place(8, 8)
    assert phases.seconds_per_byte == pytest.approx(phases.nvlink / at.ring + phases.nic / at.nic)
    assert flat.seconds_per_byte == pytest.approx(max(flat.nvlink / at.ring, flat.nic / at.nic))
    assert (phases.nvlink, phases.nic) == (flat.nvlink, flat.nic)


@pytest.mark.parametrize(("local", "nodes"), [(8, 1), (1, 8), (8, 8), (4, 2)])
def test_an_exchange_in_phases_starts_each_phase_and_sends_to_each_peer_of_it(local: int, nodes: int) -> None:
    """To the neighbours of a host, then to the peers of the rail: a phase that has nobody costs nothing."""
    at, costs = place(local, nodes), collective_constants().pairwise
    (curve,) = selected_curves("all_to_all", [1.0], at, algorithm="hierarchical-pairwise")
    phases = sum(1 for members in (local, nodes) if members > 1)
    peers_s = (local - 1) * costs.peer_s + (nodes - 1) * costs.remote_peer_s
    assert curve.latency_s == pytest.approx(phases * costs.latency_s + 2 * at.crossing_s + peers_s)


@pytest.mark.parametrize(
    ("units", "ring_share", "pairs_share"), [(1, 1.0, 1.0), (2, 1.0, 1 / 4), (4, 1 / 2, 1 / 4)]
)
def test_uplinks_that_are_short_slow_what_leaves_a_unit_of_hosts(
    units: int, ring_share: float, pairs_share: float
) -> None:
    """Of uplinks four times too narrow, a ring takes one way for all hosts of a unit, messages all ways."""
    spec = cluster(gpus=64, kind="fat-tree", oversubscription=4.0)
    at = place_of(GroupPlacement(ranks=64, domains=8, units=units), spec, collective_constants())
    assert at.nic == pytest.approx(ring_share * spec.nic_bytes_per_s_per_gpu)
    alone = place_of(GroupPlacement(ranks=64, domains=8), spec, collective_constants()).scattered
    assert at.scattered == pytest.approx(min(alone, pairs_share * spec.nic_bytes_per_s_per_gpu))


# NCCL's choice ----------------------------------------------------------------------------------------


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast"]),
    st.sampled_from(sorted(SYSTEMS)),
    st.integers(2, 8),
    st.integers(1, 16),
    st.floats(1.0, 1e11),
    st.sampled_from([None, (2, 18), (2, 26), (2, 28), (2, 30)]),
)
def test_what_runs_is_what_nccl_chooses(
    kind: str, gpu: str, local: int, nodes: int, size: float, version: tuple[int, int] | None
) -> None:
    cluster, nccl = cluster_of(gpu), NcclSettings(version=version or (2, 28))
    (curve,) = selected_curves(kind, [size], place(local, nodes, cluster), nccl=nccl)
    comm = communicator_on(cluster, ranks=local * nodes, domains=nodes, version=nccl.version or (2, 28))
    chosen = choose(kind, size, comm)
    assert (curve.algorithm, curve.protocol) == (NAMES[chosen.algorithm], chosen.protocol.value)


@given(st.floats(1.0, 1e11), st.integers(2, 8), st.integers(2, 16))
def test_the_engine_pays_for_what_runs(size: float, local: int, nodes: int) -> None:
    placement, cluster = GroupPlacement(ranks=local * nodes, domains=nodes), cluster_of()
    for nccl in (NcclSettings(), NcclSettings(algo="Ring"), NcclSettings(algo="^NVLSTree", proto="Simple")):
        (curve,) = selected_curves("all_reduce", [size], place(local, nodes), nccl=nccl)
        sent = collective_transfer("all_reduce", size, placement, cluster, nccl=nccl)
        assert sent.solo_s == pytest.approx(curve.solo_s(size))
        assert dict(sent.weights)["nic.out"] == curve.nic


def test_gpus_that_nccl_has_no_tables_for_run_the_quickest() -> None:
    interconnect = get_interconnect("roce-400-x8")
    cluster = Cluster(
        gpu=get_gpu("MI300X"),
        gpus=64,
        gpus_per_node=8,
        interconnect=interconnect,
        fabric=default_fabric(interconnect),
    )
    for size in (8.0, 1e6, GIB):
        free = selected_curves("all_reduce", [size], place(8, 8, cluster))[0].solo_s(size)
        forced = selected_curves("all_reduce", [size], place(8, 8, cluster), algorithm="ring")[0].solo_s(size)
        assert free <= forced


def test_versions_differ_where_their_tables_do() -> None:
    """Trees over racks of GB200: 72 GB/s a channel up to 2.27, 24 since; LL's share doubles with 2.21."""
    network = get_interconnect("ib-ndr400-x4")
    racks = Cluster(
        gpu=get_gpu("GB200-NVL72"),
        gpus=1440,
        gpus_per_node=4,
        interconnect=network,
        fabric=default_fabric(network),
    )
    taken = {
        version: selected_curves(
            "all_reduce",
            [16 * GIB],
            place_of(GroupPlacement(ranks=1440, domains=20), racks, collective_constants()),
            nccl=NcclSettings(version=parse_version(version)),
        )[0].algorithm
        for version in ("2.26.2", "2.28.9")
    }
    assert taken == {"2.26.2": "tree", "2.28.9": "ring"}
    old, new = (
        communicator_on(cluster_of("A100-SXM4-80GB"), ranks=8, domains=1, version=version)
        for version in ((2, 20), (2, 21))
    )
    pairs = [pair for pair in combinations(CollectiveKind.ALL_REDUCE, old) if pair == ("Ring", "LL")]
    (pair,) = pairs
    slow, quick = (bytes_per_s(*pair, CollectiveKind.ALL_REDUCE, comm) for comm in (old, new))
    assert slow < quick


@pytest.mark.parametrize(("local", "nics"), [(8, 1.0), (4, 0.5), (2, 0.5), (1, 0.5)])
def test_nics_that_nccl_takes_for_one_carry_a_ring_one_at_a_time(local: int, nics: float) -> None:
    """Four groups of two begin at four GPUs, two of which share a NIC: half of one is each group's."""
    network = get_interconnect("omnipath-100-x4")
    cluster = Cluster(
        gpu=get_gpu("A100-SXM4-80GB"),
        gpus=128,
        gpus_per_node=8,
        interconnect=network,
        fabric=default_fabric(network),
    )
    edge = place_of(GroupPlacement(ranks=16 * local, domains=16), cluster, collective_constants()).edge
    assert edge == pytest.approx(nics * network.host_bytes_per_s / network.links_per_host)
    communicator = communicator_on(cluster, ranks=16 * local, domains=16)
    assert communicator.nics_per_node == communicator.ring.channels == 1
    assert communicator.ring.inter_bytes_per_s <= nics * network.link_bytes_per_s


@pytest.mark.parametrize(("local", "leading"), [(72, 16), (16, 16), (4, 4)])
def test_no_more_gpus_of_a_rack_than_nccl_has_channels_lead_to_the_network(local: int, leading: int) -> None:
    network = get_interconnect("ib-ndr400-x4")
    cluster = Cluster(
        gpu=get_gpu("GB200-NVL72"),
        gpus=144,
        gpus_per_node=4,
        interconnect=network,
        fabric=default_fabric(network),
    )
    edge = place_of(GroupPlacement(ranks=2 * local, domains=2), cluster, collective_constants()).edge
    assert edge == pytest.approx(leading * cluster.nic_bytes_per_s_per_gpu)


def test_two_nodes_of_few_nics_take_a_tree() -> None:
    """Each byte crosses once with a tree, 15/16 twice with a ring: p4de, 4 x 100 Gb/s for 8 GPUs."""
    cluster = cluster_of("A100-SXM4-80GB", network="efa-400-x1")
    assert choose("all_reduce", GIB, communicator_on(cluster, ranks=16, domains=2)).algorithm == "Tree"
    assert choose("all_reduce", GIB, communicator_on(cluster, ranks=64, domains=8)).algorithm == "Ring"


def test_trees_over_racks_are_as_slow_as_measured(shared: Path) -> None:
    """20 racks: the thread blocks of 16 channels bound the tree, 203 GB/s at 16 GiB, not the 72 NICs."""
    log = shared / "data" / "nccl_logs" / "coreweave_gb200_20rack1440g_allreduce.txt"
    (case,) = read_logs([log]).cases
    size, seconds = case.points[-1]
    at = place_of(case.placement, case.cluster, collective_constants())
    (curve,) = selected_curves(case.kind, [size], at, nccl=case.nccl)
    assert (curve.algorithm, case.nccl.version) == ("tree", (2, 26))
    assert curve.solo_s(size) == pytest.approx(seconds, rel=0.1)


# In a scenario ----------------------------------------------------------------------------------------


def told(**software: str) -> Scenario:
    return load_scenario(
        "llama3-70b-h100", overrides=[f"software.exchange.{k}={v}" for k, v in software.items()]
    )


def test_a_scenario_steers_nccl() -> None:
    free = load_scenario("llama3-70b-h100")
    ring = told(nccl_algo="Ring", nccl_proto="LL")
    assert ring.software.exchange.nccl == NcclSettings(algo="Ring", proto="LL")
    assert simulate(ring).step_time_s > simulate(free).step_time_s * 1.05


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("nccl_algo", "Rinng", r"software\.exchange\.nccl_algo: .*mean Ring\? .*Tree, Ring"),
        ("nccl_proto", "LL64", r"software\.exchange\.nccl_proto: .*Known: LL, LL128, Simple"),
        ("nccl_version", "new", r"software\.exchange\.nccl_version: .*'new': .*2\.28\.9"),
    ],
)
def test_a_scenario_with_unknown_names_is_refused(field: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        told(**{field: value})


def test_a_scenario_that_leaves_nothing_is_refused_with_what_is_legal() -> None:
    scenario = told(nccl_algo="NVLSTree")
    with pytest.raises(ValueError, match=r"software\.exchange\.nccl_algo.*Ring/LL"):
        simulate(scenario)


@pytest.mark.parametrize(
    ("gpu", "least", "most"), [("H100-SXM5-80GB", 42e9, 46e9), ("B200-SXM-180GB", 0, 30e9)]
)
def test_channels_of_hopper_nearly_fill_a_nic(gpu: str, least: float, most: float) -> None:
    """46 GB/s a GPU on two DGX H100 without NVLink (DeepEP issue 3), 22.6 on B200 (docs/decisions/0165)."""
    cluster = cluster_of(gpu, 2, "ib-ndr400-x8")
    placement = placement_in_a_row(16, cluster.nvlink_domain, cluster.gpus_per_node)
    size = 1e9
    found = collective_transfer("all_to_all", size, placement, cluster).solo_s
    assert least < size * 8 / 16 / found < most
