"""Laws of a step with faults: none speeds it up, and whom ranks wait for has the right name."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import layouts, scenario
from struck_steps import LINES, REPLICAS, cost, seeded

from stepsim.sim.degradation.of_faults import jitter_factor
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded
from stepsim.sim.lowering.lower import lower
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Collective, Compute, Exchange, MessageEnd, Op, Program, Programs
from stepsim.sim.program.uncontended import uncontended
from stepsim.sim.report.compare import comparison
from stepsim.sim.report.compare_table import comparison_document
from stepsim.sim.report.tables import headline
from stepsim.sim.result.step import PEERS
from stepsim.sim.scenario.faults.kinds import step_kinds
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate

FABRICS: tuple[dict[str, Any], ...] = (
    {"kind": "rail-optimized"},
    {"kind": "fat-tree", "nodes_per_leaf": 1},
    {"kind": "fat-tree", "nodes_per_leaf": 1, "oversubscription": 2},
    {"kind": "fat-tree", "nodes_per_leaf": 1, "ecmp": "hashed"},
)


def test_every_kind_that_a_step_ends_with_is_in_the_law() -> None:
    assert set(LINES) == set(step_kinds()) - {"hang"}


@pytest.mark.slow
@examples(10)
@given(data=st.data())
def test_no_fault_speeds_a_step_up(data: st.DataObject) -> None:
    """Where nothing is shared, strictly; else never below the healthy step with nothing shared."""
    drawn = data.draw(layouts(fabric=data.draw(st.sampled_from(FABRICS)), dp=2, gpus_per_node=2))
    node = data.draw(st.integers(0, max(0, drawn.world_size // 2 - 1)))
    gpu = data.draw(st.integers(0, drawn.world_size - 1))
    line = data.draw(st.sampled_from([line for lines in LINES.values() for line in lines]))
    try:
        found = cost(drawn, line.format(node=node, gpu=gpu))
    except ValueError:  # that switch is not there, or the job cannot do without it
        return
    healthy = folded(lower(drawn, build_cluster(drawn)))
    least_s = replay(uncontended(healthy.programs)).step_s
    assert least_s <= found.healthy_step_time_s * (1 + 1e-9)
    assert found.step_time_s >= least_s * (1 - 1e-9)
    if least_s >= found.healthy_step_time_s * (1 - 1e-9):
        assert found.step_time_s >= found.healthy_step_time_s * (1 - 1e-9)
    if found.step_time_s < found.healthy_step_time_s:
        assert found.least_s == pytest.approx(least_s)


def late_message(kernel_s: float) -> Programs:
    """Class 0 computes and sends to class 1 what that does not wait for; class 1 gathers over the same NIC,
    and its kernel awaits it.
    """
    message = Transfer(0.0, 20.0, 10.0, (("nic", 1.0),))
    gathers = Transfer(0.0, 40.0, 10.0, (("nic.in", 1.0),))
    sends, receives = (
        Exchange((MessageEnd(send, 1 - r, "0F0", message),)) for r, send in ((0, True), (1, False))
    )
    links = {"nvlink.out": 1.0, "nvlink.in": 1.0, "nic.out": 10.0, "nic.in": 10.0}
    return Programs(
        classes=(
            Program(
                ops=(
                    Op("kernel", "compute", "compute", Compute(kernel_s, "gemm")),
                    Op("send", "pp", "pp", sends, after=(0,)),
                )
            ),
            Program(
                ops=(
                    Op("gather", "dp", "dp", Collective("all_gather", "dp", gathers)),
                    Op("receive", "pp", "pp", receives),
                    Op("kernel", "compute", "compute", Compute(10.0, "gemm"), after=(0,)),
                )
            ),
        ),
        communicators={},
        links=(links, links),
        sms=100,
        corun_slowdown=0.0,
    )


@pytest.mark.parametrize(("kernel_s", "step_s"), [(1.0, 16.0), (2.0, 16.0), (3.0, 15.0), (4.0, 14.0)])
def test_what_is_late_leaves_a_link_to_what_is_awaited(kernel_s: float, step_s: float) -> None:
    """Fair shares: 4 s of gathering take 2 s more beside a message of 2 s, less if that comes in their last
    2 s. Nothing makes the step shorter than 14 s, as it is with nothing shared.
    """
    programs = late_message(kernel_s)
    assert replay(programs).step_s == pytest.approx(step_s)
    assert replay(uncontended(programs)).step_s == pytest.approx(14.0)


def test_a_shorter_step_is_told_with_its_bound() -> None:
    from stepsim.sim.scenario.load import load_scenario

    found = cost(load_scenario("llama3.1-405b-16k"), "nic_down nic/5@node/12")
    if found.step_time_s >= found.healthy_step_time_s:
        assert found.least_s is None
    else:
        assert found.least_s is not None
        assert found.least_s < found.step_time_s


# Jitter ----------------------------------------------------------------------------------------------------


def slowest_of(hosts: int) -> float:
    """E[max(0, z)] of the largest of so many normal variates: the integral of 1 - Phi(x)^n over x > 0."""
    x = np.linspace(0.0, 9.0, 9001)
    phi = np.array([NormalDist().cdf(one) for one in x])
    return float(np.trapezoid(1 - phi**hosts, x))


@pytest.mark.parametrize("hosts", [1, 2, 8, 64])
def test_the_slowest_host_on_average(hosts: int) -> None:
    drawn = np.array(
        [max(jitter_factor(seed, host, 0.1) for host in range(hosts)) for seed in range(1600 // hosts)]
    )
    assert drawn.min() >= 1.0
    expected = 1 + 0.1 * slowest_of(hosts)
    assert abs(drawn.mean() - expected) < 3 * drawn.std(ddof=1) / math.sqrt(len(drawn))
    assert slowest_of(1) == pytest.approx(1 / math.sqrt(2 * math.pi), rel=1e-4)


def test_jitter_never_speeds_a_step_up() -> None:
    one_host = {**REPLICAS, "dp": 8}
    slowdowns = [cost(seeded(seed, **one_host), "host_jitter job cv=0.05").slowdown for seed in range(8)]
    assert min(slowdowns) == 1.0  # a host that nothing disturbs
    assert max(slowdowns) > 1.0


QUICK_HOST = {"preset": "megatron-core-2024", "host": {"host_s_per_kernel": 1e-6}}
"""Without it each rank waits for its own host."""

# Whom ranks wait for ---------------------------------------------------------------------------------------


def whole(found: Any) -> float:
    """All of a step of the mean rank: work, and each wait under its name."""
    return float(found.after.work_s + found.after.total_waiting_s)


@pytest.mark.parametrize(
    ("fields", "peers"),
    [
        ({"dp": 4}, "dp peers"),
        ({"dp": 4, "zero": 3, "software": "torchtitan-2025"}, "dp peers"),
        ({"tp": 4}, "tp peers"),
        ({"cp": 4, "gpu": "H100-SXM5-80GB", "software": QUICK_HOST}, "cp peers"),
    ],
)
def test_without_a_pipeline_nothing_is_its_bubble(fields: dict[str, Any], peers: str) -> None:
    """One slow GPU: the others wait for it as members of a group."""
    run = scenario(**{"hidden_size": 1024, "seq_length": 1024, **fields})
    result = simulate(run, faults=["gpu_throttle gpu/1 slow_factor=2"])
    assert result.bubble_fraction == 0.0
    assert set(result.bubble_per_stage) == {0.0}
    assert result.waiting_s[peers] > 0.05 * result.step_time_s
    assert max(PEERS, key=lambda name: result.waiting_s[name]) == peers
    document = result.to_dict()
    assert document["waiting_for_peers_s"][peers] == result.waiting_s[peers]
    assert document["faults"]["waiting_s"][peers]["after"] == pytest.approx(result.waiting_s[peers])
    titles = [title for title, _, _ in headline(result)]
    assert "waiting for peers" in titles
    assert "pipeline bubble" not in titles
    assert result.faults is not None
    assert whole(result.faults) == pytest.approx(result.step_time_s, rel=1e-9)
    compared = comparison_document(comparison(simulate(run, faults=()), result))
    assert compared["waiting_for_peers_s"][peers]["difference"] == result.waiting_s[peers]


def test_other_stages_are_the_bubble_and_other_replicas_are_not() -> None:
    run = scenario(pp=2, dp=2, hidden_size=1024, seq_length=1024)
    healthy, struck = simulate(run), simulate(run, faults=["gpu_throttle gpu/1 slow_factor=2"])
    assert sum(healthy.waiting_s.values()) == 0.0
    assert healthy.bubble_fraction > 0.0
    assert struck.waiting_s["dp peers"] > 0.0
    assert struck.bubble_fraction > healthy.bubble_fraction
    assert struck.faults is not None
    assert whole(struck.faults) == pytest.approx(struck.step_time_s, rel=1e-9)


def stages(run: Scenario) -> int:
    return run.parallelism.pp


@examples(8)
@given(data=st.data())
def test_every_second_has_one_name(data: st.DataObject) -> None:
    run = data.draw(layouts(dp=2, gpus_per_node=4))
    found = cost(run, f"gpu_throttle gpu/{data.draw(st.integers(0, run.world_size - 1))} slow_factor=1.5")
    assert whole(found) == pytest.approx(found.step_time_s, rel=1e-7)
    if stages(run) == 1:
        assert found.after.waiting_s["bubble"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("microbatches", [2, 8])
def test_a_stream_is_no_faster_than_its_slowest_stage(microbatches: int) -> None:
    """The last backwards of an early stage have no forwards between them: no measure of its pace."""
    run = scenario(pp=2, schedule="pipedream", microbatches=microbatches, hidden_size=1024, seq_length=1024)
    assert cost(run, "gpu_throttle gpu/0 slow_factor=2").slowdown > 1.7
