"""What a preset implies for a scenario: defaults where nothing is said, errors and notes otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from checkout import ROOT
from pydantic import BaseModel

from stepsim.sim.scenario.blocks import Parallelism, Training
from stepsim.sim.scenario.documents import scenario_names
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.frameworks import lookup_in
from stepsim.sim.scenario.frameworks import notes_of as notes_by
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.scenario.model.model import Model
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schedules import schedule_names
from stepsim.sim.scenario.software import software_names
from stepsim.sim.scenario.software.rules import PresetRule, framework_of, rules_of
from stepsim.sim.scenario.software.software import GROUP_OF
from stepsim.sim.simulate import simulate

GPT2 = {
    "num_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 16,
    "ffn_hidden_size": 3072,
    "vocab_size": 50257,
    "mlp": "gelu",
}
BLOCKS: dict[str, type[BaseModel]] = {"model": Model, "parallelism": Parallelism, "training": Training}


def notes_of(run: Scenario) -> Iterator[tuple[str, str]]:
    return notes_by(run.software.name, lookup_in(run))


def a_run(software: Any, parallelism: dict[str, Any], **changes: Any) -> Scenario:
    document = {
        "model": {**GPT2, "vocab_size": 50304, **changes.pop("model", {})},
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 16, "interconnect": "ib-ndr400-x8"},
        "parallelism": parallelism,
        "training": {"global_batch": 32, "micro_batch": 1, "seq_length": 1024, "precision": "bf16"},
        "software": software,
    }
    document["training"] |= changes.pop("training", {})
    return scenario_from_document(document | changes, "run")


def paths(refusal: pytest.ExceptionInfo[ScenarioError]) -> list[str]:
    return [problem.path for problem in refusal.value.problems]


# The rules as data --------------------------------------------------------------------------------------


def test_every_preset_has_a_framework_and_every_rule_a_source() -> None:
    for preset in software_names():
        assert framework_of(preset), preset
        assert rules_of(preset)
        for rule in rules_of(preset):
            assert len(rule.source) > 5, rule
            assert rule.says, rule
        topics = [rule.topic for rule in rules_of(preset)]
        assert len(topics) == len(set(topics)), preset
    assert framework_of("custom") is None
    assert rules_of("custom") == ()


def test_no_file_names_a_preset_that_is_not_there() -> None:
    import yaml

    files = sorted((ROOT / "sim/scenario/software/frameworks").glob("*.yaml"))
    documents = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in files]
    named = [preset for document in documents for preset in document["presets"]]
    assert sorted(named) == sorted(software_names())
    for document in documents:
        for entry in document["rules"]:
            assert set(entry.get("presets", ())) <= set(document["presets"])


def every_rule() -> list[PresetRule]:
    return list({id(rule): rule for preset in software_names() for rule in rules_of(preset)}.values())


def test_a_rule_fixes_a_field_that_there_is_in_one_way_that_it_can_be_broken() -> None:
    for rule in every_rule():
        fixed = [rule.always is not None, bool(rule.among), bool(rule.multiple_of)]
        assert sum(fixed) == bool(rule.severity), rule
        said = bool(rule.severity) or bool(rule.options) or rule.default is not None
        assert bool(rule.path) == said, rule
        for path in (rule.path, *(name for key in rule.when for name in key.split("*"))):
            block, _, name = path.partition(".")
            if block == "software":
                group, _, name = name.partition(".")
                assert GROUP_OF[name] == group, rule
            else:
                assert path in ("", "schedule") or name in BLOCKS[block].model_fields, rule
        if rule.path == "schedule":
            assert {rule.always, *rule.among} - {None} <= set(schedule_names()), rule


# Defaults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["torchtitan-2024", "torchtitan-2025", "nemo-2025", "nanotron-2024"])
def test_the_sequence_is_sharded_where_the_framework_does_so(preset: str) -> None:
    assert a_run(preset, {"tp": 8}).parallelism.sequence_parallel
    assert not a_run(preset, {"tp": 1}).parallelism.sequence_parallel
    stated = a_run(preset, {"tp": 8, "sequence_parallel": True, "zero": 1, "stage_split": "uniform"})
    implied = a_run(preset, {"tp": 8, "zero": 1})
    assert simulate(stated).step_time_s == simulate(implied).step_time_s


def test_megatron_leaves_the_sequence_whole_unless_told() -> None:
    assert not a_run("megatron-core-2025", {"tp": 8}).parallelism.sequence_parallel
    assert a_run("megatron-core-2025", {"tp": 8, "sequence_parallel": True}).parallelism.sequence_parallel


@pytest.mark.parametrize(
    ("preset", "zero"),
    [("torchtitan-2025", 3), ("llm-foundry-2023", 3), ("nemo-2025", 1), ("llama3-meta-2024", 2)],
)
def test_what_is_sharded_follows_the_framework(preset: str, zero: int) -> None:
    assert a_run(preset, {}).parallelism.zero == zero
    assert a_run(preset, {"zero": 0}).parallelism.zero == 0
    assert a_run("megatron-core-2025", {}).parallelism.zero == 0


def test_one_replica_shards_nothing() -> None:
    assert a_run("nemo-2025", {"tp": 16}).parallelism.zero == 0


def test_nanotron_balances_its_stages() -> None:
    assert a_run("nanotron-2024", {"pp": 2}).parallelism.stage_split == "flops_balanced"
    assert a_run("nanotron-2024", {"pp": 1}).parallelism.stage_split == "uniform"


@pytest.mark.parametrize("preset", ["megatron-2023", "megatron-zero-bubble-2023", "megatron-core-2025"])
def test_megatron_accumulates_in_fp16_under_fp16_unless_told(preset: str) -> None:
    def width(precision: str, **software: Any) -> int:
        run = a_run({"preset": preset, **software}, {}, training={"precision": precision})
        return int(run.software.gradients.main_grad_bytes)

    assert width("bf16") == 4
    assert width("fp16") == 2
    assert width("fp16", gradients={"main_grad_bytes": 4}) == 4
    assert a_run(preset, {}, training={"precision": "fp16"}).software.gradients.main_grad_bytes == 2


# The vocabulary -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "preset", [p for p in software_names() if p.startswith(("megatron", "nemo", "bigs"))]
)
def test_megatron_pads_gpt2_for_eight_ranks(preset: str) -> None:
    model = a_run(preset, {"tp": 8}, model={"vocab_size": 50257}).model
    assert (model.vocab_size, model.embedding_rows) == (50257, 51200)


def test_nanotron_pads_to_a_multiple_of_tp() -> None:
    assert a_run("nanotron-2024", {"tp": 8}, model={"vocab_size": 50257}).model.embedding_rows == 50264


@pytest.mark.parametrize("preset", ["torchtitan-2025", "aleph-alpha-2023", "llama3-meta-2024"])
def test_who_pads_nothing_says_which_fields_would(preset: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        a_run(preset, {"tp": 8}, model={"vocab_size": 50257})
    assert paths(refusal) == ["model.vocab_size"]
    for field in ("padded_vocab_size", "make_vocab_size_divisible_by", "50264"):
        assert field in str(refusal.value)
    padded = a_run(preset, {"tp": 8}, model={"vocab_size": 50257, "padded_vocab_size": 50264}).model
    assert (padded.vocab_size, padded.embedding_rows) == (50257, 50264)


def test_stated_rows_win_and_must_be_enough() -> None:
    stated = {"vocab_size": 50257, "padded_vocab_size": 50304}
    assert a_run("megatron-core-2025", {"tp": 8}, model=stated).model.embedding_rows == 50304
    with pytest.raises(ScenarioError) as refusal:
        a_run("megatron-core-2025", {"tp": 8}, model={"vocab_size": 50257, "padded_vocab_size": 50000})
    assert paths(refusal) == ["model"]
    with pytest.raises(ScenarioError) as refusal:
        a_run("megatron-core-2025", {"tp": 8}, model={"vocab_size": 50257, "padded_vocab_size": 50258})
    assert paths(refusal) == ["model.padded_vocab_size"]


def test_padded_rows_are_priced_and_noted() -> None:
    whole = simulate(a_run("megatron-core-2025", {"tp": 8}, model={"padded_vocab_size": 50304}))
    padded = simulate(a_run("megatron-core-2025", {"tp": 8}))
    assert padded.peak_memory_bytes > whole.peak_memory_bytes
    assert any("50,304 padded to 51,200" in a.text for a in padded.assumptions)
    assert not any("padded to" in a.text for a in whole.assumptions)


def test_a_document_follows_another_tp() -> None:
    document = a_run("megatron-core-2025", {"tp": 8}, model={"vocab_size": 50257}).to_document()
    assert "padded_vocab_size" not in document["model"]
    document["parallelism"] |= {"tp": 4, "dp": 4}
    assert scenario_from_document(document, "run").model.embedding_rows == 50688


# Contradictions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parallelism", "changes", "path"),
    [
        ({"tp": 8, "sequence_parallel": False}, {}, "parallelism.sequence_parallel"),
        ({"tp": 8}, {"training": {"seq_length": 1032}}, "training.seq_length"),
        (
            {"tp": 4, "ep": 2, "etp": 2, "sequence_parallel": True},
            {"model": {"moe": {"num_experts": 4, "topk": 1, "expert_ffn_hidden_size": 64}}},
            "parallelism.etp",
        ),
    ],
)
def test_what_torchtitan_cannot_do_is_an_error(
    parallelism: dict[str, Any], changes: dict[str, Any], path: str
) -> None:
    with pytest.raises(ScenarioError) as refusal:
        a_run("torchtitan-2025", dict(parallelism), **changes)
    assert paths(refusal) == [path]
    fork = {"preset": "torchtitan-2025", "name": "mine"}
    assert list(notes_of(a_run(fork, dict(parallelism), **changes))) == []


@pytest.mark.parametrize(
    ("preset", "parallelism", "changes", "field"),
    [
        ("nemo-2025", {"tp": 8, "sequence_parallel": False}, {}, "parallelism.sequence_parallel"),
        ("nanotron-2024", {"zero": 3}, {}, "parallelism.zero"),
        ("torchtitan-2025", {"zero": 1}, {}, "parallelism.zero"),
        ("megatron-core-2025", {"pp": 2}, {"schedule": "zb-h1"}, "schedule"),
        ("megatron-2021", {"pp": 2}, {"training": {"recompute": "selective"}}, "training.recompute"),
        ("llm-foundry-2023", {"tp": 2}, {}, "parallelism.tp"),
        ("nanotron-2024", {"pp": 2, "stage_split": "uniform"}, {}, "parallelism.stage_split"),
        ("maxtext-2025", {"pp": 2}, {}, "schedule"),
        ("maxtext-2025", {"zero": 2}, {}, "parallelism.zero"),
    ],
)
def test_what_a_framework_has_not_is_noted(
    preset: str, parallelism: dict[str, Any], changes: dict[str, Any], field: str
) -> None:
    run = a_run(preset, parallelism, **changes)
    (text, source) = next(iter(notes_of(run)))
    assert text.startswith(field + " ")
    assert source
    told = [a for a in simulate(run).assumptions if a.text == text]
    assert [a.note for a in told] == [True]


def test_lists_and_tables_are_free() -> None:
    assert list(notes_of(a_run("nanotron-2024", {"pp": 2, "zero": 1, "stage_split": [7, 5]}))) == []


def test_shipped_scenarios_are_as_their_frameworks_have_it() -> None:
    for name in scenario_names():
        assert list(notes_of(load_scenario(name))) == [], name


# Told ---------------------------------------------------------------------------------------------------


def test_a_preset_tells_what_it_implies() -> None:
    from typer.testing import CliRunner

    from stepsim.cli.main import app

    told = CliRunner().invoke(app, ["list", "software", "torchtitan-2025", "--json"])
    assert told.exit_code == 0
    document = json.loads(told.stdout)
    assert document["framework"] == "torchtitan"
    assert document["software"]["sharding"]["implementation"] == "fsdp2"
    assert {one["topic"] for one in document["implies"] if one["contradicted"] == "error"} == {
        "sequence parallelism",
        "sequence length",
        "expert parallelism",
    }
    text = CliRunner().invoke(app, ["list", "software", "torchtitan-2025"]).stdout
    assert all(one["topic"] in text for one in document["implies"])
    for wrong in (["gpus", "nope"], ["software", "nope"], ["software", "nanotron-2024", "--markdown"]):
        assert CliRunner().invoke(app, ["list", *wrong]).exit_code == 2
