"""A job that is predicted to fit and may not is told so by every command, with one probability."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.figures import chance
from stepsim.sim.result.result import SURE_TO_FIT, Result, fit_words
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

DOUBTFUL: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 16, "gpus_per_node": 8, "interconnect": "ib-ndr400-x8"},
    "parallelism": {"zero": 3},
    "training": {"global_batch": 32, "micro_batch": 1, "seq_length": 8192, "precision": "bf16"},
    "software": "generic-fsdp",
}
"""84.3 of 84.9 GB, of a stack whose margins nobody knows."""

SURE = {"training.seq_length": 4096}
"""The same with half of the activations."""


@pytest.fixture(scope="module")
def result() -> Result:
    found = simulate(load_scenario(DOUBTFUL))
    assert found.fits
    assert found.fit_probability is not None
    assert found.fit_probability < SURE_TO_FIT
    return found


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(DOUBTFUL), encoding="utf-8")
    return str(path)


def doubt(result: Result) -> str:
    """The probability as it is printed: rounded down."""
    return chance(result.fit_probability or 0.0)


def test_what_is_just_short_of_a_plans_threshold_does_not_print_as_reaching_it() -> None:
    assert fit_words(SURE_TO_FIT - 1e-3) == "fits with a probability of 0.89"
    assert fit_words(SURE_TO_FIT) == "fits"


def told(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    "words", [("run",), ("memory",), ("sweep", "--set", "training.global_batch=32", "-j", "1")]
)
def test_a_doubtful_fit_is_told_and_a_sure_one_is_none(
    words: tuple[str, ...], job: str, result: Result
) -> None:
    command, *options = words
    assert doubt(result) in told(command, job, *options)
    sure = [part for field, value in SURE.items() for part in ("--set", f"{field}={value}")]
    assert doubt(result) not in told(command, job, *options, *sure)


def test_a_comparison_tells_the_doubt_of_each_side(job: str, result: Result) -> None:
    words = ("compare", job, job, "--set-b", "training.seq_length=4096")
    (line,) = (line for line in told(*words).splitlines() if "fits in memory" in line)
    assert line.split() == ["fits", "in", "memory", "with", doubt(result), "yes"]
    both = json.loads(told(*words, "--json"))["fit_probability"]
    assert both["a"] == result.fit_probability
    assert both["b"] > SURE_TO_FIT


def test_a_result_says_so_of_itself(result: Result) -> None:
    told = f"fits with a probability of {doubt(result)}"
    assert told in repr(result)
    assert told.removeprefix("fits ") in result._repr_html_()


def test_a_sweeps_point_has_the_probability_of_the_run(job: str, result: Result) -> None:
    words = ("sweep", job, "--set", "training.global_batch=32", "-j", "1", "--json")
    (point,) = json.loads(told(*words))["points"]
    assert point["fit_probability"] == pytest.approx(result.fit_probability, rel=1e-6)


def test_only_what_a_plan_would_not_propose_is_in_doubt() -> None:
    assert fit_words(None) == fit_words(SURE_TO_FIT) == "fits"
    assert fit_words(SURE_TO_FIT - 0.01) == "fits with a probability of 0.89"
