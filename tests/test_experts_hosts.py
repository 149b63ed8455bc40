"""Hosts of layers with experts: what they wait for, and what CUDA graphs leave to them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused_at
from small_experts import LATENT, expert_layouts, with_experts
from small_scenarios import lowered

from stepsim.schedules.orders.action import ActionKind
from stepsim.sim.program.program import Block, Compute, RepeatedBlocks
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def _waits(run: Scenario) -> Counter[str]:
    """How often the host of the first class waits in pipeline actions of each kind."""
    ops = lowered(run).programs.classes[0].ops
    return Counter(op.action.lstrip("0123456789")[:1] for op in ops if op.action and op.host_sync)


@given(expert_layouts(schedule="1f1b", moe_a2a_overlap=False, mtp_layers=0, zero=1))
@settings(max_examples=25, deadline=None)
def test_the_host_waits_once_for_each_layer_whose_rows_nobody_knows(run: Scenario) -> None:
    """In forward, and again where the backward runs the layer anew; where a capacity says them, never."""
    moe = run.model.moe
    assert moe is not None
    stage = lowered(run).plan.stages[0]
    layers = sum(kind.experts for kind in stage.kinds) * run.num_microbatches
    if moe.capacity_factor is not None:
        layers = 0
    again = layers if run.training.recompute == "full" else 0
    assert _waits(run) == Counter({k: n for k, n in {"F": layers, "B": again}.items() if n})


def test_graphs_wait_for_no_host_unless_they_leave_out_the_experts() -> None:
    """What a graph holds costs the host nothing; experts outside of it are issued one by one."""
    fields: dict[str, Any] = {"cuda_graphs": True, "moe_dispatcher": "deepep"}
    whole, partial = (with_experts(graphs_leave_out_experts=flag, **fields) for flag in (False, True))
    assert not _waits(whole)
    assert _waits(partial)["F"] == 4 * partial.num_microbatches
    assert simulate(whole).step_time_s < simulate(partial).step_time_s
    eager = simulate(with_experts(moe_dispatcher="deepep")).step_time_s
    assert simulate(partial).step_time_s < eager


@pytest.mark.parametrize("latent", [None, LATENT])
def test_graphs_of_routers_alone_leave_attention_to_the_host(latent: dict[str, int] | None) -> None:
    """Attention is launched as without graphs, routers are not."""
    fields: dict[str, Any] = {"moe_dispatcher": "deepep", "mla": latent, "host_s_per_kernel": 1e-4}
    graphs = {"cuda_graphs": True, "graphs_leave_out_experts": True}
    both, routers, none = (
        simulate(with_experts(**fields, **host)).step_time_s
        for host in (graphs, graphs | {"graphs_leave_out_attention": True}, {})
    )
    assert both < routers < none


def passes_of_a_layer(run: Scenario) -> tuple[Block, Block]:
    """The blocks of the first layer: forward, backward."""
    plan = lowered(run).plan
    first = plan.stages[0].runs[0]
    return plan.blocks.layer_of(ActionKind.FORWARD, first), plan.blocks.layer_of(ActionKind.BACKWARD, first)


def test_a_graph_that_ends_at_experts_copies_what_it_takes_and_leaves_the_last_residual_out() -> None:
    """TransformerEngine's graphs copy inputs and gradients into buffers of their own, each by a launch beside
    the graph's."""
    launch_s = 1e-4
    fields: dict[str, Any] = {"cuda_graphs": True, "host_s_per_kernel": launch_s}
    partial = fields | {"graphs_leave_out_experts": True}
    for dispatcher, rows in (("alltoall", 2), ("deepep", 1)):  # top-2
        forward, backward = passes_of_a_layer(with_experts(moe_dispatcher=dispatcher, **partial))
        copied = {op.name: op for block in (forward, backward) for op in block.ops if "graph's" in op.name}
        assert [op.host_s / launch_s for op in copied.values()] == pytest.approx([2, 4])
        sizes = [op.work.bytes for op in copied.values() if isinstance(op.work, Compute)]
        assert sizes[1] / sizes[0] == pytest.approx(rows + 1)  # tokens as they go out, and the residual
        assert forward.ops[0].name == "graph's input"
        assert forward.ops[-1].name == "bias, dropout, add"
        assert forward.ops[-1].host_s > 0
    alone = partial | {"graphs_leave_out_attention": True}
    names = [op.name for op in passes_of_a_layer(with_experts(**alone))[0].ops]
    assert names.index("proj") < names.index("graph's input") < names.index("router")
    for whole in (fields, {}):
        assert not any(
            "graph's" in op.name for block in passes_of_a_layer(with_experts(**whole)) for op in block.ops
        )


def test_shared_experts_beside_an_exchange_are_in_no_graph_without_experts() -> None:
    """The exchange that they run beside is in none, so that the host launches them one by one."""
    moe = {"num_experts": 16, "topk": 2, "expert_ffn_hidden_size": 512, "shared_expert_ffn_hidden_size": 512}
    fields: dict[str, Any] = {
        "moe": moe | {"num_shared_experts": 1},
        "cuda_graphs": True,
        "moe_dispatcher": "deepep",
    }
    fields |= {"graphs_leave_out_experts": True, "host_s_per_kernel": 1e-3}
    before, beside = (with_experts(moe_shared_expert_overlap=flag, **fields) for flag in (False, True))
    host_s = [[block.host_s for block in passes_of_a_layer(run)] for run in (before, beside)]
    for products, in_graph_s, launched_s in zip((2, 4), *host_s, strict=True):  # of two matrices, in a pass
        assert launched_s > in_graph_s + products * 1e-3
    layers = 4 * 4  # in microbatches
    assert simulate(beside).step_time_s > simulate(before).step_time_s + layers * 6 * 1e-3


def test_no_graph_holds_experts_and_no_attention() -> None:
    run = with_experts(cuda_graphs=True, graphs_leave_out_attention=True)
    with refused_at("software.host.graphs_leave_out_attention", "graphs_leave_out_experts"):
        lowered(run)


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([0.0, 1e-6, 3e-5]))
@settings(max_examples=12, deadline=None)
def test_a_wait_of_the_host_only_delays(ep: int, pp: int, host_s: float) -> None:
    """A capacity of just the rows that come moves and computes the same; a free host never waits."""
    fields: dict[str, Any] = {"ep": ep, "pp": pp, "moe_dispatcher": "deepep", "host_s_per_kernel": host_s}
    if pp > 1:
        fields["schedule"] = "1f1b"
    known, dropless = (simulate(with_experts(**fields, **more)) for more in ({"capacity_factor": 1.0}, {}))
    assert dropless.step_time_s >= known.step_time_s * (1 - 1e-12)
    assert dropless.peak_memory_bytes == known.peak_memory_bytes
    if not host_s:
        assert dropless.step_time_s == pytest.approx(known.step_time_s, rel=1e-12)


def test_experts_of_tiny_layers_take_what_the_host_takes() -> None:
    """Where the host is far slower than the GPU, a step takes what all launches cost it, and the waits."""
    run = with_experts(host_s_per_kernel=1e-3, moe_dispatcher="deepep", step_fixed_s=0.0)
    ops = lowered(run).programs.classes[0].ops
    launched_s = sum(op.host_s for op in ops)
    assert launched_s <= simulate(run).step_time_s <= 1.02 * launched_s


def waits(within: str = "", **fields: Any) -> set[str]:
    """First ops behind what the host waits for in a step, in blocks whose names have ``within``."""
    run = with_experts(**{"host_s_per_kernel": 4e-5} | fields)
    found = [one for one in blocks(run) if one.name.startswith("host has waited") and within in one.name]
    return {block.ops[0].name for block in found}


def blocks(run: Scenario) -> list[Block]:
    """The blocks of a step in a row, those that are cut as their parts."""
    works = (op.work for op in lowered(run).programs.classes[0].ops)
    return [block for work in works if isinstance(work, RepeatedBlocks) for block in work.row]


def test_a_clamped_gate_makes_the_host_wait_for_an_offset_that_it_copies() -> None:
    """torch.tensor(linear_offset, device=...), behind the join and ahead of the fused function: one wait more
    a forward than for the rows of each expert. A graph holds no such copy."""
    clamped: dict[str, Any] = {"biases": True, "clamped_gate": True, "moe_dispatcher": "alltoall"}
    assert waits() == waits(**clamped, clamps_gate_apart=False) == {"dispatch"}
    assert waits(**clamped) == {"dispatch", "activation"}
    assert not waits(**clamped, cuda_graphs=True)


PAIRS: dict[str, Any] = {
    "moe_a2a_overlap": True,
    "pp": 2,
    "vpp": 2,
    "schedule": "interleaved",
    "microbatches": 8,
}


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep", "hybridep"])
def test_a_pair_waits_for_the_rows_of_its_forward_as_a_forward_alone_does(dispatcher: str) -> None:
    """Ahead of the dispatch, whose sizes they are; not where a capacity says them or a graph holds all."""
    assert waits("beside", **PAIRS, moe_dispatcher=dispatcher) == {"dispatch"}
    assert not waits(**PAIRS, moe_dispatcher=dispatcher, capacity_factor=1.0)
    assert not waits(**PAIRS, moe_dispatcher=dispatcher, cuda_graphs=True)


def test_a_pair_has_issued_the_gradients_of_rows_before_it_waits() -> None:
    """They cost the host nothing behind the wait, and the op ahead of it as much more."""
    row = [block for block in blocks(with_experts(**PAIRS, host_s_per_kernel=4e-5)) if "beside" in block.name]
    ahead, behind = row[:2]
    names = [op.name for op in behind.ops]
    issued = behind.ops[names.index("dispatch weights") + 1 : names.index("dispatch backward weights")]
    assert "expert fc2 dgrad" in [op.name for op in issued]
    assert not any(op.host_s for op in issued)
    alone = next(
        block
        for block in blocks(with_experts(**PAIRS, host_s_per_kernel=4e-5))
        if block.ops[-1].name == ahead.ops[-1].name
    )
    assert ahead.ops[-1].host_s > alone.ops[-1].host_s + 10 * 4e-5
    assert all(op.host_s for op in behind.ops[names.index("dispatch backward weights") :])
