"""Importers as a whole: found by name, in every command, over published configurations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from imported_configs import CONFIGS, tally
from importing import imported
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.scenario.importers.entry import commented_yaml, import_files
from stepsim.sim.scenario.importers.registry import IMPORTERS
from stepsim.sim.scenario.load import load_scenario

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
srun torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES pretrain_gpt.py --num-layers 8 --hidden-size 1024 \\
  --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 \\
  --vocab-size 32000 --lr 1e-4
"""
MACHINE = ("--given", "gpu=H100-SXM5-80GB", "--given", "interconnect=ib-ndr400-x8")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_every_framework_has_its_importer() -> None:
    wanted = {
        "megatron-lm",
        "torchtitan",
        "nanotron",
        "deepspeed",
        "gpt-neox",
        "llm-foundry",
        "accelerate",
        "torchtune",
    }
    assert wanted | {"axolotl", "maxtext", "primus", "olmo", "megatron-bridge", "nemo", "ms-swift"} == set(
        IMPORTERS.names()
    )
    for name in IMPORTERS.names():
        assert IMPORTERS.get(name).source


def test_a_file_that_belongs_to_another_may_stand_behind_with(tmp_path: Path) -> None:
    words = "accelerate launch --num_processes 8 train.py --model_name_or_path meta-llama/Meta-Llama-3-8B"
    more = "--per_device_train_batch_size 1 --max_length 2048 --bf16 True --deepspeed ds.json"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{words} {more}\n", encoding="utf-8")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    files = [str(tmp_path / name) for name in ("run.sh", "ds.json")]
    ways = [[files[0], files[1]], [files[0], "--with", files[1]]]
    plain, beside = (CliRunner().invoke(app, ["import", *way, *MACHINE]) for way in ways)
    assert (plain.exit_code, plain.stdout) == (0, beside.stdout)


def test_a_scenario_is_no_file_to_import(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: llama3-8b\ncluster: {gpu: H100, gpus: 8}\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["import", str(path)])
    assert done.exit_code == 2
    assert "stepsim run" in done.output


@pytest.mark.parametrize("name", ["train.sh", "config.yaml", "run.toml"])
def test_an_empty_file_is_said_to_be_empty(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(" \n")
    told = CliRunner().invoke(app, ["import", str(tmp_path / name)])
    assert (told.exit_code, told.stderr) == (2, f"stepsim: {name}: is empty\n")


def test_a_model_that_no_file_names_is_asked_for_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("[training]\nseq_len = 8192\nlocal_batch_size = 1\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["import", str(path), "--framework", "torchtitan", *MACHINE])
    assert done.exit_code == 2
    assert "--given model=" in done.output
    assert "None" not in done.output


def test_a_file_that_nothing_is_taken_from_is_told(tmp_path: Path) -> None:
    """Not so of one that is read: its name stands in the scenario's comments."""
    files = {
        "fsdp.yaml": "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n",
        "sft.yaml": "model_name_or_path: meta-llama/Meta-Llama-3-8B\nper_device_train_batch_size: 1\n",
        "other.yaml": "max_length: 4096\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [str(tmp_path / name) for name in files]
    done = CliRunner().invoke(app, ["import", *paths, *MACHINE, "--given", "seq_length=2048"])
    assert done.exit_code == 0, done.output
    told = [line for line in done.stdout.splitlines() if "no field of the scenario is from" in line]
    assert [line.split()[2] for line in told] == ["other.yaml:"]


@pytest.mark.parametrize("command", ["run", "memory"])
def test_commands_take_a_launch_script(command: str, script: Path) -> None:
    done = CliRunner().invoke(app, [command, str(script), *MACHINE, "--json"])
    assert done.exit_code == 0, done.output


def test_compare_takes_two_scripts(script: Path, tmp_path: Path) -> None:
    other = tmp_path / "new.sh"
    other.write_text(
        SCRIPT.replace("--bf16", "--bf16 --tensor-model-parallel-size 2 --sequence-parallel"),
        encoding="utf-8",
    )
    done = CliRunner().invoke(app, ["compare", str(script), str(other), *MACHINE, "--json"])
    assert done.exit_code == 0, done.output


def test_compare_takes_a_scenario_beside_a_script(script: Path) -> None:
    done = CliRunner().invoke(app, ["compare", "llama3-8b-h100", str(script), *MACHINE, "--json"])
    assert done.exit_code == 0, done.output
    for two in (["llama3-8b-h100", "llama3-8b-h100", *MACHINE], ["llama3-8b-h100", str(script)]):
        assert CliRunner().invoke(app, ["compare", *two]).exit_code == 2


def test_what_is_imported_is_a_scenario_with_the_place_of_each_line(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "scenario.yaml"
    done = CliRunner().invoke(app, ["import", str(script), *MACHINE, "-o", str(out)])
    assert done.exit_code == 0, done.output
    made = load_scenario(out)
    assert made.cluster.gpus == 16
    assert made.training.global_batch == 64
    lines = out.read_text(encoding="utf-8").splitlines()
    assert all(
        "#" in line
        for line in lines
        if ":" in line and not line.rstrip().endswith(":") and not line.startswith("#")
    )
    assert any("num_layers: 8  # train.sh:4 --num-layers 8" in line for line in lines)
    assert "--lr" in lines[2] + lines[3]


def test_options_of_an_import_are_refused_for_a_scenario(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", "llama3-8b-h100", "--given", "gpus=8"])
    assert done.exit_code == 2


def test_a_file_that_is_no_yaml_is_told_so_beside_options_of_an_import(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("run: {name: ${base}/x}\n")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "broken.yaml"), "--given", "gpus=8"])
    assert done.exit_code == 2
    assert "not valid YAML" in done.output


def test_a_model_of_hugging_face_is_no_job(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "qwen3", "hidden_size": 4096}', encoding="utf-8")
    done = CliRunner().invoke(app, ["import", str(path)])
    assert done.exit_code == 2
    assert f"model: {path}" in done.output


@pytest.mark.parametrize(
    ("measured", "field"),
    [
        ("{}", "measured"),
        ("{memory_bytes: 61.5}", "measured.memory_bytes"),
        ("{step_time_s: .nan}", "measured.step_time_s"),
        ("{step_time_s: 1e-9}", "measured.step_time_s"),
    ],
)
def test_own_figures_of_nothing_or_in_other_units_are_refused(
    tmp_path: Path, measured: str, field: str
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"scenario: llama3-8b-h100\nmeasured: {measured}\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["validate", str(own)])
    assert done.exit_code == 2
    assert f"{field}:" in done.output


def test_own_runs_are_validated_from_their_files(script: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    given = "{gpu: H100-SXM5-80GB, interconnect: ib-ndr400-x8}"
    own.write_text(f"run: {script.name}\ngiven: {given}\nmeasured: {{step_time_s: 1.0}}\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["validate", str(own), "--json"])
    assert done.exit_code == 0, done.output
    one = json.loads(done.output)["runs"][0]
    assert one["error"] == pytest.approx(one["step_time_s"] - 1)


@pytest.mark.parametrize("name", ["ds_config.json", "config.yaml"])
@pytest.mark.parametrize("text", ["[1, 2]", "null", "5", "{}"])
@pytest.mark.parametrize("framework", [None, "deepspeed", "nanotron"])
def test_a_configuration_without_fields_is_said_to_have_none(
    tmp_path: Path, name: str, text: str, framework: str | None
) -> None:
    """Not that each of its fields is missing."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="no fields"):
        import_files([tmp_path / name], framework=framework)


def test_yaml_of_an_import_loads_as_its_document() -> None:
    made = imported({"train.sh": SCRIPT})
    assert "gpus: 16" in commented_yaml(made, "train.sh")


@pytest.mark.slow
@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the shared configurations are not there (STEPSIM_SHARED)")
def test_published_configurations_are_read_or_refused_by_name(tmp_path: Path) -> None:
    """None ends in a defect; most that hold a run are read."""
    outcomes = list(tally(folder=tmp_path))
    assert [one.published.file for one in outcomes if one.defect] == []
    assert all(one.scenario or one.reasons for one in outcomes)
    assert sum(one.scenario is not None for one in outcomes) >= 250
