"""A step inside a search is the step: the same time and memory as ``simulate``, whatever came before it."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from compositions import build, combinations
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import layouts, scenario

from stepsim.sim.brief.search import Search
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.simulate import simulate

law = examples(12, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


def agrees(search: Search, run: Scenario) -> None:
    found, whole = search.step_of(run), simulate(run)
    assert found.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    assert found.peak_memory_bytes == pytest.approx(whole.peak_memory_bytes, rel=1e-9)
    assert found.fits == whole.fits


@law
@given(st.lists(layouts(), min_size=1, max_size=3))
def test_a_searched_step_is_the_step_of_simulate(runs: list[Scenario]) -> None:
    search = Search()
    for run in runs:
        agrees(search, run)


def test_it_leaves_nothing_to_the_garbage_collector() -> None:
    """A search of many has no pauses then, and each step's memory is free before the next begins."""
    search, run = Search(), scenario(pp=4, dp=2)
    search.step_of(run)
    gc.freeze()  # what other tests left is not looked through
    gc.disable()
    try:
        search.step_of(run)
        assert not gc.collect()
    finally:
        gc.enable()


@pytest.mark.slow
@law
@given(st.lists(combinations(experts=False), min_size=2, max_size=2))
def test_a_searched_step_is_simulates_under_every_axis_and_switch(documents: list[dict[str, Any]]) -> None:
    agrees_composed(documents)


@pytest.mark.slow
@law
@given(st.lists(combinations(experts=True), min_size=2, max_size=2))
def test_a_searched_step_is_simulates_with_experts(documents: list[dict[str, Any]]) -> None:
    agrees_composed(documents)


def agrees_composed(documents: list[dict[str, Any]]) -> None:
    search, legal = Search(), 0
    for document in documents:
        try:
            agrees(search, build(document))
        except (ScenarioError, NotSupported):
            continue
        legal += 1
    assume(legal)


def test_a_layout_takes_nothing_from_the_one_before() -> None:
    """Same pipelines on other machines, with other software and other messages between their ranks."""
    search = Search()
    base: dict[str, Any] = {"pp": 4, "schedule": "1f1b", "microbatches": 8, "hidden_size": 1024}
    for fields in (
        {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8"},
        {"gpu": "A100-SXM4-80GB"},
        {"software": "nanotron-2025"},
        {"software": "megatron-core-2025", "tp": 2},
        {"schedule": "gpipe"},
        {"schedule": "interleaved", "vpp": 2},
        {"microbatches": 400},
        {"software": "nemo-2025", "dp": 4, "cp": 2, "interconnect": "ib-ndr400-x8", "gpu": "H100-SXM5-80GB"},
    ):
        agrees(search, scenario(**base | fields))
