"""NCCL's buffers are of the communicators that programs really use, by kind of use."""

from __future__ import annotations

from typing import Any

import pytest
from compositions import build, combinations
from context_runs import run_of
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_experts import with_experts
from small_scenarios import every_op, lowered, scenario

from stepsim.sim.lowering.communicators import communicators
from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.program.program import Collective, Exchange, Program
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported

ON_NO_WIRE = {"copy", "update"}
"""Work of the host."""


def used(program: Program) -> set[str]:
    """Groups that a program communicates over; messages between stages as pp."""
    found: set[str] = set()
    for op, count in every_op(program):
        if count and isinstance(op.work, Exchange):
            found.add("pp")
        elif count and isinstance(op.work, Collective) and _on_a_wire(op.work):
            found.add(op.work.communicator.split(" ")[0])  # "dp 0" is the pair of stage 0's copies
    return found


def _on_a_wire(work: Collective) -> bool:
    return work.transfer.solo_s > 0 and work.kind not in ON_NO_WIRE


def listed(step: Lowered, r: int) -> set[str]:
    return {one.name for one in communicators(step.plan, r)}


def agrees(run: Scenario) -> None:
    step = lowered(run)
    for number, program in enumerate(step.programs.classes):
        r = number % step.plan.shape.ranks
        # the world is connected at the start
        assert listed(step, r) - {"world"} == used(program) - {"world"}, f"pipeline rank {r}"


@examples(25)
@given(st.booleans().flatmap(combinations))
def test_every_communicator_is_listed(document: dict[str, Any]) -> None:
    try:
        run = build(document)
        lowered(run)
    except (ScenarioError, NotSupported):
        return
    agrees(run)


def test_a_table_at_both_ends_has_a_communicator() -> None:
    step = lowered(scenario(pp=4, schedule="1f1b", num_layers=4, tied_embeddings=True))
    assert ["embedding" in listed(step, r) for r in range(4)] == [True, False, False, True]


def test_experts_that_ranks_of_tp_hold_apart() -> None:
    run = with_experts(ep=1, tp=4, etp=1)
    assert "edp" in listed(lowered(run), 0)


@pytest.mark.parametrize(("comm", "messages"), [("p2p", True), ("a2a", True), ("all_gather", False)])
def test_a_ring_has_the_buffers_of_messages(comm: str, messages: bool) -> None:
    step = lowered(run_of(comm, 8, gpus_per_node=4))
    (cp,) = (one for one in communicators(step.plan, 0) if one.name == "cp")
    assert bool(cp.shared) == messages


def test_hierarchical_has_two_groups() -> None:
    assert {"cp.heads", "cp.ring"} == {n for n in listed(lowered(run_of("p2p", 8, 2)), 0) if "cp" in n}
