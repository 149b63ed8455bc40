"""GPUDirect-TCPX between hosts of A3 High, against the logs that three publish of it."""

from __future__ import annotations

import pytest

from stepsim.hardware.cluster import Cluster
from stepsim.sim.network.collectives import GroupPlacement, collective_curve
from stepsim.sim.network.nccl.settings import NcclSettings
from stepsim.sim.scenario.blocks import ClusterSpec
from stepsim.sim.scenario.machine import cluster_of

MIB = 2.0**20
TWO_HOSTS = GroupPlacement(ranks=16, domains=2)

GOOGLE_ALL_GATHER_US = {
    1: 696.8, 2: 776.4, 4: 774.3, 8: 812.1, 16: 1035.2, 32: 1183.3, 64: 1593.4, 128: 2127.8, 256: 3603.0,
    512: 7101.7,
}  # fmt: skip
"""MiB and microseconds of the sample output of cloud.google.com's page on GPUDirect-TCPX: 2 x 8 H100."""

SKYPILOT_ALL_REDUCE_BUS = {
    1: 1.33, 2: 2.43, 4: 4.8, 8: 9.21, 16: 17.16, 32: 30.08, 64: 45.31, 512: 67.09, 2048: 65.72,
}  # fmt: skip
"""MiB and GB/s: skypilot-org/skypilot examples/gcp_gpu_direct_tcpx/README.md at 088eebc2, 2 x 8 H100."""


def a3_high(gpus: int = 16) -> Cluster:
    spec = ClusterSpec(gpu="H100-SXM5-80GB", gpus=gpus, gpus_per_node=8, interconnect="tcpx-200-x4")
    return cluster_of(spec)


@pytest.mark.parametrize(("mib", "measured_us"), GOOGLE_ALL_GATHER_US.items())
def test_gathers_take_what_google_shows(mib: int, measured_us: float) -> None:
    curve = collective_curve("all_gather", mib * MIB, TWO_HOSTS, a3_high())
    assert 1e6 * curve.solo_s(mib * MIB) == pytest.approx(measured_us, rel=0.2)


@pytest.mark.parametrize(("mib", "bus"), SKYPILOT_ALL_REDUCE_BUS.items())
def test_all_reduces_reach_what_skypilot_shows(mib: int, bus: float) -> None:
    curve = collective_curve("all_reduce", mib * MIB, TWO_HOSTS, a3_high())
    predicted = 2 * 15 / 16 * mib * MIB / curve.solo_s(mib * MIB) / 1e9
    assert predicted == pytest.approx(bus, rel=0.2)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("placement", [TWO_HOSTS, GroupPlacement(ranks=8, domains=1)])
def test_jobs_set_what_the_provider_says_unless_they_set_something_else(
    kind: str, placement: GroupPlacement
) -> None:
    curve = collective_curve(kind, 64 * 1024.0, placement, a3_high())
    assert (curve.algorithm, curve.protocol) == ("ring", "Simple")
    own = NcclSettings(proto="LL")
    assert collective_curve(kind, 64 * 1024.0, placement, a3_high(), nccl=own).protocol == "LL"
