"""Bold choices: when a layout that may not fit is worth trying, and that a search finds the one that is."""

from __future__ import annotations

import io
import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from small_plans import DOCUMENT, FIX, small

from stepsim.sim.figures import chance
from stepsim.sim.plan.boldness import LEAST_BOLD, WORTH, is_bold, promised, tried_first, worth_a_try
from stepsim.sim.plan.search import plan as planning
from stepsim.sim.plan.search.bold import bold_of
from stepsim.sim.plan.search.candidates import Candidates
from stepsim.sim.plan.search.judged import ReplayOf
from stepsim.sim.plan.search.judging import Answering, Judging
from stepsim.sim.plan.search.plan import candidates_of, plan
from stepsim.sim.plan.search.searching import LayoutSearch, Wishes
from stepsim.sim.plan.search.workers import Local
from stepsim.sim.report.plan.table import print_plan
from stepsim.sim.scenario.load import load_scenario

SECONDS = st.floats(0.1, 100.0)
CHANCES = st.floats(0.0, 1.0)


@given(SECONDS, CHANCES, SECONDS)
def test_a_try_costs_no_less_than_the_bold_layout_and_no_more_than_the_safe_one(
    value: float, fits: float, behind: float
) -> None:
    found = tried_first(value, fits, behind)
    low, high = sorted((value, behind))
    assert low * (1 - 1e-12) <= found <= high * (1 + 1e-12)
    assert (promised(found, behind) > 1e-9) <= (value < behind)


@given(SECONDS, SECONDS, CHANCES, CHANCES)
def test_a_try_is_worth_more_the_surer_and_the_faster_it_is(
    value: float, behind: float, fits: float, other: float
) -> None:
    value, behind = sorted((value, behind))
    less, more = sorted((fits, other))
    assert tried_first(value, more, behind) <= tried_first(value, less, behind) * (1 + 1e-12)
    assert tried_first(value, fits, behind) <= tried_first(value * 1.5, fits, behind) * (1 + 1e-12)


def test_the_pace_is_the_mean_of_many_jobs() -> None:
    """Of a hundred jobs 60 go at 10 s a step, the others at 15: steps in an hour, by hand."""
    steps = (60 * 3600 / 10 + 40 * 3600 / 15) / 100
    assert tried_first(10.0, 0.6, 15.0) == pytest.approx(3600 / steps)


def test_with_nothing_behind_it_any_try_is_worth_it() -> None:
    assert tried_first(3.0, 0.5, math.inf) == 6.0
    assert worth_a_try(6.0, math.inf)
    assert not worth_a_try(2.0 / (1 + WORTH / 2), 2.0)
    fits = np.array([LEAST_BOLD, 0.5, 0.9, LEAST_BOLD / 2])
    assert is_bold(fits, 0.9).tolist() == [True, True, False, False]


def chances(among: Candidates) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Made-up fit probabilities: the faster a layout may be, the less likely it fits."""
    rank = np.argsort(np.argsort(among.bounds.bound_s, kind="stable"), kind="stable")
    return np.minimum(1.0, 0.3 + rank / len(rank))


@pytest.fixture
def search() -> Generator[LayoutSearch]:
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    workers: Local[Any, Any] = Local(Answering(ReplayOf()), 1)
    judging = Judging(scenario_of=among.layouts.scenario_of, workers=workers)
    unsure = replace(among, fit_probability=chances(among))
    yield LayoutSearch(among=unsure, wishes=Wishes(audit=0), judging=judging)
    workers.close()


@pytest.mark.slow
def test_the_bold_choice_is_the_best_of_all_tries(search: LayoutSearch) -> None:
    """Against every layout, replayed."""
    fits = search.among.fit_probability
    every, bold = list(search.values(range(len(fits)))), is_bold(fits, 0.9)
    for behind in (min(v for v, p in zip(every, fits, strict=True) if p >= 0.9), math.inf):
        tries = {
            i: tried_first(value, float(fits[i]), behind)
            for i, value in enumerate(every)
            if bold[i] and value < behind
        }
        found, few = bold_of(search, behind, most=len(fits)), bold_of(search, behind)
        assert found is not None
        assert few is not None
        assert tries[found] == pytest.approx(min(tries.values()), rel=1e-9)
        assert tries[few] <= 1.01 * tries[found]


@pytest.mark.slow
def test_what_is_no_faster_is_not_tried(search: LayoutSearch) -> None:
    assert bold_of(search, float(search.open_bound.min())) is None
    assert bold_of(replace(search, wishes=Wishes(audit=0, fits=0.2)), 1e9) is None  # all are sure enough


@pytest.mark.slow
def test_a_plan_names_its_bold_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the table and in the JSON, with what it promises beside the best that is sure to fit."""
    sure = plan(small(), fix=FIX, top=1, audit=0, jobs=1)
    assert sure.to_dict()["bold"] is None  # all of them fit
    known, _ = candidates_of(small(), FIX, {}, lambda _: None)
    monkeypatch.setattr(planning, "fit_probability", lambda _base, _screened: chances(known))
    found = plan(small(), fix=FIX, top=1, audit=0, jobs=1)
    told, best = found.to_dict()["bold"], found.choices[0]
    assert LEAST_BOLD <= told["fit_probability"] < 0.9 <= best.fit_probability
    assert told["faster"] == pytest.approx(best.value / told["objective"] - 1)
    assert told["promised"] == pytest.approx(told["fit_probability"] * told["faster"])
    text = io.StringIO()
    print_plan(found, Console(file=text, width=120), "small")
    assert f"fits with {chance(told['fit_probability'])} and is" in text.getvalue()
    shown = text.getvalue().split("To try the bold one")[1].splitlines()[1]
    lines = [word.strip("'") for word in shown.split(" --set ")[1:]]
    assert found.bold is not None
    assert load_scenario(DOCUMENT, lines) == found.bold.choice.scenario
    two = plan(small(), fix=FIX, top=1, audit=0, jobs=2)
    assert two.to_dict()["bold"] == told


@pytest.mark.slow
def test_where_nothing_is_sure_to_fit_the_best_try_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    known, _ = candidates_of(small(), FIX, {}, lambda _: None)
    monkeypatch.setattr(planning, "fit_probability", lambda _base, _screened: chances(known) * 0.8)
    found = plan(small(), fix=FIX, top=1, audit=0, jobs=1)
    assert not found.found
    assert found.bold is not None
    told = found.to_dict()
    assert (told["choices"], told["bold"]["faster"], told["bold"]["promised"]) == ([], None, None)
    text = io.StringIO()
    print_plan(found, Console(file=text, width=120), "small")
    assert "bold: " in text.getvalue()
