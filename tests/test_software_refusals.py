"""Facts of the software that nothing in a step would read, or that contradict one another, are refused."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_scenarios import scenario

from stepsim import load_scenario
from stepsim.sim.plan.questions.sensitivity import faster_parts
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software import get_software


def refusal(run: Scenario, changes: dict[str, Any]) -> tuple[str, str]:
    """The field and the message of what is refused."""
    with pytest.raises(ScenarioError) as error:
        run.with_(changes)
    (problem,) = error.value.problems
    return problem.path, problem.message


@pytest.mark.parametrize("precision", ["bf16", "fp32", "mxfp8"])
def test_how_fp8_is_scaled_is_for_fp8(precision: str) -> None:
    run = load_scenario("llama3-8b-h100")
    stated = {"software.kernels.fp8_scaling": "current", "training.precision": precision}
    field, message = refusal(run, stated)
    assert field == "software.kernels.fp8_scaling"
    assert f"training.precision is {precision}" in message
    assert run.with_({**stated, "training.precision": "fp8"}).software.kernels.fp8_scaling == "current"


def test_what_a_preset_says_of_fp8_is_no_statement() -> None:
    run = scenario(software="megatron-bridge-2025")
    assert (run.training.precision, run.software.kernels.fp8_scaling) == ("bf16", "current")
    assert scenario_from_document(run.to_document(), "again").software == run.software


@pytest.mark.parametrize("precision", ["bf16", "nvfp4"])
def test_a_change_of_precision_takes_the_scaling_of_fp8_with_it(precision: str, tmp_path: Path) -> None:
    """So that a sweep over precisions starts from a file in FP8; what the change itself says is refused."""
    stated = {"training.precision": "fp8", "software.kernels.fp8_scaling": "blockwise"}
    run = load_scenario("llama3-8b-h100").with_({**stated, "cluster.gpu": "B200-SXM-180GB"})
    changed = run.with_({"training.precision": precision})
    assert changed.software.kernels.fp8_scaling == get_software("megatron-core-2024").kernels.fp8_scaling
    assert run.with_({"training.precision": "fp8"}).software == run.software
    for change in permutations([f"training.precision={precision}", "software.kernels.fp8_scaling=current"]):
        with pytest.raises(ScenarioError, match="fp8_scaling"):
            load_scenario(saved(run, tmp_path), overrides=change)
    child = tmp_path / "child.yaml"
    child.write_text(f"extends: {saved(run, tmp_path).name}\ntraining: {{precision: {precision}}}\n")
    assert load_scenario(child).software == changed.software


def saved(run: Scenario, folder: Path) -> Path:
    """A scenario file of ``run``."""
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(run.to_document()))
    return path


EXPERTS: dict[str, Any] = {"model.moe": {"num_experts": 8, "topk": 2, "expert_ffn_hidden_size": 128}}


def test_a_compiler_leaves_no_biases_of_experts_apart() -> None:
    compiled = {"software.kernels.torch_compile": True, "software.kernels.expert_biases": "apart"}
    biased = scenario(biases=True).with_(EXPERTS)
    field, message = refusal(biased, compiled)
    assert field == "software.kernels.expert_biases"
    assert "in-products" in message
    assert biased.with_({**compiled, "software.kernels.expert_biases": "in-products"}).model.biases
    assert scenario(biases=False).with_(EXPERTS).with_(compiled).model.moe
    assert scenario(biases=True).with_(compiled).model.moe is None


@pytest.mark.parametrize("loss", ["fused", "compiled-torch", "vocab-parallel", "gathered"])
def test_logits_are_held_beside_torchs_own_loss_alone(loss: str) -> None:
    run = scenario(software="generic-fsdp")
    stated = {"software.kernels.holds_logits": True, "software.kernels.cross_entropy": loss}
    field, message = refusal(run, stated)
    assert field == "software.kernels.holds_logits"
    assert loss in message


@pytest.mark.parametrize("other", [{"cross_entropy": "eager"}, {"loss_chunks": 8}, {"loss_in_place": False}])
def test_metrics_copy_logits_of_a_fused_loss_that_are_all_there(other: dict[str, object]) -> None:
    run = scenario(software={"preset": "generic-fsdp", "kernels": {"cross_entropy": "fused"}})
    copies = {"software.kernels.metrics_copy_logits": True}
    assert run.with_(copies).software.kernels.metrics_copy_logits
    ((name, value),) = other.items()
    field, message = refusal(run, copies | {f"software.kernels.{name}": value})
    assert field == "software.kernels.metrics_copy_logits"
    assert f"{name}: {str(value).lower()}" in message


def test_only_nvlink_that_is_there_is_faster() -> None:
    cards = scenario(gpu="RTX-4090", gpus_per_node=4)
    field, message = refusal(cards, {"cluster.what_if.nvlink": 2})
    assert field == "cluster.what_if.nvlink"
    assert "no NVLink" in message
    assert cards.with_({"cluster.what_if.hbm": 2}).cluster.what_if
    assert "twice the NVLink" not in faster_parts(cards)
    assert "twice the NVLink" in faster_parts(scenario())
