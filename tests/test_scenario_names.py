"""Other names and forms of a scenario's fields, and of what they name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from small_documents import SMALL, written

from stepsim.cli.main import _print_deprecations
from stepsim.hardware.gpus import gpu_names
from stepsim.hardware.interconnect import interconnect_names
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.scenario.model.catalogue import model_names
from stepsim.sim.scenario.recompute import RecomputeSpec
from stepsim.sim.scenario.software.presets import get_software, software_names
from stepsim.sim.scenario.software.software import GROUP_OF, GROUPS, REPLACED, Software


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llama3.1-8b", "llama3-8b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("unsloth/llama_2_7b-hf-bnb-4bit", "llama2-7b"),
    ],
)
def test_models_go_by_the_names_that_people_write(name: str, model: str) -> None:
    sharded = SMALL | {"parallelism": {}}
    asked, known = (scenario_from_document(sharded | {"model": one}, "s") for one in (name, model))
    assert asked == known


@pytest.mark.parametrize("name", ["gpt-75b", "llama4-scout", "./llama3-8b", "meta-llama/llama3-8b.json"])
def test_a_name_that_is_near_is_not_the_same(name: str) -> None:
    with pytest.raises(ScenarioError, match="model"):
        scenario_from_document(SMALL | {"model": name}, "s")


@pytest.mark.parametrize(
    ("block", "label"),
    [("model", "llama3-8b"), ("model", "meta-llama/Llama-3.1-8B"), ("software", "nemo-2025")],
)
def test_the_name_of_a_preset_is_no_label(block: str, label: str) -> None:
    with pytest.raises(ScenarioError, match=f"write preset: {label} "):
        scenario_from_document(SMALL | {block: {"name": label}}, "s")


def test_all_fields_of_a_preset_with_its_name_are_that_preset() -> None:
    known = get_software("nemo-2025")
    fields = known.model_dump(mode="json")
    assert scenario_from_document(SMALL | {"software": fields}, "s").software == known


def test_a_model_of_ones_own_may_be_labelled_as_a_known_one() -> None:
    known = scenario_from_document(SMALL, "s")
    sizes = known.to_document()["model"] | {"name": "llama3-8b"}
    assert scenario_from_document(SMALL | {"model": sizes}, "s").model.num_layers == known.model.num_layers


def test_every_catalogue_name_is_accepted() -> None:
    for model in model_names():
        document = SMALL | {
            "model": {"preset": model, "make_vocab_size_divisible_by": 128},
            "parallelism": {},
        }
        assert scenario_from_document(document, "s").model.name == model
    for gpu in gpu_names():
        assert (
            scenario_from_document(SMALL | {"cluster": SMALL["cluster"] | {"gpu": gpu}}, "s").cluster.gpu
            == gpu
        )
    for key in set(interconnect_names()) - {"nvlink-only"}:
        cluster = SMALL["cluster"] | {"interconnect": key}
        assert scenario_from_document(SMALL | {"cluster": cluster}, "s").cluster.interconnect == key
    for preset in software_names():
        assert scenario_from_document(SMALL | {"software": preset}, "s").software == get_software(preset)


def test_megatron_names_are_accepted() -> None:
    long_names = {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": 2,
        "context_parallel_size": 2,
        "data_parallel_size": 4,
        "sharding": 1,
    }
    training = {
        "global_batch_size": 64,
        "mbs": 1,
        "seq": 4096,
        "precision": "bf16",
        "recompute_granularity": "full",
    }
    scenario = scenario_from_document(SMALL | {"parallelism": long_names, "training": training}, "s")
    par = scenario.parallelism
    assert (par.tp, par.pp, par.vpp, par.cp, par.dp, par.zero) == (2, 2, 2, 2, 4, 1)
    assert (scenario.training.global_batch, scenario.training.recompute) == (64, "full")


def test_experts_and_latent_attention_have_blocks_and_megatron_names() -> None:
    moe = {"num_experts": 8, "topk": 2, "expert_ffn_hidden_size": 14336}
    flat = {"num_moe_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 14336}
    small = SMALL | {"parallelism": SMALL["parallelism"] | {"sequence_parallel": True}}
    nested = scenario_from_document(small | {"model": {"preset": "mistral-7b", "moe": moe}}, "s")
    assert nested == scenario_from_document(small | {"model": {"preset": "mistral-7b", **flat}}, "s")
    assert nested.model.moe
    assert nested.model.moe.num_experts == 8


@pytest.mark.parametrize("field", GROUP_OF)
def test_a_field_of_software_may_stand_without_its_group(field: str) -> None:
    group = GROUP_OF[field]
    value = getattr(getattr(get_software("bigscience-2022"), group), field)
    precision = "fp8" if field == "fp8_scaling" else "bf16"
    small = SMALL | {"training": SMALL["training"] | {"precision": precision}}
    flat, nested = (
        scenario_from_document(small | {"software": {"preset": "megatron-2022-sp", **given}}, "s")
        for given in ({field: value}, {group: {field: value}})
    )
    assert flat == nested
    with pytest.raises(ScenarioError) as refusal:
        scenario_from_document(small | {"software": {field: value, group: {field: value}}}, "s")
    assert "given twice" in str(refusal.value)


@pytest.mark.parametrize("field", REPLACED)
def test_a_field_of_one_framework_is_refused_with_the_behaviour_that_says_it(field: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        scenario_from_document(SMALL | {"software": {"preset": "megatron-core-2024", field: True}}, "s")
    (problem,) = refusal.value.problems
    group, name, value = re.fullmatch(r"(\w+)\.(\w+): ([\w-]+)", REPLACED[field]).groups()  # type: ignore[union-attr]
    assert problem.message.endswith(f"software.{REPLACED[field]}")
    assert GROUPS[group].model_validate({name: value})


@pytest.mark.parametrize(
    "software",
    [
        {"kernels": {"fused_optimizer": "yes"}},
        {"gradients": {"update_copy": True}},
    ],
)
def test_fields_that_one_has_replaced_are_told_its_values(software: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError) as refusal:
        scenario_from_document(SMALL | {"software": {"preset": "megatron-core-2024", **software}}, "s")
    (problem,) = refusal.value.problems
    assert "software.kernels.optimizer_implementation" in problem.message
    assert all(way in problem.message for way in ("fused", "foreach", "for-loop"))


@pytest.mark.parametrize(
    ("software", "way"),
    [({"fused_optimizer": False}, "for-loop"), ({"kernels": {"fused_optimizer": True}}, "fused")],
)
def test_a_field_of_an_earlier_version_is_understood_and_warned_of(
    software: dict[str, Any], way: str
) -> None:
    document = SMALL | {"software": {"preset": "megatron-core-2024", **software}}
    with pytest.warns(DeprecationWarning, match="optimizer_implementation"):
        made = scenario_from_document(document, "s")
    assert made.software.kernels.optimizer_implementation == way


def test_a_command_tells_a_field_that_goes_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("extends: llama3-8b-h100\n", encoding="utf-8")
    words = ("memory", str(path), "--set", "software.kernels.fused_optimizer=true", "--json")
    command = (sys.executable, "-m", "stepsim.cli.main", *words)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("stepsim: software.kernels.fused_optimizer")


def test_warnings_of_others_are_shown_as_they_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[tuple[str, type[Warning], int]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, file, line, *_: shown.append(
            (str(message), category, line)
        )
        _print_deprecations()
        warnings.warn_explicit("stepsim: an old name", DeprecationWarning, "a.py", 1)
        warnings.warn_explicit("a division by zero", RuntimeWarning, "b.py", 7)
    assert shown == [("a division by zero", RuntimeWarning, 7)]
    assert capsys.readouterr().err == "stepsim: an old name\n"


def test_a_slip_in_a_field_of_software_is_told_the_field_that_was_meant() -> None:
    for software in ({"atention": "fa2"}, {"kernels": {"atention": "fa2"}}):
        with pytest.raises(ScenarioError) as refusal:
            scenario_from_document(SMALL | {"software": {"preset": "megatron-core-2024", **software}}, "s")
        assert "attention?" in str(refusal.value)  # the nearest name


def test_whose_shards_is_a_word_or_a_group() -> None:
    word, block = (
        scenario_from_document(SMALL | {"software": {"preset": "megatron-core-2024", "sharding": given}}, "s")
        for given in ("fsdp2", {"implementation": "fsdp2"})
    )
    assert word == block
    assert word.software.sharding.implementation == "fsdp2"


def test_no_two_groups_of_software_share_a_field() -> None:
    names = [name for kind in GROUPS.values() for name in kind.model_fields]
    assert len(names) == len(set(names)) == len(GROUP_OF)
    assert not set(names) & {"preset", *Software.model_fields}


def test_recomputation_has_a_short_and_a_long_form() -> None:
    for given_as, means in (
        ("selective", "selective"),
        ({"kind": "full", "layers": 4}, RecomputeSpec(kind="full", layers=4)),
        ({"kind": "modules", "modules": ["mlp"]}, RecomputeSpec(kind="modules", modules=("mlp",))),
    ):
        document = SMALL | {"training": SMALL["training"] | {"recompute": given_as}}
        assert scenario_from_document(document, "s").training.recompute == means


def test_measured_bandwidth_carries_its_unit() -> None:
    network = {"all_reduce": "224 GB/s", "all_gather_intra_bytes_per_s": "1600 Gb/s"}
    cluster = SMALL["cluster"] | {"measured_network": network}
    measured = scenario_from_document(SMALL | {"cluster": cluster}, "s").cluster.measured_network
    assert measured
    assert measured.all_reduce_bytes_per_s == 224e9
    assert measured.all_gather_intra_bytes_per_s == 200e9
    assert measured.reduce_scatter_bytes_per_s is None


def test_a_hugging_face_config_is_found_beside_the_scenario(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024, "num_attention_heads": 8,
        "intermediate_size": 4096, "vocab_size": 32000,
    }  # fmt: skip
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for path in ("./tiny", "tiny/config.json"):
        model = load_scenario(written(tmp_path, "s.yaml", SMALL | {"model": path})).model
        assert (model.name, model.num_layers, model.mlp) == ("tiny", 4, "swiglu")


def test_whole_numbers_may_be_written_as_powers_of_ten() -> None:
    scenario = load_scenario(
        "llama3-8b-h100", ["training.global_batch=1e3", "cluster.gpus=8.0", "parallelism.tp=4e0"]
    )
    assert (scenario.training.global_batch, scenario.parallelism.dp) == (1000, 2)
