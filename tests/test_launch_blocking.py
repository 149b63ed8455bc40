"""Launches that block (CUDA_LAUNCH_BLOCKING=1): the GPU waits for the host before each kernel of a layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused_at
from small_scenarios import scenario

from stepsim.calibration.cases.framework_text import fields_said, preset_said
from stepsim.calibration.cases.unstated import known_site
from stepsim.kernels.kernel import Gemm
from stepsim.sim.lowering.layers.layer_builder import KernelPricing, LayerBuilder
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Collective, Compute
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software import get_software
from stepsim.sim.scenario.software.software import GROUP_OF, grouped
from stepsim.sim.simulate import simulate

COSTS = KernelPricing(
    seconds=lambda kernel: 1.0,
    transfer=lambda axis, kind, size: Transfer(latency_s=0.5, bytes=size, ceiling_bytes_per_s=1.0),
    host_s=0.25,
    host_collective_s=0.75,
)


def run_with(host_s: float, *, blocks: bool, tp: int = 2) -> Scenario:
    host = {"host_s_per_kernel": host_s, "launch_blocking": blocks}
    preset = {"preset": "megatron-deepspeed-2022", "host": host}
    return scenario(tp=tp, pp=2, schedule="1f1b", precision="fp16", software=preset)


def blocked_builder() -> LayerBuilder:
    run = run_with(0.0, blocks=True)
    return LayerBuilder(
        costs=replace(COSTS, launches_block=True), local=local_shape_of(run), software=run.software
    )


def test_a_blocked_kernel_ends_what_its_launches_cost_later() -> None:
    builder = blocked_builder()
    builder.memory("three", 8.0, launches=3)
    builder.kernel("product", Gemm(m=1, n=1, k=1))
    assert [op.work.seconds for op in builder.ops if isinstance(op.work, Compute)] == [1.75, 1.25]
    assert {op.host_s for op in builder.ops} == {0.0}


def test_a_blocked_collective_begins_later_and_nothing_runs_beside_it() -> None:
    builder = blocked_builder()
    index = builder.tp("reduce", "all_reduce", 4.0, wait=False)
    work = builder.ops[index].work
    assert isinstance(work, Collective)
    assert work.transfer.latency_s == 1.25
    after = builder.memory("next", 8.0)
    assert builder.ops[after].after == (index,)


@pytest.mark.slow
@given(st.integers(0, 100))
def test_a_blocked_step_grows_with_the_host(microseconds: int) -> None:
    slower, blocked = (
        simulate(run_with(host * 1e-6, blocks=True)).step_time_s for host in (microseconds + 1, microseconds)
    )
    assert slower > blocked


def test_a_host_that_costs_nothing_blocks_nothing() -> None:
    free, blocked = (simulate(run_with(0.0, blocks=blocks)).step_time_s for blocks in (False, True))
    assert blocked == pytest.approx(free, rel=1e-12)


def test_a_step_of_one_rank_grows_by_every_launch_of_its_layers() -> None:
    """Where the host was hidden before, what a microsecond adds is the number of launches."""
    one, two = (
        scenario(
            software={"preset": "bigscience-2022", "host": {"host_s_per_kernel": host_s}}, precision="fp16"
        )
        for host_s in (1.0, 2.0)
    )
    launches = simulate(two).step_time_s - simulate(one).step_time_s
    layers, microbatches = 8, 4
    assert 25 < launches / (layers * microbatches) < 100


@pytest.mark.parametrize("overlap", ["overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap"])
def test_what_would_run_beside_a_blocked_kernel_is_refused(overlap: str) -> None:
    given = run_with(1e-5, blocks=True)
    software = given.software.with_fields(**{overlap: True})
    with refused_at(f"software.{GROUP_OF[overlap]}.{overlap}"):
        simulate(given.model_copy(update={"software": software}))


@pytest.mark.parametrize(("zero", "messages"), [(3, "blocking"), (0, "async")])
def test_shards_and_messages_beside_a_blocked_kernel_are_refused(zero: int, messages: str) -> None:
    software = {
        "preset": "megatron-deepspeed-2022",
        "host": {"launch_blocking": True},
        "pipeline": {"point_to_point": messages},
    }
    given = scenario(
        pp=1 if zero else 2, dp=2, zero=zero, schedule="none" if zero else "1f1b", software=software
    )
    with refused_at("parallelism.zero" if zero else "software.pipeline.point_to_point"):
        simulate(given)


def test_a_barrier_has_no_place_where_ranks_go_on_one_by_one() -> None:
    software = {
        "preset": "megatron-zero-bubble-2023",
        "gradients": {"optimizer_post_validation": True},
        "host": {"step_barrier": True},
    }
    with refused_at("software.host.step_barrier"):
        simulate(scenario(pp=2, schedule="zb-h1", microbatches=4, software=software))


@pytest.mark.parametrize(
    ("preset", "interconnect", "gpus", "expected"),
    [
        ("megatron-deepspeed-2022", "omnipath-100-x4", 384, "bigscience-2022"),
        ("megatron-deepspeed-2022", "omnipath-100-x4", 160, "megatron-deepspeed-2022"),
        ("megatron-deepspeed-2022", "ib-hdr200-x4", 512, "megatron-deepspeed-2022"),
        ("megatron-2021", "omnipath-100-x4", 384, "megatron-2021"),
    ],
)
def test_jean_zay_is_known_by_its_network_and_size(
    preset: str, interconnect: str, gpus: int, expected: str
) -> None:
    assert known_site(preset, interconnect, gpus) == expected
    assert get_software("bigscience-2022").host.launch_blocking


@pytest.mark.parametrize("framework", ["Megatron-LM core", "nanotron", "PyTorch (DDP)", "MaxText"])
def test_a_framework_that_says_so_runs_nothing_beside_kernels(framework: str) -> None:
    text = f"{framework}; CUDA_LAUNCH_BLOCKING=1"
    software = {"preset": preset_said(text, 2025)} | grouped(fields_said("software", text))
    run = scenario(tp=2, pp=2, dp=2, zero=0, schedule="1f1b", software=software)
    assert run.software.host.launch_blocking
    assert (
        simulate(run).step_time_s > simulate(run.with_({"software.host.launch_blocking": False})).step_time_s
    )
