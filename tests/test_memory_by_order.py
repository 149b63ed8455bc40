"""What a rank holds at most follows from the order of its actions: what the replay has, without it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from compositions import build, combinations
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import layouts, scenario

from stepsim.sim.brief.memory import enough_microbatches, memory_by_order
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.simulate import simulate

law = examples(12, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
COUNTS = st.sampled_from([1, 3, 5, 11])
"""Of the microbatches that are drawn: from steps that never fill a pipeline to steps that are shortened."""


def agrees(run: Scenario) -> None:
    """Both ends are the replay's bill, or hosts make the difference between them."""
    found, whole = memory_by_order(run), simulate(run).memory
    for low, high, one in zip(found.low, found.high, whole, strict=True):
        for name, size in one.terms.items():
            if name == "in flight":
                assert low.terms[name] <= size * (1 + 1e-9)
                assert size <= high.terms[name] * (1 + 1e-9)
            else:
                assert low.terms[name] == high.terms[name] == pytest.approx(size, rel=1e-9, abs=1.0)
        assert (high.static_bytes, high.parameters) == (one.static_bytes, one.parameters)
        assert high.layers_in_flight == one.layers_in_flight
        if not one.terms["in flight"]:
            assert high.peak_action == one.peak_action
            assert high.peak_bytes == pytest.approx(one.peak_bytes, rel=1e-9)


def agrees_composed(document: dict[str, Any], count: int) -> None:
    document["training"]["global_batch"] *= count
    try:
        agrees(build(document))
    except (ScenarioError, NotSupported):
        assume(False)


@law
@given(layouts(), COUNTS)
def test_memory_by_order_is_that_of_the_replay(run: Scenario, count: int) -> None:
    training = run.training.model_copy(update={"global_batch": run.training.global_batch * count})
    try:
        agrees(run.model_copy(update={"training": training}))
    except (ScenarioError, NotSupported):
        assume(False)


@pytest.mark.slow
@law
@given(combinations(experts=False), COUNTS)
def test_memory_by_order_is_the_replays_under_every_axis_and_switch(
    document: dict[str, Any], count: int
) -> None:
    agrees_composed(document, count)


@pytest.mark.slow
@law
@given(combinations(experts=True), COUNTS)
def test_memory_by_order_is_the_replays_with_experts(document: dict[str, Any], count: int) -> None:
    agrees_composed(document, count)


def test_a_long_step_takes_what_a_short_one_does() -> None:
    run = scenario(pp=4, vpp=2, schedule="interleaved", microbatches=400, software="megatron-core-2025")
    assert enough_microbatches(run) < 40
    agrees(run)
    assert all(math.isnan(stage.peak_s) for stage in memory_by_order(run).high)


def test_what_holds_every_microbatch_is_not_shortened() -> None:
    run = scenario(pp=4, schedule="gpipe", microbatches=40)
    assert enough_microbatches(run) == 40
    agrees(run)


def test_hosts_that_run_ahead_make_a_range() -> None:
    """nanotron's collectives leave their buffers to the stream that used them."""
    run = scenario(
        pp=2,
        tp=4,
        schedule="1f1b",
        microbatches=60,
        software="nanotron-2025",
        interconnect="efa-3200",
        gpu="H100-SXM5-80GB",
        hidden_size=2048,
        seq_length=4096,
    )
    found = memory_by_order(run)
    assert not found.exact
    assert found.low[0].peak_bytes < found.high[0].peak_bytes
    agrees(run)
