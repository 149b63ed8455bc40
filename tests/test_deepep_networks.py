"""What DeepEP's kernels make of a network, against what its own test printed on the machines."""

from __future__ import annotations

from typing import Any

import pytest
from small_clusters import cluster
from small_experts import with_experts
from small_scenarios import lowered

from stepsim.sim.lowering import pricing
from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.network.token_exchange import Router, token_exchange, visits
from stepsim.sim.simulate import simulate

ROWS = 4096
TOKENS = ROWS * 7168 * 2.0
"""Bytes of the tokens of a GPU in that test, in 16 bit; eight of 256 experts each, on four hosts at most."""

PRINTED = {
    ("H800-SXM5-80GB", "ib-ndr400-x8", 4): (58.0, 57.0),  # deepseek-ai/DeepEP README: EP32
    ("H800-SXM5-80GB", "ib-ndr400-x8", 8): (51.0, 50.0),  # EP64
    # awslabs/awsome-distributed-ai at 46793a8d, ep-backend-comparison/RESULTS-p5.md, NVSHMEM
    ("H100-SXM5-80GB", "efa-3200", 4): (43.7, 46.1),
    ("H100-SXM5-80GB", "efa-3200", 8): (39.6, 39.2),
    ("B200-SXM-180GB", "efa-3200-x8", 2): (78.1, 78.6),  # RESULTS-b200.md, DeepEP V1 in 16 bit
    ("B200-SXM-180GB", "efa-3200-x8", 4): (56.9, 55.8),
    ("B300-SXM", "efa-6400-x16", 4): (97.1, 95.4),  # RESULTS.md
    ("B300-SXM", "efa-6400-x16", 8): (84.2, 73.1),
}
"""GB/s of tokens to hosts, its own counted, of dispatch and combine, by machine."""


@pytest.mark.parametrize("machine", PRINTED, ids=lambda machine: f"{machine[1]}-{machine[2]}")
def test_a_dispatch_moves_what_its_own_test_prints(machine: tuple[str, str, int]) -> None:
    gpu, network, hosts = machine
    router = Router(experts=256, topk=8, copies=8.0, node_limit=4)
    placement = GroupPlacement(ranks=8 * hosts, domains=hosts)
    machines = cluster(gpu, 8 * hosts, 8, network)
    # It tries chunks of up to 32 tokens, four times those of training, and keeps the best.
    found = token_exchange(TOKENS, ROWS / 4, router, placement, machines, "deepep")
    taken_s = found.bytes / found.ceiling_bytes_per_s  # it does not count the meeting before
    printed = TOKENS * visits(router, placement).domains / taken_s / 1e9
    assert printed == pytest.approx(sum(PRINTED[machine]) / 2, rel=0.07)


def test_a_domain_wider_than_eight_takes_what_nvidia_measured_of_it() -> None:
    """EP32 of GB200 NVL72: 400 GB/s for dispatch and 190 for combine, of tokens to GPUs, its own counted."""
    router, placement = Router(experts=256, topk=8, copies=8.0), GroupPlacement(ranks=32, domains=1)
    rack = cluster("GB200-NVL72", 32, 4, "nvlink-only")
    to_gpus = TOKENS * visits(router, placement).gpus
    both_s = 2 * token_exchange(TOKENS, ROWS, router, placement, rack, "deepep").solo_s
    assert both_s == pytest.approx(to_gpus / 400e9 + to_gpus / 190e9, rel=0.03)


def test_hybridep_keeps_its_rate_in_a_wide_domain() -> None:
    """HybridEP counts 642 and 605 GB/s on 32 GPUs of GB200."""
    router, placement = Router(experts=256, topk=8, copies=8.0), GroupPlacement(ranks=32, domains=1)
    rack = cluster("GB200-NVL72", 32, 4, "nvlink-only")
    taken_s = token_exchange(TOKENS, ROWS, router, placement, rack, "hybridep").solo_s
    assert TOKENS * visits(router, placement).gpus / taken_s > 580e9


HYBRIDEP = {16: (71.71, 62.95), 32: (57.69, 57.46), 64: (49.97, 49.77)}
"""GB/s of tokens to hosts, its own counted, of HybridEP's dispatch in 16 bit and combine on H100, by ranks
with eight experts each (deepseek-ai/DeepEP docs/README_Hybrid-EP.md at 41cad944, kernels alone on 16 SMs)."""


@pytest.mark.parametrize("ranks", HYBRIDEP)
def test_hybridep_moves_over_a_network_what_nvidia_measured(ranks: int) -> None:
    router = Router(experts=8 * ranks, topk=8, copies=8.0)
    placement = GroupPlacement(ranks=ranks, domains=ranks // 8)
    machines = cluster("H100-SXM5-80GB", ranks, 8, "ib-ndr400-x8")
    found = token_exchange(TOKENS, ROWS, router, placement, machines, "hybridep")
    printed = visits(router, placement).domains * found.ceiling_bytes_per_s / 1e9
    dispatch, combine = HYBRIDEP[ranks]
    assert printed == pytest.approx(2 / (1 / dispatch + 1 / combine), rel=0.06)


@pytest.mark.parametrize(
    ("gpu", "share"), [("H100-SXM5-80GB", 0.67), ("H200-SXM-141GB", 0.67), ("B200-SXM-180GB", 0.88)]
)
def test_hybridep_is_slower_between_two_hosts_where_that_was_measured(gpu: str, share: float) -> None:
    """NVIDIA's table is of H100; other architectures get what a network gives between more hosts."""
    router, placement = Router(experts=128, topk=8, copies=8.0), GroupPlacement(ranks=16, domains=2)
    found = token_exchange(TOKENS, ROWS, router, placement, cluster(gpu, 16, 8, "ib-ndr400-x8"), "hybridep")
    sent = visits(router, placement).domains / 2 * found.ceiling_bytes_per_s
    assert sent / 50e9 == pytest.approx(share, rel=0.05)


ONE_HOST = {
    ("GB200-NVL72", 4, 4): (169.0, 135.0, 7168, 256),  # deepseek-ai/DeepEP issue 394
    ("H100-SXM5-80GB", 8, 8): (320.0, 332.0, 7168, 256),
}
"""GB/s of tokens to GPUs, its own counted, of dispatch and combine on 24 SMs, the width of tokens and the
experts of that test; by GPU, ranks and GPUs of a host."""


@pytest.mark.parametrize("machine", ONE_HOST, ids=lambda machine: machine[0])
def test_within_a_host_its_first_release_takes_what_it_prints(machine: tuple[str, int, int]) -> None:
    gpu, ranks, per_host = machine
    dispatch, combine, width, experts = ONE_HOST[machine]
    router, placement = (
        Router(experts=experts, topk=8, copies=8.0),
        GroupPlacement(ranks=ranks, domains=1),
    )
    host = cluster(gpu, ranks, per_host, "nvlink-only")
    found = token_exchange(ROWS * width * 2.0, ROWS, router, placement, host, "deepep")
    printed = visits(router, placement).gpus * found.ceiling_bytes_per_s / 1e9
    assert printed == pytest.approx(2 / (1 / dispatch + 1 / combine), rel=0.2)


def test_its_second_release_has_all_of_blackwells_rate_within_a_host() -> None:
    """643 to 740 GB/s of tokens on eight B200 (its README); on Hopper both releases are told alike."""

    def rate(gpu: str, *, elastic: bool) -> float:
        host = cluster(gpu, 8, 8, "nvlink-only")
        router, placement = Router(experts=256, topk=8, copies=8.0), GroupPlacement(ranks=8, domains=1)
        found = token_exchange(TOKENS, ROWS, router, placement, host, "deepep", elastic=elastic)
        return visits(router, placement).gpus * found.ceiling_bytes_per_s

    assert rate("B200-SXM-180GB", elastic=True) == pytest.approx(740e9, rel=0.15)
    assert rate("B200-SXM-180GB", elastic=True) > 5 * rate("B200-SXM-180GB", elastic=False)
    assert rate("H100-SXM5-80GB", elastic=True) == rate("H100-SXM5-80GB", elastic=False)


def test_a_scenario_says_which_release_it_has() -> None:
    fields: dict[str, Any] = {"gpu": "B200-SXM-180GB", "moe_dispatcher": "deepep", "host_s_per_kernel": 0.0}
    first, second = (
        simulate(with_experts(**fields, seq_length=8192, deepep_elastic=elastic)) for elastic in (False, True)
    )
    assert second.step_time_s < first.step_time_s


def over_efa(
    ranks: int, rows: int, width: int, gpu: str = "H100-SXM5-80GB", dispatcher: str = "deepep"
) -> float:
    """Seconds of a dispatch of ``rows`` of ``width`` in 16 bit, eight of 128 experts each."""
    router, placement = (
        Router(experts=128, topk=8, copies=8.0),
        GroupPlacement(ranks=ranks, domains=ranks // 8),
    )
    machines = cluster(gpu, ranks, 8, "efa-3200")
    return token_exchange(2.0 * rows * width, rows, router, placement, machines, dispatcher).solo_s


def test_short_tokens_over_efa_wait_for_the_host_that_posts_them() -> None:
    """Three messages of a microsecond for each chunk: of eight tokens over four hosts, and of 20 and 12 over
    two. Longer tokens take no longer until their bytes do.
    """
    router, placement = Router(experts=128, topk=8, copies=8.0), GroupPlacement(ranks=32, domains=4)
    sent = 2048 * visits(router, placement).domains * 3 / 4
    meeting_s = 3e-5 + 2 * 2 * 7e-5
    assert over_efa(32, 2048, 2048) == pytest.approx(sent * 3 / 8 * 1e-6 + meeting_s)
    assert over_efa(32, 2048, 4096) == over_efa(32, 2048, 2048)
    assert over_efa(32, 2048, 16384) > 1.5 * over_efa(32, 2048, 2048)
    assert over_efa(32, 2048, 2048) > 3.5 * over_efa(16, 2048, 2048)


def test_hosts_meet_before_tokens_go_over_efa() -> None:
    """126 us on two hosts and 311 on four, of B200 (RESULTS-b200.md at 46793a8d)."""
    assert over_efa(16, 1, 2048) == pytest.approx(126e-6, rel=0.4)
    assert over_efa(32, 1, 2048) == pytest.approx(311e-6, rel=0.1)


def test_only_deepep_over_efa_has_a_host_that_posts() -> None:
    router, placement = Router(experts=128, topk=8, copies=8.0), GroupPlacement(ranks=32, domains=4)
    by_ib = cluster("H100-SXM5-80GB", 32, 8, "ib-ndr400-x8")
    few, many = (token_exchange(1e7, rows, router, placement, by_ib, "deepep") for rows in (1e2, 1e5))
    assert few == many
    assert over_efa(32, 2048, 2048, dispatcher="hybridep") < 0.5 * over_efa(32, 2048, 2048)


def test_a_capacity_sends_fewer_tokens_and_as_few_messages() -> None:
    placement, machines = GroupPlacement(ranks=32, domains=4), cluster("H100-SXM5-80GB", 32, 8, "efa-3200")
    whole, half = (
        token_exchange(8e6, 2048, Router(experts=128, topk=8, copies=copies), placement, machines, "deepep")
        for copies in (8.0, 4.0)
    )
    meeting_s = whole.latency_s
    assert half.latency_s == meeting_s
    assert half.solo_s - meeting_s == pytest.approx((whole.solo_s - meeting_s) / 2)


@pytest.mark.parametrize(("hosts", "rounds"), [(3, 2), (5, 3), (40, 6)])
def test_hosts_meet_in_whole_rounds(hosts: int, rounds: int) -> None:
    router, placement = (
        Router(experts=40 * 24, topk=8, copies=8.0),
        GroupPlacement(ranks=8 * hosts, domains=hosts),
    )
    machines = cluster("H100-SXM5-80GB", 8 * hosts, 8, "efa-3200")
    found = token_exchange(8e6, 2048, router, placement, machines, "deepep")
    assert found.latency_s == pytest.approx(3e-5 + 2 * rounds * 7e-5)


def test_more_ranks_than_any_are_tuned_for_send_chunks_of_the_most() -> None:
    """12 and 8 tokens over 160 ranks and above, 8 and 8 over 64."""
    router = Router(experts=960, topk=8, copies=8.0)

    def tokens_a_message(hosts: int) -> float:
        placement = GroupPlacement(ranks=8 * hosts, domains=hosts)
        machines = cluster("H100-SXM5-80GB", 8 * hosts, 8, "efa-3200")
        found = token_exchange(1e3, 2048, router, placement, machines, "deepep")  # few bytes, many messages
        sent = 2048 * visits(router, placement).domains * (hosts - 1) / hosts
        return sent / ((found.solo_s - found.latency_s) / 3e-6)

    assert tokens_a_message(8) == pytest.approx(8)
    for hosts in (20, 40):
        assert tokens_a_message(hosts) == pytest.approx(2 / (1 / 12 + 1 / 8))


@pytest.mark.parametrize(
    "fields", [{}, {"routing": {"kind": "zipf", "exponent": 1.0}}, {"tp": 2, "sequence_parallel": True}]
)
def test_an_exchange_has_the_tokens_of_its_bytes(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the rank that has the most rows, and of ranks that share out their tokens."""
    asked: list[tuple[float, float]] = []

    def noted(size: float, tokens: float, *rest: Any, **more: Any) -> Any:
        asked.append((size, tokens))
        return token_exchange(size, tokens, *rest, **more)

    monkeypatch.setattr(pricing, "token_exchange", noted)
    run = with_experts(moe_dispatcher="deepep", **fields)
    lowered(run)
    assert asked
    assert all(size == pytest.approx(tokens * 2 * run.model.hidden_size) for size, tokens in asked)
