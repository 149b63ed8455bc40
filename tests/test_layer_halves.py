"""A layer with experts takes as long as its two halves, one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from small_scenarios import presets_for, scenario

from stepsim.hardware.calibrated.overlay import calibrated_profile
from stepsim.sim.lowering.actions import BuildLayer
from stepsim.sim.lowering.layers.kinds import LayerKind, LayerRun
from stepsim.sim.lowering.layers.layer import Half, backward_block, forward_block
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.loss import loss_backward, loss_forward
from stepsim.sim.lowering.lower import make_plan
from stepsim.sim.lowering.updates.ends import embedding_forward, head_forward
from stepsim.sim.plan.screen.times import BlockName
from stepsim.sim.program.program import Block
from stepsim.sim.program.solo import solo_ends
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.simulate import build_cluster

MOE = {"num_experts": 4, "topk": 2, "expert_ffn_hidden_size": 256}
SHARED = {**MOE, "num_shared_experts": 1, "shared_expert_ffn_hidden_size": 512}


def _work_of(block: Block) -> list[tuple[str, object, float]]:
    return sorted(((op.name, op.work, op.host_s) for op in block.ops), key=repr)


@settings(max_examples=40, deadline=None)
@given(
    preset=st.sampled_from(presets_for("H100-SXM5-80GB")),
    moe=st.sampled_from([MOE, SHARED]),
    tp=st.sampled_from([1, 2]),
    together=st.booleans(),
    cp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2, 4]),
    etp=st.sampled_from([1, 2]),
    recompute=st.sampled_from([(), ("full",), ("core_attn",), ("layernorm", "moe_act"), ("moe",)]),
    build=st.sampled_from([forward_block, backward_block]),
)
def test_a_layer_with_experts_takes_as_long_as_its_halves(
    preset: str,
    moe: dict[str, int],
    tp: int,
    together: bool,
    cp: int,
    ep: int,
    etp: int,
    recompute: tuple[str, ...],
    build: BuildLayer,
) -> None:
    parallel = {"tp": tp, "cp": cp, "ep": ep, "etp": etp, "sequence_parallel": together and tp > 1}
    try:
        own = scenario(
            gpu="H100-SXM5-80GB", interconnect="ib-ndr400-x8", software=preset, dp=8, moe=moe, **parallel
        )
        cluster = build_cluster(own)
        plan = make_plan(own, cluster, calibrated_profile(cluster.gpu, ()))
    except (NotSupported, ScenarioError):
        reject()
    run = LayerRun(kind=LayerKind(experts=True), recompute=frozenset(recompute))
    whole = BlockName(build, run)
    experts, attention = (name.of(plan.blocks) for name in whole.halves)
    block = whole.of(plan.blocks)
    assert [name.half for name in whole.halves] == [Half.EXPERTS, Half.ATTENTION]
    assert _work_of(block) == sorted(_work_of(experts) + _work_of(attention), key=repr)
    for sms, stretch in ((0, 1.0), (cluster.gpu.sms, 1.0), (0, 4 / 3)):
        ends = [solo_ends(one, sms=sms, stretch=stretch) for one in (block, experts, attention)]
        assert ends[0][0] == pytest.approx(ends[1][0] + ends[2][0], rel=1e-12)
        assert ends[0][1] == pytest.approx(ends[1][0] + ends[2][1], rel=1e-12)


@pytest.mark.parametrize("moe", [None, MOE])
@pytest.mark.parametrize("preset", presets_for("H100-SXM5-80GB"))
def test_what_gives_no_gradients_is_the_same_whatever_becomes_of_them(
    moe: dict[str, int] | None, preset: str
) -> None:
    layout = {"dp": 4, "tp": 2, "sequence_parallel": True}
    own = scenario(gpu="H100-SXM5-80GB", interconnect="ib-ndr400-x8", software=preset, moe=moe, **layout)
    cluster = build_cluster(own)
    blocks = make_plan(own, cluster, calibrated_profile(cluster.gpu, ())).blocks
    flags = [blocks.local.with_(accumulates=flag) for flag in (True, False)]
    summed, fresh = (replace(blocks, local=local, ends={}, layers={}, pairs={}) for local in flags)
    run = LayerRun(kind=LayerKind(experts=moe is not None))
    assert summed.layer(forward_block, run).ops == fresh.layer(forward_block, run).ops
    for build in (embedding_forward, head_forward, loss_forward, loss_backward):
        assert summed.end(build).ops == fresh.end(build).ops


def test_a_local_shape_with_other_sizes_is_the_copy_that_dataclasses_make() -> None:
    own = local_shape_of(
        scenario(
            gpu="H100-SXM5-80GB", interconnect="ib-ndr400-x8", tp=2, dp=4, sequence_parallel=True, moe=MOE
        )
    )
    assert own.here.with_(batch=3, window=7) == replace(own.here, batch=3, window=7)
    with pytest.raises(AssertionError, match="size"):
        own.with_(rows=1)
