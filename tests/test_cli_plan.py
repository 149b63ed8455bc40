"""``stepsim plan``, ``sweep`` and ``sensitivity`` as users meet them: JSON, files, exit codes."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from small_plans import DOCUMENT, interrupted
from typer.testing import CliRunner, Result

from stepsim.cli.main import app
from stepsim.sim.scenario.load import load_scenario

FIX = (
    "--fix",
    "parallelism.cp=1",
    "--fix",
    "parallelism.stage_split=uniform",
    "--fix",
    "parallelism.sequence_parallel=false",
    "--fix",
    "training.recompute=none",
    "--audit",
    "2",
    "-j",
    "1",
)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "small.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT), encoding="utf-8")
    return str(path)


def ran(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done


def document(*words: str, code: int = 0) -> Any:
    return json.loads(ran(*words, "--json", code=code).stdout)


@pytest.fixture(scope="module")
def found(scenario: str) -> dict[str, Any]:
    return dict(document("plan", scenario, *FIX, "--top", "3"))


def test_the_json_document_keeps_its_keys(found: dict[str, Any]) -> None:
    assert set(found["space"]) == {"legal", "fit", "bounded", "replayed", "refused"}
    assert {"optimal", "tolerance", "audited", "better"} <= set(found["certificate"])
    assert len(found["choices"]) == 3
    wanted = {
        "set", "step_time_s", "interval_s", "tokens_per_second_per_gpu", "mfu", "peak_memory_bytes",
        "fit_probability", "probability_best", "expected_regret", "price_per_step",
    }  # fmt: skip
    for choice in found["choices"]:
        assert wanted <= set(choice)
        low, high = choice["interval_s"]
        assert low < choice["step_time_s"] < high
        assert choice["fit_probability"] >= 0.9
    assert all({"set", "why", "factor"} <= set(one) for one in found["lost"])
    assert {"enumerate_s", "screen_s", "replay_s", "total_s"} == set(found["timing"])
    assert found["certificate"]["optimal"] is True
    steps = [choice["step_time_s"] for choice in found["choices"]]
    assert steps == sorted(steps)
    assert found["space"]["replayed"] <= found["space"]["bounded"] <= found["space"]["fit"]
    assert found["space"]["fit"] <= found["space"]["legal"]
    assert all(one["factor"] >= 1 for one in found["lost"])


def test_what_is_set_predicts_what_is_told(scenario: str, found: dict[str, Any]) -> None:
    best = found["choices"][0]
    lines = [f"{field}={json.dumps(value)}" for field, value in best["set"].items()]
    result = document("run", scenario, *(word for line in lines for word in ("--set", line)))
    assert result["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-9)
    assert result["mfu"] == pytest.approx(best["mfu"], rel=1e-9)
    assert result["peak_memory_bytes"] == pytest.approx(best["peak_memory_bytes"], rel=1e-9)
    assert result["tokens_per_second_per_gpu"] == pytest.approx(best["tokens_per_second_per_gpu"], rel=1e-9)


def test_the_command_to_copy_runs_the_best(scenario: str, found: dict[str, Any]) -> None:
    printed = ran("plan", scenario, *FIX).stdout
    (line,) = (line for line in printed.splitlines() if line.startswith("stepsim run "))
    result = document(*shlex.split(line)[1:])
    assert result["step_time_s"] == pytest.approx(found["choices"][0]["step_time_s"], rel=1e-9)
    assert "legal" in printed
    assert "your layout" in printed


def test_the_command_for_the_scenario_s_own_layout_sets_nothing() -> None:
    """Also where the scenario has a title and published figures, which no layout has."""
    held = ("--fix", "parallelism", "--fix", "training", "--fix", "schedule")
    printed = ran("plan", "llama3-8b-h100", *held, "--audit", "0", "-j", "1").stdout
    assert "stepsim run llama3-8b-h100\n" in printed


def test_a_file_that_is_no_journal_is_refused_before_layouts_are_screened(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("mine\n", encoding="utf-8")
    monkeypatch.setattr(
        "stepsim.sim.plan.search.plan.candidates_of", lambda *_, **__: pytest.fail("screened")
    )
    assert "notes.jsonl" in ran("plan", scenario, *FIX, "--journal", str(path), code=2).output
    assert path.read_text(encoding="utf-8") == "mine\n"


@pytest.mark.slow
def test_table_picture_and_scenarios_are_written(scenario: str, tmp_path: Path) -> None:
    table, picture, folder = tmp_path / "all.csv", tmp_path / "plan.svg", tmp_path / "best"
    options = ("--csv", str(table), "--picture", str(picture), "--save", str(folder))
    told = document("plan", scenario, *FIX, *options)
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["rank"]) for row in rows if row["rank"]) == [1, 2, 3, 4, 5]
    best = min(float(row["step_time_s"]) for row in rows)
    assert best == told["choices"][0]["step_time_s"]
    assert all(float(row["bound_s"]) <= float(row["step_time_s"]) * (1 + 1e-9) for row in rows)
    ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    first = picture.read_bytes()
    ran("plan", scenario, *FIX, "--picture", str(picture))
    assert picture.read_bytes() == first
    saved = sorted(folder.glob("*.yaml"))
    assert [path.name for path in saved] == [f"small-{rank}.yaml" for rank in range(1, 6)]
    result = document("run", str(saved[0]))
    assert result["step_time_s"] == pytest.approx(told["choices"][0]["step_time_s"], rel=1e-9)


def test_parquet_holds_the_same(scenario: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pandas as pd

    path = tmp_path / "all.parquet"
    told = document("plan", scenario, *FIX, "--parquet", str(path))
    frame = pd.read_parquet(path)
    assert frame["step_time_s"].min() == told["choices"][0]["step_time_s"]


def test_exit_code_is_1_where_nothing_fits(scenario: str) -> None:
    far_too_long = ("--set", "training.seq_length=4194304", "--set", "training.global_batch=8")
    nothing = document("plan", scenario, *FIX, *far_too_long, code=1)
    assert nothing["choices"] == []
    ran("plan", scenario, *FIX, "--objective", "luck", code=2)
    ran("plan", scenario, "--fix", "parallelism.tpp=4", code=2)
    ran("plan", scenario, "--fits", "1.5", code=2)
    ran("plan", scenario, "--find", "layers", code=2)
    both = ran("plan", scenario, "--find", "gpus", "--find", "seq_length", code=2).output
    assert "--find gpus --find seq_length: one number" in " ".join(both.split())
    ran("plan", scenario, "--vary", "cluster.gpus", code=2)
    ran("sweep", scenario, code=2)
    assert "parallelism.tpp" in ran("plan", scenario, "--fix", "parallelism.tpp=4", code=2).stderr


def test_a_number_is_found(scenario: str) -> None:
    told = document("plan", scenario, *FIX[:8], "--find", "micro_batch", "--fix", "parallelism")
    assert told["field"] == "training.micro_batch"
    assert told["value"] == max(one["value"] for one in told["tried"] if one["good"])


def test_a_sweep_is_told(scenario: str, tmp_path: Path) -> None:
    table, picture = tmp_path / "sweep.csv", tmp_path / "sweep.svg"
    axes = ("--set", "training.micro_batch=1,2,3", "--set", "cluster.gpus=8,16", "-j", "1")
    told = document("sweep", scenario, *axes, "--csv", str(table), "--picture", str(picture))
    assert len(told["points"]) == 6
    assert {point["refused"] != "" for point in told["points"]} == {True, False}
    run = document("run", scenario, "--set", "training.micro_batch=2")
    same = next(
        one for one in told["points"] if one["values"] == {"training.micro_batch": 2, "cluster.gpus": 8}
    )
    assert same["step_time_s"] == pytest.approx(run["step_time_s"], rel=1e-9)
    assert len(table.read_text(encoding="utf-8").splitlines()) == 7
    ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    assert "strong scaling" in ran("sweep", scenario, *axes).stdout


@pytest.mark.parametrize("option", [("--top", "3"), ("--audit", "3"), ("--objective", "days")])
def test_one_number_takes_no_option_of_whole_plans(option: tuple[str, str], scenario: str) -> None:
    assert option[0] in ran("plan", scenario, "--find", "gpus", *option, code=2).output


def test_a_folder_that_cannot_be_is_refused_before_the_search(scenario: str, tmp_path: Path) -> None:
    told = ran("plan", scenario, "--save", scenario, "--journal", str(tmp_path / "kept.jsonl"), code=2).output
    assert "--save" in told
    assert not (tmp_path / "kept.jsonl").exists()


@pytest.mark.parametrize("name", ["../../elsewhere", "a/b", ".hidden", "Llama 3 (ünï)"])
def test_what_a_scenario_is_called_leads_no_file_out_of_its_folder(
    name: str, scenario: str, tmp_path: Path
) -> None:
    folder = tmp_path / "one" / "two"
    ran(
        "plan",
        scenario,
        *FIX,
        "--fix",
        "parallelism",
        "--top",
        "1",
        "--set",
        f"name={name}",
        "--save",
        str(folder),
    )
    (saved,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert saved.parent == folder
    assert saved.suffix == ".yaml"
    assert not saved.name.startswith(".")
    assert load_scenario(str(saved)).name == f"{name}-1"


def test_what_one_number_tells_says_why_not(scenario: str) -> None:
    told = ran("plan", scenario, *FIX[:8], "--find", "gpus", "--vary", "cluster.gpus=7,8").stdout
    eight = told.splitlines()[-1]
    assert eight.rstrip().endswith("yes")
    assert "no: no layout is legal: training.global_batch: 32 is not a multiple of" in " ".join(told.split())


def test_a_sensitivity_is_told(scenario: str, tmp_path: Path) -> None:
    picture = tmp_path / "tornado.svg"
    told = document("sensitivity", scenario, "--no-replan", "--picture", str(picture))
    assert len(told["parts"]) == 6
    assert [one["speedup"] for one in told["parts"]] == sorted(
        (one["speedup"] for one in told["parts"]), reverse=True
    )
    ElementTree.fromstring(picture.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "command", [("sweep", "--set", "training.micro_batch=1,2"), ("sensitivity", "--no-replan")]
)
def test_a_journal_without_plans_is_refused(command: tuple[str, ...], scenario: str, tmp_path: Path) -> None:
    told = ran(command[0], scenario, *command[1:], "--journal", str(tmp_path / "kept.jsonl"), code=2).output
    assert "--replan" in told


@pytest.mark.slow
def test_a_search_that_is_interrupted_tells_the_best_so_far(tmp_path: Path) -> None:
    scenario, told, _ = interrupted(tmp_path, lines=2)
    assert told["certificate"]["interrupted"]
    assert not told["certificate"]["optimal"]
    assert told["choices"]
    assert load_scenario(scenario, told["choices"][0]["set"]).world_size == 8


@pytest.mark.parametrize("option", ["--csv", "--parquet", "--picture", "--journal", "--out"])
def test_a_file_of_another_kind_is_refused_before_any_work(
    scenario: str, option: str, tmp_path: Path
) -> None:
    told = ran("plan", scenario, "--emit", "megatron-lm", option, str(tmp_path / "all.odd"), code=2).output
    assert option in told
    assert "all.odd" in told


@pytest.mark.parametrize("option", ["--csv", "--parquet"])
def test_one_number_has_no_file_of_layouts(scenario: str, option: str, tmp_path: Path) -> None:
    path = tmp_path / f"all.{option.strip('-')}"
    assert option in ran("plan", scenario, "--find", "gpus", option, str(path), code=2).output
    assert not path.exists()
