"""Questions of many predictions: what is found is the extreme value, sweeps predict what run does."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from small_plans import DOCUMENT, FIX, small
from typer.testing import CliRunner

import stepsim
from stepsim.cli.main import app
from stepsim.sim.brief.step import brief_step
from stepsim.sim.plan.axis_values import fixed, varied
from stepsim.sim.plan.questions import sensitivity as faster
from stepsim.sim.plan.questions.find import FoundValue, Tried, _fewest, _largest, find
from stepsim.sim.plan.questions.scaling import Scaled, scaling
from stepsim.sim.plan.questions.sensitivity import faster_parts
from stepsim.sim.plan.search.findings import Findings
from stepsim.sim.plan.search.plan import Means, candidates_of, wishes_of
from stepsim.sim.plan.search.shown import layout_figures
from stepsim.sim.report import captions
from stepsim.sim.report.plan.sensitivity import print_sensitivity, sensitivity_svg
from stepsim.sim.report.plan.sweep import layout_sweep_svg, print_layout_sweep
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

WISHES = wishes_of(top=1, objective="step-time", deadline_s=None, budget=None, fits=0.9, audit=0)
IN_TIME = wishes_of(top=1, objective="step-time", deadline_s=1e9, budget=None, fits=0.9, audit=0)
LARGE = {"training__seq_length": 65536, "training__global_batch": 8}


def found(what: str, **asked: object) -> FoundValue:
    vary = asked.pop("vary", {})
    return find(what, small(**{**LARGE, **asked}), FIX, vary, WISHES, means=Means(jobs=1))  # type: ignore[arg-type]


def fits(**changes: object) -> bool:
    among, _ = candidates_of(small(**changes), FIX, {}, lambda _: None)
    return bool((among.fit_probability >= 0.9).any())


def test_the_longest_sequence_fits_and_the_next_does_not() -> None:
    answer = found("seq_length")
    assert answer.value is not None
    eighth = (1 << (answer.value.bit_length() - 1)) // 8
    assert fits(**{**LARGE, "training__seq_length": answer.value})
    assert not fits(**{**LARGE, "training__seq_length": answer.value + eighth})


def test_the_largest_microbatch_is_that_of_all_divisors() -> None:
    answer = found("micro_batch", training__seq_length=16384)
    divisors = [size for size in range(1, 9) if 8 % size == 0]
    good = []
    for size in divisors:
        asked = small(**{**LARGE, "training__seq_length": 16384})
        among, _ = candidates_of(asked, FIX, {"training.micro_batch": [size]}, lambda _: None)
        good += [size] if (among.fit_probability >= 0.9).any() else []
    assert answer.value == max(good)


def test_the_fewest_gpus_fit_and_fewer_that_were_tried_do_not() -> None:
    answer = found("gpus", training__seq_length=32768)
    assert answer.value is not None
    assert all(one.good == (one.value >= answer.value) for one in answer.tried)
    assert any(not one.good for one in answer.tried)


@given(
    gpus=st.sampled_from([2, 4, 8, 16, 24, 32, 40, 48, 96, 1024]),
    per_node=st.sampled_from([4, 8]),
    least=st.integers(1, 600),
    none=st.sets(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 24, 32, 64, 128, 256, 512])),
)
def test_sizes_that_no_layout_has_hide_no_smaller_one_that_will_do(
    gpus: int, per_node: int, least: int, none: set[int]
) -> None:
    """``least`` GPUs are enough, and no layout has the sizes in ``none``: the answer is no larger than the
    least power of two, of GPUs or of hosts, that will do."""
    legal = {size for size in range(1, 2049) if (size % per_node == 0 or size < per_node)} - {*none} | {gpus}

    def tried(value: int) -> Tried:
        known = value in legal
        return Tried(
            value=value,
            good=known and value >= least,
            legal=int(known),
            fit=int(known and value >= least),
            settings={},
            peak_bytes=1.0,
            capacity_bytes=1.0,
        )

    answer = _fewest(tried, gpus, per_node)
    powers = {1 << k for k in range(11)} | {per_node << k for k in range(8)}
    wanted = min(size for size in {*powers, gpus} if size in legal and size >= least)
    assert answer is not None
    assert tried(answer).good
    assert answer <= wanted


def test_the_values_to_try_may_be_given() -> None:
    answer = found("gpus", vary={"cluster.gpus": [1, 4, 8]}, training__seq_length=32768)
    assert {one.value for one in answer.tried} <= {1, 4, 8}


def test_a_deadline_takes_as_many_gpus_as_it_needs() -> None:
    base = small(training__tokens=1e9)
    days = stepsim.plan(base, fix=FIX, top=1, audit=0, jobs=1).choices[0].days
    assert days is not None
    late = wishes_of(
        top=1, objective="step-time", deadline_s=86400 * days * 1.01, budget=None, fits=0.9, audit=0
    )
    answer = find("gpus", base, FIX, {"cluster.gpus": [4, 8, 16]}, late, means=Means(jobs=1))
    assert answer.value == 8
    assert answer.best is not None
    assert answer.best.step_time_s is not None


def test_what_cannot_be_found_is_refused() -> None:
    with pytest.raises(ValueError, match="seq_length"):
        found("layers")


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


@pytest.mark.parametrize(("values", "words"), [([], "no value"), (8, "a list"), ("8,16", "a list")])
def test_what_is_varied_is_a_list_of_values(values: object, words: str) -> None:
    with pytest.raises(ValueError, match=rf"cluster.gpus: .*{words}"):
        stepsim.plan(DOCUMENT, vary={"cluster.gpus": values}, jobs=1)  # type: ignore[dict-item]


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


def test_faster_parts_gain_and_name_themselves() -> None:
    answer = stepsim.sensitivity(DOCUMENT, replan=False)
    assert {one.name for one in answer.parts} == set(faster_parts(small()))
    gains = [answer.gain(one) or 0.0 for one in answer.parts]
    assert min(gains) >= 1 - 1e-9
    assert gains[0] > 1
    assert gains == sorted(gains, reverse=True)


def test_faster_parts_of_a_layout_that_does_not_fit_say_so() -> None:
    def told(document: Mapping[str, object]) -> str:
        answer = stepsim.sensitivity(document, replan=False)
        assert answer.to_dict()["fits"] is answer.fits
        console = Console(file=io.StringIO(), width=120)
        print_sensitivity(answer, console)
        return console.file.getvalue()  # type: ignore[attr-defined]

    long = {**DOCUMENT["training"], "seq_length": 1 << 18}
    assert "the layout as it is does not fit: it takes" in told({**DOCUMENT, "training": long})
    assert "the layout as it is" not in told(DOCUMENT)


@pytest.mark.slow
def test_replanned_parts_compare_with_the_best_layout_as_it_is() -> None:
    document = {**DOCUMENT, "training": {**DOCUMENT["training"], "global_batch": 8}}
    answer = stepsim.sensitivity(document, {"cluster.gpus": 2, "parallelism.pp": 1, "schedule": None})
    assert answer.planned_s is not None
    assert answer.step_time_s is not None
    assert answer.planned_s <= answer.step_time_s
    gains = [answer.gain_replanned(one) for one in answer.parts]
    assert all(gain is not None and gain >= 1 - 1e-9 for gain in gains)


@pytest.mark.parametrize("part", ["nic", "nvlink", "hbm", "peak"])
def test_each_part_as_it_is_changes_nothing_and_twice_each_all(part: str) -> None:
    """Times one is the step as it is; all parts twice as fast are as fast as any of them at least."""
    base = small()
    as_is = brief_step(base).step_time_s
    assert brief_step(small(cluster__what_if={part: 1.0})).step_time_s == as_is
    every = dict.fromkeys(["nic", "nvlink", "hbm", "peak"], 2.0)
    twice = brief_step(small(cluster__what_if={part: 2.0})).step_time_s
    assert brief_step(small(cluster__what_if=every)).step_time_s <= twice


def test_a_layout_that_is_refused_leaves_the_planned_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeRO-3 with two copies of each stage cannot be predicted; what is planned anew can."""
    refused = small(schedule="dualpipe", parallelism__zero=3, software="generic-fsdp")
    with pytest.raises(ValueError, match="dualpipe"):
        stepsim.sensitivity(refused, replan=False)

    def planned(scenario: Scenario, *_: object) -> SimpleNamespace:
        choice = SimpleNamespace(figures=layout_figures(scenario.with_({"schedule": "1f1b"})), settings={})
        return SimpleNamespace(choices=(choice,))

    monkeypatch.setattr(faster, "planned_whole", planned)
    answer = stepsim.sensitivity(refused)
    assert answer.step_time_s is None
    assert "dualpipe" in answer.refused
    gains = [answer.gain_replanned(one) for one in answer.parts]
    assert all(gain is not None and gain >= 1 - 1e-9 for gain in gains)
    assert gains == sorted(gains, key=lambda gain: -(gain or 0.0))
    assert all(answer.gain(one) is None for one in answer.parts)
    assert answer.to_dict()["step_time_s"] is None
    ElementTree.fromstring(sensitivity_svg(answer))
    console = Console(file=io.StringIO(), width=120)
    print_sensitivity(answer, console)
    assert answer.refused in console.file.getvalue()  # type: ignore[attr-defined]


def test_mfu_counts_the_peak_that_is_asked_about() -> None:
    result = simulate(small(cluster__what_if={"peak": 2.0}))
    assert result.peak_flops_per_gpu == 2 * simulate(small()).peak_flops_per_gpu


def test_lines_of_fields_and_values() -> None:
    base = small()
    assert fixed(["parallelism.tp", "training.recompute=full"], base) == {
        "parallelism.tp": 2,
        "training.recompute": "full",
    }
    block = fixed(["parallelism"], base)
    assert block["parallelism.pp"] == 2
    assert "training.micro_batch" not in block
    assert varied(["cluster.gpus=64,128,64"]) == {"cluster.gpus": [64, 128]}
    for lines in (["cluster.gpus"], ["=4"], ["cluster.gpus=8", "cluster.gpus=9"]):
        with pytest.raises(ValueError, match="--vary"):
            varied(lines)


@pytest.mark.parametrize(
    "command", [["plan", "--find", "gpus"], ["plan"], ["sweep", "--replan"], ["sensitivity"]]
)
def test_what_no_prediction_can_promise_is_refused_before_the_search(command: list[str]) -> None:
    done = CliRunner().invoke(app, [command[0], "llama3-8b-h100", *command[1:], "--fits", "1"])
    assert done.exit_code == 2
    assert "no prediction is certain" in done.output


def test_the_largest_size_is_found_whatever_sizes_are_legal() -> None:
    sizes = range(1, 6)
    for legal in itertools.product((False, True), repeat=5):
        for most in range(6):
            tried = {
                size: SimpleNamespace(legal=known, good=known and size <= most)
                for size, known in zip(sizes, legal, strict=True)
            }
            good = [size for size in sizes if tried[size].good]
            found = _largest(cast(Any, tried.__getitem__), sizes)
            assert found == max(good, default=None)


@pytest.mark.parametrize(
    "question",
    [
        lambda: stepsim.sensitivity(small(), means=Means(jobs=1)),
        lambda: stepsim.sweep(small(), {"training.micro_batch": [1, 2]}, replan=True, jobs=1),
        lambda: find(
            "gpus", small(training__tokens=1e9), FIX, {"cluster.gpus": [4, 8]}, IN_TIME, means=Means(jobs=1)
        ),
    ],
    ids=["sensitivity", "sweep", "find"],
)
def test_an_interrupt_ends_a_question_of_several_plans(
    question: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan by itself would show its best so far; here the next one would begin as if nothing had been."""
    searched, whole = [], Findings.run

    def stopped(self: Findings) -> None:
        whole(self)
        searched.append(self)
        self.certificate = replace(self.certificate, interrupted=True)

    monkeypatch.setattr(Findings, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        question()
    assert len(searched) == 1


def test_a_sweep_that_plans_nothing_is_not_asked_how_surely_it_should_fit(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT), encoding="utf-8")
    words = ["sweep", str(path), "--set", "training.micro_batch=1,2", "--fits", "0.5"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "--replan" in refused.output
    assert CliRunner().invoke(app, [*words[:-1], "0.9"]).exit_code == 0
