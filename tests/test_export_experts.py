"""What exported files say of experts and their routers, and how a pattern of layers is compared."""

from __future__ import annotations

import pytest
from importing import scenario as imported_scenario

from stepsim.sim.scenario.importers.export import differences, export, left_out
from stepsim.sim.scenario.load import load_scenario


def test_a_router_that_is_forced_to_balance_is_told_where_no_option_says_it() -> None:
    scenario = load_scenario("mixtral-8x7b-h100", {"training.routing": "forced"})
    for framework, version in (("megatron-bridge", None), ("megatron-lm", "core_v0.12.0")):
        notes = left_out(export(scenario, framework, version), scenario, framework, version)
        assert any("training.routing: forced reads back as balanced" in note for note in notes)


@pytest.mark.parametrize("has", [True, False])
def test_whether_routers_have_a_loss_is_written(has: bool) -> None:
    scenario = load_scenario("mixtral-8x7b-h100", {"software.exchange.router_loss": has})
    script = export(scenario, "megatron-lm")
    assert ("--moe-aux-loss-coeff" in script) is has
    read = imported_scenario({"train.sh": script}, {"gpus": str(scenario.cluster.gpus)})
    assert read.software.exchange.router_loss is has


def test_a_list_of_layers_with_experts_is_what_dense_first_layers_say() -> None:
    first = load_scenario("deepseek-v2-lite-h100")
    layers = [int(first.model.has_experts(layer)) for layer in range(first.model.num_layers)]
    moe = first.to_document()["model"]["moe"]
    listed = first.with_({"model.moe": moe | {"num_dense_layers": 0, "layer_freq": layers}})
    assert differences(first, listed) == []
    other = first.with_({"model.moe": moe | {"num_dense_layers": 2}})
    assert [path for path, _, _ in differences(first, other)] == ["model.moe.layer_freq"]
