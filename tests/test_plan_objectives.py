"""What a plan is asked for (objectives, limits, prices), and what it says of those that lost."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from refusals import refused_at
from rich.console import Console
from small_plans import FAULTS, FIX, small

from stepsim.sim.brief.step import brief_step
from stepsim.sim.figures import percent
from stepsim.sim.plan.search.alternatives import ALTERNATIVES
from stepsim.sim.plan.search.goodput import GoodputShares
from stepsim.sim.plan.search.plan import candidates_of, plan
from stepsim.sim.plan.search.shown import layout_figures
from stepsim.sim.report.plan.table import nothing, print_plan
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.refusal import NotSupported

PRICED = {"cluster__price_per_gpu_hour": 2.0, "training__tokens": 1e9}


def test_tables_of_a_plan_have_a_row_for_each_layout_with_its_settings() -> None:
    found = plan(small(), fix=FIX, top=2, jobs=1)
    assert found.front
    for frame, rows in (
        (found.frame, found.choices),
        (found.front_frame, found.front),
        (found.replays_frame, found.replays),
    ):
        assert len(frame) == len(rows)
        assert set(frame.columns) > set(rows[0].settings)
    assert frame["step_time_s"].tolist() == pytest.approx(
        [one.judged.step_time_s for one in found.replays], nan_ok=True
    )
    assert found.front_frame["step_time_s"].tolist() == [point.step_time_s for point in found.front]


@pytest.mark.slow
def test_objectives_rank_by_what_they_name() -> None:
    """Cheapest and fastest differ where the number of GPUs is free."""
    vary = {"cluster.gpus": [2, 8]}
    fast = plan(small(**PRICED), fix=FIX, vary=vary, top=1, audit=3, jobs=1)
    cheap = plan(small(**PRICED), fix=FIX, vary=vary, top=1, objective="tokens-per-dollar", audit=3, jobs=1)
    assert fast.choices[0].gpus == 8
    assert cheap.choices[0].gpus == 2
    assert cheap.choices[0].price is not None
    assert fast.choices[0].price is not None
    assert cheap.choices[0].price < fast.choices[0].price
    assert {point.gpus for point in cheap.front} == {2, 8}


@pytest.mark.slow
def test_limits_are_met_or_nothing_is_proposed() -> None:
    days = plan(small(**PRICED), fix=FIX, top=1, audit=0, jobs=1).choices[0].days
    assert days is not None
    met = plan(small(**PRICED), fix=FIX, audit=0, jobs=1, deadline_s=days * 86400 * 1.02)
    assert met.choices
    assert all(one.days is not None and one.days <= 1.02 * days for one in met.choices)
    missed = plan(small(**PRICED), fix=FIX, audit=0, jobs=1, deadline_s=days * 86400 * 0.9)
    assert not missed.choices
    assert missed.certificate.fit > 0
    assert missed.nearest is not None
    assert 1 < missed.nearest[1] <= 1 / 0.9 * (1 + 1e-9)
    assert met.nearest is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"objective": "tokens-per-dollar"}, "cluster.price_per_gpu_hour"),
        ({"objective": "days"}, "training.tokens"),
        ({"objective": "goodput"}, "faults"),
        ({"deadline_s": 1e6}, "training.tokens"),
    ],
)
def test_what_an_objective_needs_is_named(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(NotSupported) as error:
        plan(small(), fix=FIX, jobs=1, **asked)
    assert error.value.field == field


def test_what_is_lacking_is_said_before_layouts_are_looked_at() -> None:
    """Whatever other fields of its block are tried."""

    def looks(what: str) -> None:
        raise AssertionError(what)

    vary = {"training.global_batch": [16, 32], "cluster.gpus": [4, 8]}
    for asked, field in (
        ({"objective": "days"}, "training.tokens"),
        ({"objective": "tokens-per-dollar"}, "cluster.price_per_gpu_hour"),
        ({"budget": 1.0}, "training.tokens"),
    ):
        with refused_at(field):
            plan(small(), fix=FIX, vary=vary, jobs=1, progress=looks, **asked)


def test_one_price_for_two_gpus_is_refused() -> None:
    vary = {"cluster.gpu": ["A100-SXM4-80GB", "A100-SXM4-40GB"]}
    with pytest.raises(NotSupported) as error:
        plan(small(**PRICED), fix=FIX, vary=vary, objective="tokens-per-dollar", jobs=1)
    assert error.value.field == "cluster.price_per_gpu_hour"


@pytest.mark.slow
def test_a_price_list_prices_every_gpu_that_is_tried() -> None:
    gpus = ["H100-SXM5-80GB", "H200-SXM-141GB"]
    base = {"cluster__price_list": "median", "training__tokens": 1e9}
    asked: dict[str, Any] = {
        "fix": FIX, "objective": "tokens-per-dollar", "top": 1, "audit": 0, "jobs": 1,
    }  # fmt: skip
    found = plan(small(**base), vary={"cluster.gpu": gpus}, **asked)
    own = [plan(small(cluster__gpu=gpu, **base), **asked).choices[0].price for gpu in gpus]
    assert own[0] != own[1]
    assert found.choices[0].price == min(price for price in own if price is not None)


def test_fields_that_are_none_are_named() -> None:
    with pytest.raises(ScenarioError) as error:
        plan(small(), fix={"parallelism.tpp": 4}, jobs=1)
    assert error.value.problems[0].path == "parallelism.tpp"


def test_nothing_fits_is_an_answer() -> None:
    found = plan(small(training__seq_length=1 << 22, training__global_batch=8), fix=FIX, jobs=1)
    assert not found.choices
    assert found.certificate.fit == 0
    assert found.smallest is not None
    assert found.smallest[1] > found.smallest[2]
    assert sum(found.smallest_terms.values()) == pytest.approx(found.smallest[1], rel=0.1)
    said = found.to_dict()["smallest"]
    assert said["peak_memory_bytes"] > said["capacity_bytes"] == found.smallest[2]
    assert said["terms_bytes"] == found.smallest_terms
    assert said["set"]["parallelism.tp"] == found.smallest[0]["parallelism.tp"]
    with pytest.raises(ValueError, match="small"):
        _ = found.best


def test_what_fills_the_smallest_layout_is_told_where_none_fits() -> None:
    """A vocabulary of a million words, of which logits are most."""
    run = small(model__vocab_size=1_000_000, training__global_batch=512)
    found = plan(run, fix=FIX | {"training.micro_batch": 64, "parallelism.tp": 1}, jobs=1)
    assert not found.choices
    assert max(found.smallest_terms, key=lambda name: found.smallest_terms[name]) == "logits"
    assert nothing(found)[-1].startswith("most of it: logits ")


@pytest.mark.slow
def test_goodput_is_the_step_over_the_share_of_time_that_counts() -> None:
    scenario = small(**FAULTS)
    found = plan(scenario, fix={**FIX, "parallelism.tp": 2}, top=2, objective="goodput", audit=2, jobs=1)
    for choice in found.choices:
        step_s = choice.figures.step_time_s
        share = GoodputShares().share(choice.scenario, step_s)
        assert 0.5 < share < 1.0
        assert choice.value == pytest.approx(step_s / share, rel=1e-9)
        assert choice.goodput == pytest.approx(share, rel=1e-9)
    assert found.choices[0].value <= found.choices[1].value
    assert found.certificate.optimal
    told = io.StringIO()
    print_plan(found, Console(file=told, width=140), "small")
    lines = told.getvalue().splitlines()
    heading = next(place for place, line in enumerate(lines) if line.startswith("#"))
    assert "goodput" in lines[heading]
    assert percent(found.choices[0].goodput or 0.0) in lines[heading + 1]


@pytest.mark.slow
def test_a_deadline_under_faults_counts_the_time_that_they_cost() -> None:
    """Between the days of the healthy pace and those of the pace that faults leave nothing is in time."""
    scenario = small(**FAULTS, training__tokens=1e12)
    fix = {**FIX, "parallelism.tp": 2, "parallelism.pp": 1, "parallelism.zero": 1, "training.micro_batch": 2}
    free = plan(scenario, fix=fix, top=1, objective="goodput", audit=0, jobs=1)
    days, share = free.choices[0].days or 0.0, free.choices[0].goodput or 0.0
    healthy = plan(scenario, fix=fix, top=1, audit=0, jobs=1).choices[0].days or 0.0
    assert days == pytest.approx(healthy / share, rel=1e-9)
    between = 86400 * (healthy + days) / 2
    assert plan(scenario, fix=fix, top=1, audit=0, jobs=1, deadline_s=between).choices
    missed = plan(scenario, fix=fix, top=1, objective="goodput", audit=0, jobs=1, deadline_s=between)
    assert not missed.choices
    assert missed.nearest is not None
    assert missed.nearest[1] == pytest.approx(2 * days / (healthy + days), rel=1e-6)
    late = plan(
        scenario, fix=fix, top=1, objective="goodput", audit=0, jobs=1, deadline_s=86400 * days * 1.001
    )
    assert late.choices[0].days == pytest.approx(days)


@pytest.mark.slow
def test_the_price_of_a_run_under_faults_is_that_of_all_its_days() -> None:
    scenario = small(**FAULTS, training__tokens=1e12, cluster__price_per_gpu_hour=2.0)
    fix = {**FIX, "parallelism.tp": 2, "parallelism.pp": 1, "parallelism.zero": 1, "training.micro_batch": 2}
    for wanted in ("goodput", "step-time"):
        (choice,) = plan(scenario, fix=fix, top=1, objective=wanted, audit=0, jobs=1).choices
        assert choice.price == pytest.approx(24 * (choice.days or 0.0) * choice.gpus * 2.0, rel=1e-9)


@pytest.mark.slow
def test_the_factor_of_an_own_layout_counts_its_own_share_of_time() -> None:
    """Half as many GPUs fail half as often."""
    scenario = small(**FAULTS)
    fix = {**FIX, "cluster.gpus": 4, "parallelism.tp": 2, "parallelism.pp": 1, "parallelism.zero": 1}
    found = plan(scenario, fix=fix, top=1, objective="goodput", audit=0, jobs=1)
    own, best = found.lost[0], found.choices[0]
    assert own.name == "your layout"
    step_s = brief_step(scenario).step_time_s
    assert own.factor == pytest.approx(
        step_s / GoodputShares().share(scenario, step_s) / best.value, rel=1e-9
    )


def test_alternatives_are_what_they_are_called() -> None:
    among, _ = candidates_of(small(), {"parallelism.cp": 1}, {}, lambda _: None)
    masks = {one.name: one.of(among, 0.9) for one in ALTERNATIVES}
    tp, pp = among.layouts.columns["parallelism.tp"], among.layouts.columns["parallelism.pp"]
    assert (masks["no tensor parallelism"] == (tp == 1)).all()
    assert (masks["tensor parallelism over a whole host"] == (tp == 8)).all()
    assert (masks["no pipeline"] == (pp == 1)).all()
    (guide,) = np.flatnonzero(masks["smallest model parallelism that fits (Megatron's guide)"])
    assert tp[guide] * pp[guide] == 1  # all of it fits into one GPU


@pytest.mark.parametrize("fits", [0.5, 0.9, 0.99])
def test_what_the_guide_takes_fits_as_surely_as_the_plan_asks(fits: float) -> None:
    among, _ = candidates_of(load_scenario("llama3-8b-h100"), {"parallelism.cp": 1}, {}, lambda _: None)
    (named,) = (one for one in ALTERNATIVES if "Megatron's guide" in one.name)
    (guide,) = np.flatnonzero(named.of(among, fits))
    assert among.fit_probability[guide] >= fits


@pytest.mark.slow
def test_why_names_what_takes_longer() -> None:
    found = plan(small(), fix=FIX, audit=0, jobs=1)
    best = found.choices[0].figures
    for one in found.lost:
        slow = layout_figures(small().with_(dict(one.settings)))
        assert slow.step_time_s / best.step_time_s == pytest.approx(one.factor, rel=1e-9)
        largest = max(slow.path, key=lambda name: slow.path[name] - best.path.get(name, 0.0))
        assert one.why.startswith(f"{largest} +")


def test_a_limit_of_nothing_is_met_by_nothing() -> None:
    """No layout misses it by a factor, and no warning is printed."""
    fix = {**FIX, "parallelism.pp": 1, "parallelism.tp": 8}
    limits: tuple[dict[str, Any], ...] = ({"deadline_s": 0.0}, {"budget": 0.0})
    for limit in limits:
        found = plan(small(**PRICED), fix=fix, audit=0, jobs=1, **limit)
        assert not found.choices
        assert found.nearest is None


def test_a_token_budget_that_is_fixed_or_varied_is_the_one_that_limits_count() -> None:
    fix = {**FIX, "parallelism.pp": 1, "parallelism.tp": 8, "parallelism.zero": 1}
    asked: dict[str, Any] = {"top": 8, "audit": 0, "jobs": 1}
    one = plan(small(**PRICED), fix=fix, **asked).choices[0]
    assert one.days is not None
    assert one.price is not None
    tokens = small(**PRICED).training.tokens
    assert tokens is not None
    shorter = plan(
        small(**PRICED),
        fix={**fix, "training.tokens": tokens / 100},
        deadline_s=one.days * 86400 / 50,
        **asked,
    )
    assert shorter.choices[0].days == pytest.approx(one.days / 100, rel=1e-9)
    assert shorter.choices[0].price == pytest.approx(one.price / 100, rel=1e-9)
    none = plan(
        small(),
        fix={**fix, "training.tokens": 1e9},
        objective="days",
        vary={"training.seq_length": [1024]},
        **asked,
    )
    assert none.choices


def test_each_choice_counts_the_days_and_the_price_of_its_own_token_budget() -> None:
    fix = {**FIX, "parallelism.pp": 1, "parallelism.tp": 8, "parallelism.zero": 1, "training.micro_batch": 1}
    vary = {"training.tokens": [1e9, 3e9]}
    few, many = plan(small(**PRICED), fix=fix, vary=vary, objective="days", top=2, audit=0, jobs=1).choices
    assert (few.settings["training.tokens"], many.settings["training.tokens"]) == (1e9, 3e9)
    assert few.days is not None
    assert few.price is not None
    assert many.days == pytest.approx(3 * few.days, rel=1e-9)
    assert many.price == pytest.approx(3 * few.price, rel=1e-9)
