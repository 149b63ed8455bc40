"""The picture of a report: a panel for each source, a dot for each row that has both times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from validation_cases import case_document, write_cases

from stepsim.calibration.cases.case import Case, read_cases
from stepsim.calibration.validation.predict import Prediction
from stepsim.calibration.validation.run import Report, ValidatedCase
from stepsim.calibration.validation.scatter import scatter_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return read_cases(write_cases(tmp_path / "one.yaml", [case_document()]))[0]


def row(case: Case, source: str, case_id: str, predicted_s: float | None) -> ValidatedCase:
    case = replace(case, id=case_id)
    return ValidatedCase(source=source, regime="", case=case, prediction=Prediction(step_time_s=predicted_s))


def test_every_row_with_both_times_is_a_dot_that_tells_its_case(case: Case) -> None:
    rows = (row(case, "one", "a", 2.0), row(case, "one", "b", None), row(case, "two & more", "c<d", 30.0))
    page = ElementTree.fromstring(scatter_svg(Report(rows=rows)))
    told = [dot.findtext(f"{SVG}title") or "" for dot in page.iter(f"{SVG}circle") if len(dot)]
    assert [text.split(":")[0] for text in told] == ["a", "c<d"]
    words = [text.text for text in page.iter(f"{SVG}text")]
    assert {"one, 1 rows", "two & more, 1 rows"} <= set(words)


def test_a_right_prediction_lies_on_the_diagonal(case: Case) -> None:
    measured = case.measured.step_time_s
    page = ElementTree.fromstring(scatter_svg(Report(rows=(row(case, "one", "a", measured),))))
    dot = next(dot for dot in page.iter(f"{SVG}circle") if len(dot))
    panel = next(box for box in page.iter(f"{SVG}rect") if box.get("stroke"))
    left, top, size = (float(panel.get(key, "")) for key in ("x", "y", "width"))
    assert float(dot.get("cx", "")) - left == pytest.approx(top + size - float(dot.get("cy", "")), abs=0.02)


def test_nothing_to_draw_is_said(case: Case) -> None:
    with pytest.raises(ValueError, match="needs rows"):
        scatter_svg(Report(rows=(row(case, "one", "a", None),)))
