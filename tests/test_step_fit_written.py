"""What a fit of step times writes: presets, profiles and the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from step_fit_jobs import GPU, JOBS, PRESET, closed_form, measured

from stepsim.calibration.cases.trial import Trial
from stepsim.calibration.fit.steps.files import edited_presets
from stepsim.calibration.fit.steps.page import fit_markdown
from stepsim.calibration.fit.steps.report import StepFit, judge
from stepsim.calibration.fit.steps.step_constants import fittable
from stepsim.cli.calibrate import PRESETS, write_constants
from stepsim.hardware.calibrated.overlay import load_profile, shipped_profile
from stepsim.sim.scenario.software.software import Software


def a_fit() -> StepFit:
    """A fit that has found a clock and a host time."""
    trial = Trial(clock_fraction=0.83, corun_slowdown=0.0, host_s_per_kernel=3.1e-5)
    rows = measured(JOBS, trial)
    return judge(rows, closed_form(JOBS), fittable(rows))


def test_presets_keep_every_other_line() -> None:
    before = PRESETS.read_text()
    after = edited_presets(before, a_fit())
    own = [line for line in after.splitlines() if line.startswith("    host_s_per_kernel: 3.1e-05")]
    assert len(own) == 1
    assert "6 rows, 6 families, 1 source" in own[0]
    assert _without_hosts(after) == _without_hosts(before)
    assert edited_presets(after, a_fit()) == after
    read = yaml.safe_load(after)
    assert Software(name=PRESET, **read[PRESET]).host.host_s_per_kernel == 3.1e-5
    others = {name: fields for name, fields in yaml.safe_load(before).items() if name != PRESET}
    assert {name: fields for name, fields in read.items() if name != PRESET} == others


def test_a_field_that_a_preset_lacks_joins_its_block() -> None:
    preset = "first:\n  host:\n    step_fixed_s: 1.0\nnanotron-2024:\n  title: two\nlast:\n  title: three\n"
    after = edited_presets(preset, a_fit())
    assert yaml.safe_load(after) == {
        "first": {"host": {"step_fixed_s": 1.0}},
        "nanotron-2024": {"title": "two", "host": {"host_s_per_kernel": 3.1e-5}},
        "last": {"title": "three"},
    }


def test_profiles_are_written_with_where_they_come_from(tmp_path: Path) -> None:
    presets = tmp_path / "presets.yaml"
    presets.write_text(PRESETS.read_text())
    write_constants(a_fit(), tmp_path, presets)
    written = shipped_profile(tmp_path / f"{GPU}.yaml")
    assert written.clock_fraction == 0.83
    assert written.step_time_fit.startswith("fitted: 6 rows, 6 families, 1 source")
    shipped = load_profile(GPU)
    assert written.step_time_residual == pytest.approx(
        next(g for g in a_fit().gpus if g.name == GPU).coverage.held_out, abs=1e-3
    )
    assert written == replace(
        shipped,
        clock_fraction=0.83,
        corun_slowdown=0.0,
        step_time_fit=written.step_time_fit,
        step_time_residual=written.step_time_residual,
    )
    assert presets.read_text() != PRESETS.read_text()


def test_the_page_shows_every_constant_and_both_errors() -> None:
    fit = a_fit()
    page = fit_markdown(fit)
    assert f"Constants fitted: {fit.fitted_constants}; cases: 6 in 6 families" in page
    assert "`clock_fraction` 0.83" in page
    assert "`host_s_per_kernel` 31.00 us" in page
    assert "in sample" in page
    assert "held out" in page
    assert fit_markdown(a_fit()) == page


def _without_hosts(text: str) -> list[str]:
    return [line for line in text.splitlines() if "host_s_per_kernel:" not in line]
