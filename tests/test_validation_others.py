"""Errors that published simulators print stand beside ours, in one unit and of the same runs."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from validation_cases import case_document, write_cases

from stepsim.calibration.cases.case import read_cases
from stepsim.calibration.validation.judge.published import SIMUMAX, WHOLE_SOURCES, others
from stepsim.calibration.validation.predict import Prediction
from stepsim.calibration.validation.run import ValidatedCase

RUNS = ("simumax-b200-llama3_70b_l12_tp1_pp2_dp4_mbc4", "simumax-b200-llama3_405b_l4_tp8_pp1_dp1_mbc8")


def rows_of(tmp_path: Path, source: str, ids: tuple[str, ...], error: float) -> list[ValidatedCase]:
    """Cases of these ids, each predicted ``1 + error`` times as long as measured."""
    documents = [case_document({"id": one, "measured.step_time_s": 2.0}) for one in ids]
    cases = read_cases(write_cases(tmp_path / f"{source}.yaml", documents))
    predicted = Prediction(step_time_s=2.0 * (1 + error), interval_s=(1.0, 4.0), memory_bytes=None)
    return [ValidatedCase(source=source, regime="any", case=case, prediction=predicted) for case in cases]


def test_simumax_is_compared_on_its_own_runs_alone(tmp_path: Path) -> None:
    found = others(rows_of(tmp_path, "simumax_b200", (*RUNS, "another-run"), 0.03))
    assert [(one.what, one.cases) for one in found] == [("step time", len(RUNS))]
    theirs = fmean(abs(SIMUMAX.get(run).step_time_percent) for run in RUNS)
    assert found[0].theirs_mean == pytest.approx(theirs / 100)
    assert found[0].ours_mean == pytest.approx(0.03)


@pytest.mark.parametrize("source", WHOLE_SOURCES.names())
def test_a_source_as_a_whole_is_compared_by_its_mean(tmp_path: Path, source: str) -> None:
    (found,) = others(rows_of(tmp_path, source, ("one", "two"), -0.05))
    assert found.theirs_mean == pytest.approx(WHOLE_SOURCES.get(source).percent / 100)
    assert (found.theirs_median, found.ours_mean) == (None, pytest.approx(0.05))
