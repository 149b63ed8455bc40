"""Groups are priced where they sit: unequal parts of NVLink domains, every distinct placement of an axis."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from small_clusters import cluster
from small_experts import with_experts
from small_scenarios import layouts, scenario

from stepsim.hardware.collectives import collective_constants
from stepsim.schedules import collectives as schedules
from stepsim.sim.engine.accounting import action_spans
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import Folded, folded, unfolded
from stepsim.sim.lowering.communicators import communicators
from stepsim.sim.lowering.lower import Lowered, lower
from stepsim.sim.lowering.placed_groups import placement_on
from stepsim.sim.network.checks import check_s
from stepsim.sim.network.collectives import collective_curve, collective_transfer
from stepsim.sim.network.group_placement import (
    GroupPlacement,
    payload_factor,
    placement_in_a_row,
    placement_of_parts,
)
from stepsim.sim.network.measured import MeasuredNetwork
from stepsim.sim.network.nccl.paths import communicator_on
from stepsim.sim.network.nccl.versions import USUAL
from stepsim.sim.network.patterns import sent
from stepsim.sim.network.place import group_of, on_network, place_of
from stepsim.sim.network.token_exchange import Router, token_exchange
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate

RACKS: dict[str, Any] = {"gpu": "GB200-NVL72", "gpus_per_node": 1}
"""Hosts of one GPU each, so that NVLink domains can have any size."""

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")

parts_of = st.lists(st.integers(1, 12), min_size=2, max_size=6)


def lowered(run: Scenario) -> Lowered:
    return lower(run, build_cluster(run))


def ends(ready: Folded, world: int) -> list[tuple[float, ...]]:
    """When each rank's actions end."""
    spans: dict[int, list[float]] = {}
    for span in action_spans(replay(ready.programs), {r: r for r in range(len(ready.programs.classes))}):
        spans.setdefault(span.rank, []).append(span.end_s)
    of_rank = ready.of_rank
    assert of_rank is not None
    return [tuple(sorted(spans[int(of_rank[rank])])) for rank in range(world)]


# Folding -------------------------------------------------------------------------------------------------


@st.composite
def placed(draw: st.DrawFn) -> Scenario:
    """A small job, dense or with experts, on domains that its groups do not fill."""
    size = draw(st.integers(2, 7), label="gpus_per_domain")
    if draw(st.booleans(), label="experts"):
        fields = {"tp": draw(st.sampled_from([1, 2])), "pp": draw(st.sampled_from([1, 2])), "gpus": 32}
        fields["sequence_parallel"] = fields["tp"] > 1
        run = with_experts(
            **RACKS,
            **fields,
            ep=draw(st.sampled_from([4, 8])),
            schedule="1f1b" if fields["pp"] > 1 else "none",
            microbatches=2,
        )
    else:
        run = draw(layouts(**RACKS))
    placement = draw(st.sampled_from([None, {"kind": "scattered", "seed": 3}]), label="placement")
    document = run.to_document()
    document["cluster"] |= {"gpus_per_domain": size} | ({"placement": placement} if placement else {})
    return scenario_from_document(document, "placed")


@pytest.mark.slow
@examples(12)
@given(placed())
def test_folded_is_unfolded_however_groups_sit(run: Scenario) -> None:
    step, world = lowered(run), run.world_size
    few, all_ = folded(step), unfolded(step)
    assert replay(few.programs).step_s == pytest.approx(replay(all_.programs).step_s, rel=1e-9)
    if few.of_rank is not None:
        for ours, theirs in zip(ends(few, world), ends(all_, world), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(placed())
def test_ranks_of_one_placement_have_groups_that_sit_alike(run: Scenario) -> None:
    """The placements of every rank, one by one, against those of the first rank of its placement."""
    plan = lowered(run).plan
    names = ["tp", "cp", "dp", "fsdp", "hsdp", "world"] + ["ep", "etp", "edp"] * (
        plan.local.experts is not None
    )
    pp = run.parallelism.pp
    for rank in range(run.world_size):
        mine = plan.placed.of_rank(rank)
        stage = mine.replica.index(rank)
        first = plan.placements.first[plan.placements.of_rank[rank]]
        theirs = plan.placed.of_rank(first)
        assert [mine[name] for name in names] == [theirs[name] for name in names]
        if theirs.replica.index(first) == stage and stage + 1 < pp:
            assert mine.distances[stage] == theirs.distances[stage]


def test_groups_that_fill_domains_evenly_have_one_program_for_each_pipeline_rank() -> None:
    run = with_experts(**RACKS | {"gpus_per_node": 4}, gpus=64, ep=8, pp=2, schedule="1f1b")
    for size, programs in ((8, 2), (16, 2), (32, 2), (64, 2), (12, 16)):
        step = lowered(_with(run, gpus_per_domain=size))
        assert (len(step.programs.classes) == programs) == (size != 12)
        assert step.alike == (size != 12)
        assert (folded(step).of_rank is None) == step.alike


def _with(run: Scenario, **fields: Any) -> Scenario:
    document = run.to_document()
    document["cluster"] |= fields
    return scenario_from_document(document, run.name)


def ep64_on_racks() -> Scenario:
    """Four groups of 64 on GB200 NVL72."""
    return with_experts(
        gpu="GB200-NVL72",
        gpus_per_node=4,
        gpus=256,
        pp=4,
        ep=64,
        num_experts=64,
        schedule="1f1b",
        microbatches=2,
        micro_batch=8,
        seq_length=16384,
    )


def test_ep64_on_racks_of_72_and_on_64_gpus_of_each() -> None:
    """Four groups of 64: on whole racks three straddle two of them, and all wait for the slowest."""
    run = ep64_on_racks()
    whole, most = simulate(_with(run, gpus_per_domain=72)), simulate(_with(run, gpus_per_domain=64))
    assert whole.step_time_s == simulate(run).step_time_s
    assert whole.step_time_s == simulate(_with(run, placement={"kind": "contiguous"})).step_time_s
    assert whole.step_time_s > 1.5 * most.step_time_s
    assert (len(whole.ranks), len(most.ranks)) == (16, 4)
    for size, result in ((72, whole), (64, most)):
        alone = simulate(_with(run, gpus_per_domain=size), fold=False)
        assert alone.step_time_s == pytest.approx(result.step_time_s, rel=1e-9)
    told = {
        size: [one.text for one in result.assumptions if "NVLink domains" in one.text]
        for size, result in ((72, whole), (64, most))
    }
    assert told[64] == ["NVLink domains: 64 of 72 GPUs of each in use"]
    (of_experts,) = [text for text in told[72] if text.startswith("ep: ")]
    assert "3 of 4 groups" in of_experts
    assert "1 as 56 + 8, 1 as 48 + 16, 1 as 40 + 24" in of_experts


@pytest.mark.parametrize(("used", "placed"), [(32, "2 × 32"), (16, "4 × 16")])
def test_groups_that_all_straddle_alike_are_named(used: int, placed: str) -> None:
    """They would fit into a rack; what part of it the job uses is why they do not."""
    notes = [one.text for one in simulate(_with(ep64_on_racks(), gpus_per_domain=used)).assumptions]
    assert any(note.startswith(f"ep: all 4 groups straddle NVLink domains: {placed};") for note in notes)


def test_deepseek_v3_with_ep64_takes_twice_as_long_on_whole_racks() -> None:
    """What a rank of the part of 8 sends to the other 56 over its NIC is what everybody waits for."""
    document = {
        "model": "deepseek-v3",
        "cluster": {"gpu": "GB200-NVL72", "gpus": 256, "interconnect": "ib-ndr400-x4"},
        "parallelism": {"pp": 4, "vpp": 4, "ep": 64, "zero": 1, "stage_split": "uneven_unspecified"},
        "training": {"global_batch": 512, "micro_batch": 1, "seq_length": 4096, "precision": "mxfp8"},
        "schedule": "interleaved",
        "software": "megatron-bridge-2026",
    }
    run = scenario_from_document(document, "ep64")
    whole, most = simulate(run), simulate(_with(run, gpus_per_domain=64))
    assert 1.8 < whole.step_time_s / most.step_time_s < 3
    links = {(bound.axis, bound.link) for bound in whole.bounds if bound.seconds > 0.1 * whole.step_time_s}
    assert ("ep", "nic") in links


def test_racks_change_places_and_nothing_happens() -> None:
    """Domains that hold as many GPUs are alike: only which ranks meet in one counts."""
    run = with_experts(**RACKS, gpus=32, ep=8, pp=2, schedule="1f1b", microbatches=2)
    racks = np.arange(32).reshape(8, 4)
    order = np.array([3, 0, 7, 5, 1, 2, 6, 4])
    for ranks in (racks, np.roll(np.arange(32), 3).reshape(8, 4)):
        times = [
            simulate(
                _with(run, gpus_per_domain=4, placement={"kind": "explicit", "gpus": at.ravel().tolist()})
            ).step_time_s
            for at in (ranks, _renamed(ranks, order))
        ]
        assert times[0] == pytest.approx(times[1], rel=1e-12)


def _renamed(gpus: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The same GPUs after racks of four have changed places."""
    return order[gpus // 4] * 4 + gpus % 4


def test_pipeline_messages_go_as_far_as_their_replica_sends_them() -> None:
    """Eight replicas of two stages on domains of five: some meet inside one, some do not."""
    run = _with(
        with_experts(**RACKS, gpus=16, ep=8, pp=2, schedule="1f1b", order="tp-cp-ep-pp-dp"), gpus_per_domain=5
    )
    step = lowered(run)
    distances = {step.plan.placed.of_rank(rank).distances[0] for rank in range(16)}
    assert distances == {"domain", "unit"}
    assert replay(folded(step).programs).step_s == pytest.approx(
        replay(unfolded(step).programs).step_s, rel=1e-9
    )


# Prices --------------------------------------------------------------------------------------------------


@given(parts_of, st.permutations(range(6)))
def test_a_placement_does_not_know_the_order_of_domains(parts: list[int], order: list[int]) -> None:
    assert placement_of_parts(parts) == placement_of_parts([parts[i] for i in order if i < len(parts)])
    placement = placement_of_parts(parts)
    assert (placement.most, placement.fewest, placement.ranks, placement.domains) == (
        max(parts),
        min(parts),
        sum(parts),
        len(parts),
    )
    assert bool(placement.parts) == (len(set(parts)) > 1)


def test_a_placement_of_other_ranks_is_refused() -> None:
    for parts in ((2, 2), (1, 3), (3, 2), (4, 0)):
        with pytest.raises(ValueError, match="parts"):
            GroupPlacement(ranks=4, domains=2, parts=parts)


@settings(deadline=None)
@given(st.sampled_from(KINDS), parts_of, st.sampled_from([1e7, 1e9]))
def test_a_group_that_straddles_is_never_quicker_than_inside_a_domain(
    kind: str, parts: list[int], size: float
) -> None:
    """Of what links bound; of a kilobyte NCCL's choice may be better over the network than inside."""
    racks = cluster("GB200-NVL72", 144, 4, "ib-ndr400-x4")
    inside = collective_transfer(kind, size, GroupPlacement(ranks=sum(parts), domains=1), racks)
    outside = collective_transfer(kind, size, placement_of_parts(parts), racks)
    assert outside.solo_s >= inside.solo_s * (1 - 1e-12)


@settings(deadline=None)
@given(
    st.integers(2, 30), st.integers(0, 30), st.sampled_from([("all_reduce", "ring"), ("all_to_all", "pairs")])
)
def test_the_more_uneven_two_parts_are_the_longer_it_takes(
    fewest: int, more: int, what: tuple[str, str]
) -> None:
    """One rank goes over from the smaller part to the larger one."""
    racks = cluster("GB200-NVL72", 144, 4, "ib-ndr400-x4")
    kind, algorithm = what
    times = [
        collective_curve(
            kind, 1e9, placement_of_parts(parts), racks, algorithm=algorithm, protocol="Simple"
        ).solo_s(1e9)
        for parts in ((fewest + more, fewest), (fewest + more + 1, fewest - 1))
    ]
    assert times[1] >= times[0] * (1 - 1e-12)


@given(parts_of, st.sampled_from([("ring", "all_reduce"), ("pairwise", "all_to_all")]))
def test_what_crosses_the_edge_of_a_domain_is_the_closed_form(
    parts: list[int], what: tuple[str, str]
) -> None:
    """Of each: 2(n - 1)/n payloads of a ring, part * (n - part)/n of pairs; by routes and by weights."""
    algorithm, kind = what
    placement, n = placement_of_parts(parts), sum(parts)
    loads = schedules.get(algorithm).loads(kind, group_of(placement, on_network=True))
    domain = np.repeat(np.arange(len(parts)), parts)
    over = sent({"ring": "ring", "pairwise": "pairs"}[algorithm], np.zeros(n, dtype=np.int64), domain)
    for end in (over.sender, over.receiver):
        crossing = np.bincount(domain[end], over.share, len(parts)) * float(loads.network)
        wanted = [2 * (n - 1) / n if algorithm == "ring" else part * (n - part) / n for part in parts]
        assert crossing == pytest.approx(wanted)
    busiest = min(parts) * loads.network
    assert busiest == (
        Fraction(2 * (n - 1), n) if algorithm == "ring" else Fraction(min(parts) * (n - min(parts)), n)
    )


def test_the_slowest_member_of_an_exchange_is_in_the_small_part() -> None:
    """8 of 64 ranks send 56/64 of what they have over their NICs; DeepEP's copies come through eight."""
    racks = cluster("GB200-NVL72", 144, 4, "ib-ndr400-x4")
    placements = [
        GroupPlacement(ranks=64, domains=1),
        GroupPlacement(ranks=64, domains=2),
        placement_of_parts((40, 24)),
        placement_of_parts((56, 8)),
    ]
    router = Router(experts=256, topk=8, copies=8.0)
    for dispatcher in ("alltoall", "deepep"):
        times = [
            token_exchange(1e9, 1e5, router, placement, racks, dispatcher).solo_s for placement in placements
        ]
        assert times == sorted(times)
        assert times[-1] > 1.3 * times[1]
    sent_out = token_exchange(1e9, 1e5, router, placements[-1], racks, "alltoall")
    assert sent_out.nic == pytest.approx(56 / 64)


def test_ring_exchanges_of_a_straddling_group_leave_nvlink() -> None:
    """Userbuffers write to NVLink neighbours alone: a hop between domains goes over the NICs."""
    racks = cluster("GB200-NVL72", 144, 4, "ib-ndr400-x4")
    inside = collective_transfer("ring_step", 1e8, GroupPlacement(ranks=8, domains=1), racks)
    outside = collective_transfer("ring_step", 1e8, placement_of_parts((6, 2)), racks)
    assert (inside.nic, outside.nic) == (0.0, 1.0)
    assert outside.solo_s > 5 * inside.solo_s


def test_ranks_in_a_row_fill_domains() -> None:
    assert placement_in_a_row(256, 72).parts == (72, 72, 72, 40)
    assert placement_in_a_row(256, 64) == GroupPlacement(ranks=256, domains=4)
    assert placement_in_a_row(8, 72) == GroupPlacement(ranks=8, domains=1)


@pytest.mark.parametrize("gpu", ["RTX-4090", "L40S", "A100-PCIe-80GB"])
def test_cards_that_meet_over_pcie_pass_it_on_their_way_to_other_hosts(gpu: str) -> None:
    """A ring of two hosts has fourteen hops inside them: it is no quicker than PCIe, and NICs carry two."""
    cards = cluster(gpu, gpus=16, interconnect="ib-ndr400-x8", gpus_per_node=8)
    world, host = placement_on(np.arange(16), cards), placement_on(np.arange(8), cards)
    assert (world.hosts, host.hosts) == (2, 1)
    assert world == placement_in_a_row(16, cards.nvlink_domain, cards.gpus_per_node)
    assert (on_network(world, cards), on_network(host, cards)) == (True, False)
    curve = collective_curve("all_gather", 1e9, world, cards)
    assert curve.binding == "pcie"
    assert curve.solo_s(1e9) >= 15 / 16 * 1e9 / cards.intra_node_bytes_per_s_per_gpu
    assert curve.nic == pytest.approx(15 / 16 / 8)


def test_groups_within_a_host_of_cards_stay_off_the_network() -> None:
    changes = {"gpu": "RTX-4090", "gpus": 16, "gpus_per_node": 8, "interconnect": "ib-ndr400-x8"}
    groups = lowered(scenario(**changes, tp=4, dp=4)).plan.groups
    assert (groups["tp"].hosts, groups["dp"].hosts) == (1, 2)


@pytest.mark.parametrize("gpu", ["RTX-4090", "A100-PCIe-80GB"])
@pytest.mark.parametrize(
    ("field", "ranks"), [("all_gather_bytes_per_s", 16), ("all_reduce_intra_bytes_per_s", 8)]
)
def test_what_was_measured_on_cards_is_of_whole_hosts(gpu: str, field: str, ranks: int) -> None:
    """Of all ranks, or inside one host: at a third of the rate a collective takes three times as long."""
    cards = cluster(gpu, gpus=16, interconnect="ib-ndr400-x8", gpus_per_node=8)
    group, kind = placement_on(np.arange(ranks), cards), "_".join(field.split("_")[:2])
    told_s = collective_transfer(kind, 1e12, group, cards).solo_s
    third = MeasuredNetwork.model_validate({field: 1e12 * payload_factor(kind, ranks) / (3 * told_s)})
    assert collective_transfer(kind, 1e12, group, cards, third).solo_s == pytest.approx(3 * told_s, rel=0.02)


def test_a_ring_over_hosts_of_cards_leaves_a_unit_once() -> None:
    """Of two hosts behind each leaf one sends upwards, however many pairs of cards these have."""
    cards = cluster("A100-PCIe-80GB", gpus=32, interconnect="ib-ndr400-x8", oversubscription=4.0)
    whole = replace(placement_on(np.arange(32), cards), units=2)
    assert whole.nodes == 4
    near, far = (place_of(one, cards, collective_constants()).nic for one in (replace(whole, units=1), whole))
    assert far / near == pytest.approx(2 / 4)


def test_checks_inside_a_host_of_cards_are_those_of_a_host() -> None:
    cards = cluster("A100-PCIe-80GB", gpus=16, interconnect="ib-ndr400-x8", gpus_per_node=8)
    host, world = (check_s(placement_on(np.arange(ranks), cards)) for ranks in (8, 16))
    assert host == check_s(GroupPlacement(ranks=8, domains=1))
    assert world == check_s(GroupPlacement(ranks=16, domains=2)) > 2 * host


def test_buffers_of_cards_are_those_of_what_nccl_has_as_its_nodes() -> None:
    """Hosts, and not the pairs of cards that NVLink joins in them."""
    changes = {"gpu": "A100-PCIe-80GB", "gpus": 16, "gpus_per_node": 8, "interconnect": "ib-ndr400-x8"}
    plan = lowered(scenario(**changes, tp=4, dp=4)).plan
    version = plan.scenario.software.exchange.nccl.version or USUAL[plan.cluster.gpu.collectives_as]
    channels = {one.name: one.channels for one in communicators(plan, 0)}
    for name, ranks, hosts in (("world", 16, 2), ("dp", 4, 2), ("tp", 4, 1)):
        wanted = communicator_on(plan.cluster, ranks=ranks, domains=hosts, version=version)
        assert channels[name] == wanted.channels
