"""The loss that routers of Megatron core have of their own: when there is one, and what it asks of ranks."""

from __future__ import annotations

from typing import Any

import pytest
from small_experts import with_experts
from small_scenarios import lowered

from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.sim.lowering.layers import moe
from stepsim.sim.lowering.layers.kinds import LayerKind, LayerRun
from stepsim.sim.lowering.layers.layer import Half, backward_block, forward_block
from stepsim.sim.lowering.layers.recompute import FULL, NOTHING, Recompute, seen_by_forward
from stepsim.sim.plan.axes import LAYOUT
from stepsim.sim.plan.fields import field_value
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.screen.tables import tables_of
from stepsim.sim.plan.screen.times import BlockName
from stepsim.sim.plan.space import space_of
from stepsim.sim.program.program import Block, Collective, Op, RepeatedBlocks
from stepsim.sim.simulate import simulate

HOST_S = 4e-5
SUMS = "token counts of the loss"


def blocks(**fields: Any) -> list[Block]:
    """Blocks of layers of the first class, each once."""
    run = with_experts(**{"host_s_per_kernel": HOST_S, "router_loss": True} | fields)
    works = (op.work for op in lowered(run).programs.classes[0].ops)
    rows = [block for work in works if isinstance(work, RepeatedBlocks) for block in work.row]
    return list({block.name: block for block in rows}.values())


def named(name: str, within: str, **fields: Any) -> list[Op]:
    return [op for block in blocks(**fields) if within in block.name for op in block.ops if op.name == name]


def test_tensor_parallel_ranks_add_up_how_many_tokens_each_expert_gets() -> None:
    """One number of 8 bytes an expert, in a forward alone; not where a rank has all of a sequence."""
    tensors: dict[str, Any] = {"tp": 2, "sequence_parallel": True}
    (found,) = named(SUMS, "layer forward", **tensors)
    assert isinstance(found.work, Collective)
    assert (found.work.kind, found.work.communicator) == ("all_reduce", "tp")
    assert found.work.transfer.bytes == 8 * 16
    assert not named(SUMS, "layer backward", **tensors)
    assert not named(SUMS, "")
    assert not named(SUMS, "", **tensors, router_loss=False)


def test_a_forward_that_keeps_nothing_has_no_loss_and_its_recomputation_has() -> None:
    """torch.utils.checkpoint runs the first pass without autograd, of which Megatron core asks."""
    again: dict[str, Any] = {"tp": 2, "sequence_parallel": True, "recompute": "full"}
    assert not named(SUMS, "layer forward", **again)
    assert len(named(SUMS, "layer backward", **again)) == 1


@pytest.mark.parametrize("fused", [False, True])
def test_the_host_launches_no_loss_in_such_a_forward(*, fused: bool) -> None:
    kept, again, without = (
        named("top-k", "layer forward", moe_router_fusion=fused, **fields)[0].host_s
        for fields in ({}, {"recompute": "full"}, {"recompute": "full", "router_loss": False})
    )
    launches = moe._FUSED_LOSS_LAUNCHES if fused else moe._LOSS_LAUNCHES
    assert kept - again == pytest.approx(launches * HOST_S)
    assert without == kept


def test_of_all_that_is_recomputed_a_forward_sees_experts_that_keep_nothing() -> None:
    assert seen_by_forward(FULL) == seen_by_forward(frozenset({"moe", "layernorm"})) == {"moe"}
    for other in (NOTHING, frozenset({"core_attn"}), frozenset({"moe_act"}), frozenset({"operators"})):
        assert seen_by_forward(other) == NOTHING


@pytest.mark.parametrize("zero", [1, 3])
def test_screening_knows_that_a_forward_that_keeps_nothing_has_no_loss(zero: int) -> None:
    """Where hosts pace a step, as here, a bound with the loss in it would be longer than the step."""
    layout: dict[str, Any] = {"tp": 2, "sequence_parallel": True, "zero": zero, "recompute": "full"}
    run = with_experts(host_s_per_kernel=4e-4, router_loss=True, **layout)
    same = {name: field_value(run, name) for name in LAYOUT if name != "training.recompute"}
    space = space_of(run, fix=same)
    bounds = screen(space, within=float("inf")).bound_s
    for i in range(len(space)):
        step_s = simulate(space.scenario_of(i)).step_time_s
        assert 0.85 * step_s < bounds[i] <= step_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("build", "recompute", "loss"),
    [
        (forward_block, NOTHING, True),
        (forward_block, frozenset({"moe"}), False),
        (backward_block, NOTHING, False),
        (backward_block, frozenset({"moe_act"}), False),
        (backward_block, frozenset({"moe"}), True),
        (backward_block, FULL, True),
    ],
)
def test_screening_shares_experts_between_tensor_parallel_degrees_where_they_have_no_loss(
    build: Any, recompute: Recompute, loss: bool
) -> None:
    """Ranks of tp 2 and cp 2 route the same tokens as those of tp 4, but add counts up over other groups."""
    run = with_experts(router_loss=True, tp=2, sequence_parallel=True)
    varied = "parallelism.tp", "parallelism.cp"
    same = {name: field_value(run, name) for name in LAYOUT if name not in varied}
    space = space_of(run, fix=same, vary={"parallelism.tp": [2, 4], "parallelism.cp": [1, 2]})
    tables = tables_of(space, 0, load_profile("H100-SXM5-80GB"))
    name = BlockName(build, LayerRun(kind=LayerKind(experts=True), recompute=recompute), half=Half.EXPERTS)
    found: dict[object, list[tuple[Op, ...]]] = {}
    for number, layer in enumerate(tables.layers):
        part = layer.part(experts=True, loss=name.has_router_loss)
        found.setdefault(part, []).append(name.of(tables.blocks_of(number)).ops)
    assert name.has_router_loss is loss
    assert all(ops == same_ops[0] for same_ops in found.values() for ops in same_ops)
    assert (len(found), len(tables.layers)) == (4 if loss else 3, 4)


def test_screening_knows_where_the_ranks_are_that_add_up_counts() -> None:
    """On one host where tensor parallelism comes first in the rank grid, on two where it comes last."""
    run = with_experts(router_loss=True, tp=2, ep=2, sequence_parallel=True)
    same = {name: field_value(run, name) for name in LAYOUT if name != "parallelism.order"}
    orders = ["tp-cp-ep-dp-pp", "cp-ep-dp-pp-tp"]
    space = space_of(run, fix=same, vary={"parallelism.order": orders})
    near, far = tables_of(space, 0, load_profile("H100-SXM5-80GB")).layers
    assert near.part(experts=True, loss=False) == far.part(experts=True, loss=False)
    assert near.part(experts=True, loss=True) != far.part(experts=True, loss=True)


def test_screened_hosts_are_ahead_by_the_forward_that_a_layout_has() -> None:
    """One without the loss has fewer launches, and so more buffers in flight; whichever is screened first."""
    ahead: dict[str, Any] = {"tp": 2, "sequence_parallel": True, "records_streams": True}
    run = with_experts(host_s_per_kernel=1e-5, router_loss=True, **ahead)
    recompute = {"training.recompute": ["none", "full"]}
    space = space_of(run, vary={name: [field_value(run, name)] for name in LAYOUT} | recompute)
    found = screen(space, within=float("inf"))
    for i in range(len(space)):
        memory = simulate(space.scenario_of(i)).memory
        assert found.needed_bytes[i] == pytest.approx(max(stage.needed_bytes for stage in memory), rel=1e-9)
