"""The published cases: each becomes a scenario or is refused with a reason, whatever it is called."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from published_cases import first_cases

from stepsim.calibration.cases.case import Case, read_cases
from stepsim.calibration.cases.to_scenario import scenario_document, to_scenario
from stepsim.calibration.validation.run import validate

pytestmark = pytest.mark.xdist_group("published-cases")  # which are read once


@cache
def _cases(folder: Path) -> tuple[Case, ...]:
    return tuple(case for path in sorted(folder.glob("**/cases/*.yaml")) for case in read_cases(path))


@pytest.fixture
def cases(shared: Path) -> tuple[Case, ...]:
    return _cases(shared / "data")


def test_all_published_cases_are_read(cases: tuple[Case, ...]) -> None:
    assert len({case.id for case in cases}) == len(cases)
    by_trust = Counter((case.trust, case.measured.outcome) for case in cases)
    # the totals of the READMEs beside the files
    assert by_trust["high", "ok"] + by_trust["high", "oom"] == 464 + 19
    assert sum(number for (_, outcome), number in by_trust.items() if outcome == "oom") == 876
    assert len(cases) == 2931 + 53


@pytest.mark.slow
def test_every_case_is_a_scenario_or_refused(cases: tuple[Case, ...]) -> None:
    refused = Counter[Any]()
    for case in cases:
        try:
            scenario = to_scenario(case)
        except ValueError:
            refused[case.trust] += 1
        else:
            assert scenario.cluster.gpus == case.hardware.gpus
            # A microbatch that is assumed may be known all the same (test_cases_unstated.py).
            assert (
                scenario.num_microbatches * scenario.training.micro_batch * case.layout.dp
                == case.layout.global_batch
            )
            if "layout.micro_batch" not in case.assumed:
                assert scenario.training.micro_batch == case.layout.micro_batch
    assert refused["high"] == 0


@pytest.mark.slow
def test_names_and_outcomes_change_no_scenario(cases: tuple[Case, ...]) -> None:
    shuffled = list(cases)
    random.Random(0).shuffle(shuffled)
    for case, other in zip(cases, shuffled, strict=True):
        renamed = replace(
            case,
            id=other.id,
            family=other.family,
            trust=other.trust,
            measured=other.measured,
            notes=other.notes,
        )  # what is assumed may be known all the same (test_cases_unstated.py), and is no name
        assert scenario_document(renamed) == scenario_document(case)
        assert renamed.regime == case.regime


@pytest.mark.slow
def test_a_file_is_predicted_whole_under_any_name(shared: Path, tmp_path: Path) -> None:
    files = [first_cases(shared, 2, tmp_path / name) for name in ("korthikanti_2022.yaml", "another.yaml")]
    report = validate(files, jobs=1)
    assert [row.source for row in report.rows] == ["korthikanti_2022"] * 2 + ["another"] * 2
    assert [row.prediction for row in report.rows[:2]] == [row.prediction for row in report.rows[2:]]
    assert not any(row.prediction.internal for row in report.rows)
