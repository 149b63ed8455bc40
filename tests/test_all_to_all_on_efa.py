"""NCCL's all-to-all between hosts of AWS, against nccl-tests that no constant has seen."""

from __future__ import annotations

import pytest
from small_clusters import cluster

from stepsim.sim.network.collectives import collective_transfer
from stepsim.sim.network.group_placement import GroupPlacement

PAYLOAD = 60 * 2**20
"""Bytes of a rank: 56 to 64 MiB, the tokens of a layer of experts."""

MEASURED = {
    # awslabs/awsome-distributed-ai at 46793a8d, ep-backend-comparison/RESULTS.md and RESULTS-p5.md,
    # alltoall_perf at the payload of experts
    ("B300-SXM", "efa-6400-x16", 2): 104.9,
    ("B300-SXM", "efa-6400-x16", 4): 94.0,
    ("B300-SXM", "efa-6400-x16", 8): 74.0,
    ("B300-SXM", "efa-6400-x16", 16): 73.8,
    ("B300-SXM", "efa-6400-x16", 32): 54.7,
    ("H100-SXM5-80GB", "efa-3200", 4): 45.1,
    ("H100-SXM5-80GB", "efa-3200", 8): 40.4,
}
"""Bus bandwidth in GB/s by GPU, network and hosts."""


@pytest.mark.parametrize("machine", MEASURED, ids=lambda machine: f"{machine[1]}-{machine[2]}")
def test_an_all_to_all_of_experts_takes_what_nccl_tests_measured(machine: tuple[str, str, int]) -> None:
    gpu, network, hosts = machine
    ranks = 8 * hosts
    placement = GroupPlacement(ranks=ranks, domains=hosts)
    sent = collective_transfer("all_to_all", float(PAYLOAD), placement, cluster(gpu, ranks, 8, network))
    told = PAYLOAD * (ranks - 1) / ranks / sent.solo_s / 1e9
    assert told == pytest.approx(MEASURED[machine], rel=0.2)
