"""Where a layer of experts makes its host wait, so that it has no lead over its GPU there."""

from __future__ import annotations

from typing import Any

import pytest
from small_experts import with_experts
from small_scenarios import lowered

from stepsim.sim.program.program import Block, RepeatedBlocks
from stepsim.sim.scenario.models import Scenario


def waits(within: str = "", **fields: Any) -> set[str]:
    """First ops behind what the host waits for in a step, in blocks whose names have ``within``."""
    run = with_experts(**{"host_s_per_kernel": 4e-5} | fields)
    found = [one for one in blocks(run) if one.name.startswith("host has waited") and within in one.name]
    return {block.ops[0].name for block in found}


def blocks(run: Scenario) -> list[Block]:
    """The blocks of a step in a row, those that are cut as their parts."""
    works = (op.work for op in lowered(run).programs.classes[0].ops)
    return [block for work in works if isinstance(work, RepeatedBlocks) for block in work.row]


def test_a_clamped_gate_makes_the_host_wait_for_an_offset_that_it_copies() -> None:
    """torch.tensor(linear_offset, device=...), behind the join and ahead of the fused function: one wait more
    a forward than for the rows of each expert. A graph holds no such copy."""
    clamped: dict[str, Any] = {"biases": True, "clamped_gate": True, "moe_dispatcher": "alltoall"}
    assert waits() == waits(**clamped, clamps_gate_apart=False) == {"dispatch"}
    assert waits(**clamped) == {"dispatch", "activation"}
    assert not waits(**clamped, cuda_graphs=True)


PAIRS: dict[str, Any] = {
    "moe_a2a_overlap": True,
    "pp": 2,
    "vpp": 2,
    "schedule": "interleaved",
    "microbatches": 8,
}


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep", "hybridep"])
def test_a_pair_waits_for_the_rows_of_its_forward_as_a_forward_alone_does(dispatcher: str) -> None:
    """Ahead of the dispatch, whose sizes they are; not where a capacity says them or a graph holds all."""
    assert waits("beside", **PAIRS, moe_dispatcher=dispatcher) == {"dispatch"}
    assert not waits(**PAIRS, moe_dispatcher=dispatcher, capacity_factor=1.0)
    assert not waits(**PAIRS, moe_dispatcher=dispatcher, cuda_graphs=True)


def test_a_pair_has_issued_the_gradients_of_rows_before_it_waits() -> None:
    """They cost the host nothing behind the wait, and the op ahead of it as much more."""
    row = [block for block in blocks(with_experts(**PAIRS, host_s_per_kernel=4e-5)) if "beside" in block.name]
    ahead, behind = row[:2]
    names = [op.name for op in behind.ops]
    issued = behind.ops[names.index("dispatch") + 1 : names.index("dispatch backward")]
    assert "expert fc2 dgrad" in [op.name for op in issued]
    assert not any(op.host_s for op in issued)
    alone = next(
        block
        for block in blocks(with_experts(**PAIRS, host_s_per_kernel=4e-5))
        if block.ops[-1].name == ahead.ops[-1].name
    )
    assert ahead.ops[-1].host_s > alone.ops[-1].host_s + 10 * 4e-5
    assert all(op.host_s for op in behind.ops[names.index("dispatch backward") :])
