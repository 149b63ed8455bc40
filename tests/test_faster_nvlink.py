"""More bandwidth of NVLink makes a step no longer, but for two reasons that are known (decision 264)."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import changed, layouts, scenario

from stepsim.sim.network.collectives import collective_transfer
from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.network.nccl.settings import NcclSettings
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate

ONE_WAY = {"nccl_algo": "Ring", "nccl_proto": "Simple"}
"""NCCL has nothing to choose from: what it takes for the quickest is not always that."""


@pytest.mark.slow
@examples(40)
@given(
    st.one_of(
        layouts(gpu="H100-SXM5-80GB"),
        layouts(gpu="H100-SXM5-80GB", tp=1, pp=1, schedule="none", cp=2, zero=3, software="mlperf-5.1"),
    ),
    st.sampled_from([1.1, 1.25, 1.5, 2.0, 4.0]),
)
def test_more_nvlink_is_not_slower(run: Scenario, factor: float) -> None:
    """Where NCCL has no choice, and HBM is faster by as much: rings take the same share of it then."""
    assume(run.schedule != "pipedream")
    pinned = changed(run, software=ONE_WAY)
    faster = changed(pinned, cluster={"what_if": {"nvlink": factor, "hbm": factor}})
    assert simulate(faster).step_time_s <= simulate(pinned).step_time_s * (1 + 1e-9)


def taken_s(size: float, factor: float, proto: str | None = None) -> float:
    """Seconds of an all-gather of so many bytes between two GPUs whose NVLink is ``factor`` times as fast."""
    run = scenario(gpu="H100-SXM5-80GB", interconnect="ib-ndr400-x8", gpus=2, gpus_per_node=2, dp=2)
    cluster = build_cluster(changed(run, cluster={"what_if": {"nvlink": factor}}))
    nccl = NcclSettings(algo="Ring" if proto else None, proto=proto)
    place = GroupPlacement(ranks=2, domains=1)
    return collective_transfer("all_gather", size, place, cluster, nccl=nccl).solo_s


def test_nccl_takes_another_protocol_by_its_own_estimate() -> None:
    """One reason: by its own model NCCL takes LL for small messages and Simple beyond. A faster link moves
    that change to smaller messages, for which Simple's start takes longer than all of LL."""
    size = 2.0**21
    assert (
        taken_s(size, 1.0) == taken_s(size, 1.0, "LL") < taken_s(size, 1.25) == taken_s(size, 1.25, "Simple")
    )
    for proto in ("LL", "LL128", "Simple"):
        assert taken_s(size, 1.25, proto) < taken_s(size, 1.0, proto)


def test_a_message_that_is_mostly_latency_takes_the_share_of_hbm_of_a_large_one() -> None:
    """The other, which is ours: kernels beside it are slower for as long, and it is hardly shorter."""
    run = scenario(gpu="H100-SXM5-80GB", interconnect="ib-ndr400-x8", gpus=2, gpus_per_node=2, dp=2)
    nccl, place = NcclSettings(algo="Ring", proto="Simple"), GroupPlacement(ranks=2, domains=1)
    plain, faster = (
        collective_transfer("all_gather", 2.0**17, place, build_cluster(one), nccl=nccl)
        for one in (run, changed(run, cluster={"what_if": {"nvlink": 1.5}}))
    )
    assert faster.hbm == pytest.approx(1.5 * plain.hbm, rel=0.02)
    assert 0.9 * plain.solo_s < faster.solo_s < plain.solo_s
