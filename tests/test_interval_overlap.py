"""Intervals reach up to the step without an overlap that nobody has read in a trainer's code."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stepsim.sim.brief.step import brief_step
from stepsim.sim.evidence.interval_overlap import OVERLAP, hidden_at_most_s
from stepsim.sim.lowering.lower import lower
from stepsim.sim.result.step import Interval
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate


def scenario(preset: str, *, zero: int = 3, batch: int = 64, **gradients: Any) -> Scenario:
    document = {
        "model": {
            "num_layers": 4,
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "ffn_hidden_size": 8192,
            "vocab_size": 32000,
            "mlp": "swiglu",
        },
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 16, "interconnect": "ib-ndr400-x8"},
        "parallelism": {"tp": 1, "dp": 16, "zero": zero},
        "training": {"seq_length": 2048, "global_batch": batch, "micro_batch": 1, "precision": "bf16"},
        "software": {"preset": preset, "gradients": gradients},
    }
    return scenario_from_document(document, "overlap")


def interval_of_step(run: Scenario) -> Interval:
    interval = simulate(run).interval
    assert interval is not None
    return interval


def assumed(interval: Interval) -> list[float]:
    return [part.share * part.sigma for part in interval.parts if part.kind == OVERLAP]


@pytest.mark.parametrize("preset", ["torchtitan-2025", "maxtext-2025", "llm-foundry-2023"])
def test_nothing_is_assumed_of_code_that_was_read(preset: str) -> None:
    assert not assumed(interval_of_step(scenario(preset)))


@pytest.mark.parametrize("preset", ["generic-fsdp", "generic-jax"])
def test_who_knows_that_it_overlaps_has_the_interval_without_it(preset: str) -> None:
    wide = interval_of_step(scenario(preset))
    narrow = interval_of_step(scenario(preset, overlap_assumed="none"))
    assert len(assumed(wide)) == 1
    (part,) = (part for part in wide.parts if part.kind == OVERLAP)
    assert "software.gradients.overlap_assumed" in part.name  # the field that takes the doubt away
    assert not assumed(narrow)
    assert wide.low_s == narrow.low_s
    assert wide.high_s > narrow.high_s


def test_the_replay_without_overlap_lies_inside() -> None:
    """The very step in which buckets wait for the last backward, replayed."""
    overlapped = interval_of_step(scenario("generic-megatron", zero=1, batch=16))
    waiting = simulate(scenario("generic-megatron", zero=1, batch=16, overlap_grad_reduce=False))
    assert assumed(overlapped)
    assert waiting.step_time_s < overlapped.high_s
    assert not assumed(waiting.interval or overlapped)


@pytest.mark.parametrize("zero", [0, 1])
def test_what_is_told_hidden_is_no_less_than_what_a_replay_waits_for(zero: int) -> None:
    """With the optimizer's gather at the end of the step, which it waits for with overlap and without."""
    overlapped = simulate(scenario("generic-megatron", zero=zero, batch=16))
    waiting = simulate(scenario("generic-megatron", zero=zero, batch=16, overlap_grad_reduce=False))
    interval = overlapped.interval
    assert interval is not None
    (part,) = assumed(interval)
    told_s = overlapped.step_time_s * math.expm1(interval.quantile * part)
    assert told_s >= waiting.step_time_s - overlapped.step_time_s > 0


def test_a_stage_without_parameters_reduces_nothing() -> None:
    """Of four stages the third holds no layer and no end of the model; what the others hide still counts."""
    document = {
        "model": {
            "num_layers": 8,
            "hidden_size": 1024,
            "num_attention_heads": 8,
            "ffn_hidden_size": 4096,
            "vocab_size": 32000,
            "mlp": "gelu",
        },
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 16, "interconnect": "ib-ndr400-x8"},
        "parallelism": {"pp": 4, "dp": 4, "stage_split": [4, 4, 0, 0]},
        "training": {"seq_length": 1024, "global_batch": 32, "micro_batch": 1, "precision": "bf16"},
        "software": "generic-megatron",
    }
    run = scenario_from_document(document, "empty stage")
    plan = lower(run, build_cluster(run)).plan
    assert plan.held_parameters(2) == 0.0
    assert hidden_at_most_s(plan, 8) > 0.0
    assert simulate(run).interval is not None


def test_gathers_and_reductions_count_once_a_microbatch() -> None:
    """Twice gathered and once reduced each, but for ends that are kept: linear in microbatches, and as many
    bytes as two gathers and a reduction of all parameters come to."""
    run = scenario("generic-jax")
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
    run = scenario("generic-fsdp")
    everything = scenario("generic-fsdp", overlap_assumed="all")
    plans = [lower(one, build_cluster(one)).plan for one in (run, everything)]
    gathers, both = (hidden_at_most_s(plan, 4) for plan in plans)
    assert 0 < gathers < both


def test_a_shortened_step_says_the_same() -> None:
    run = scenario("generic-fsdp", batch=16 * 400)
    brief, whole = brief_step(run).interval, interval_of_step(run)
    assert brief.high_s == pytest.approx(whole.high_s, rel=1e-9)
    assert assumed(brief) == pytest.approx(assumed(whole), rel=1e-9)
