"""Projections that each gather their own input, and a softmax that a compiler made one kernel of."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from eager_costs import COSTS
from small_scenarios import every_op, lowered, scenario

from stepsim.sim.lowering.layers.attention_core import attention_backward, attention_forward
from stepsim.sim.lowering.layers.layer import _qkv
from stepsim.sim.lowering.layers.layer_builder import LayerBuilder
from stepsim.sim.lowering.layers.linear import column_backward, column_forward
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.mlp import mlp_linears
from stepsim.sim.lowering.layers.norms import norm
from stepsim.sim.program.program import Collective, Compute
from stepsim.sim.scenario.software import get_software
from stepsim.sim.scenario.software.software import Software

FSDP = get_software("generic-fsdp")


def exchanges(software: Software, *, sequence_parallel: bool) -> Counter[str]:
    """Collectives of the column-parallel matrices of one layer, forward and backward."""
    run = scenario(
        tp=2, sequence_parallel=sequence_parallel, mlp="swiglu", software={"preset": "generic-fsdp"}
    )
    builder = LayerBuilder(costs=COSTS, local=local_shape_of(run), software=software)
    for linears in ((_qkv(builder.local),), mlp_linears(builder.local, software)[0]):
        column_forward(builder, linears)
        column_backward(builder, linears)
    return Counter(op.work.kind for op in builder.ops if isinstance(op.work, Collective))


def test_each_projection_gathers_and_reduces_for_itself() -> None:
    """DTensor keeps what it gathered: queries, keys, values, gate and up are five of each."""
    apart = FSDP.with_fields(tp_gathers_each=True)
    assert exchanges(FSDP, sequence_parallel=True) == {"all_gather": 2, "reduce_scatter": 2}
    assert exchanges(apart, sequence_parallel=True) == {"all_gather": 5, "reduce_scatter": 5}


def test_without_sequence_parallelism_there_is_nothing_to_gather() -> None:
    apart = FSDP.with_fields(tp_gathers_each=True)
    assert exchanges(apart, sequence_parallel=False) == exchanges(FSDP, sequence_parallel=False)


def softmax_bytes(software: Software) -> float:
    run = scenario(mlp="gelu", software={"preset": "generic-fsdp"})
    local = replace(local_shape_of(run), dropout=False)
    builder = LayerBuilder(costs=COSTS, local=local, software=software.with_fields(attention="unfused"))
    attention_forward(builder)
    attention_backward(builder)
    return sum(op.work.bytes for op in builder.ops if isinstance(op.work, Compute) and "softmax" in op.name)


def test_a_compiler_makes_one_kernel_of_the_softmax() -> None:
    chain, fused, compiled = (
        softmax_bytes(FSDP.with_fields(**fields))
        for fields in (
            {"fused_softmax": False},
            {"fused_softmax": True},
            {"fused_softmax": False, "torch_compile": True},
        )
    )
    assert compiled == fused < chain


def operators(software: Software, *, sequence_parallel: bool) -> tuple[float, float, float]:
    """Operators of a norm, of QKV's GEMM and of its gradients, on distributed tensors."""
    run = scenario(
        tp=2, norm="rmsnorm", sequence_parallel=sequence_parallel, software={"preset": "generic-fsdp"}
    )
    costs = replace(COSTS, host_s=0.0, host_collective_s=0.0, host_operator_s=1.0)
    found = []
    for write in (
        norm,
        lambda builder: column_forward(builder, (_qkv(builder.local),)),
        lambda builder: column_backward(builder, (_qkv(builder.local),)),
    ):
        builder = LayerBuilder(costs=costs, local=local_shape_of(run), software=software)
        write(builder)
        found.append(sum(op.host_s for op in builder.ops if isinstance(op.work, Compute)))
    return found[0], found[1], found[2]


def test_a_product_on_distributed_tensors_is_four_operators() -> None:
    """Queries, keys and values are three; an eager norm is as many as its kernels, with split rows."""
    assert operators(FSDP, sequence_parallel=True) == (8, 12, 24)
    assert operators(FSDP, sequence_parallel=False) == (0, 12, 24)


def host_seconds(*, compiled: bool = False, **layout: Any) -> float:
    """What a rank's host spends on a step whose launches cost next to nothing."""
    host = {"host_s_per_kernel": 1e-9, "host_s_per_dtensor": 1e-3}
    software = {"preset": "generic-fsdp", "host": host, "kernels": {"torch_compile": compiled}}
    program = lowered(scenario(mlp="swiglu", software=software, **layout)).programs.classes[0]
    return sum(op.host_s * times for op, times in every_op(program))


def test_operators_on_distributed_tensors_cost_their_host_more() -> None:
    """Under tensor parallelism alone, and not where layers are compiled."""
    split = host_seconds(tp=2, sequence_parallel=True)
    assert split > 0.01
    assert host_seconds(tp=2, sequence_parallel=True, compiled=True) < 0.001
    assert host_seconds(tp=1, dp=2) < 0.001
