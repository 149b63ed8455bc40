"""What a report says: its arithmetic against figures worked out by hand, on a simulator that is a table."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validation_cases import CASE_KEYS, case_document, stage_memory, write_cases

from stepsim.calibration.cases.errors import errors_of
from stepsim.calibration.validation import predict as prediction
from stepsim.calibration.validation import run as running
from stepsim.calibration.validation.baselines import baselines
from stepsim.calibration.validation.document import report_document
from stepsim.calibration.validation.judge.accuracy_page import HISTORY, STILL_WRONG, accuracy_markdown
from stepsim.calibration.validation.predict import memory_as_measured
from stepsim.calibration.validation.run import Report, validate
from stepsim.calibration.validation.summary import Confusion, summarize
from stepsim.calibration.validation.tables import print_report
from stepsim.sim.reliability.study.statistics import quantile
from stepsim.sim.result.step import StageMemory
from stepsim.sim.scenario.refusal import NotSupported

# id: (family, measured step time, predicted step time); errors +10 %, -10 %, +50 %, -5 %
TIMES = {"a1": ("A", 10.0, 11.0), "a2": ("A", 10.0, 9.0), "b": ("B", 2.0, 3.0), "c": ("C", 4.0, 3.8)}


def _result(step_time_s: float, memory: tuple[StageMemory, ...]) -> Any:
    fits = all(stage.fits for stage in memory)
    interval = SimpleNamespace(low_s=0.8 * step_time_s, high_s=1.25 * step_time_s)
    return SimpleNamespace(step_time_s=step_time_s, memory=memory, fits=fits, interval=interval, doubt=None)


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A brief_step() that looks the case's id up in the returned table: a result, or an error to raise."""
    answers: dict[str, Any] = {}

    def simulate(case: Any) -> Any:
        answer = answers[case.id]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(prediction, "brief_step", simulate)
    monkeypatch.setattr(
        prediction,
        "to_scenario",
        lambda case, as_stated=False: SimpleNamespace(id=case.id, software=SimpleNamespace(name="")),
    )
    monkeypatch.setattr(running, "configuration", lambda case: case.id)
    return answers


@pytest.fixture
def report(simulator: dict[str, Any], tmp_path: Path) -> Report:
    """TIMES in one file; in another refusals, a mistake of the simulator, and wrong and right outcomes."""
    small, large = (stage_memory(0, weights=40.0),), (stage_memory(0, weights=150.0),)
    simulator |= {name: _result(predicted, small) for name, (_, _, predicted) in TIMES.items()}
    simulator |= {
        "no": NotSupported("training.precision", "fp8 with 3 amax histories is not modelled"),
        "no2": NotSupported("training.precision", "fp8 with 16 amax histories is not modelled"),
        "broken": KeyError("stage"),
        "right": _result(1.0, large),
        "wrong": _result(1.0, small),
        "early": _result(5.0, large),
    }
    oom = {"measured.outcome": "oom", "measured.step_time_s": None, "trust": "medium"}
    first = [
        case_document({"id": name, "family": family, "measured.step_time_s": measured})
        for name, (family, measured, _) in TIMES.items()
    ]
    second = [
        case_document({"id": "no", "trust": "low"}),
        case_document({"id": "no2", "trust": "low"}),
        case_document({"id": "broken", "trust": "low"}),
        case_document({"id": "right"} | oom),
        case_document({"id": "wrong"} | oom),
        case_document({"id": "early", "trust": "medium", "measured.step_time_s": 4.0}),
    ]
    paths = [
        write_cases(tmp_path / "megatron_sc21.yaml", first),
        write_cases(tmp_path / "second.yaml", second),
    ]
    return validate(paths, jobs=1)


def test_every_case_is_in_the_report_once(report: Report) -> None:
    assert [row.case.id for row in report.rows] == [*TIMES, "no", "no2", "broken", "right", "wrong", "early"]
    assert [row.source for row in report.rows] == ["megatron_sc21"] * 4 + ["second"] * 6


def test_errors_are_averaged_in_families_first(report: Report) -> None:
    errors = summarize(report).overall["high"].step_time
    assert errors is not None
    assert (errors.cases, errors.families) == (4, 3)
    # absolute: A 10 %, B 50 %, C 5 %; signed: A 0, B +50 %, C -5 %
    assert errors.median == pytest.approx(0.10)
    assert errors.p90 == pytest.approx(0.10 + 0.8 * (0.50 - 0.10))
    assert errors.signed_median == pytest.approx(0.0)


def test_refusals_and_mistakes_are_counted_and_not_dropped(report: Report) -> None:
    summary = summarize(report)
    assert (summary.overall["all"].cases, summary.overall["all"].predicted) == (10, 7)
    assert (summary.overall["low"].refused, summary.overall["low"].internal_errors) == (3, 1)
    assert summary.internal_errors == 1
    reasons = list(summary.refused.items())
    assert reasons[0] == ("training.precision: fp8 with N amax histories is not modelled", 2)
    assert reasons[1][0].startswith("internal error: KeyError: 'stage' (test_validation_report.py:")


def test_outcomes_form_a_confusion_matrix(report: Report) -> None:
    outcomes = summarize(report).sources["second"]["all"].outcomes
    assert outcomes == Confusion(ok_ok=0, ok_oom=1, oom_ok=1, oom_oom=1)
    assert outcomes.balanced_accuracy == pytest.approx(0.25)
    assert summarize(report).overall["high"].outcomes.balanced_accuracy is None


def test_a_predicted_oom_keeps_its_step_time(report: Report) -> None:
    early = next(row for row in report.rows if row.case.id == "early")
    assert early.prediction.outcome == "oom"
    assert early.error == pytest.approx(0.25)


def test_the_acceptance_set_is_high_trust_rows_of_its_sources(report: Report) -> None:
    assert summarize(report).acceptance.cases == 4


def test_the_document_has_the_fixed_keys(report: Report) -> None:
    document = report_document(report)
    assert list(document) == ["cases", "summary", "refused"]
    assert all(tuple(row) == CASE_KEYS for row in document["cases"])
    b, no = document["cases"][2], document["cases"][4]
    assert (b["error"], b["predicted_outcome"], b["refused"]) == (pytest.approx(0.5), "ok", None)
    assert b["regime"] == "A100-SXM4-80GB dense tp+pp+dp"
    assert no["refused"] == "training.precision: fp8 with 3 amax histories is not modelled"
    assert no["predicted_step_time_s"] is no["error"] is no["predicted_outcome"] is None
    assert document["summary"]["overall"]["all"]["outcomes"]["balanced_accuracy"] == pytest.approx(
        (4 / 5 + 1 / 2) / 2
    )


def test_baselines_are_the_median_of_the_other_families(report: Report) -> None:
    """All rows do the same work, so that MFU is 1 / time but for a factor: A 1/10, B 1/2, C 1/4."""
    guesses = [guess.regime_s for guess in baselines(report.rows)[:4]]
    assert guesses == [pytest.approx(1 / ((1 / 2 + 1 / 4) / 2))] * 2 + [
        pytest.approx(1 / ((1 / 10 + 1 / 4) / 2)),
        pytest.approx(1 / ((1 / 10 + 1 / 2) / 2)),
    ]
    assert [guess.gpu_and_precision_s for guess in baselines(report.rows)[:4]] == guesses


def test_progress_is_told_after_every_case(simulator: dict[str, Any], tmp_path: Path) -> None:
    simulator |= {name: NotSupported("x", "no") for name in ("one", "two")}
    told: list[tuple[int, int]] = []
    path = write_cases(tmp_path / "a.yaml", [case_document(), case_document({"id": "two"})])
    validate([path], jobs=1, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


def test_processes_give_the_same_report_as_one(tmp_path: Path) -> None:
    cases = [case_document({"id": f"c{n}", "software.framework": f"unheard-of {n}"}) for n in range(50)]
    path = write_cases(tmp_path / "a.yaml", cases)
    together, alone = validate([path], jobs=2), validate([path], jobs=1)
    assert together == alone
    assert [row.case.id for row in together.rows] == [case["id"] for case in cases]


def test_tables_and_page_show_every_part(report: Report, tmp_path: Path) -> None:
    from rich.console import Console

    out = io.StringIO()
    print_report(report, Console(file=out, width=160))
    history = tmp_path / "history.md"
    history.write_text(f"## Why a was slow\n\n{STILL_WRONG}## Why b is slow\n")
    page = accuracy_markdown(report, history)
    for text in (out.getvalue(), page):
        assert "fp8 with N amax histories is not modelled" in text
        assert "megatron_sc21" in text
        assert "+50.0 %" in text  # the worst row
        assert "Intervals of 90 %" in text
        assert "mistake of the simulator" in text
    assert "| b | A100-SXM4-80GB dense tp+pp+dp | 3.000 s | 2.000 s | +50.0 % |" in page
    assert page.endswith("## Why b is slow\n")
    assert "Why a was slow" not in page
    assert accuracy_markdown(report, history) == page


def test_the_page_ends_with_what_the_history_says_is_still_wrong() -> None:
    """docs/accuracy.md, as it stands, has the part of docs/accuracy-history.md that it is made with."""
    still_wrong = HISTORY.read_text(encoding="utf-8").partition(STILL_WRONG)[2]
    assert still_wrong.startswith("## The worst rows, and why\n")
    assert still_wrong in (HISTORY.parent / "accuracy.md").read_text(encoding="utf-8")


MEMORY = (
    stage_memory(0, weights=10.0, activations=30.0, allocator=4.0, context=2.0),
    stage_memory(1, weights=10.0, activations=20.0, allocator=15.0, context=2.0),
)


@pytest.mark.parametrize(
    ("kind", "rank", "seen"),
    [
        ("allocated", "fullest", 40.0),
        ("allocated", "last", 30.0),
        ("reserved", "fullest", 45.0),  # the fullest rank by what is measured: stage 1
        ("reserved", "first", 44.0),
        ("nvidia_smi", "fullest", 47.0),
        (None, "fullest", 47.0),
    ],
)
def test_memory_is_what_the_measurement_sees(kind: Any, rank: Any, seen: float) -> None:
    assert memory_as_measured(MEMORY, kind, rank) == seen


FAMILIES_OF_ERRORS = st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(-0.9, 5.0)), min_size=1)


@given(FAMILIES_OF_ERRORS)
def test_errors_are_in_order_and_repeating_a_family_changes_nothing(errors: list[tuple[str, float]]) -> None:
    once = errors_of(errors)
    assert once is not None
    assert abs(once.signed_median) <= once.median + 1e-12
    assert once.median <= once.p90 + 1e-12
    again = errors_of(errors + [pair for pair in errors if pair[0] == errors[0][0]])
    assert again is not None
    assert again.median == pytest.approx(once.median)
    assert again.p90 == pytest.approx(once.p90)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=20), st.floats(0, 1))
def test_quantile_is_numpys(values: list[float], share: float) -> None:
    import numpy as np

    assert quantile(sorted(values), share) == pytest.approx(np.quantile(values, share))
