"""The scenario's own layout beside the best: also where it has no step, or does not fit."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.console import Console
from small_plans import FIX, small

from stepsim.sim.plan.search.alternatives import why_slower
from stepsim.sim.plan.search.plan import plan
from stepsim.sim.plan.search.shown import layout_figures
from stepsim.sim.report.plan.picture import plan_svg
from stepsim.sim.report.plan.table import print_plan
from stepsim.sim.simulate import simulate

ASKED: dict[str, Any] = {"top": 1, "audit": 0, "jobs": 1}
ONE = {**FIX, "parallelism.pp": 1, "schedule": "none", "training.micro_batch": 1, "parallelism.zero": 1}
"""What leaves sizes of tp."""


def test_an_own_layout_that_is_not_modelled_says_why() -> None:
    """Adafactor sums rows and columns, which tensor parallelism cuts."""
    found = plan(small(training__optimizer="adafactor"), fix={**ONE, "parallelism.zero": 0}, **ASKED)
    assert found.choices[0].settings["parallelism.tp"] == 1
    own = found.lost[0]
    assert own.name == "your layout"
    assert "adafactor" in own.why
    assert math.isinf(own.factor)
    assert found.to_dict()["lost"][0]["factor"] is None


def test_a_plan_over_numbers_of_gpus_is_headed_by_none_of_them() -> None:
    console = Console(file=io.StringIO(), width=120)
    found = plan(small(), fix={**ONE, "parallelism.tp": 2}, vary={"cluster.gpus": [4, 8]}, **ASKED)
    print_plan(found, console, "small")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "custom on A100-SXM4-80GB" in text
    assert "8 × A100" not in text + plan_svg(found)


def test_an_own_layout_that_is_fixed_away_and_does_not_fit_says_so() -> None:
    run = small(training__seq_length=8192, training__micro_batch=8, training__global_batch=64)
    assert not simulate(run).fits
    found = plan(run, fix={**ONE, "parallelism.tp": 8}, **ASKED)
    own = found.lost[0]
    assert own.name == "your layout"
    assert not own.fits
    assert own.factor > 1
    said = {one["name"]: one["factor_of"] for one in found.to_dict()["lost"]}
    assert said == {one.name: "objective" if one.fits else "memory" for one in found.lost}
    assert said["your layout"] == "memory"


def test_the_factor_of_an_own_layout_is_that_of_the_objective() -> None:
    """A dollar of half as many GPUs buys more tokens, though their step is longer."""
    run = small(cluster__price_per_gpu_hour=2.0, training__tokens=1e9)
    found = plan(run, fix={**ONE, "cluster.gpus": 4}, objective="tokens-per-dollar", **ASKED)
    best, own = found.choices[0], found.lost[0]
    assert own.name == "your layout"
    dollars = simulate(run).step_time_s * 8 * 2.0 / 3600
    assert best.price_per_step is not None
    assert own.factor == pytest.approx(dollars / best.price_per_step, rel=1e-9)
    least = plan(run, fix={**ONE, "cluster.gpus": 4}, objective="step-time", **ASKED).choices[0].figures
    assert own.why == why_slower(least, layout_figures(run), weight=2.0)
    longer = plan(run, fix={**ONE, "cluster.gpus": 4, "training.tokens": 2e9}, objective="days", **ASKED)
    best, own = longer.choices[0], longer.lost[0]
    tokens = run.training.global_batch * run.training.seq_length
    assert best.days is not None
    assert own.factor == pytest.approx(1e9 / tokens * simulate(run).step_time_s / 86400 / best.days, rel=1e-9)
