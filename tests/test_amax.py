"""Maxima of 8-bit tensors are reduced behind each virtual stage, by those who must scale alike."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import changed, every_op, lowered, scenario

from stepsim.sim.bounded.collectives_apart import collectives_apart
from stepsim.sim.engine.accounting import rank_time
from stepsim.sim.engine.replay import replay
from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.plan.axes import layout_values
from stepsim.sim.plan.fields import field_value
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import space_of
from stepsim.sim.program.program import Collective, RepeatedBlocks
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

H100 = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8", "precision": "fp8"}


def run(amax_group: str, **fields: Any) -> Scenario:
    software = {
        "preset": "megatron-core-2025",
        "exchange": {"amax_group": amax_group, "tp_comm_overlap": False},
        "host": {"host_s_per_kernel": 0},
        "kernels": {"fp8_scaling": fields.pop("fp8_scaling", "delayed")}
        if fields.get("precision", "fp8") == "fp8"
        else {},
    }
    return scenario(**{**H100, "software": software, **fields})


def reductions(job: Scenario) -> list[Counter[str]]:
    """By program, how often each group reduces maxima."""
    return reductions_of(lowered(job))


def reductions_of(step: Lowered) -> list[Counter[str]]:
    found = []
    for program in step.programs.classes:
        called: Counter[str] = Counter()
        for op, count in every_op(program):
            if isinstance(op.work, Collective) and op.work.communicator.startswith("amax"):
                called[op.work.communicator] += count
        found.append(called)
    return found


@settings(max_examples=25, deadline=None)
@given(
    amax_group=st.sampled_from(["tensor", "replicas"]),
    tp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 2]),
    pp=st.sampled_from([1, 2]),
    zero=st.sampled_from([0, 1]),
    chunks=st.sampled_from([1, 2]),
    microbatches=st.sampled_from([2, 4]),
)
def test_once_a_chunk_and_direction(
    amax_group: str, tp: int, dp: int, pp: int, zero: int, chunks: int, microbatches: int
) -> None:
    vpp = chunks if pp > 1 else 1
    schedule = "none" if pp == 1 else "interleaved" if vpp > 1 else "1f1b"
    job = run(
        amax_group, tp=tp, dp=dp, pp=pp, vpp=vpp, zero=zero, schedule=schedule, microbatches=microbatches
    )
    name, ranks = ("amax.tp", tp) if amax_group == "tensor" else ("amax", tp * dp)
    each = Counter({name: 2 * vpp * microbatches} if ranks > 1 else {})
    assert reductions(job) == [each] * pp


@pytest.mark.parametrize("schedule", ["zb-h1", "1f1b"])
def test_split_backwards_reduce_once(schedule: str) -> None:
    job = run("replicas", tp=2, dp=2, pp=2, schedule=schedule, microbatches=4)
    assert reductions(job) == [Counter({"amax": 8})] * 2


def test_a_stage_without_layers_has_no_maxima() -> None:
    fields = {"tp": 2, "dp": 2, "pp": 4, "schedule": "1f1b", "microbatches": 4}
    job = run("replicas", stage_split=[4, 4, 0, 0], **fields)
    assert reductions(job) == [Counter({"amax": 8})] * 2 + [Counter()] * 2


@pytest.mark.parametrize(
    "fields", [{"precision": "bf16"}, {"fp8_scaling": "current"}, {"amax_group": "none"}, {"tp": 1, "dp": 1}]
)
def test_none_without_delayed_scaling_or_others(fields: dict[str, Any]) -> None:
    job = run(**{"amax_group": "replicas", "tp": 2, "dp": 2, **fields})
    assert reductions(job) == [Counter()]


def test_kernels_wait_for_each() -> None:
    """One stage, nothing beside: a step is longer by all of its reductions, one after the other."""
    fields = {"tp": 2, "microbatches": 4}
    without, job = simulate(run("none", **fields)), run("tensor", **fields)
    step = lowered(job)
    (one,) = {
        op.work.transfer.solo_s
        for op, _ in every_op(step.programs.classes[0])
        if isinstance(op.work, Collective) and op.work.communicator == "amax.tp"
    }
    assert simulate(job).step_time_s - without.step_time_s == pytest.approx(8 * one, rel=1e-6)


def test_the_host_joins_maxima_and_writes_scales_besides() -> None:
    job = changed(run("tensor", tp=2), software={"host_s_per_kernel": 1e-5})
    calls = lowered(job).plan.scenario.software.host.launches_per_collective
    for op, _ in every_op(lowered(job).programs.classes[0]):
        if isinstance(op.work, Collective) and op.work.communicator == "amax.tp":
            assert op.host_s == pytest.approx((calls + 2) * 1e-5)


def test_more_replicas_take_longer() -> None:
    def added(dp: int) -> float:
        fields = {"tp": 4, "dp": dp, "microbatches": 4}
        return simulate(run("replicas", **fields)).step_time_s - simulate(run("none", **fields)).step_time_s

    assert 0 < added(2) < added(16) < added(128)


@settings(max_examples=15, deadline=None)
@given(
    tp=st.sampled_from([1, 2]),
    dp=st.sampled_from([2, 4]),
    pp=st.sampled_from([1, 2]),
    schedule=st.sampled_from(["1f1b", "interleaved", "zb-h1"]),
    zero=st.sampled_from([0, 1]),
    host_s=st.sampled_from([0.0, 2e-5]),
)
def test_reductions_of_replicas_are_ops_where_replicas_differ(
    tp: int, dp: int, pp: int, schedule: str, zero: int, host_s: float
) -> None:
    """What they are in their blocks, they are between them: the step is the same."""
    fields = {"schedule": schedule, "vpp": 2 if schedule == "interleaved" else 1} if pp > 1 else {}
    job = run("replicas", tp=tp, dp=dp, pp=pp, zero=zero, **fields)
    job = changed(job, software={"host_s_per_kernel": host_s})
    step = lowered(job)
    apart = collectives_apart(step)
    assert reductions_of(apart) == reductions_of(step)
    for program in apart.programs.classes:
        assert not any(
            "amax" in op.work.communicators for op in program.ops if isinstance(op.work, RepeatedBlocks)
        )
    before, after = replay(step.programs), replay(apart.programs)
    assert after.step_s == pytest.approx(before.step_s, rel=1e-9)
    for r in range(pp if not host_s else 0):  # a row that waits for its host does so inside of it
        one, other = rank_time(before, r), rank_time(after, r)
        assert other.busy_s == pytest.approx(one.busy_s, rel=1e-9)
        assert other.bubble_s == pytest.approx(one.bubble_s, rel=1e-9, abs=1e-12)
        assert dict(other.exposed) == pytest.approx(dict(one.exposed), rel=1e-9, abs=1e-12)
        assert dict(other.parts) == pytest.approx(dict(one.parts), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("amax_group", ["none", "tensor"])
def test_what_no_replicas_meet_in_stays_in_its_blocks(amax_group: str) -> None:
    step = lowered(run(amax_group, tp=2, dp=2))
    assert collectives_apart(step) is step


def attention_run(attention_amax: str, **fields: Any) -> Scenario:
    eight_bits, attention = fields.pop("fp8_attention", True), fields.pop("attention", "cudnn")
    software = {
        "preset": "mlperf-6.0",
        "exchange": {"attention_amax": attention_amax, "tp_comm_overlap": False},
        "host": {"host_s_per_kernel": 0},
        "kernels": {"fp8_attention": eight_bits, "attention": attention},
    }
    blackwell = {"gpu": "B200-SXM-180GB", "interconnect": "ib-ndr400-x8", "precision": "nvfp4"}
    return scenario(**{**blackwell, "software": software, **fields})


@pytest.mark.parametrize(("pp", "schedule"), [(1, "none"), (2, "1f1b"), (2, "zb-h1")])
def test_attention_in_eight_bits_reduces_maxima_behind_each_layer_and_direction(
    pp: int, schedule: str
) -> None:
    job = attention_run("replicas", dp=4, pp=pp, schedule=schedule, microbatches=4)
    layers = job.model.num_layers // pp
    assert reductions(job) == [Counter({"amax": 2 * layers * 4})] * pp


@pytest.mark.parametrize("zero", [0, 1])
def test_a_layer_waits_for_the_maxima_of_the_layer_before(zero: int) -> None:
    """No kernel of a microbatch runs while they are reduced, so that all of it is in the step."""
    fields = {"tp": 2, "zero": zero, "microbatches": 2}
    job, alone = attention_run("replicas", **fields), attention_run("rank", **fields)
    (one,) = {
        op.work.transfer.solo_s
        for op, _ in every_op(lowered(job).programs.classes[0])
        if isinstance(op.work, Collective) and op.work.communicator == "amax"
    }
    times = 2 * job.model.num_layers * 2
    assert simulate(job).step_time_s - simulate(alone).step_time_s == pytest.approx(times * one, rel=1e-6)


def test_ranks_that_agree_on_nothing_update_scales_all_the_same() -> None:
    def updates(job: Scenario) -> int:
        ops = every_op(lowered(job).programs.classes[0])
        return sum(n for op, n in ops if op.name == "update scales")

    job = attention_run("rank", dp=4, microbatches=2)
    assert reductions(job) == [Counter()]
    assert updates(job) == 2 * job.model.num_layers * 2
    for other in (
        attention_run("none", dp=4, microbatches=2),
        attention_run("replicas", dp=4, microbatches=2, fp8_attention=False),
        attention_run("replicas", dp=4, microbatches=2, precision="mxfp8"),
        attention_run("replicas", cp=2, dp=2, microbatches=2),
    ):
        assert (reductions(other), updates(other)) == ([Counter()], 0)


def test_scales_are_updated_where_a_recipe_is_left() -> None:
    """Attention that runs again for its backward leaves none; unfused attention is in 16 bits."""

    def updates(job: Scenario) -> int:
        ops = every_op(lowered(job).programs.classes[0])
        return sum(n for op, n in ops if op.name == "update scales")

    job = attention_run("rank", dp=4, microbatches=2, recompute="selective")
    assert updates(job) == 2 * job.model.num_layers * 2
    unfused = attention_run("replicas", dp=4, microbatches=2, attention="unfused")
    assert (reductions(unfused), updates(unfused)) == ([Counter()], 0)


def test_gathers_ahead_of_a_first_forward_know_the_maxima_behind_its_layers() -> None:
    """ZeRO-1 gathers parameters beside the first forward, which reduces as the others do."""
    job = attention_run("replicas", dp=4, zero=1, microbatches=2)
    assert reductions(job) == [Counter({"amax": 2 * job.model.num_layers * 2})]


def test_screening_bounds_steps_that_reduce_the_maxima_of_attention() -> None:
    job = attention_run("replicas", tp=2, dp=2, microbatches=2)
    space = space_of(job, vary={name: [field_value(job, name)] for name in layout_values(job)})
    assert 0 < screen(space, within=float("inf")).bound_s[0] <= simulate(job).step_time_s * (1 + 1e-9)
