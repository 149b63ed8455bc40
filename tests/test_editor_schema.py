"""The schema for editors: every field in words, names as enums, and shipped scenarios valid by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from checkout import ROOT
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.hardware.gpus import gpu_names
from stepsim.hardware.interconnect import interconnect_names
from stepsim.sim.scenario.documents import scenario_names
from stepsim.sim.scenario.editor_schema import FILE, editor_schema
from stepsim.sim.scenario.model.catalogue import model_names
from stepsim.sim.scenario.optimizers import optimizer_names
from stepsim.sim.scenario.software.called import framework_names
from stepsim.sim.scenario.software.presets import software_names
from stepsim.sim.scenario.yaml_source import read_tree

jsonschema = pytest.importorskip("jsonschema")
SCHEMA: dict[str, Any] = json.loads(json.dumps(editor_schema()))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
LINE = f"# yaml-language-server: $schema={FILE}"


def fields() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of every block, by its path in the schema."""
    for block, definition in {"": SCHEMA, **SCHEMA["$defs"]}.items():
        for name, field in definition.get("properties", {}).items():
            yield f"{block}.{name}", field


def wrong(document: Any) -> list[str]:
    return [error.json_path for error in VALIDATOR.iter_errors(document)]


def names_of(field: dict[str, Any]) -> set[str]:
    return {name for form in field["anyOf"] for name in form.get("enum", ())}


def test_it_is_a_schema_that_says_what_every_field_is() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    found = dict(fields())
    assert [path for path, field in found.items() if not field.get("description")] == []
    for path in ("ClusterSpec.gpus", "PowerSpec.limit", "Training.seq_length", "Run.horizon"):
        assert "(" in found[path]["description"], path
    assert "default: 1" in found["Parallelism.tp"]["description"]
    assert "1 us to 100 years" in found[".step_time"]["description"]


def test_names_are_enums() -> None:
    root, blocks = SCHEMA["properties"], SCHEMA["$defs"]
    assert names_of(root["model"]) == set(model_names())
    assert names_of(root["software"]) == {*software_names(), *framework_names()}
    assert names_of(root["extends"]) == set(scenario_names())
    assert names_of(blocks["ClusterSpec"]["properties"]["gpu"]) == set(gpu_names())
    assert names_of(blocks["ClusterSpec"]["properties"]["interconnect"]) == set(interconnect_names())
    assert names_of(blocks["Training"]["properties"]["optimizer"]) == set(optimizer_names())


@pytest.mark.parametrize("name", scenario_names())
def test_shipped_scenarios_name_it_and_obey_it(name: str) -> None:
    text = (ROOT / "scenarios" / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"{LINE}\n")
    assert wrong(read_tree(text, name).plain()) == []


def test_the_shipped_file_is_what_the_command_prints() -> None:
    printed = json.loads(CliRunner().invoke(app, ["schema"]).stdout)
    assert json.loads((ROOT / "scenarios" / FILE).read_text(encoding="utf-8")) == printed == SCHEMA


BASE: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 8},
    "training": {"global_batch": 8, "micro_batch": 1, "seq_length": 2048, "precision": "bf16"},
    "software": "nemo-2025",
}


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({}, []),
        ({"model": "./config.json", "cluster": {"gpu": "h100", "gpus": 8}}, []),
        ({"cluster": {"gpu": "my.yaml", "gpus": 8, "interconnect": {"rate": "200 Gb/s"}}}, []),
        ({"software": {"preset": "nemo-2025", "host": {"cuda_graphs": True}}}, []),
        ({"model": "lama"}, ["$.model"]),
        ({"software": "nemo"}, ["$.software"]),
        ({"cluster": {"gpu": "h100", "gpus": 0}}, ["$.cluster.gpus"]),
        ({"training": {**BASE["training"], "precison": "bf16"}}, ["$.training"]),
        ({"cluster": {"gpu": "h100"}}, ["$.cluster"]),
    ],
)
def test_slips_are_found_where_they_are(change: dict[str, Any], at: list[str]) -> None:
    assert wrong({**BASE, **change}) == at


def test_a_file_over_another_and_weeks_of_a_given_step_need_no_more() -> None:
    assert wrong({"extends": "llama3-8b-h100", "cluster": {"gpus": 64}}) == []
    assert wrong({"step_time": "10 s", "faults": {"events": ["hang at=1h"]}}) == []
    assert wrong({"model": "llama3-8b"}) != []
