"""Rows that torch's indexing orders around NCCL's exchange: what its kernels move and issue, and for whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from autocast_runs import COSTS
from framework_files import TITAN
from importing import scenario
from small_experts import moe_run, with_experts
from small_scenarios import every_op, lowered

from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.memory_bound import issued_per_s
from stepsim.sim.lowering.layers.indexed_rows import add_rows
from stepsim.sim.lowering.layers.layer_builder import LayerBuilder
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.strided import STRIDED
from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.program.program import Compute

SORTED = ("sort by source", "sort by expert backward")
ADDED = ("permute backward", "unpermute")


def bytes_of(low: Lowered, *names: str) -> list[float]:
    """Bytes of a layer and microbatch, name by name."""
    run = low.plan.scenario
    steps, ops = run.model.num_layers * run.num_microbatches, list(every_op(low.programs.classes[0]))
    return [
        sum(n * op.work.bytes for op, n in ops if isinstance(op.work, Compute) and op.name == name) / steps
        for name in names
    ]


def seconds_of(low: Lowered, name: str) -> float:
    return next(
        op.work.seconds
        for op, _ in every_op(low.programs.classes[0])
        if isinstance(op.work, Compute) and op.name == name
    )


def test_rows_are_added_up_into_zeros_and_put_back_by_their_index() -> None:
    low = lowered(with_experts(weighted_rows=True))
    run = low.plan.scenario
    row, tokens = 2.0 * run.model.hidden_size, run.training.seq_length
    assert bytes_of(low, *SORTED) == [2 * 2 * tokens * row, 3 * 2 * tokens * row]
    assert bytes_of(low, *ADDED) == [3 * 2 * tokens * row, (3 + 3 * 2) * tokens * row]
    zeros = ("sort by expert backward zeros", "permute backward zeros")
    assert bytes_of(low, *zeros) == [2 * tokens * row, tokens * row]
    assert bytes_of(low, "sort to put")[0] > 0


@pytest.mark.parametrize("fields", [{}, {"weighted_rows": True, "moe_dispatcher": "deepep"}])
def test_no_other_rows_are(fields: dict[str, Any]) -> None:
    assert bytes_of(lowered(with_experts(**fields)), "sort to put") == [0]


def test_rows_of_a_single_rank_have_not_arrived() -> None:
    """They are sorted by expert as they are taken, and by what else moves rows of no exchange."""
    low = lowered(moe_run("none", weighted_rows=True))
    assert bytes_of(low, "sort by expert backward zeros") == [0]
    assert bytes_of(low, "permute backward zeros")[0] > 0


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep"])
def test_indexing_does_not_ask_how_many_experts_a_rank_has(dispatcher: str) -> None:
    """torchtitan's _permute and _unpermute run for one, too, both ways; Megatron core leaves its own out."""
    names = ("sort by expert", "sort by source", "sort by source backward", "sort by expert backward")
    alone: dict[str, Any] = {"num_experts": 8, "ep": 8, "moe_dispatcher": dispatcher}
    assert all(size > 0 for size in bytes_of(lowered(with_experts(weighted_rows=True, **alone)), *names))
    assert bytes_of(lowered(with_experts(**alone)), *names) == [0] * 4


def test_rows_pass_element_by_element() -> None:
    """A kernel that puts rows issues for as long as it takes, at a rate that a GPU has for all."""
    low = lowered(with_experts(weighted_rows=True, seq_length=8192))
    put_s, choose_s = (seconds_of(low, name) for name in ("sort by source", "sort by expert"))
    assert put_s > 1.2 * choose_s  # which has three launches
    gpu = get_gpu("H100-SXM5-80GB")
    elements = 2 * low.plan.scenario.training.seq_length * low.plan.scenario.model.hidden_size
    assert put_s > STRIDED["put"].nvidia * elements / issued_per_s(gpu, load_profile(gpu.name))


def test_gradients_of_what_deepep_brings_are_added_by_atomics() -> None:
    low = lowered(with_experts(weighted_rows=True, moe_dispatcher="deepep", seq_length=8192))
    plain = lowered(with_experts(moe_dispatcher="deepep", seq_length=8192))
    name = "sort by expert backward"
    assert bytes_of(low, name) > bytes_of(plain, name)
    assert seconds_of(low, name) > 2 * seconds_of(plain, name)


def test_sums_of_rows_at_home_issue_for_each_element() -> None:
    """scatter_add's atomics, two rows for each token; zeros and their copy are kernels that bytes bound."""
    run = with_experts(weighted_rows=True)
    costs = replace(COSTS, seconds=lambda kernel: float(getattr(kernel, "instructions", 0.0)))
    builder = LayerBuilder(costs=costs, local=local_shape_of(run), software=run.software)
    add_rows(builder)
    (op,) = builder.ops
    assert isinstance(op.work, Compute)
    rows = 2 * run.training.seq_length
    assert op.work.seconds == STRIDED["scatter_add"].nvidia * rows * run.model.hidden_size


def test_rows_of_zeros_are_added_up_one_slot_after_the_other() -> None:
    """torchtitan until April 2026: 8 slots for each expert here, 0.98 us each on an H200 (decision 261)."""
    run = with_experts(weighted_rows=True, seq_length=8192)
    padded = lowered(run.with_({"software.exchange.arrivals_padded": True}))
    assert bytes_of(lowered(run), "rows of zeros", "rows of zeros backward") == [0, 0]
    experts = padded.plan.local.experts
    assert experts is not None
    assert seconds_of(padded, "rows of zeros summed") == pytest.approx(0.98e-6 * 8 * experts.held, rel=0.02)
    forward, backward = bytes_of(padded, "rows of zeros", "rows of zeros backward")
    assert backward == 1.5 * forward > 0


@pytest.mark.parametrize(
    ("version", "padded"), [("v0.2.2", True), ("2026-03-31", True), ("2026-07-01", False)]
)
def test_torchtitan_pads_until_april_2026(version: str, padded: bool) -> None:
    text = TITAN.replace('"8B"', '"30B-A3B"').replace('"llama3"', '"qwen3"')
    made = scenario({"run.toml": text}, {"gpus": "64"}, version=version)
    assert made.model.moe is not None
    assert made.software.exchange.arrivals_padded == padded
