"""Faults of the network inside a step: what they leave of links, and that the step feels them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from small_scenarios import lowered, scenario

from stepsim.hardware.fabrics.links import LinkTable
from stepsim.sim.degradation.outages import lost_nic, lost_switch, together, weak_link, weak_nic, weak_rail
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold import fabric as fabric_module
from stepsim.sim.fold.fold import folded, unfolded
from stepsim.sim.fold.ranks import HEALTHY, Degradation
from stepsim.sim.fold.weak_links import around, capacity_left
from stepsim.sim.lowering.lower import Lowered

BIG = {"hidden_size": 1024, "ffn_hidden_size": 8192, "interconnect": "ib-ndr400-x8", "schedule": "1f1b"}
SHAPES: tuple[dict[str, Any], ...] = (
    {"kind": "fat-tree", "nodes_per_leaf": 2},
    {"kind": "rail-optimized", "nodes_per_leaf": 1, "oversubscription": 2},
    {"kind": "torus"},
)


def step(**fields: Any) -> Lowered:
    return lowered(scenario(**{**BIG, "tp": 2, "pp": 2, "dp": 8, "gpus_per_node": 2, **fields}))


def step_s(job: Lowered, degradation: Degradation = HEALTHY) -> float:
    few, all_ = replay(folded(job, degradation).programs), replay(unfolded(job, degradation).programs)
    assert few.step_s == pytest.approx(all_.step_s, rel=1e-9)
    return few.step_s


def first_cable(links: LinkTable) -> int:
    return next(n for n in range(len(links)) if links.kinds(np.array([n]))[0] in ("uplink", "torus"))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", [0, 7, 100])
def test_a_weak_cable_of_a_trunk_is_as_bad_as_by_itself(
    shape: dict[str, Any], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one link for each trunk, against every cable with its own share of an even spread."""
    job = step(fabric=shape)
    links = job.plan.cluster.topology.links
    degradation = Degradation(fabric_share={first_cable(links) + offset: 0.2})
    by_trunks = step_s(job, degradation)
    monkeypatch.setattr(fabric_module, "topology_for", lambda cluster: cluster.topology)
    monkeypatch.setattr(fabric_module, "capacity_left", lambda _, shares: dict(shares))
    assert step_s(job, degradation) == pytest.approx(by_trunks, rel=1e-12)
    assert by_trunks > step_s(job)


def test_lost_cables_leave_their_traffic_to_the_others() -> None:
    cluster = step(fabric=SHAPES[0]).plan.cluster
    first = first_cable(cluster.topology.links)
    trunk, cables = cast(Any, cluster.topology).trunk_of(first)
    assert cables == 16  # two hosts of eight links
    assert capacity_left(cluster, {first: 0.0, first + 1: 0.0}) == {trunk: pytest.approx(14 / 16)}
    assert capacity_left(cluster, {first: 0.0, first + 1: 0.5}) == {trunk: pytest.approx(15 / 16 / 2)}
    with pytest.raises(ValueError, match="leaf 0 -> spines 0 is lost"):
        capacity_left(cluster, dict.fromkeys(range(first, first + 16), 0.0))


def test_hashed_flows_go_around_a_lost_link() -> None:
    job = step(fabric={"kind": "fat-tree", "nodes_per_leaf": 2, "ecmp": "hashed"})
    topology = job.plan.cluster.topology
    a, b = np.arange(16), (np.arange(16) + 8) % 32
    before = topology.links_of(a, b, np.zeros(16, dtype=np.int64))
    lost = before.link[before.route == 0][2:3]  # the uplink of the first
    after = around(topology, a, b, np.zeros(16, dtype=np.int64), lost)
    assert lost[0] in before.link
    assert lost[0] not in after.link
    untouched = [r for r in range(16) if lost[0] not in before.of(r)[0]]
    assert all((before.of(r)[0] == after.of(r)[0]).all() for r in untouched)
    assert step_s(job, Degradation(fabric_share={int(lost[0]): 0.0})) > 0


def test_a_weak_rail_is_a_weak_nic_on_every_host() -> None:
    job = step()
    cluster, gpu = job.plan.cluster, job.plan.placed.gpu
    one, rail = weak_nic(cluster, gpu, 3, 0, 0.5), weak_rail(cluster, gpu, 0, 0.5)
    assert one.link_share == {(6, "nic.out"): 0.5, (6, "nic.in"): 0.5}  # the first GPU of host 3
    assert len(rail.link_share) == 2 * cluster.nodes
    assert step_s(job) < step_s(job, one) <= step_s(job, rail)


def test_a_lost_nic_is_carried_by_the_others_of_its_host() -> None:
    job = step()
    cluster, gpu = job.plan.cluster, job.plan.placed.gpu
    lost = lost_nic(cluster, gpu, 1, 4)
    assert lost.link_share == {(rank, port): 7 / 8 for rank in (2, 3) for port in ("nic.out", "nic.in")}
    assert step_s(job) < step_s(job, lost) < step_s(job, weak_nic(cluster, gpu, 1, 4, 0.5))
    twice = together([lost, lost])
    assert twice.link_share[2, "nic.in"] == pytest.approx(49 / 64)


def test_a_lost_leaf_takes_a_rail_and_a_lost_spine_its_share() -> None:
    job = step(fabric={"kind": "rail-optimized", "nodes_per_leaf": 4})
    cluster, gpu = job.plan.cluster, job.plan.placed.gpu
    leaf = lost_switch(cluster, gpu, "leaf 9")
    assert {rank for rank, _ in leaf.link_share} == set(range(8, 16))  # the second unit: hosts 4 to 7
    assert set(leaf.link_share.values()) == {7 / 8}
    spines = dict(cast(Any, cluster.topology).network.tiers)["spine"]
    spine = lost_switch(cluster, gpu, "spine 0")
    assert spines == 2
    assert set(capacity_left(cluster, spine.fabric_share).values()) == {1 / 2}
    assert step_s(job) < step_s(job, leaf)


def test_what_a_job_cannot_do_without_is_said() -> None:
    job = step(fabric=SHAPES[0])
    cluster, gpu = job.plan.cluster, job.plan.placed.gpu
    with pytest.raises(ValueError, match=r"leaf 1.*host 2"):
        lost_switch(cluster, gpu, "leaf 1")
    with pytest.raises(ValueError, match=r"'leaf 99'; .*leaf 0 to 7"):
        lost_switch(cluster, gpu, "leaf 99")
    with pytest.raises(ValueError, match=r"'leaf 0'; .*leaf 0 -> spine 0"):
        weak_link(cluster, "leaf 0", 0.5)
    with pytest.raises(ValueError, match="no NIC 8"):
        weak_nic(cluster, gpu, 0, 8, 0.5)
    with pytest.raises(ValueError, match="host 99"):
        lost_nic(cluster, gpu, 99, 0)
    both = weak_link(cluster, "leaf 1 -> spine 0", 0.5)
    assert len(both.fabric_share) == 2 * 8  # every parallel cable, both ways
