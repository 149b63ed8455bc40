"""Scenario files: what is read, what follows, how documents change one another, and back to a document."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from small_documents import SMALL, written
from small_scenarios import shards_always

from stepsim.hardware.calibrated.overlay import profile_names
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.sim.lowering.sizes import model_flops
from stepsim.sim.scenario.documents import scenario_names
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.scenario.model.catalogue import get_model, model_names
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schema import json_schema
from stepsim.sim.scenario.software.presets import get_software, software_names
from stepsim.sim.scenario.yaml_source import read_tree

# --- shipped scenarios ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", scenario_names())
def test_shipped_scenarios_load_and_are_cited(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.title
    if scenario.published is None:  # an example for a model, which says so itself
        assert "\n# " in (ROOT / "scenarios" / f"{name}.yaml").read_text(encoding="utf-8")
        return
    assert scenario.published.step_time_s or scenario.published.note
    assert "arXiv:" in scenario.published.source or "https://" in scenario.published.source


def test_every_model_has_a_scenario_that_fits() -> None:
    """But for one published run that is predicted not to."""
    runs = json.loads((ROOT / "tests" / "goldens" / "runs.json").read_text(encoding="utf-8"))
    fitting = {name for name, figures in runs.items() if figures["fits"]}
    assert set(scenario_names()) - fitting <= {"llama3.1-405b-8k"}
    assert {load_scenario(name).model.name for name in fitting} == set(model_names())


def test_the_issue_names_are_shipped() -> None:
    assert {"llama3.1-405b-16k", "llama3.1-405b-8k", "gpt3-175b-a100", "gpt-1t-a100-sc21"} <= set(
        scenario_names()
    )
    assert len(scenario_names()) >= 10


@pytest.mark.parametrize("name", [n for n in scenario_names() if (p := load_scenario(n).published) and p.mfu])
def test_published_time_and_utilisation_agree(name: str) -> None:
    """Both are printed by the source, so the model's shape, the batch and the GPU's peak are what it used."""
    scenario = load_scenario(name)
    published = scenario.published
    assert published is not None
    assert published.step_time_s is not None
    training = scenario.training
    flops = model_flops(scenario.model, training.global_batch, training.seq_length)
    peak = get_gpu(scenario.cluster.gpu_name).peak_flops[training.precision] * scenario.cluster.gpus
    assert flops / published.step_time_s / peak == pytest.approx(published.mfu, rel=0.035)  # two digits


def test_the_16k_scenario_scales_by_two_settings() -> None:
    scenario = load_scenario("llama3.1-405b-16k", ["cluster.gpus=131072", "training.global_batch=16384"])
    assert (scenario.world_size, scenario.parallelism.dp, scenario.num_microbatches) == (131072, 1024, 16)


# --- what follows from other fields --------------------------------------------------------------


def test_what_is_left_out_follows() -> None:
    scenario = scenario_from_document(SMALL, "small")
    assert scenario.name == "small"
    assert (scenario.parallelism.dp, scenario.num_microbatches, scenario.schedule) == (8, 8, "1f1b")
    assert (scenario.cluster.gpus_per_node, scenario.cluster.fabric.kind) == (8, "rail-optimized")
    assert scenario.software == get_software("megatron-core-2024")
    assert scenario.model == get_model("llama3-8b").model_copy(update={"make_vocab_size_divisible_by": 128})


@pytest.mark.parametrize(
    ("changes", "schedule"),
    [
        ({"pp": 1}, "none"),
        ({"pp": 2}, "1f1b"),
        ({"pp": 2, "vpp": 2}, "interleaved"),
    ],
)
def test_the_schedule_follows_from_the_layout(changes: dict[str, int], schedule: str) -> None:
    assert scenario_from_document(SMALL | {"parallelism": changes}, "s").schedule == schedule


def test_a_v_shaped_schedule_has_two_chunks() -> None:
    assert scenario_from_document(SMALL | {"schedule": "zb-v"}, "s").parallelism.vpp == 2


def test_one_nvlink_domain_needs_no_network() -> None:
    host = SMALL["cluster"] | {"gpus": 8, "interconnect": None}
    assert scenario_from_document(SMALL | {"cluster": host}, "s").cluster.interconnect == "nvlink-only"
    rack = {"gpu": "GB200-NVL72", "gpus": 32}
    cluster = scenario_from_document(SMALL | {"cluster": rack}, "s").cluster
    assert (cluster.interconnect, cluster.gpus_per_node) == ("nvlink-only", 4)


def test_the_vocabulary_is_padded_for_the_layout() -> None:
    model = {"preset": "gpt2-1.5b", "num_attention_heads": 20}
    scenario = scenario_from_document(SMALL | {"model": model, "parallelism": {"tp": 4}}, "s")
    assert scenario.model.vocab_size == 50257
    assert scenario.model.embedding_rows == 50688  # up to a multiple of 128 * 4
    assert (scenario.model.kv_channels, scenario.model.num_query_groups) == (
        80,
        20,
    )  # follow the changed heads


# --- extends and --set ---------------------------------------------------------------------------


def test_a_child_changes_its_base_and_the_command_line_both(tmp_path: Path) -> None:
    written(tmp_path, "base.yaml", SMALL | {"title": "base", "published": {"step_time": "3 s"}})
    child = {
        "extends": "base.yaml",
        "parallelism": {"tp": 4},
        "training": {"global_batch": 128, "micro_batch": 2},
    }
    path = written(tmp_path, "child.yaml", child)
    scenario = load_scenario(path, ["training.gbs=256", "training.micro_batch_size=4"])
    assert (scenario.parallelism.tp, scenario.parallelism.pp) == (4, 2)
    assert (scenario.training.global_batch, scenario.training.micro_batch) == (256, 4)
    assert (scenario.name, scenario.title, scenario.published) == ("child", "", None)


def test_a_chain_of_files_and_a_shipped_base(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    written(tmp_path, "a.yaml", {"extends": "llama3-8b-h100", "training": {"micro_batch": 2}})
    path = written(tmp_path / "sub", "b.yaml", {"extends": "../a.yaml", "training": {"recompute": "full"}})
    training = load_scenario(path).training
    assert (training.seq_length, training.micro_batch, training.recompute) == (8192, 2, "full")


def test_naming_a_preset_starts_afresh_and_a_field_alone_changes_one_thing() -> None:
    changed = load_scenario("llama3-8b-h100", ["software.kernels.attention=fa2", "model.num_layers=16"])
    assert changed.software.kernels.attention == "fa2"
    assert changed.software.name == load_scenario("llama3-8b-h100").software.name
    assert (changed.model.num_layers, changed.model.hidden_size) == (16, 4096)
    afresh = load_scenario("llama3-8b-h100", ["software.kernels.attention=fa3", "software=nanotron-2024"])
    assert afresh.software == get_software("nanotron-2024")


def test_null_takes_back_what_the_base_said() -> None:
    scenario = load_scenario("llama3-70b-h100", ["schedule=null", "parallelism.vpp=null"])
    assert (scenario.parallelism.vpp, scenario.schedule) == (1, "1f1b")


def test_a_published_number_goes_with_the_job_it_was_measured_on() -> None:
    shipped = load_scenario("gpt3-175b-a100")
    same_job = load_scenario("gpt3-175b-a100", ["software.host.host_s_per_kernel=1e-6"])
    assert (same_job.title, same_job.published) == (shipped.title, shipped.published)
    other_job = load_scenario("gpt3-175b-a100", ["training.recompute=full"])
    assert (other_job.title, other_job.published) == ("", None)


# --- the frozen scenario -------------------------------------------------------------------------


def test_a_scenario_is_frozen_and_checked_without_a_file_too() -> None:
    scenario = load_scenario("llama3-8b-h100")
    with pytest.raises(ValidationError, match="frozen"):
        scenario.name = "other"
    fields = dict(scenario) | {"parallelism": scenario.parallelism.model_copy(update={"tp": 3})}
    with pytest.raises(ValidationError, match=r"parallelism.tp: 3 "):
        Scenario(**fields)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Consistent scenarios: sizes are drawn, totals follow."""
    tp, pp, dp = (draw(st.sampled_from([1, 2, 4, 8])) for _ in range(3))
    vpp = draw(st.sampled_from([1, 2])) if pp > 1 else 1
    micro_batch = draw(st.integers(1, 4))
    microbatches = pp * draw(st.integers(1, 8))
    rates = st.floats(1e9, 1e12).map(lambda rate: f"{rate!r} B/s")
    # PyYAML writes by YAML 1.1, to which 0E0 is text: words are no number by either.
    words = st.text(max_size=9).map(lambda text: f"a {text}")
    published = {"step_time": st.just("2.5 s"), "note": words}
    network = {"all_reduce": rates, "all_gather_intra": rates}
    layers = 2 * pp * vpp
    split = draw(st.sampled_from(["uniform", [2] * (pp * vpp)]))
    part, modules = {"kind": "full", "layers": 1}, {"kind": "modules", "modules": ["mlp"]}
    recompute = draw(st.sampled_from(["none", "full", part, modules]))
    software = draw(st.sampled_from(software_names()))
    gpu = draw(st.sampled_from(gpu_names()))
    return {
        "title": draw(words),
        "published": draw(st.none() | st.fixed_dictionaries(published)),
        "model": {"preset": draw(st.sampled_from(["llama3-8b", "gpt3-175b"])), "num_layers": layers},
        "cluster": {
            "gpu": gpu,
            "gpus": 8 * tp * pp * dp,
            "interconnect": "ib-ndr400-x8",
            "measured_network": draw(st.none() | st.fixed_dictionaries(network)),
        },
        "parallelism": {
            "tp": tp,
            "pp": pp,
            "vpp": vpp,
            "sequence_parallel": tp > 1 and (shards_always(software) or draw(st.booleans())),
            "zero": draw(st.integers(0, 3)),
            "stage_split": split,
        },
        "training": {
            "global_batch": micro_batch * microbatches * 8 * dp,
            "micro_batch": micro_batch,
            "seq_length": 2048,
            "precision": draw(st.sampled_from(["bf16", "fp16", "fp32", "fp8"])),
            "recompute": recompute,
        },
        "software": {"preset": software, "gradients": {"bucket_elements": draw(st.sampled_from([1e6, 4e7]))}},
        "calibration": draw(st.lists(st.just(gpu), max_size=2)) if gpu in profile_names() else [],
    }


@given(document=documents())
def test_a_scenario_survives_the_way_through_yaml_and_json(document: dict[str, Any]) -> None:
    scenario = scenario_from_document(document, "drawn")
    as_yaml = yaml.safe_dump(scenario.to_document())  # escaped: unescaped, PyYAML loses U+0085
    assert scenario_from_document(read_tree(as_yaml, "f").plain(), "other") == scenario
    assert scenario_from_document(json.loads(json.dumps(scenario.to_document())), "other") == scenario


@pytest.mark.parametrize(
    ("gpu", "preset", "precision", "group", "field", "value"),
    [
        ("A100-SXM4-80GB", "megatron-core-2025", "bf16", "kernels", "attention", "cudnn"),
        ("B200-SXM-180GB", "torchtitan-2025", "bf16", "kernels", "attention", "fa2"),
        ("A100-SXM4-80GB", "megatron-core-2025", "fp16", "gradients", "main_grad_bytes", 4),
    ],
)
def test_what_a_preset_has_is_written_where_the_job_would_change_it(
    gpu: str, preset: str, precision: str, group: str, field: str, value: Any
) -> None:
    """The preset's own value, stated, is another than what its framework runs on that GPU or so precise."""
    document = {
        "model": "llama3-8b",
        "cluster": {"gpu": gpu, "gpus": 8, "gpus_per_node": 8, "interconnect": "ib-ndr400-x8"},
        "training": {"global_batch": 8, "micro_batch": 1, "seq_length": 4096, "precision": precision},
    }
    stated = {"preset": preset, group: {field: value}}
    said, silent = (
        scenario_from_document({**document, "software": software}, "job") for software in (stated, preset)
    )
    assert getattr(getattr(said.software, group), field) == value
    assert said != silent
    for one in (said, silent):
        assert scenario_from_document(one.to_document(), "job") == one


@given(document=documents())
def test_world_and_batch_add_up(document: dict[str, Any]) -> None:
    scenario = scenario_from_document(document, "drawn")
    par = scenario.parallelism
    assert par.tp * par.pp * par.cp * par.dp == scenario.world_size
    batch = scenario.training.micro_batch * scenario.num_microbatches * par.dp
    assert batch == scenario.training.global_batch


# --- JSON Schema ---------------------------------------------------------------------------------


BLOCKS_OF_WEEKS = {"Faults", "Detection", "Recovery", "Checkpoint", "Run"}


@pytest.mark.parametrize(
    "schema",
    [
        "Scenario.model_json_schema()",
        "TypeAdapter(list[Scenario]).json_schema()",
        "create_model('Jobs', first=(Scenario, ...)).model_json_schema()",
    ],
    ids=["its own", "of a list", "of another model"],
)
def test_models_of_weeks_load_with_the_first_schema_that_has_them(schema: str) -> None:
    """Whoever asks for a schema need not know that reading a scenario without faults has not loaded them."""
    code = f"""
import sys
from pydantic import TypeAdapter, create_model
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario
load_scenario("llama3-8b-h100")
assert "stepsim.sim.scenario.faults" not in sys.modules
print(*{schema}["$defs"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) >= BLOCKS_OF_WEEKS


def test_the_json_schema_names_what_documents_may_hold() -> None:
    schema = json_schema()
    json.dumps(schema)
    definitions = schema["$defs"]
    assert {"model", "cluster", "parallelism", "training", "schedule", "software", "extends"} <= set(
        schema["properties"]
    )
    assert "dp" not in definitions["Parallelism"].get("required", [])
    assert {"tp", "tensor_model_parallel_size"} <= set(definitions["Parallelism"]["properties"])
    rate = definitions["MeasuredNetwork"]["properties"]["all_reduce_bytes_per_s"]
    assert {"type": "string"}.items() <= {**rate, **rate.get("anyOf", [{}])[0]}.items()
    references = [text for text in _texts(schema) if text.startswith("#/$defs/")]
    assert references
    assert {text.removeprefix("#/$defs/") for text in references} <= set(definitions)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []
