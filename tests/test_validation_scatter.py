"""The picture of a report: a panel for each source, a dot for each row that has both times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from drawn import hints, lines, marks, words
from validation_cases import case_document, write_cases

from stepsim.calibration.cases.case import Case, read_cases
from stepsim.calibration.validation.predict import Prediction
from stepsim.calibration.validation.run import Report, ValidatedCase
from stepsim.calibration.validation.scatter import COLOURS, scatter_svg
from stepsim.sim.report.drawing import palette


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return read_cases(write_cases(tmp_path / "one.yaml", [case_document()]))[0]


def row(case: Case, source: str, case_id: str, predicted_s: float | None) -> ValidatedCase:
    case = replace(case, id=case_id)
    return ValidatedCase(source=source, regime="", case=case, prediction=Prediction(step_time_s=predicted_s))


def test_every_row_with_both_times_is_a_dot_that_tells_its_case(case: Case) -> None:
    rows = (row(case, "one", "a", 2.0), row(case, "one", "b", None), row(case, "two & more", "c<d", 30.0))
    svg = scatter_svg(Report(rows=rows))
    assert [text.split(":")[0] for text in hints(svg)] == ["a", "c<d"]
    assert {"one, 1 row", "two & more, 1 row"} <= set(words(svg))


def test_a_right_prediction_lies_on_the_diagonal(case: Case) -> None:
    measured = case.measured.step_time_s
    assert measured is not None
    for predicted_s in (measured, 1.5 * measured):
        svg = scatter_svg(Report(rows=(row(case, "one", "a", predicted_s),)))
        (x0, y0), (x1, y1) = lines(svg, palette.FAINT_INK)[0]
        *_, (x, y) = [place for place in marks(svg, COLOURS[case.trust]) if y1 < place[1] < y0]
        right = y == pytest.approx(y0 + (x - x0) / (x1 - x0) * (y1 - y0), abs=0.02)
        assert right == (predicted_s == measured)


def test_nothing_to_draw_is_said(case: Case) -> None:
    with pytest.raises(ValueError, match="needs rows"):
        scatter_svg(Report(rows=(row(case, "one", "a", None),)))
