"""torchtitan's experts: tokens of all tensor-parallel ranks are gathered, each branch is a GEMM."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from refusals import refused_at
from small_experts import expert_collectives, with_experts
from small_scenarios import every_op, lowered

from stepsim.sim.program.program import Collective, Compute
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software.presets import get_software
from stepsim.sim.simulate import simulate

SPLIT: dict[str, Any] = {"tp": 4, "etp": 4, "ep": 2, "microbatches": 1}
"""Experts that all ranks of a tensor-parallel group share."""


def run_of(gathers: bool, **fields: Any) -> Scenario:
    return with_experts(experts_gather_tokens=gathers, **{**SPLIT, **fields})


def moved(run: Scenario, axis: str) -> float:
    works = [op.work for op in expert_collectives(lowered(run), axis) if op.name != "token counts"]
    return sum(work.transfer.bytes for work in works if isinstance(work, Collective))


def times_of(run: Scenario) -> Counter[str]:
    found: Counter[str] = Counter()
    for op, count in every_op(lowered(run).programs.classes[0]):
        found[op.name] += count
    return found


def test_ranks_that_share_an_expert_each_exchange_the_rows_of_all() -> None:
    own, all_rows = run_of(False), run_of(True)
    assert moved(all_rows, "ep") == pytest.approx(4 * moved(own, "ep"))
    assert moved(own, "etp") > 0
    assert moved(all_rows, "etp") == 0
    passes = own.model.num_layers
    found = times_of(all_rows) - times_of(own)
    for name in ("token all_gather", "token reduce_scatter"):
        assert found[name] == passes
    for name in ("token gradient all_gather", "token gradient reduce_scatter"):
        assert found[name] == passes


def flops_of(run: Scenario, name: str) -> float:
    ops = every_op(lowered(run).programs.classes[0])
    return sum(
        n * op.work.flops for op, n in ops if op.name.startswith(name) and isinstance(op.work, Compute)
    )


def test_experts_multiply_the_same_rows_either_way() -> None:
    """Rows that are gathered as tokens or as rows are the same rows."""
    assert flops_of(run_of(True), "expert fc") == flops_of(run_of(False), "expert fc") > 0


def test_the_router_sees_the_tokens_of_all() -> None:
    assert flops_of(run_of(True), "router") == pytest.approx(4 * flops_of(run_of(False), "router"))


def test_ranks_that_share_no_expert_send_their_own_rows() -> None:
    """torchtitan's reorderer splits what the router chose (ReordererSequenceParallel)."""
    own, gathered = (run_of(gathers, etp=1, ep=8) for gathers in (False, True))
    assert moved(own, "ep") == moved(gathered, "ep")
    assert times_of(gathered)["token all_gather"] == own.model.num_layers


def test_shared_experts_gather_the_tokens_themselves() -> None:
    shared = {"shared_expert_ffn_hidden_size": 512}
    found = times_of(run_of(True, **shared))
    assert found["token all_gather"] == 0
    assert found["fc1 all_gather"] > 0


def test_without_tensor_parallelism_nothing_is_gathered() -> None:
    one, other = (run_of(gathers, tp=1, etp=1, ep=8) for gathers in (False, True))
    assert simulate(one).step_time_s == simulate(other).step_time_s


def test_folded_and_unfolded_agree() -> None:
    run = run_of(True)
    assert simulate(run).step_time_s == pytest.approx(simulate(run, fold=False).step_time_s, rel=1e-9)


def test_experts_shared_by_some_of_the_ranks_are_refused() -> None:
    with refused_at("software.exchange.experts_gather_tokens"):
        simulate(run_of(True, etp=2))


def test_torchtitan_gathers() -> None:
    assert get_software("torchtitan-2025").exchange.experts_gather_tokens
    assert get_software("torchtitan-2025").kernels.split_expert_gate
    assert not get_software("megatron-core-2025").exchange.experts_gather_tokens


def test_branches_of_experts_gates_may_be_products_of_their_own() -> None:
    """Of half the columns each, and as many operations; input gradients are added: read two, write one."""
    one, two = (run_of(False, split_expert_gate=split) for split in (False, True))
    for product in ("expert fc1", "expert fc2"):
        assert flops_of(one, product) == flops_of(two, product) > 0
    added = sum(
        op.work.bytes * count
        for op, count in every_op(lowered(two).programs.classes[0])
        if op.name == "row gradient add" and isinstance(op.work, Compute)
    )
    rows = two.training.seq_length * 2  # of all ranks that share an expert
    assert added == 3.0 * rows * two.model.hidden_size * 2 * two.model.num_layers
    assert times_of(one)["row gradient add"] == 0


@pytest.mark.parametrize(("gathers", "ranks"), [(False, 1), (True, 4)])
def test_tokens_are_read_once_and_written_for_each_expert_that_they_go_to(gathers: bool, ranks: int) -> None:
    """Of a rank's own tokens, or of those of all four ranks that share an expert; on the way out and back,
    forward and backward."""
    run = run_of(gathers)
    assert run.model.moe is not None
    tokens = ranks * run.training.seq_length / run.parallelism.tp
    rows = tokens + tokens * run.model.moe.topk
    expected = rows * run.model.hidden_size * 2 * run.model.num_layers
    for name in ("permute", "permute backward", "unpermute", "unpermute backward"):
        ops = every_op(lowered(run).programs.classes[0])
        found = sum(n * op.work.bytes for op, n in ops if op.name == name and isinstance(op.work, Compute))
        assert found == pytest.approx(expected)
