"""Rows that DeepEP brings, where torch's indexing says which expert they are for: the host waits for them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from small_experts import with_experts
from small_scenarios import lowered

from stepsim.sim.program.program import Block, Compute, RepeatedBlocks
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

INDEXED: dict[str, Any] = {"moe_dispatcher": "deepep", "arrivals_indexed_by_torch": True}
PAIRS: dict[str, Any] = {
    "moe_a2a_overlap": True,
    "pp": 2,
    "vpp": 2,
    "schedule": "interleaved",
    "microbatches": 8,
}


def blocks(run: Scenario) -> list[Block]:
    works = (op.work for op in lowered(run).programs.classes[0].ops)
    return [block for work in works if isinstance(work, RepeatedBlocks) for block in work.row]


def waits(within: str = "", **fields: Any) -> set[tuple[str, str]]:
    """Ops on both sides of what the host waits for in blocks whose names have ``within``."""
    row = [one for one in blocks(with_experts(**{"host_s_per_kernel": 4e-5} | fields)) if within in one.name]
    return {(a.ops[-1].name, b.ops[0].name) for a, b in pairwise(row) if b.name.startswith("host has waited")}


def test_the_host_waits_for_a_dispatch_and_for_the_experts_backward() -> None:
    """Where a mask's hits are counted; NCCL's and HybridEP's rows have none, nor those of one rank."""
    arrivals = {("arrivals counted", "arrivals indexed")}
    backward = {("arrivals counted backward", "arrivals indexed backward")}
    plain = waits(moe_dispatcher="deepep")
    assert {b for _, b in plain} == {"dispatch"}
    assert waits(**INDEXED) == plain | arrivals | backward
    for other in ("alltoall", "hybridep"):
        assert waits(**INDEXED | {"moe_dispatcher": other}) == waits(moe_dispatcher=other)
    assert not waits(**INDEXED, ep=1) & (arrivals | backward)
    assert not waits(**INDEXED, cuda_graphs=True)


def test_a_capacity_says_how_many_rows_there_are_but_not_to_torch() -> None:
    assert {b for _, b in waits(**INDEXED, capacity_factor=1.0)} == {
        "arrivals indexed",
        "arrivals indexed backward",
    }


def test_a_pair_dispatches_when_the_other_microbatch_has_gone_back_through_its_experts() -> None:
    """Megatron core issues the experts' backward ahead of the dispatch, and the host waits in it."""
    row = [
        one
        for one in blocks(with_experts(**PAIRS, **INDEXED, host_s_per_kernel=4e-5))
        if "beside" in one.name
    ]
    names = [op.name for block in row for op in block.ops]
    assert (
        names.index("arrivals indexed backward") < names.index("dispatch") < names.index("dispatch backward")
    )
    assert names.index("dispatch backward") < names.index("arrivals counted")
    others = [one for one in blocks(with_experts(**PAIRS, moe_dispatcher="deepep")) if "beside" in one.name]
    first = [op.name for block in others for op in block.ops]
    assert first.index("dispatch") < first.index("expert fc2 dgrad")


@pytest.mark.parametrize("fields", [{}, PAIRS])
def test_waits_take_the_lead_of_the_host(fields: dict[str, Any]) -> None:
    """A step is as much longer as the GPU waits behind each; a host that costs nothing has none."""
    slow: dict[str, Any] = {"host_s_per_kernel": 4e-5, "seq_length": 2048} | fields
    plain = simulate(with_experts(**slow, moe_dispatcher="deepep")).step_time_s
    assert simulate(with_experts(**slow, **INDEXED)).step_time_s > 1.05 * plain
    free: dict[str, Any] = slow | {"host_s_per_kernel": 0.0}
    plain = simulate(with_experts(**free, moe_dispatcher="deepep")).step_time_s
    assert simulate(with_experts(**free, **INDEXED)).step_time_s < 1.5 * plain


def test_weights_follow_their_rows_and_their_gradients_go_ahead() -> None:
    names = [op.name for one in blocks(with_experts(moe_dispatcher="alltoall")) for op in one.ops]
    assert names.index("dispatch weights") == names.index("dispatch") + 1
    assert names.index("dispatch backward") == names.index("dispatch backward weights") + 1


@pytest.mark.parametrize("fields", [{}, {"topk": 4, "ep": 2}], ids=["rows", "tokens of all ranks"])
def test_masks_and_rows_that_torch_indexes_take_their_bytes(fields: dict[str, Any]) -> None:
    """Every expert here has a place in a mask for each token that has arrived, each row two positions."""
    run = with_experts(**INDEXED, **fields)
    ops = [op for one in blocks(run) for op in one.ops if isinstance(op.work, Compute)]
    found = {op.name: op.work.bytes for op in ops if "arrivals" in op.name and isinstance(op.work, Compute)}
    moe, tokens = run.model.moe, run.training.seq_length * run.training.micro_batch / run.parallelism.tp
    assert moe is not None
    held, rows = moe.num_experts // run.parallelism.ep, tokens * moe.topk
    came = min(rows, tokens * run.parallelism.ep)
    assert found == {
        "arrivals counted": came * (12 * held + 10 * moe.topk),
        "arrivals indexed": came * (moe.topk + 9 * held) + 100 * rows,
        "arrivals counted backward": 24 * rows + 5 * came * moe.topk,
        "arrivals indexed backward": 100 * rows,
    }
