"""Weights of 16 bit alone: no FP32 masters beside them, and gradients, moments and checkpoints as narrow."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refused_at
from small_scenarios import ops_of, scenario

from stepsim import simulate
from stepsim.sim.lowering.sizes import checkpoint_bytes, parameters
from stepsim.sim.program.program import Compute

NARROW = {"preset": "generic-fsdp", "gradients": {"master_weights": False}}
"""A trainer whose weights are in 16 bit and have no others."""


@pytest.mark.parametrize(("zero", "dp"), [(0, 1), (0, 4), (3, 4)])
def test_without_masters_state_is_8_n(zero: int, dp: int) -> None:
    """Weights, gradients and two moments of 16 bit each, over the ranks that shard them."""
    stage = simulate(scenario(software=NARROW, zero=zero, dp=dp)).memory[0]
    share = stage.parameters / (dp if zero else 1)
    assert stage.terms["weights"] + stage.terms["optimizer"] == pytest.approx(6 * share)
    if not zero:  # sharded ones have whole ones of what is being reduced beside them
        copies = 2 if dp > 1 else 1  # buckets of DDP are as wide
        assert stage.terms["gradients"] == pytest.approx(copies * 2 * share)


def test_without_masters_an_update_moves_half_and_casts_nothing() -> None:
    def moved(software: Any) -> dict[str, float]:
        work = {op.name: op.work for op in ops_of(scenario(software=software, dp=1, zero=0))}
        return {name: one.bytes for name, one in work.items() if isinstance(one, Compute)}

    wide, narrow = moved("generic-fsdp"), moved(NARROW)
    for name in ("Adam", "clip gradients", "gradient norm"):
        assert narrow[name] == pytest.approx(wide[name] / 2)
    assert "copy parameters" in wide
    assert "copy parameters" not in narrow


def test_without_masters_a_checkpoint_is_6_n() -> None:
    run = scenario(software=NARROW, dp=1, zero=0)
    assert checkpoint_bytes(run) == 6 * parameters(run.model).total


def test_without_masters_sums_of_rows_and_columns_are_half_as_wide() -> None:
    """torch makes them as wide as gradients (optim/_adafactor.py); besides, there are weights and masters."""
    wide, narrow = (
        scenario(software=one, optimizer="adafactor", dp=1, zero=0) for one in ("generic-fsdp", NARROW)
    )
    count = parameters(wide.model).total
    assert checkpoint_bytes(wide) - 6 * count == 2 * (checkpoint_bytes(narrow) - 2 * count) > 0
    stages = [simulate(run).memory[0] for run in (wide, narrow)]
    kept = [stage.terms["optimizer"] for stage in stages]
    assert kept[0] - 4 * stages[0].parameters == pytest.approx(2 * kept[1])
    moved = [
        sum(op.work.bytes for op in ops_of(run) if op.name == "Adafactor" and isinstance(op.work, Compute))
        for run in (wide, narrow)
    ]
    assert moved[0] == pytest.approx(2 * moved[1])
    assert moved[1] > 0


def test_weights_of_32_bit_are_their_own_masters() -> None:
    wide, narrow = (
        scenario(software=one, precision="fp32", dp=1, zero=0) for one in ("generic-fsdp", NARROW)
    )
    assert simulate(wide).memory[0].terms == simulate(narrow).memory[0].terms
    assert simulate(wide).step_time_s == simulate(narrow).step_time_s


@pytest.mark.parametrize(
    "more", [{"software": {**NARROW, "sharding": {"implementation": "deepspeed"}}}, {"cpu_offload": True}]
)
def test_what_updates_32_bit_refuses_weights_without(more: dict[str, Any]) -> None:
    with refused_at("software.gradients.master_weights"):
        simulate(scenario(**{"software": NARROW, "zero": 3, "dp": 4} | more))
