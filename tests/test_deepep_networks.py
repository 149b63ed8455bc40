"""What DeepEP's kernels make of a network, against what its own test printed on the machines."""

from __future__ import annotations

import pytest
from small_clusters import cluster

from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.network.token_exchange import Router, token_exchange, visits

TOKENS = 4096 * 7168 * 2.0
"""Bytes of the tokens of a GPU in that test, in 16 bit; eight of 256 experts each, on four hosts at most."""

PRINTED = {
    ("H800-SXM5-80GB", "ib-ndr400-x8", 4): (58.0, 57.0),  # deepseek-ai/DeepEP README: EP32
    ("H800-SXM5-80GB", "ib-ndr400-x8", 8): (51.0, 50.0),  # EP64
    # awslabs/awsome-distributed-ai at 46793a8d, ep-backend-comparison/RESULTS-p5.md, NVSHMEM
    ("H100-SXM5-80GB", "efa-3200", 4): (43.7, 46.1),
    ("H100-SXM5-80GB", "efa-3200", 8): (39.6, 39.2),
}
"""GB/s of tokens to hosts, its own counted, of dispatch and combine, by machine."""


@pytest.mark.parametrize("machine", PRINTED, ids=lambda machine: f"{machine[1]}-{machine[2]}")
def test_a_dispatch_moves_what_its_own_test_prints(machine: tuple[str, str, int]) -> None:
    gpu, network, hosts = machine
    router = Router(experts=256, topk=8, copies=8.0, node_limit=4)
    placement = GroupPlacement(ranks=8 * hosts, domains=hosts)
    taken_s = token_exchange(TOKENS, router, placement, cluster(gpu, 8 * hosts, 8, network), "deepep").solo_s
    printed = TOKENS * visits(router, placement).domains / taken_s / 1e9
    assert printed == pytest.approx(sum(PRINTED[machine]) / 2, rel=0.05)
