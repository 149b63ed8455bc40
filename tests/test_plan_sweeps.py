"""Sweeps over fields predict what ``stepsim run`` predicts, and say how a job scales."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from small_plans import DOCUMENT, small
from typer.testing import CliRunner

import stepsim
from stepsim.cli.main import app
from stepsim.sim.plan.questions.scaling import Scaled, scaling
from stepsim.sim.report import captions
from stepsim.sim.report.plan.sweep import layout_sweep_svg, print_layout_sweep
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.simulate import simulate


def test_a_sweep_over_nothing_says_how_a_field_is_swept() -> None:
    with pytest.raises(ValueError, match=r"--set cluster\.gpus=64,128"):
        stepsim.sweep(DOCUMENT, {}, jobs=1)


def test_a_sweep_predicts_what_run_does() -> None:
    axes = {"training.micro_batch": [1, 2, 3], "cluster.gpus": [8, 16]}
    swept = stepsim.sweep(DOCUMENT, axes, jobs=1)
    assert [(*point.values.values(),) for point in swept.points] == list(itertools.product(*axes.values()))
    for point in swept.points:
        micro_batch, gpus = point.values.values()
        if micro_batch == 3:
            assert point.figures is None
            assert "micro_batch" in point.refused or "global_batch" in point.refused
            continue
        assert point.figures is not None
        alone = small(training__micro_batch=micro_batch, cluster__gpus=gpus)
        assert point.figures.step_time_s == pytest.approx(simulate(alone).step_time_s, rel=1e-9)
        assert point.figures.mfu == pytest.approx(simulate(alone).mfu, rel=1e-9)
    assert len(swept.frame) == 6
    assert "8 to 16 GPUs" in swept.scaling.strong


def test_a_sweep_does_not_hang_on_its_workers() -> None:
    axes = {"training.micro_batch": [1, 2, 4, 8]}
    assert stepsim.sweep(DOCUMENT, axes, jobs=1).to_dict() == stepsim.sweep(DOCUMENT, axes, jobs=2).to_dict()


@pytest.mark.parametrize(
    ("varied", "said"),
    [
        ((), "custom on 8 × A100-SXM4-80GB"),
        (("cluster.gpus",), "custom on A100-SXM4-80GB"),
        (("cluster.gpu",), "custom on 8 GPUs"),
        (("cluster.gpu", "cluster.gpus"), "custom"),
    ],
)
def test_a_heading_claims_nothing_of_what_is_varied(varied: tuple[str, ...], said: str) -> None:
    assert captions.subject(small(), varied) == said


def test_a_sweep_over_gpus_is_headed_by_no_number_of_them() -> None:
    swept = stepsim.sweep(DOCUMENT, {"cluster.gpus": [8, 16]}, jobs=1)
    console = Console(file=io.StringIO(), width=120)
    print_layout_sweep(swept, console)
    assert console.file.getvalue().splitlines()[0] == "custom on A100-SXM4-80GB"  # type: ignore[attr-defined]
    assert "8 ×" not in layout_sweep_svg(swept)


def test_a_sweep_over_gpus_and_their_kinds_says_whose_scaling_it_tells() -> None:
    axes: dict[str, list[Any]] = {
        "cluster.gpus": [2, 4],
        "cluster.gpu": ["H100", "H200"],
        "training.tokens": [1e12],
    }
    found = stepsim.sweep("llama3-8b-h100", axes)
    assert found.scaling.strong.startswith("strong scaling, gpu H100, 2 to 4 GPUs: ")
    shown = io.StringIO()
    print_layout_sweep(found, Console(file=shown, width=160))
    _, held, _, columns, *_ = shown.getvalue().splitlines()
    assert held.strip() == "tokens 1,000,000,000,000"  # one value is no column
    assert columns.split()[:3] == ["gpus", "gpu", "step"]


def test_a_sweep_tells_what_tokens_cost_where_prices_are_known() -> None:
    priced = stepsim.sweep(
        DOCUMENT,
        {"cluster.gpus": [8, 16]},
        {"cluster.price_per_gpu_hour": 2.5, "cluster.currency": "EUR"},
        jobs=1,
    )
    console = Console(file=io.StringIO(), width=160)
    print_layout_sweep(priced, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for point, told in zip(priced.points, priced.to_dict()["points"], strict=True):
        assert point.figures is not None
        per_step = point.gpus * point.figures.step_time_s / 3600 * 2.5
        assert told["price_per_step"] == pytest.approx(per_step)
        assert told["price_per_trillion_tokens"] == pytest.approx(per_step / point.tokens_per_step * 1e12)
        assert f"{told['price_per_trillion_tokens']:,.0f} EUR" in shown
    unpriced = stepsim.sweep(DOCUMENT, {"cluster.gpus": [8]}, jobs=1)
    assert unpriced.to_dict()["points"][0]["currency"] is None
    console = Console(file=io.StringIO(), width=160)
    print_layout_sweep(unpriced, console)
    assert "cost" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_sweep_over_no_field_or_no_list_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"x\.y: "):
        stepsim.sweep(DOCUMENT, {"x.y": [8, 16]}, jobs=1)
    with pytest.raises(ValueError, match=r"^cluster\.gpus: "):
        stepsim.sweep(DOCUMENT, {"cluster.gpus": 8}, jobs=1)  # type: ignore[dict-item]


def test_replanned_points_are_no_slower() -> None:
    axes = {"training.global_batch": [16, 32]}
    few = {"cluster.gpus": 4}
    as_is = stepsim.sweep(DOCUMENT, axes, few, jobs=1)
    anew = stepsim.sweep(DOCUMENT, axes, few, replan=True, jobs=1)
    for old, new in zip(as_is.points, anew.points, strict=True):
        assert old.figures is not None
        assert new.figures is not None
        assert new.figures.step_time_s <= old.figures.step_time_s
        assert new.settings["parallelism.tp"] in (1, 2, 4)
    chosen = [new.settings["parallelism.tp"] for new in anew.points]
    assert anew.frame["parallelism.tp"].tolist() == chosen
    assert anew.frame["training.global_batch"].tolist() == [16, 32]
    assert "parallelism.tp" not in as_is.frame


@given(st.integers(1, 64), st.floats(0.1, 100.0), st.integers(2, 16), st.floats(0.1, 1.0))
def test_scaling_is_one_where_time_falls_as_gpus_grow(
    gpus: int, step_s: float, more: int, efficiency: float
) -> None:
    first = Scaled(gpus=gpus, tokens=1e6, step_time_s=step_s)
    last = Scaled(gpus=more * gpus, tokens=1e6, step_time_s=step_s / more / efficiency)
    told = float(scaling([last, first]).strong.rpartition("efficiency")[2].removesuffix("%"))
    assert told == pytest.approx(100 * efficiency, abs=0.0501)
    assert not scaling([first, last]).weak
    assert not scaling([first]).strong


def test_a_sweep_that_plans_nothing_is_not_asked_how_surely_it_should_fit(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT), encoding="utf-8")
    words = ["sweep", str(path), "--set", "training.micro_batch=1,2", "--fits", "0.5"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "--replan" in refused.output
    assert CliRunner().invoke(app, [*words[:-1], "0.9"]).exit_code == 0
