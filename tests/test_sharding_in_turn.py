"""Parameters that a layer gathers in its own turn, and gradients whose reduction it waits for."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import every_op, lowered

from stepsim.sim.program.program import Collective
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def run(preset: str = "generic-fsdp", *, dp: int = 16, zero: int = 3, **software: Any) -> Scenario:
    document = {
        "model": {"num_layers": 4, "hidden_size": 2048, "num_attention_heads": 16, "vocab_size": 32000}
        | {"ffn_hidden_size": 8192, "mlp": "swiglu"},
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": dp, "interconnect": "ib-ndr400-x8"},
        "parallelism": {"tp": 1, "dp": dp, "zero": zero},
        "training": {"seq_length": 2048, "global_batch": 2 * dp, "micro_batch": 1, "precision": "bf16"},
        "software": {"preset": preset, **software},
    }
    return scenario_from_document(document, "run")


def gathered_bytes(one: Scenario) -> float:
    program = lowered(one).programs.classes[0]
    return sum(
        op.work.transfer.bytes * times
        for op, times in every_op(program)
        if isinstance(op.work, Collective) and op.work.kind == "all_gather"
    )


def test_a_layer_that_gathers_in_its_own_turn_gathers_no_less_and_is_no_sooner_done() -> None:
    ahead, own = run(), run(sharding={"gathers_ahead": False})
    assert gathered_bytes(own) == pytest.approx(gathered_bytes(ahead))
    assert simulate(own).step_time_s > simulate(ahead).step_time_s


def test_a_loop_of_xla_gathers_in_its_own_turn_unless_told_to_pipeline() -> None:
    loop, told = run("generic-jax"), run("generic-jax", sharding={"gathers_ahead": True})
    assert simulate(loop).step_time_s > simulate(told).step_time_s


@pytest.mark.parametrize("zero", [2, 3])
def test_a_reduction_that_is_waited_for_makes_a_step_longer(zero: int) -> None:
    beside, waited = run(zero=zero), run(zero=zero, gradients={"overlap_grad_reduce": False})
    assert simulate(waited).step_time_s > simulate(beside).step_time_s


@pytest.mark.parametrize("zero", [2, 3])
def test_deepspeed_without_overlap_comm_runs_nothing_beside_its_collectives(zero: int) -> None:
    """They are issued on the stream that computes, so that the step is compute and communication, one after
    the other; what is gathered stays the same."""
    preset = "deepspeed-zero3-2021"
    beside, alone = run(preset, zero=zero), run(preset, zero=zero, gradients={"overlap_grad_reduce": False})
    found = simulate(alone)
    assert gathered_bytes(alone) == pytest.approx(gathered_bytes(beside))
    assert found.exposed_communication_s["dp"] == pytest.approx(communicates_s(found), rel=0.02)
    assert simulate(beside).exposed_communication_s["dp"] < 0.7 * communicates_s(found)


def communicates_s(found: Result) -> float:
    """How long the first class of ranks has a collective of data parallelism under way."""
    spans = found.spans
    moved = spans[spans["stream"] == "dp"]
    return float((moved["end_s"] - moved["start_s"]).sum())


def test_where_nothing_is_sharded_there_is_nothing_to_wait_for() -> None:
    alone: dict[str, Any] = {"dp": 1, "zero": 0}
    changes: dict[str, Any] = {
        "sharding": {"gathers_ahead": False},
        "gradients": {"overlap_grad_reduce": False},
    }
    assert simulate(run(**alone, **changes)).step_time_s == simulate(run(**alone)).step_time_s


@pytest.mark.parametrize("preset", ["gpt-neox-2022", "megatron-deepspeed-2022"])
def test_deepspeed_passes_over_an_overlap_under_zero_1(preset: str) -> None:
    """Its engine says so itself; under ZeRO-0 the word is taken."""

    def step_s(zero: int, told: bool) -> float:
        gradients = {"overlap_grad_reduce": told, "bucket_elements": 4e6}
        return simulate(run(preset, zero=zero, gradients=gradients)).step_time_s

    assert step_s(1, True) == step_s(1, False)
    assert step_s(0, True) != step_s(0, False)
