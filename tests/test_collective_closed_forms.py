"""Collective algorithms: the textbook's numbers of steps and bytes, up to a million ranks."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from functools import cache

import pytest

from stepsim.schedules import collectives
from stepsim.schedules.transfers.group import RankGroup

LARGEST = 33


@pytest.mark.parametrize("n", range(2, LARGEST + 1))
def test_a_ring_takes_the_papers_steps_and_bytes(n: int) -> None:
    """Patarasuk & Yuan 2009; Thakur et al. 2005."""
    ring, group = collectives.get("ring"), RankGroup(local=n)
    expected = {"all_reduce": (2 * (n - 1), Fraction(2 * (n - 1), n))}
    expected |= {kind: (n - 1, Fraction(n - 1, n)) for kind in ("all_gather", "reduce_scatter")}
    expected |= {kind: (n - 1, Fraction(1)) for kind in ("broadcast", "reduce")}
    for kind, (steps, payloads) in expected.items():
        plan = ring.plan(kind, group)
        assert plan.steps == steps
        assert plan.busiest().sent == plan.busiest().received == payloads


@pytest.mark.parametrize("log", range(1, 6))
def test_halving_and_doubling_of_a_power_of_two(log: int) -> None:
    n = 1 << log
    for kind, rounds in {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}.items():
        plan = collectives.get("halving-doubling").plan(kind, RankGroup(local=n))
        assert plan.steps == rounds * log
        for rank in range(n):
            traffic = plan.traffic(rank)
            assert traffic.sent == traffic.received == Fraction(rounds * (n - 1), n)


@pytest.mark.parametrize(("n", "steps"), [(3, 4), (5, 6), (6, 6), (7, 6), (33, 12)])
def test_halving_and_doubling_folds_what_is_beyond_a_power_of_two(n: int, steps: int) -> None:
    """Thakur et al. 2005, section 4.5: two steps more, all of the payload in and all of it out."""
    plan = collectives.get("halving-doubling").plan("all_reduce", RankGroup(local=n))
    assert plan.steps == steps
    assert plan.traffic(n - 1).sent == plan.traffic(n - 1).received == 1


@pytest.mark.parametrize(("n", "steps"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (33, 6)])
def test_pat_takes_logarithmic_steps_and_a_rings_bytes(n: int, steps: int) -> None:
    """Jeaugey 2025: logarithmic steps for any n, and the bytes of a ring."""
    for kind in ("all_gather", "reduce_scatter"):
        plan = collectives.get("pat").plan(kind, RankGroup(local=1, nodes=n))
        assert plan.steps == steps
        assert {plan.traffic(rank).sent for rank in range(n)} == {Fraction(n - 1, n)}


def test_pat_sends_little_far_and_much_near() -> None:
    plan = collectives.get("pat").plan("all_gather", RankGroup(local=1, nodes=16))
    sent = {t.target: len(t.pieces) for t in plan.transfers() if t.source == 0}
    assert sent == {8: 1, 4: 2, 2: 4, 1: 8}


@pytest.mark.parametrize("n", range(2, LARGEST + 1))
def test_a_double_binary_tree_takes_logarithmic_steps(n: int) -> None:
    """Sanders et al. 2009: logarithmic steps, and no more than 2 payloads through anyone."""
    tree = collectives.get("double-binary-tree")
    plan = tree.plan("all_reduce", RankGroup(local=n))
    assert plan.steps == 2 * (n - 1).bit_length()
    assert max(plan.busiest().sent, plan.busiest().received) <= 2
    assert sum(plan.traffic(rank).sent for rank in range(n)) == 2 * (n - 1)
    broadcast = tree.plan("broadcast", RankGroup(local=n))
    assert broadcast.busiest().sent == broadcast.busiest().received == 1
    assert [broadcast.traffic(rank).received for rank in range(n)] == [0] + [1] * (n - 1)


def test_the_trees_that_nccl_draws() -> None:
    """NCCL src/graph/trees.cc, the pictures for 14 ranks (first tree) and 12 (second, mirrored)."""
    tree = collectives.get("double-binary-tree")
    children: dict[tuple[int, int], set[int]] = defaultdict(set)
    for n in (12, 14):
        plan = tree.plan("all_reduce", RankGroup(local=n))
        for t in plan.transfers():
            if not t.reduces and (n, t.pieces[0]) in {(14, 0), (12, 1)}:
                children[n, t.source].add(t.target)
    assert {v: below for (n, v), below in children.items() if n == 14} == {
        0: {8}, 8: {4, 12}, 4: {2, 6}, 12: {10, 13}, 2: {1, 3}, 6: {5, 7}, 10: {9, 11}
    }  # fmt: skip
    assert {v: below for (n, v), below in children.items() if n == 12} == {
        11: {3}, 3: {1, 7}, 7: {9, 5}, 1: {0, 2}, 9: {8, 10}, 5: {4, 6}
    }  # fmt: skip


@pytest.mark.parametrize(("local", "nodes"), [(8, 1), (8, 2), (4, 4), (2, 8), (1, 16), (1, 5), (3, 7)])
def test_nccls_tree_is_a_chain_within_and_two_trees_between(local: int, nodes: int) -> None:
    plan = collectives.get("tree").plan("all_reduce", RankGroup(local=local, nodes=nodes))
    assert plan.steps == 2 * (local - 1 + (nodes - 1).bit_length())
    assert plan.busiest("local").sent == Fraction(2 * (local - 1), local)
    assert plan.busiest("network").sent <= Fraction(2, local)


@pytest.mark.parametrize("n", [2, 4, 8, 33])
def test_pairwise_sends_to_every_other_rank_once(n: int) -> None:
    plan = collectives.get("pairwise").plan("all_to_all", RankGroup(local=n))
    assert plan.steps == n - 1
    assert plan.busiest().sent == plan.busiest().received == Fraction(n - 1, n)


@pytest.mark.parametrize(("local", "nodes"), [(8, 2), (4, 8), (1, 5), (5, 1)])
def test_both_all_to_alls_send_as_much_between_nodes(local: int, nodes: int) -> None:
    group, between = RankGroup(local=local, nodes=nodes), Fraction(nodes - 1, nodes)
    pairwise = collectives.get("pairwise").plan("all_to_all", group)
    hierarchical = collectives.get("hierarchical-pairwise").plan("all_to_all", group)
    assert pairwise.busiest("network").sent == hierarchical.busiest("network").sent == between
    assert hierarchical.busiest("local").sent == Fraction(local - 1, local)
    assert hierarchical.steps == local - 1 + nodes - 1
    messages = [t for t in hierarchical.transfers() if t.source == 0 and t.target >= local]
    assert {len(t.pieces) for t in messages} <= {local}


@pytest.mark.parametrize(("local", "nodes"), [(8, 2), (4, 8), (1, 5), (5, 1)])
def test_a_hierarchical_all_reduce_takes_its_phases_bytes(local: int, nodes: int) -> None:
    """RS within, all_reduce on the rail, AG within: 2(L-1)/L and 2(N-1)/N of 1/L."""
    plan = collectives.get("hierarchical").plan("all_reduce", RankGroup(local=local, nodes=nodes))
    assert plan.steps == 2 * (local - 1) + 2 * (nodes - 1)
    for rank in range(plan.group.ranks):
        assert plan.traffic(rank, "local").sent == Fraction(2 * (local - 1), local)
        assert plan.traffic(rank, "network").sent == Fraction(2 * (nodes - 1), nodes) / local


@pytest.mark.parametrize("n", [2, 4, 8, 72])
def test_nvls_carries_a_head_more_than_the_payload(n: int) -> None:
    """NCCL's search takes heads + 1 times a head's rate from a GPU's NVLink (search.cc): (n+1)/n payloads."""
    plan = collectives.get("nvls").plan("all_reduce", RankGroup(local=n))
    assert plan.steps == 4
    for rank in range(n):
        assert plan.traffic(rank).sent == plan.traffic(rank).received == Fraction(n + 1, n)
    scatter = collectives.get("nvls").plan("reduce_scatter", RankGroup(local=n))
    assert (scatter.traffic(0).sent, scatter.traffic(0).received) == (1, Fraction(1, n))


@pytest.mark.parametrize("name", ["nvls", "collnet-direct", "collnet-chain"])
@pytest.mark.parametrize(("local", "nodes"), [(2, 2), (8, 2), (8, 4), (4, 8)])
def test_a_network_that_reduces_carries_a_share_once(name: str, local: int, nodes: int) -> None:
    """1/L through each NIC and way, however many nodes: half of the ring's limit 2/L."""
    plan = collectives.get(name).plan("all_reduce", RankGroup(local=local, nodes=nodes))
    for rank in range(plan.group.ranks):
        traffic = plan.traffic(rank, "network")
        assert traffic.sent == traffic.received == Fraction(1, local)


@pytest.mark.parametrize(("nodes", "steps"), [(2, 6), (3, 8), (4, 8), (9, 12)])
def test_an_nvls_tree_takes_its_steps_and_bytes(nodes: int, steps: int) -> None:
    plan = collectives.get("nvls-tree").plan("all_reduce", RankGroup(local=8, nodes=nodes))
    assert plan.steps == steps
    assert plan.busiest("local").sent == Fraction(9, 8)
    assert plan.busiest("network").sent <= Fraction(2, 8)
    if nodes == 2:  # both trees are one link: half of the share up, half down, on either
        assert plan.busiest("network").sent == Fraction(1, 8)


# Scale -----------------------------------------------------------------------------------------------


@cache
def thousand() -> RankGroup:
    return RankGroup(local=8, nodes=128)


def test_lists_of_a_thousand_ranks_grow_as_n_log_n() -> None:
    for name, kind in [
        ("pat", "all_gather"),
        ("halving-doubling", "all_reduce"),
        ("nvls-tree", "all_reduce"),
    ]:
        count = sum(1 for _ in collectives.get(name).plan(kind, thousand()).transfers())
        assert count <= 2 * 1024 * 10


def test_costs_of_many_ranks_need_no_list() -> None:
    """The list would have 2·10^12 transfers."""
    plan = collectives.get("ring").plan("all_reduce", RankGroup(local=8, nodes=125_000))
    assert plan.steps == 2 * 999_999
    assert plan.traffic(0, "local").sent == plan.traffic(7, "network").sent == Fraction(2 * 999_999, 10**6)
