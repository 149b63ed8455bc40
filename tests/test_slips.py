"""Slips of a user: misspelled settings of a framework, folders for files, limits that nothing can meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.plan.search.alternatives import ALTERNATIVES
from stepsim.sim.plan.search.plan import candidates_of, plan
from stepsim.sim.report.topology.racks import domains_in_words
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import build_cluster

SCRIPT = """torchrun pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8 \\
  --vocab-size 32000 \\
  --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 --bf16 {}
"""
TORCHTITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degre = 2
"""


def imported(path: Path) -> str:
    given = ["gpus=8", "gpu=h100", "interconnect=ib-ndr400-x8"]
    options = [word for fact in given for word in ("--given", fact)]
    return CliRunner().invoke(app, ["import", str(path), *options]).output


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("--tensor-model-paralel-size 2", "--tensor-model-parallel-size"),
        ("--sequence-paralel", "--sequence-parallel"),
        ("--swigluu", "--swiglu"),
    ],
)
def test_a_misspelled_option_names_the_one_that_was_meant(tmp_path: Path, slip: str, meant: str) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT.format(slip))
    assert f"Did you mean {meant}?" in imported(script)


def test_so_does_a_misspelled_setting_of_a_table(tmp_path: Path) -> None:
    table = tmp_path / "train.toml"
    table.write_text(TORCHTITAN)
    assert "Did you mean parallelism.tensor_parallel_degree?" in imported(table)


def test_a_name_that_nothing_is_like_gets_no_guess(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT.format("--my-own-parallel-thing 3"))
    assert "Did you mean" not in imported(script)


def test_a_folder_of_cases_says_how_its_files_are_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["validate", str(tmp_path)])
    assert done.exit_code == 2
    assert f"name the files in it, as in {tmp_path}/*.yaml" in done.output


@pytest.mark.parametrize("limit", [{"deadline_s": -1.0}, {"budget": -1.0}, {"budget": float("nan")}])
def test_a_limit_that_is_none_is_refused(limit: dict[str, float]) -> None:
    (name,) = limit
    with pytest.raises(ValueError, match=f"{name} .*0 or more"):
        plan("llama3-8b-h100", **limit)  # type: ignore[arg-type]


def test_the_guide_spreads_experts_no_further_than_they_must_be() -> None:
    scenario = load_scenario("deepseek-v2-lite-h100")
    among, _ = candidates_of(scenario, {"parallelism.cp": 1, "parallelism.etp": 1}, {}, lambda _: None)
    guide = next(one for one in ALTERNATIVES if "guide" in one.name).of(among, 0.9)
    (chosen,) = np.flatnonzero(guide)
    columns = among.layouts.columns
    alike = (among.fit_probability >= 0.9) & (columns["training.recompute"] != "full")
    for name in ("tp", "pp", "vpp", "zero"):
        alike &= columns[f"parallelism.{name}"] == columns[f"parallelism.{name}"][chosen]
    alike &= columns["training.micro_batch"] == columns["training.micro_batch"][chosen]
    assert columns["parallelism.ep"][chosen] == columns["parallelism.ep"][alike].min()


@pytest.mark.parametrize(("gpu", "link"), [("MI300X", "Infinity Fabric"), ("H100-SXM5-80GB", "NVLink")])
def test_domains_are_called_as_the_maker_calls_their_links(gpu: str, link: str) -> None:
    cluster = {"gpu": gpu, "gpus": 16, "interconnect": "roce-400-x8"}
    scenario = load_scenario("llama3-8b-h100", {"cluster": cluster})
    assert f"2 {link} domains of 8 GPUs" in domains_in_words(build_cluster(scenario))


def test_a_merge_key_of_older_yaml_says_what_to_write() -> None:
    with pytest.raises(ScenarioError, match=r"merge keys.*extends"):
        load_scenario("llama3-8b-h100", {"training": {"<<": {"micro_batch": 1}}})
