"""Launches of what autocast and GELU's formula are made of; ends of the model, shards and plans under it."""

from __future__ import annotations

from typing import Any

import pytest
from autocast_runs import AUTOCAST, COSTS, LLAMA, PLAIN, job, kept, moved
from refusals import refused_at
from small_scenarios import lowered, scenario

from stepsim.sim.lowering.layers.autocast import cast_row_gradients, cast_rows, cast_weights
from stepsim.sim.lowering.layers.gelu import gelu, gelu_backward
from stepsim.sim.lowering.layers.layer_builder import LayerBuilder
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.norms import norm, norm_backward
from stepsim.sim.lowering.optional_parts import sharded_actions_of
from stepsim.sim.plan.axes import layout_values
from stepsim.sim.plan.space import space_of
from stepsim.sim.program.program import Compute


def launches(write: Any, *options: Any, autocast: bool = True) -> dict[str, float]:
    """By name, the launches of what ``write`` appends."""
    run = job(model=LLAMA)
    run = run.with_(AUTOCAST) if autocast else run
    builder = LayerBuilder(costs=COSTS, local=local_shape_of(run), software=run.software)
    write(builder, *options)
    return {op.name: op.work.seconds for op in builder.ops if isinstance(op.work, Compute)}


def test_each_cast_and_each_operator_is_a_launch() -> None:
    assert launches(cast_weights, 1.0, 3) == {"cast weights": 3}
    assert launches(cast_rows, 3) == {"cast rows": 3}
    assert launches(cast_row_gradients, 5, 1) == {"row gradients to FP32": 5, "row gradients add": 3}
    assert launches(gelu) == {"activation": 10}
    assert launches(gelu_backward) == {"activation backward": 15}
    assert launches(gelu, autocast=False) == {"activation": 8}
    assert launches(gelu_backward, autocast=False) == {"activation backward": 11}


def test_a_chain_of_fp32_has_two_launches_less_each_way() -> None:
    for write, name in ((norm, "norm"), (norm_backward, "norm backward")):
        parts = (name, f"{name}, by element")
        wide, narrow = (
            sum(found[part] for part in parts) for found in (launches(write), launches(write, autocast=False))
        )
        assert wide == narrow - 2


@pytest.mark.parametrize("fused", [True, False])
def test_branches_of_the_residual_stream_stay_of_16_bit(fused: bool) -> None:
    narrow = job(dropout=0.1, microbatches=1).with_({"software.kernels.fused_residual": fused})
    wide = narrow.with_(AUTOCAST)
    for name in ("dropout backward", "bias gradient"):
        assert moved(wide, name) == moved(narrow, name) != (0.0, 0)
    stream = 2 * narrow.model.num_layers * 2 * 128 * 256
    names = "bias, dropout", "bias, dropout, add"
    more = sum(moved(wide, name)[0] - moved(narrow, name)[0] for name in names)
    assert more == stream * 2 * (4 - 2)


def test_a_look_up_reads_and_writes_fp32() -> None:
    narrow, wide = job(microbatches=1), job(microbatches=1).with_(AUTOCAST)
    for name in ("embedding", "embedding gradient"):
        assert moved(wide, name)[0] == 2 * moved(narrow, name)[0] > 0.0


def test_what_is_gathered_takes_four_bytes_a_parameter() -> None:
    def gathered(fields: dict[str, Any]) -> float:
        plan = lowered(job(dp=4, zero=2).with_(fields)).plan
        sharding = sharded_actions_of(plan)
        assert sharding is not None
        return sharding.buffers(0).gathered

    assert gathered(AUTOCAST) == 2 * gathered({}) > 0.0


def test_context_parallelism_shards_parameters_too() -> None:
    one, two = (job(model=PLAIN, zero=3, cp=cp, seq_length=128 * cp).with_(AUTOCAST) for cp in (1, 2))
    assert not local_shape_of(one).keeps_casts
    assert local_shape_of(two).keeps_casts
    assert kept(two) > kept(one)


@pytest.mark.parametrize(
    "model",
    [{"moe": {"num_experts": 4, "topk": 2, "expert_ffn_hidden_size": 256}}, {"mtp_layers": 1}],
)
def test_models_that_are_not_described_are_refused(model: dict[str, Any]) -> None:
    run = scenario(software="generic-fsdp", **model).with_(AUTOCAST)
    with refused_at("model", "autocast"):
        lowered(run)


def test_a_plan_leaves_out_what_is_refused_and_nothing_else() -> None:
    own = job(dp=4, micro_batch=1).with_(AUTOCAST)
    modules = {"kind": "modules", "modules": ["layernorm"]}
    axes: dict[str, list[Any]] = {
        "parallelism.zero": [0, 1, 2, 3],
        "parallelism.tp": [1, 2],
        "training.recompute": ["none", modules],
    }
    rest = {name: values[:1] for name, values in layout_values(own).items() if name not in axes}
    space = space_of(own, vary={**rest, **axes})
    found = [space.scenario_of(i) for i in range(len(space))]
    assert sorted(run.parallelism.zero for run in found) == [0, 2, 3]
    assert {(run.parallelism.tp, run.training.recompute) for run in found} == {(1, "none")}
