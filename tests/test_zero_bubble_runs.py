"""The measured runs of the zero-bubble paper: error, memory, and which schedule wins.

The published figures are samples per GPU and second in two or three digits; schedules within 2 % of each
other are not ranked. One such pair is predicted the other way round (docs/accuracy-history.md).
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import median

import pytest

from stepsim.calibration.cases.case import Case, read_cases
from stepsim.calibration.validation.predict import Prediction, predict

pytestmark = pytest.mark.xdist_group("zero-bubble-runs")  # which are predicted once

TOO_CLOSE = 0.02
"""4.0 samples against 4.08 is the finest that two digits can tell apart."""


@pytest.fixture(scope="module")
def runs(shared: Path) -> list[tuple[Case, Prediction]]:
    cases = read_cases(shared / "data" / "cases" / "zero_bubble.yaml")
    return [(case, predict(case)) for case in cases]


@pytest.mark.slow
def test_no_published_run_is_refused(runs: list[tuple[Case, Prediction]]) -> None:
    assert [prediction.refused for _, prediction in runs] == [None] * 18


def test_step_time_and_memory(runs: list[tuple[Case, Prediction]]) -> None:
    """Averaged within families first, as everywhere."""
    errors: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for case, prediction in runs:
        assert prediction.step_time_s
        assert prediction.memory_bytes
        assert case.measured.step_time_s
        assert case.measured.memory_bytes
        time_error = abs(prediction.step_time_s / case.measured.step_time_s - 1)
        memory_error = abs(prediction.memory_bytes / case.measured.memory_bytes - 1)
        errors[case.family].append((time_error, memory_error))
    families = [[sum(column) / len(rows) for column in zip(*rows, strict=True)] for rows in errors.values()]
    assert median(time for time, _ in families) <= 0.09
    assert median(memory for _, memory in families) <= 0.08


@pytest.mark.slow
def test_schedules_are_ranked_as_measured(runs: list[tuple[Case, Prediction]]) -> None:
    """Within every model and batch, where the measurement can tell two schedules apart."""
    groups: dict[tuple[int, int], list[tuple[str, float, float]]] = defaultdict(list)
    for case, prediction in runs:
        measured_s, predicted_s = case.measured.step_time_s, prediction.step_time_s
        assert measured_s
        assert predicted_s
        group = case.model.hidden_size, case.layout.global_batch
        groups[group].append((case.layout.schedule, measured_s, predicted_s))
    told_apart = 0
    for group, rows in groups.items():
        for (name, measured_s, predicted_s), (other, other_measured_s, other_s) in combinations(rows, 2):
            if abs(measured_s / other_measured_s - 1) > TOO_CLOSE:
                told_apart += 1
                assert (measured_s < other_measured_s) == (predicted_s < other_s), (group, name, other)
    assert len(groups) == 6
    assert told_apart >= 12
