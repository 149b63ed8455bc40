"""What choices of layouts are worth: sweeps, planners and what they lose, on runs made by hand."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from validation_cases import case_document, write_cases

from stepsim.calibration.cases.case import Case, read_cases
from stepsim.calibration.cases.sweep import job_of, layout_fields
from stepsim.calibration.validation.judge.choice_tables import choice_sections
from stepsim.calibration.validation.judge.choices import (
    Sweep,
    SweepRun,
    as_planned,
    at_random,
    by_time,
    judged,
    measured_sweeps,
    sweeps_as_planned,
)
from stepsim.calibration.validation.judge.each_sweep import each_sweep_grid, judged_sweeps, sweeps_document
from stepsim.calibration.validation.judge.fit_probabilities import likelier_outcomes
from stepsim.calibration.validation.judge.rule_of_thumb import by_thumb
from stepsim.calibration.validation.predict import Prediction
from stepsim.calibration.validation.run import ValidatedCase
from stepsim.calibration.validation.summary import Confusion
from stepsim.sim.scenario.blocks import Parallelism, Training
from stepsim.sim.scenario.models import Scenario


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder: Path = tmp_path_factory.mktemp("cases")
    return read_cases(write_cases(folder / "one.yaml", [case_document()]))[0]


def laid_out(case: Case, **layout: Any) -> Case:
    return replace(case, layout=replace(case.layout, **layout))


def row_of(
    case: Case, number: int, predicted_s: float, measured_s: float | None, room: float
) -> ValidatedCase:
    outcome: Literal["ok", "oom"] = "oom" if measured_s is None else "ok"
    measured = replace(case.measured, outcome=outcome, step_time_s=measured_s)
    own = replace(
        laid_out(case, micro_batch=number + 1), id=str(number), family=str(number), measured=measured
    )
    prediction = Prediction(
        step_time_s=predicted_s, outcome="ok", framework="one", room=(room, 0.5), fit_probability=0.5
    )
    return ValidatedCase(source="a source", regime="a regime", case=own, prediction=prediction)


def sweep_of(case: Case, runs: list[tuple[float, float | None, float]]) -> Sweep:
    """Of predicted seconds, measured seconds and fit probability."""
    return tuple(
        SweepRun(
            row=row_of(case, number, predicted, measured, 0.1),
            predicted_s=predicted,
            fits=fits,
            measured_s=measured,
        )
        for number, (predicted, measured, fits) in enumerate(runs)
    )


def test_a_choice_loses_what_it_takes_longer(case: Case) -> None:
    sweep = sweep_of(case, [(1.0, None, 0.2), (2.0, 2.2, 0.95), (3.0, 2.0, 0.99), (4.0, 5.0, 1.0)])
    safe = judged("safe", [sweep], by_time(0.9))
    assert safe.out_of_memory == safe.silent == 0.0
    assert safe.first == pytest.approx((0.1, 0.1))
    assert safe.best_of_three == pytest.approx((0.0, 0.0))
    bold = judged("bold", [sweep], by_time(0.0))
    assert (bold.out_of_memory, bold.three_out_of_memory) == (1.0, 0.0)
    assert all(map(math.isnan, bold.first))
    assert bold.best_of_three == pytest.approx((0.0, 0.0))
    none = judged("none", [sweep], by_time(1.1))
    assert (none.silent, none.out_of_memory) == (1.0, 0.0)


def test_a_plan_names_a_bold_choice_second_and_alone_where_nothing_is_sure(case: Case) -> None:
    runs = [(1.0, 1.5, 0.6), (2.0, 2.0, 0.95), (2.1, 2.2, 0.99), (1.99, 1.0, 0.5), (0.5, None, 0.05)]
    order = [run.predicted_s for run in as_planned(sweep_of(case, runs))]
    assert order == [2.0, 1.0, 2.1]  # 1.99 promises a quarter of a per cent, 0.5 hardly ever fits
    alone = as_planned(sweep_of(case, [runs[0], runs[3], runs[4]]))
    assert [run.predicted_s for run in alone] == [1.0]
    assert [run.predicted_s for run in as_planned(sweep_of(case, runs[1:3]))] == [2.0, 2.1]


TIMES = st.lists(st.one_of(st.none(), st.floats(1.0, 9.0)), min_size=3, max_size=7).filter(any)


@given(TIMES)
def test_at_random_is_every_choice(case: Case, times: list[float | None]) -> None:
    """The closed form of three drawn ones, against all threes."""
    sweep = sweep_of(case, [(1.0, measured, 1.0) for measured in times])
    found = at_random([sweep])
    assert found.out_of_memory == pytest.approx(times.count(None) / len(times))
    threes = list(itertools.combinations(times, 3))
    assert found.three_out_of_memory == pytest.approx(sum(not any(three) for three in threes) / len(threes))
    fastest = min(one for one in times if one)
    best = sorted(min(one for one in three if one) / fastest - 1 for three in threes if any(three))
    middle = best[math.ceil(len(best) / 2 - 1e-9) - 1]
    assert found.best_of_three[0] == pytest.approx(middle)


@pytest.mark.slow
def test_sweeps_hold_what_ran_out_of_memory_whoever_published_it(case: Case) -> None:
    rows = [row_of(case, n, 1.0 + n, None if n < 6 else 1.0 + n, -0.1 if n < 6 else 0.3) for n in range(9)]
    rows[0] = replace(rows[0], source="another")
    (sweep,) = measured_sweeps(rows, ("high",))
    assert len(sweep) == 9
    assert [run.measured_s is None for run in sweep] == [True] * 6 + [False] * 3
    assert measured_sweeps(rows, ("medium",)) == []
    assert measured_sweeps(rows[5:], ("high",)) == []  # four are too few
    batch = replace(rows[8], case=laid_out(rows[8].case, global_batch=128))
    assert len(measured_sweeps([*rows, batch], ("high",))[0]) == 9
    assert len(list(choice_sections([sweep], rows))) == 5


def test_a_sweep_is_judged_by_itself(case: Case) -> None:
    """The first choice, 1, is 10 % slower than the fastest, 2, which is the second; the quickest predicted
    ran out of memory."""
    sweep = sweep_of(
        case, [(1.0, None, 0.02), (2.0, 2.2, 0.95), (3.0, 2.0, 0.99), (4.0, 5.0, 1.0), (5.0, 5.05, 1.0)]
    )
    lazy = sweep_of(case, [(1.0, 1.0, 0.0), (2.0, None, 0.02), (3.0, None, 0.0)])
    found, other = judged_sweeps([sweep, lazy])[::-1]
    assert (found.runs, found.ended, found.fastest, found.first_choice) == (5, 4, "2", "1")
    assert found.first_choice_lost == pytest.approx(0.1)
    assert found.best_of_three_lost == pytest.approx(0.0)
    assert found.rank_correlation is not None
    assert 0 < found.rank_correlation < 1
    assert (found.said_to_fit, found.said_out_of_memory) == (1, 0)
    assert (other.first_choice, other.first_choice_lost, other.rank_correlation) == (None, None, None)
    assert json.loads(json.dumps(sweeps_document([found, other])))[0]["choices"] == ["1", "2", "3"]
    first, second = each_sweep_grid([found, other]).rows
    assert first[2:] == ("5", "4", f"{found.rank_correlation:.2f}", "10.0 %", "0.0 %", "1")
    assert second[4:7] == ("-", "nothing proposed", "-")


def test_a_sweep_of_runs_that_a_plan_would_choose_by_its_own_probabilities(case: Case) -> None:
    rows = [row_of(case, n, 1.0 + n, 1.0 + n, 0.3) for n in range(5)]
    (sweep,) = sweeps_as_planned(rows)
    assert [run.fits for run in sweep] == [0.5] * 5


@pytest.mark.parametrize(("rows", "same"), [(32_256, True), (32_512, True), (65_024, False)])
def test_padding_of_a_vocabulary_makes_no_other_job(case: Case, rows: int, *, same: bool) -> None:
    one, other = (replace(case, model=replace(case.model, vocab_size=n)) for n in (32_000, rows))
    assert (job_of(one) == job_of(other)) is same


def test_a_job_is_all_but_its_layout(case: Case) -> None:
    assert job_of(case) == job_of(laid_out(case, tp=1, pp=1, zero=0))
    assert job_of(case) != job_of(laid_out(case, global_batch=2))
    assert job_of(case) != job_of(replace(case, software=replace(case.software, attention="fa2")))


def test_fields_of_layouts_are_fields_of_scenarios(case: Case) -> None:
    """By their names, so that a plan and a measured sweep count the same."""
    blocks: dict[str, type[BaseModel]] = {"parallelism": Parallelism, "training": Training, "": Scenario}
    for name in layout_fields(case):
        block, _, field = name.rpartition(".")
        assert field in blocks[block].model_fields, name


def test_the_recipe_keeps_tensor_parallelism_inside_the_host_and_model_parallelism_small(case: Case) -> None:
    layouts = [(16, 1, 4), (8, 4, 2), (8, 2, 4), (4, 4, 4), (1, 1, 64)]
    cases = [laid_out(case, tp=tp, pp=pp, dp=dp, vpp=1, micro_batch=1) for tp, pp, dp in layouts]
    order = [layouts[place] for place in by_thumb(cases)]
    assert order[0] == (8, 2, 4)  # of sixteen, and (1, 1, 64) is too large
    assert order.index((8, 2, 4)) < order.index((4, 4, 4)) < order.index((8, 4, 2))
    assert (1, 1, 64) not in order
    assert order[-1] == (16, 1, 4)


def test_where_nothing_fits_the_recipe_tries_the_smallest(case: Case) -> None:
    cases = [replace(laid_out(case, tp=1, pp=pp, dp=64 // pp, vpp=1, zero=0), id=str(pp)) for pp in (1, 2)]
    huge = [
        replace(one, model=replace(one.model, hidden_size=65536, ffn_hidden_size=262144)) for one in cases
    ]
    assert by_thumb(huge) == [1]


def test_what_is_likelier_is_said_of_the_sources_that_are_asked_for(case: Case) -> None:
    """Of rows of low trust, whose probabilities are the shipped ones."""
    rows = []
    for number, (fits, ran) in enumerate([(0.6, True), (0.5, True), (0.4, True), (0.6, False), (0.1, False)]):
        row = row_of(case, number, 1.0, 1.0 if ran else None, 0.1)
        prediction = replace(row.prediction, fit_probability=fits)
        rows.append(replace(row, prediction=prediction, case=replace(row.case, trust="low")))
    rows.append(replace(rows[0], source="another source"))
    assert likelier_outcomes(rows, ["a source"]) == Confusion(ok_ok=2, ok_oom=1, oom_ok=1, oom_oom=1)
    assert likelier_outcomes(rows, ["another source"]) == Confusion(ok_ok=1, ok_oom=0, oom_ok=0, oom_oom=0)
