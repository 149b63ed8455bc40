"""Parts of a machine made faster: what the step gains, as it is laid out and planned anew."""

from __future__ import annotations

import io
from collections.abc import Mapping
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from rich.console import Console
from small_plans import DOCUMENT, small

import stepsim
from stepsim.sim.brief.step import brief_step
from stepsim.sim.plan.questions import sensitivity as faster
from stepsim.sim.plan.questions.sensitivity import faster_parts
from stepsim.sim.plan.search.shown import layout_figures
from stepsim.sim.report.plan.sensitivity import print_sensitivity, sensitivity_svg
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


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
