"""Intervals of layers that hosts may hold up reach to the step of the slowest launches that are published."""

from __future__ import annotations

from typing import Any

import pytest
from small_experts import with_experts
from small_scenarios import WIDE, scenario

from stepsim.sim.evidence import interval_host
from stepsim.sim.evidence.interval import REACHES
from stepsim.sim.evidence.interval_host import (
    MOST_DENSE_LAUNCH_S,
    MOST_LAUNCH_S,
    SLOWER_HOST,
    longer_at_most_s,
)
from stepsim.sim.lowering.lower import lower
from stepsim.sim.program.program import Block
from stepsim.sim.program.solo import solo_ends
from stepsim.sim.result.result import Result
from stepsim.sim.result.step import LENGTHENS, Interval
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate

EXPERTS = {"num_experts": 16, "topk": 2, "expert_ffn_hidden_size": 2048}


def run_on(gpu: str = "GH200-96GB", *, moe: dict[str, Any] | None = EXPERTS, **software: Any) -> Scenario:
    return scenario(
        **WIDE,
        gpu=gpu,
        gpus_per_node=4,
        interconnect="ib-ndr400-x4",
        dp=4,
        ep=4 if moe else 1,
        zero=1,
        moe=moe,
        software={"preset": "megatron-core-2025"} | software,
    )


def interval_of_step(result: Result) -> Interval:
    assert result.interval is not None
    return result.interval


def reached(run: Scenario) -> bool:
    return any(part.kind == SLOWER_HOST for part in interval_of_step(simulate(run)).parts)


def test_the_step_of_the_slowest_published_host_lies_inside() -> None:
    usual = simulate(run_on())
    slow = simulate(run_on(host={"host_s_per_kernel": MOST_LAUNCH_S}))
    assert slow.step_time_s > 1.25 * usual.step_time_s
    assert slow.step_time_s < interval_of_step(usual).high_s


def test_what_is_estimated_is_what_a_replay_takes_longer() -> None:
    run, twice = run_on(), run_on(host={"host_s_per_kernel": 8e-5})
    plan = lower(run, build_cluster(run)).plan
    longer_s = simulate(twice).step_time_s - simulate(run).step_time_s
    assert longer_at_most_s(plan, 2.0, run.num_microbatches) == pytest.approx(longer_s, rel=0.15)


def test_half_of_the_microbatches_are_held_up_half_as_long() -> None:
    run = run_on()
    plan = lower(run, build_cluster(run)).plan
    whole_s = longer_at_most_s(plan, 2.0, run.num_microbatches)
    assert longer_at_most_s(plan, 2.0, run.num_microbatches // 2) == pytest.approx(whole_s / 2)


@pytest.mark.parametrize(("schedule", "vpp"), [("1f1b", 1), ("interleaved", 2), ("dualpipe", 1)])
def test_stages_add_what_their_share_of_the_microbatches_takes_longer(schedule: str, vpp: int) -> None:
    """DualPipe's ranks have two stages, each of which runs half of the microbatches."""
    told = {"schedule": schedule, "pp": 4, "vpp": vpp, "ep": 4, "num_layers": 16, "microbatches": 16}
    run = with_experts(**told, overlapped_point_to_point="batched")
    plan = lower(run, build_cluster(run)).plan
    twice = run.with_({"software.host.host_s_per_kernel": 8e-5})
    longer_s = simulate(twice).step_time_s - simulate(run).step_time_s
    assert longer_at_most_s(plan, 2.0, run.num_microbatches) == pytest.approx(longer_s, rel=0.15)


def test_launches_that_are_priced_at_the_most_leave_no_doubt_above() -> None:
    most = {"host_s_per_kernel": MOST_LAUNCH_S}
    assert reached(run_on("H100-SXM5-80GB"))
    assert not reached(run_on("H100-SXM5-80GB", host=most))
    assert reached(run_on("GH200-96GB", host=most))  # Grace has been seen to be slower than its price says


def test_graphs_and_compilers_have_no_such_doubt() -> None:
    assert not reached(run_on(host={"cuda_graphs": True}))
    assert not reached(run_on(kernels={"torch_compile": True}))


def dense(gpu: str = "GH200-96GB", *, tokens: int = 4096, **software: Any) -> Scenario:
    run = run_on(gpu, moe=None, **software)
    return run.with_({"training.seq_length": tokens})


def test_dense_layers_have_it_where_launches_may_outlast_kernels() -> None:
    """Grace may launch 2,048 tokens more slowly than a GH200 runs them, and 32,768 tokens never."""
    assert reached(dense(tokens=2048))
    assert not reached(dense(tokens=32768))
    assert not reached(dense(tokens=2048, host={"cuda_graphs": True}))
    shown = {"launches_per_product": 1}  # their price is one that steps have shown
    assert not reached(dense(tokens=2048, host=shown))


@pytest.mark.parametrize("changes", [{}, {"model.moe": None, "parallelism.ep": 1}])
def test_blocks_that_stages_have_in_common_are_timed_once(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"schedule": "interleaved", "pp": 4, "vpp": 2, "ep": 4, "num_layers": 16, "microbatches": 16}
    run = with_experts(**told).with_(changes)
    plan = lower(run, build_cluster(run)).plan
    timed: list[Block] = []

    def seconds(block: Block, *, sms: int) -> tuple[float, float]:
        timed.append(block)
        return solo_ends(block, sms=sms)

    monkeypatch.setattr(interval_host, "solo_ends", seconds)
    longer_at_most_s(plan, 2.0, run.num_microbatches)
    assert plan.shape.stages == 8
    assert 0 < len(timed) == len(set(timed))


def test_hosts_of_dense_layers_keep_their_lead() -> None:
    """Forward and backward count together, as the host's lead goes from one to the other. What launches
    beside layers is not in doubt: of four layers that is an eighth of what a slower host would add."""
    layers = {"model.num_layers": 12}
    run = dense(tokens=2048).with_(layers)
    plan = lower(run, build_cluster(run)).plan
    usual_s, node = run.software.host.host_s_per_kernel, plan.cluster.node
    slower = MOST_DENSE_LAUNCH_S / usual_s * node.loop_factor / node.launch_factor
    most = dense(tokens=2048, host={"host_s_per_kernel": usual_s * slower}).with_(layers)
    longer_s = longer_at_most_s(plan, slower, run.num_microbatches)
    assert simulate(most).step_time_s < interval_of_step(simulate(run)).high_s
    assert longer_s == pytest.approx(simulate(most).step_time_s - simulate(run).step_time_s, rel=0.15)


def test_graphs_that_leave_experts_out_keep_the_doubt_of_these() -> None:
    whole, part = run_on(), run_on(host={"cuda_graphs": True, "graphs_leave_out_experts": True})
    longer_s = [
        longer_at_most_s(lower(run, build_cluster(run)).plan, 2.0, run.num_microbatches)
        for run in (whole, part)
    ]
    assert 0.0 < longer_s[1] < longer_s[0]


def test_hosts_make_a_step_longer_alone() -> None:
    assert SLOWER_HOST in LENGTHENS
    assert SLOWER_HOST in REACHES
