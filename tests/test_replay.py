"""Replayed programs: the same step to the bit, and all views of what is known of anyone's program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from small_programs import two_stages, written
from small_scenarios import layouts, scenario
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.replay import replay_program, save_program
from stepsim.sim.report.compare import comparison
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

NO_MEMORY = {
    "fits",
    "fit_probability",
    "peak_memory_bytes",
    "memory_bytes_per_stage",
    "memory",
    "assumptions",
    "timing",
}
NO_MEMORY |= {"interval", "step_time_interval_s"}
"""Keys of the document that a replay cannot know or that tell how the result came about."""


@pytest.mark.slow
@given(scenario=layouts())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_saved_program_replays_to_the_bit(scenario: Scenario, tmp_path: Path) -> None:
    save_program(tmp_path / "program.json", scenario)
    ran, replayed = simulate(scenario), replay_program(tmp_path / "program.json")
    assert replayed.step_time_s == ran.step_time_s
    assert list(replayed.iter_spans()) == list(ran.iter_spans())
    assert (replayed.actions, replayed.ranks) == (ran.actions, ran.ranks)
    mine, other = replayed.to_dict(), ran.to_dict()
    assert mine.keys() == other.keys()
    assert {key: mine[key] for key in mine.keys() - NO_MEMORY} == {
        key: other[key] for key in other.keys() - NO_MEMORY
    }


def test_a_program_without_a_scenario_shows_what_is_known(tmp_path: Path) -> None:
    """0.5 s, the block's sum of 2 ms + 8 us, twice; then 1 ms + 0.1 s to class 1; 0.5 s; and the last sum."""
    document = replay_program(written(two_stages(), tmp_path)).to_dict()
    assert document["step_time_s"] == pytest.approx(2 * 0.502008 + 0.101 + 0.5 + 0.002008)
    assert document["classes"] == document["ranks"] == 2
    assert document["exposed_communication_s"]["tp"] == pytest.approx(2 * 0.002008 / 2)
    unknown = (
        "scenario",
        "mfu",
        "hfu",
        "tokens_per_second_per_gpu",
        "fits",
        "fit_probability",
        "peak_memory_bytes",
        "training",
    )
    assert {document[key] for key in unknown} == {None}
    assert document["memory_bytes_per_stage"] == []


@pytest.mark.parametrize("kind", ["ours", "anyone's", "without actions"])
def test_every_view_of_a_replayed_program(kind: str, tmp_path: Path) -> None:
    path = written(two_stages(), tmp_path)
    if kind == "ours":
        save_program(path, scenario(pp=2))
    elif kind == "without actions":
        document = two_stages()
        for r, op in ((0, 0), (1, 1)):
            del document["classes"][r]["ops"][op]["action"]
        written(document, tmp_path)
    views = {name: tmp_path / f"view.{name}" for name in ("svg", "json", "csv")}
    options = zip(("--timeline", "--trace", "--spans"), views.values(), strict=True)
    ran = CliRunner().invoke(app, ["replay", str(path), *(str(x) for pair in options for x in pair)])
    assert ran.exit_code == 0
    assert ("MFU" in ran.stdout) == (kind == "ours")
    assert ("bubble" in ran.stdout) == (kind != "without actions")
    assert "nan" not in ran.stdout
    assert "memory" not in ran.stdout.replace("memory-bound", "")
    assert "nan" not in views["svg"].read_text().replace("nano", "")
    assert json.loads(views["json"].read_text())["traceEvents"]
    assert len(views["csv"].read_text().splitlines()) > 5
    machine = CliRunner().invoke(app, ["replay", str(path), "--json"])
    assert json.loads(machine.stdout)["step_time_s"] > 0


def test_a_scenario_of_other_ranks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    save_program(path, scenario(pp=2, dp=2))
    document = json.loads(path.read_text())
    document["classes"][0]["count"] = 3
    with pytest.raises(ValueError, match=r"classes.*5 ranks.*4 GPUs"):
        replay_program(written(document, tmp_path))


def test_a_replayed_program_is_not_compared(tmp_path: Path) -> None:
    replayed = replay_program(written(two_stages(), tmp_path))
    with pytest.raises(ValueError, match="simulated scenarios"):
        comparison(replayed, replayed)
