"""Optimizer state on the host: bytes over the link, the CPU's time, what overlaps, what the GPU holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import changed, every_op, lowered, parameters_of_ranks, scenario

from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.host_memory import host_memory_of
from stepsim.hardware.node import node_for
from stepsim.sim.lowering.state.activations import activation_bytes
from stepsim.sim.program.program import Collective
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

law = examples(12)
PRESETS = ("torchtitan-2024", "deepspeed-zero3-2021", "megatron-core-2025", "megatron-2023")


@st.composite
def runs(draw: st.DrawFn) -> Scenario:
    """Small scenarios with and without ZeRO, hybrid sharding and disks."""
    zero, dp = draw(st.sampled_from([0, 1, 2, 3])), draw(st.sampled_from([1, 2, 4]))
    return scenario(
        software=draw(st.sampled_from(PRESETS)),
        zero=zero,
        dp=dp,
        fsdp_shard_size=draw(st.sampled_from([None, 2])) if zero and dp == 4 else None,
        tp=draw(st.sampled_from([1, 2])),
        microbatches=draw(st.sampled_from([1, 2])),
        cpu_offload=True,
        nvme_offload=draw(st.booleans()),
    )


def moved(run: Scenario, name: str) -> float:
    """Bytes of all copies of that name on the first pipeline rank."""
    ops = every_op(lowered(run).programs.classes[0])
    return sum(
        n * op.work.transfer.bytes for op, n in ops if op.name == name and isinstance(op.work, Collective)
    )


@law
@given(runs())
def test_own_gradients_leave_and_own_parameters_come_back(run: Scenario) -> None:
    par, software = run.parallelism, run.software
    (held,) = parameters_of_ranks(run)
    own = held / ((par.fsdp_shard_size or par.dp) if par.zero else 1)
    wire = software.gradients.reduce_grad_bytes or software.gradients.gradient_bytes("bf16")
    each = par.zero >= 2 and par.dp > 1
    assert moved(run, "gradients to host") == pytest.approx(
        own * wire * (run.num_microbatches if each else 1)
    )
    assert moved(run, "parameters from host") == pytest.approx(own * 2)


@law
@given(runs())
def test_the_gpu_holds_no_optimizer_state(run: Scenario) -> None:
    without = changed(run, training={"cpu_offload": False, "nvme_offload": False})
    offloaded, kept = simulate(run).memory[0], simulate(without).memory[0]
    assert offloaded.terms["optimizer"] == 0 < kept.terms["optimizer"]
    assert offloaded.peak_bytes < kept.peak_bytes


def test_folded_equals_unfolded() -> None:
    run = scenario(software="torchtitan-2024", dp=4, tp=2, zero=3, cpu_offload=True, gpus_per_node=4)
    assert simulate(run, fold=False).step_time_s == pytest.approx(simulate(run).step_time_s, rel=1e-9)


def with_threads(threads: int) -> dict[str, Any]:
    host = {"host_s_per_kernel": 0.0, "update_threads": threads}
    return {"preset": "deepspeed-zero3-2021", "host": host}


def big(**fields: Any) -> Result:
    """A step whose update on the host takes a while."""
    return simulate(
        scenario(
            **{
                "software": {"preset": "deepspeed-zero3-2021", "host": {"host_s_per_kernel": 0.0}},
                "hidden_size": 4096,
                "num_attention_heads": 32,
                "ffn_hidden_size": 16384,
                "num_layers": 8,
                "seq_length": 2048,
                "dp": 8,
                "zero": 2,
                "microbatches": 1,
                "cpu_offload": True,
                **fields,
            }
        )
    )


def test_the_update_takes_the_hosts_memory() -> None:
    """28 bytes a parameter through the memory of a host that eight ranks share."""
    with_host, without = big(), big(cpu_offload=False)
    (held,) = parameters_of_ranks(with_host.scenario)  # type: ignore[arg-type]
    host = host_memory_of(get_gpu("A100-SXM4-80GB"), node_for(get_gpu("A100-SXM4-80GB")), 8)
    update_s = held * 28 / (host.memory_bytes_per_s * 0.5)  # eight shards, eight ranks
    assert with_host.step_time_s - without.step_time_s == pytest.approx(update_s, rel=0.25)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_move_what_they_can_of_it(threads: int) -> None:
    """28 bytes a parameter, 14 GB/s a thread; all threads of a host move no more than its memory bears."""
    few = big(software=with_threads(threads))
    (held,) = parameters_of_ranks(few.scenario)  # type: ignore[arg-type]
    update_s = held / 8 * 28 / (threads * 14e9)
    assert few.step_time_s - big(cpu_offload=False).step_time_s == pytest.approx(update_s, rel=0.2)
    assert big(software=with_threads(100)).step_time_s == big().step_time_s


def test_disks_are_slower_than_memory() -> None:
    assert big(nvme_offload=True).step_time_s > 1.5 * big().step_time_s


def test_gradients_leave_while_backward_runs() -> None:
    result = big()
    copies = [span for span in result.iter_spans() if span.name == "gradients to host"]
    backward = [span for span in result.iter_spans() if span.name == "fc1 dgrad"]
    assert min(span.start_s for span in copies) < max(span.end_s for span in backward)
    updates = [span for span in result.iter_spans() if span.name == "CPU Adam"]
    back = [span for span in result.iter_spans() if span.name == "parameters from host"]
    assert min(span.start_s for span in back) < max(span.end_s for span in updates)


# Activations ---------------------------------------------------------------------------------------


@pytest.mark.slow
@law
@given(
    st.sampled_from(PRESETS),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from([1, 2]),
    st.sampled_from(["none", "full"]),
)
def test_layers_leave_and_come_back(software: str, zero: int, pp: int, recompute: str) -> None:
    """All of a stage but the last, once each way for every microbatch."""
    pp = 1 if software.startswith("deepspeed") and zero > 1 else pp
    schedule = "1f1b" if pp > 1 else "none"
    run = scenario(
        software=software,
        zero=zero,
        dp=2,
        pp=pp,
        schedule=schedule,
        recompute=recompute,
        activation_offload=True,
    )
    plan = lowered(run).plan
    kept = [plan_run for plan_run in plan.stages[0].runs for _ in range(plan_run.count)][:-1]
    sizes = activation_bytes(plan.local, run.software)
    once = run.num_microbatches * sum(sizes.layer(layer).kept for layer in kept)
    assert moved(run, "activations to host") == pytest.approx(once)
    assert moved(run, "activations from host") == pytest.approx(once)
    without = changed(run, training={"activation_offload": False})
    assert simulate(run).step_time_s >= simulate(without).step_time_s * (1 - 1e-9)
    assert simulate(run, fold=False).step_time_s == pytest.approx(simulate(run).step_time_s, rel=1e-9)


def test_offloaded_activations_leave_room() -> None:
    common: dict[str, Any] = {"num_layers": 32, "seq_length": 512, "pp": 2, "schedule": "1f1b"}
    offloaded = simulate(scenario(**common, activation_offload=True)).memory[0]
    kept = simulate(scenario(**common)).memory[0]
    assert offloaded.terms["activations"] < 0.3 * kept.terms["activations"]
