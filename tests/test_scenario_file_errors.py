"""Files that are no scenario, or extend none: every message says where, what, and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken_scenarios import GOOD, the_problem
from refusals import refused_at

from stepsim.sim.scenario.load import load_scenario


def test_what_is_missing_is_missing_in_the_file_whatever_was_changed(tmp_path: Path) -> None:
    without = GOOD.partition("software:")[0]
    problem = the_problem(tmp_path, without, "parallelism.tp=4")
    assert (problem.path, problem.mark.file) == ("software", str(tmp_path / "run.yaml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a scenario is a block of fields"),
        ("- 1\n", "a scenario is a block of fields"),
        ("model: [\n", "this is not valid YAML"),
        (GOOD + "  oops: 1\n", "this is not valid YAML"),
    ],
)
def test_files_that_are_no_scenario(tmp_path: Path, text: str, words: str) -> None:
    assert words in str(the_problem(tmp_path, text))


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with refused_at("", f"{path}:1:1: ", "UTF-8"):
        load_scenario(path)


def test_sources_that_do_not_exist(tmp_path: Path) -> None:
    with refused_at("", f"{tmp_path / 'absent.yaml'}: "):
        load_scenario(tmp_path / "absent.yaml")
    with refused_at("", "'llama3-405b-16k'", "mean llama3.1-405b-16k?"):
        load_scenario("llama3-405b-16k")


def test_a_measured_run_is_told_from_a_scenario(tmp_path: Path) -> None:
    """Six fields that it lacks and one that no scenario has would say nothing of the slip."""
    problem = the_problem(tmp_path, "scenario: job.yaml\nmeasured: {step_time_s: 3}\n")
    assert "the file that it names, 'job.yaml'" in str(problem)


@pytest.mark.parametrize(
    ("extends", "words"),
    [
        ("absent.yaml", "there is no file"),
        ("absent.json", "there is no file"),
        ("llama3-405b-16k", "Did you mean"),
        ("run.yaml", "extends itself"),
        ("[a]", "a file or a shipped scenario's name is needed"),
    ],
)
def test_bases_that_cannot_be_used(tmp_path: Path, extends: str, words: str) -> None:
    problem = the_problem(tmp_path, f"title: x\nextends: {extends}\n")
    assert words in str(problem)
    assert (problem.mark.line, problem.mark.column) == (2, 10)


def test_a_mistake_in_a_base_is_shown_in_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(GOOD.replace("gpu: H100-SXM5-80GB", "gpu: A100"), encoding="utf-8")
    problem = the_problem(tmp_path, "extends: base.yaml\n")
    assert str(problem).startswith(f"{tmp_path / 'base.yaml'}:2:16: cluster.gpu: ")
