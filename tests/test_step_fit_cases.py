"""Fitting step times of cases: what is simulated and what is not, and the command from cases to constants."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner
from validation_cases import case_document, write_cases

from stepsim.calibration.cases.case import read_cases
from stepsim.calibration.cases.constants import HOSTS_S
from stepsim.calibration.cases.to_scenario import to_scenario
from stepsim.calibration.cases.trial import Trial
from stepsim.calibration.fit.steps.rows import FEW, StepTimes, TimedRow, step_time_s, timed_rows
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

SMALL = {
    "hardware.gpus": 8,
    "hardware.interconnect": "nvlink-only",
    "model.num_layers": 4,
    "model.hidden_size": 4096,
    "model.num_attention_heads": 32,
    "model.num_query_groups": 32,
    "model.kv_channels": 128,
    "model.ffn_hidden_size": 16384,
    "layout.tp": 2,
    "layout.pp": 2,
    "layout.vpp": 1,
    "layout.schedule": "1f1b",
    "layout.global_batch": 8,
}
"""A case that is simulated in some milliseconds, and whose GPUs do not wait for their hosts."""


@pytest.fixture
def case_file(tmp_path: Path) -> Path:
    """Two families on one GPU, at measurements that a clock in reach explains."""
    cases = [
        case_document(
            {
                **SMALL,
                "id": f"{size}",
                "family": f"gpt {size}",
                "model.num_layers": size,
                "measured.step_time_s": 1.0,
            }
        )
        for size in (4, 8)
    ]
    for case, read in zip(cases, read_cases(write_cases(tmp_path / "any.yaml", cases)), strict=True):
        made = to_scenario(read)
        host_s = made.software.host.host_s_per_kernel
        slow = Trial(clock_fraction=0.75, corun_slowdown=0.0, host_s_per_kernel=host_s)
        case["measured"]["step_time_s"] = step_time_s(made, slow)
    return write_cases(tmp_path / "small.yaml", cases)


@pytest.fixture
def scenario(case_file: Path) -> Scenario:
    """The first of those cases."""
    return to_scenario(read_cases(case_file)[0])


def test_a_step_can_be_simulated_with_another_profile(scenario: Scenario) -> None:
    shipped = load_profile(scenario.cluster.gpu)
    assert simulate(scenario, profile=shipped).step_time_s == simulate(scenario).step_time_s
    slower = replace(shipped, clock_fraction=shipped.clock_fraction / 2)
    assert simulate(scenario, profile=slower).step_time_s > simulate(scenario).step_time_s


def test_a_trial_is_what_the_simulator_says(scenario: Scenario) -> None:
    trial = Trial(clock_fraction=0.72, corun_slowdown=0.1, host_s_per_kernel=2e-5)
    profile = replace(load_profile(scenario.cluster.gpu), clock_fraction=0.72, corun_slowdown=0.1)
    software = scenario.software.with_fields(host_s_per_kernel=2e-5, step_fixed_s=0.03)
    said = simulate(scenario.model_copy(update={"software": software}), profile=profile)
    assert said.step_time_s == pytest.approx(step_time_s(scenario, trial) + 0.03, rel=1e-12)


def test_a_slower_host_never_shortens_a_step(scenario: Scenario) -> None:
    """What lets a row between two equal host times stay unsimulated."""
    trials = [Trial(clock_fraction=1.0, corun_slowdown=0.0, host_s_per_kernel=host) for host in HOSTS_S[::4]]
    steps_s = [step_time_s(scenario, trial) for trial in trials]
    assert steps_s == sorted(steps_s)
    assert steps_s[-1] > 1.5 * steps_s[0]


def test_nothing_is_simulated_twice(scenario: Scenario) -> None:
    one = TimedRow(
        source="a", family="a", gpu=scenario.cluster.gpu_name, preset="x", measured_s=1.0, scenario=scenario
    )
    trial = Trial(clock_fraction=0.92, corun_slowdown=0.0, host_s_per_kernel=2e-6)
    with StepTimes(jobs=1) as times:
        assert times([(one, trial)]) == times([(one, trial)]) == [step_time_s(scenario, trial)]
        assert times.simulated == 1
        times([(one, replace(trial, host_s_per_kernel=2.0001e-6))])
        assert times.simulated == 2
        times([(one, replace(trial, host_s_per_kernel=2.00005e-6))])  # between two that are as good as equal
        assert times.simulated == 2
        times([(one, replace(trial, host_s_per_kernel=1e-4))])
        times([(one, replace(trial, host_s_per_kernel=5e-5))])  # between two that are not
        assert times.simulated == 4


@pytest.mark.parametrize("clock", [0.61, 0.75, 0.9, 0.9686])
def test_between_two_knots_of_the_clock_a_step_is_as_simulated(scenario: Scenario, clock: float) -> None:
    one = TimedRow(
        source="a", family="a", gpu=scenario.cluster.gpu_name, preset="x", measured_s=1.0, scenario=scenario
    )
    trial = Trial(clock_fraction=clock, corun_slowdown=0.0, host_s_per_kernel=2e-6)
    with StepTimes(jobs=1) as times:
        assert times([(one, trial)]) == [pytest.approx(step_time_s(scenario, trial), rel=1e-3)]
        assert times.simulated == 2


def test_calibrate_steps_finds_the_clock(case_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = CliRunner().invoke(
        app,
        [
            "calibrate",
            "steps",
            str(case_file),
            "--gpu",
            "A100-SXM4-80GB",
            "--jobs",
            "1",
            "--json",
            "--markdown",
            str(page),
        ],
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["constants"]["gpus"]["A100-SXM4-80GB"]["clock_fraction"] == 0.75
    assert document["fitted_constants"] == 1
    assert document["presets"] == []
    assert "## A100-SXM4-80GB" in page.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpu", "H100-SMX5-80GB"], "H100-SXM5-80GB"),
        (["--software", "nanotrom"], "nanotron-2024"),
        (["--gpu", "B200-SXM-180GB"], "nothing to fit"),
    ],
)
def test_what_cannot_be_fitted_is_refused(options: list[str], message: str, case_file: Path) -> None:
    done = CliRunner().invoke(app, ["calibrate", "steps", str(case_file), "--jobs", "1", *options])
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("sure", [FEW - 1, FEW])
def test_where_few_families_are_sure_those_of_medium_trust_count(sure: int, tmp_path: Path) -> None:
    trusts = ["high"] * sure + ["medium", "low"]
    cases = [
        case_document({**SMALL, "id": f"{n}", "family": f"f{n}", "trust": trust})
        for n, trust in enumerate(trusts)
    ]
    rows, refused = timed_rows([write_cases(tmp_path / "cases.yaml", cases)])
    assert refused == 0
    assert [row.family for row in rows] == [f"f{n}" for n in range(sure + (sure < FEW))]
