"""Collectives of all replicas beside the messages of each: closed forms, and passes against replays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bounded_jobs import replicas
from hypothesis import given
from hypothesis import strategies as st
from small_scenarios import lowered, scenario

from stepsim.sim.bounded import graph as graph_module
from stepsim.sim.bounded.bounds import bounded
from stepsim.sim.bounded.conditions import why_exact
from stepsim.sim.bounded.graph import graph_of
from stepsim.sim.bounded.op_costs import each_transfer, least_speed
from stepsim.sim.bounded.passes import Passes
from stepsim.sim.bounded.programs import from_above
from stepsim.sim.bounded.replicas import replicas_of
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.program.program import (
    Compute,
    Op,
    Program,
)

MEETS = ("dp", "world")


@pytest.mark.parametrize(
    ("slow", "step_s"),
    [((1.0,), 4.5), ((1.0, 1.0), 4.5), ((1.0, 2.0), 5.0), ((1.0, 1.5), 4.75), ((1.0, 2.0, 3.0), 5.5)],
)
def test_a_collective_is_slower_while_any_replica_sends(slow: tuple[float, ...], step_s: float) -> None:
    """40 bytes take 4 s, and beside a message, which takes 1 s, move at half the rate: each second in which
    any replica sends costs half of it. Messages at the same time count once.
    """
    healthy = replicas(1.0)
    graph = graph_of(replay(replace(healthy, bindings=())), ("dp",), ())
    table = np.array([[factor, 1.0] for factor in slow])
    passes = Passes(graph, healthy, table)
    assert replay(replicas(*slow)).step_s == pytest.approx(step_s)
    assert passes.step_s == pytest.approx(step_s)
    assert passes.alone_s(table[:1]) == pytest.approx(4.5)


def test_what_replicas_add_by_passes_is_what_they_add_by_replays() -> None:
    """Gradients are reduced beside messages of pipelines that drift apart; hosts keep ahead."""
    one = lowered(
        scenario(
            pp=4,
            vpp=2,
            dp=24,
            schedule="interleaved",
            zero=1,
            microbatches=12,
            num_layers=16,
            hidden_size=4096,
            ffn_hidden_size=16384,
            num_attention_heads=32,
            seq_length=2048,
            software={"preset": "megatron-core-2024", "host": {"host_s_per_kernel": 6e-6}},
            gpu="H100-SXM5-80GB",
            interconnect="ib-ndr400-x8",
        )
    )
    factors = 1 + 0.02 * np.random.default_rng(3).standard_normal(one.plan.scenario.world_size)
    degradation = Degradation(slow=dict(enumerate(factors.tolist())))
    assert not why_exact(one, degradation)
    healthy, ranks = replay(folded(one).programs), ranks_of(one)
    found = replicas_of(one.plan.process_groups, ranks, degradation)
    assert found is not None
    each = [np.array([u]) for u in range(found.count)]
    every_s = replay(from_above(one.programs, ranks, found, each)).step_s
    passes = Passes(graph_of(healthy, MEETS, ()), healthy.programs, found.worst(each))
    assert passes.traffic > 1e-5
    assert passes.step_s == pytest.approx(every_s, rel=3e-4)
    bounds = bounded(one, degradation, healthy, classes=one.plan.scenario.world_size * 1000)
    assert bounds is not None
    assert bounds.bounds.lower_s <= bounds.record.step_s <= bounds.bounds.upper_s
    assert bounds.record.step_s == pytest.approx(every_s, rel=3e-4)


@given(
    seconds=st.tuples(*[st.floats(0.0, 2.0)] * 4),
    sms=st.floats(0.01, 0.9),
    hbm=st.floats(0.0, 0.9),
)
def test_what_an_op_loses_is_what_its_kernels_take_longer(
    seconds: tuple[float, float, float, float], sms: float, hbm: float
) -> None:
    """By the rates of kernels of math, of those that need all SMs, of those of memory, and of the rest."""
    math_s, static_s, memory_s, others_s = seconds
    kernels_s = math_s + static_s + memory_s, math_s + static_s, static_s
    slow_s = math_s / (1 - sms) + static_s / min(0.5, 1 - sms) + memory_s / (1 - hbm) + others_s
    lost = graph_module._lost(sum(seconds), kernels_s, (sms, hbm))
    assert (1 - lost) * slow_s == pytest.approx(sum(seconds), rel=1e-9)


def test_kernels_that_need_all_sms_are_found_and_all_that_is_sent() -> None:
    programs = replicas(1.0, 1.0)
    assert least_speed(programs) == 1.0
    assert {transfer.bytes for transfer in each_transfer(programs)} == {5.0, 40.0}
    op = Op("product", "compute", "compute", Compute(1.0, "gemm", static_schedule=True))
    assert least_speed(replace(programs, classes=(Program(ops=(op,)), *programs.classes[1:]))) == 0.5
