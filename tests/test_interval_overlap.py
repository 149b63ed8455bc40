"""Intervals reach up to the step without an overlap that nobody has read in a trainer's code."""

from __future__ import annotations

import math
from typing import Any

import pytest
from small_scenarios import WIDE, scenario

from stepsim.sim.brief.step import brief_step
from stepsim.sim.evidence.interval_overlap import OVERLAP, hidden_at_most_s
from stepsim.sim.lowering.lower import lower
from stepsim.sim.result.step import Interval
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate


def run_of(preset: str, *, zero: int = 3, microbatches: int = 4, **gradients: Any) -> Scenario:
    return scenario(
        **WIDE | {"seq_length": 2048},
        gpu="H100-SXM5-80GB",
        interconnect="ib-ndr400-x8",
        dp=16,
        zero=zero,
        microbatches=microbatches,
        software={"preset": preset, "gradients": gradients},
    )


def interval_of_step(run: Scenario) -> Interval:
    interval = simulate(run).interval
    assert interval is not None
    return interval


def assumed(interval: Interval) -> list[float]:
    return [part.share * part.sigma for part in interval.parts if part.kind == OVERLAP]


@pytest.mark.parametrize("preset", ["torchtitan-2025", "maxtext-2025", "llm-foundry-2023"])
def test_nothing_is_assumed_of_code_that_was_read(preset: str) -> None:
    assert not assumed(interval_of_step(run_of(preset)))


@pytest.mark.parametrize("preset", ["generic-fsdp", "generic-jax"])
def test_who_knows_that_it_overlaps_has_the_interval_without_it(preset: str) -> None:
    wide = interval_of_step(run_of(preset))
    narrow = interval_of_step(run_of(preset, overlap_assumed="none"))
    assert len(assumed(wide)) == 1
    (part,) = (part for part in wide.parts if part.kind == OVERLAP)
    assert "software.gradients.overlap_assumed" in part.name  # the field that takes the doubt away
    assert not assumed(narrow)
    assert wide.low_s == narrow.low_s
    assert wide.high_s > narrow.high_s


def test_the_replay_without_overlap_lies_inside() -> None:
    """The very step in which buckets wait for the last backward, replayed."""
    overlapped = interval_of_step(run_of("generic-megatron", zero=1, microbatches=1))
    waiting = simulate(run_of("generic-megatron", zero=1, microbatches=1, overlap_grad_reduce=False))
    assert assumed(overlapped)
    assert waiting.step_time_s < overlapped.high_s
    assert not assumed(waiting.interval or overlapped)


@pytest.mark.parametrize("zero", [0, 1])
def test_what_is_told_hidden_is_no_less_than_what_a_replay_waits_for(zero: int) -> None:
    """With the optimizer's gather at the end of the step, which it waits for with overlap and without."""
    overlapped = simulate(run_of("generic-megatron", zero=zero, microbatches=1))
    waiting = simulate(run_of("generic-megatron", zero=zero, microbatches=1, overlap_grad_reduce=False))
    interval = overlapped.interval
    assert interval is not None
    (part,) = assumed(interval)
    told_s = overlapped.step_time_s * math.expm1(interval.quantile * part)
    assert told_s >= waiting.step_time_s - overlapped.step_time_s > 0


def test_a_stage_without_parameters_reduces_nothing() -> None:
    """Of four stages the third holds no layer and no end of the model; what the others hide still counts."""
    run = scenario(
        hidden_size=1024,
        num_attention_heads=8,
        ffn_hidden_size=4096,
        vocab_size=32000,
        gpu="H100-SXM5-80GB",
        interconnect="ib-ndr400-x8",
        pp=4,
        dp=4,
        stage_split=[4, 4, 0, 0],
        seq_length=1024,
        micro_batch=1,
        microbatches=8,
        software="generic-megatron",
    )
    plan = lower(run, build_cluster(run)).plan
    assert plan.held_parameters(2) == 0.0
    assert hidden_at_most_s(plan, 8) > 0.0
    assert simulate(run).interval is not None


def test_gathers_and_reductions_count_once_a_microbatch() -> None:
    """Twice gathered and once reduced each, but for ends that are kept: linear in microbatches, and as many
    bytes as two gathers and a reduction of all parameters come to."""
    run = run_of("generic-jax")
    plan = lower(run, build_cluster(run)).plan
    one, two, three = (hidden_at_most_s(plan, count) for count in (1, 2, 3))
    assert three - two == pytest.approx(two - one)
    group, elements = plan.groups["fsdp"], plan.held_parameters(0)
    whole = plan.communication.collective("all_gather", 2 * elements, group).solo_s
    assert one > 2 * whole
    asked = set(plan.communication.asked)
    hidden_at_most_s(plan, 5)
    assert set(plan.communication.asked) == asked


def test_of_torch_only_gathers_are_in_doubt() -> None:
    run = run_of("generic-fsdp")
    everything = run_of("generic-fsdp", overlap_assumed="all")
    plans = [lower(one, build_cluster(one)).plan for one in (run, everything)]
    gathers, both = (hidden_at_most_s(plan, 4) for plan in plans)
    assert 0 < gathers < both


def test_a_shortened_step_says_the_same() -> None:
    run = run_of("generic-fsdp", microbatches=1 * 400)
    brief, whole = brief_step(run).interval, interval_of_step(run)
    assert brief.high_s == pytest.approx(whole.high_s, rel=1e-9)
    assert assumed(brief) == pytest.approx(assumed(whole), rel=1e-9)
