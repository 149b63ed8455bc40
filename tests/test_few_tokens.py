"""Experts of data with a few tokens that come again and again, and experts that FSDP leaves out."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from small_experts import expert_collectives, with_experts
from small_scenarios import lowered

from stepsim.sim.lowering.layers.experts import experts_of
from stepsim.sim.lowering.layers.routing import few_tokens, rank_loads
from stepsim.sim.program.program import Collective
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.simulate import simulate


def test_the_heaviest_rank_of_few_tokens_is_that_of_all_choices() -> None:
    """Counted out: two tokens, each with any two of eight experts, two of which a rank holds."""
    pairs = list(combinations(range(8), 2))
    mean = (
        sum(
            max(
                [*first, *second].count(2 * rank) + [*first, *second].count(2 * rank + 1) for rank in range(4)
            )
            for first, second in product(pairs, pairs)
        )
        / len(pairs) ** 2
    )
    loads = few_tokens(8, 2, 4, 2).loads
    assert loads[0] == pytest.approx(mean, rel=0.02)
    assert sum(loads) == pytest.approx(4)
    assert list(loads) == sorted(loads, reverse=True)


def test_many_tokens_come_near_to_balance() -> None:
    loads = [few_tokens(64, 8, 8, tokens).loads[0] for tokens in (1, 2, 16, 256)]
    assert loads == sorted(loads, reverse=True)
    assert loads[-1] < 1.1
    assert few_tokens(64, 8, 1, 2).loads == (1.0,)


def test_all_wait_for_the_rank_with_the_most_rows() -> None:
    repeated = {"kind": "repeated", "tokens": 2}
    even, few = (with_experts(routing=spread, host_s_per_kernel=0.0) for spread in ("balanced", repeated))
    assert rank_loads(few)[0] > 2
    assert simulate(few).step_time_s > simulate(even).step_time_s
    alone = experts_of(with_experts(routing=repeated, ep=1, moe_dispatcher="alltoall"))
    assert alone is not None
    assert alone.load == 1.0
    assert alone.busiest == pytest.approx(few_tokens(16, 2, 1, 2).experts[0])


@pytest.mark.parametrize(
    "routing",
    [
        {"kind": "repeated"},
        {"kind": "repeated", "tokens": 2, "exponent": 1.0},
        {"kind": "zipf", "exponent": 1.0, "tokens": 2},
        {"kind": "repeated", "tokens": 0},
    ],
)
def test_a_spread_says_what_it_takes(routing: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError):
        with_experts(routing=routing)


SHARDED: dict[str, Any] = {
    "implementation": "fsdp2",
    "ep": 2,
    "gpus": 8,
    "zero": 3,
    "moe_dispatcher": "alltoall",
}


def state_bytes(run: Any) -> float:
    stage = simulate(run).memory[0]
    return stage.terms["weights"] + stage.terms["optimizer"]


def test_experts_outside_of_fsdp_are_whole_on_each_rank() -> None:
    """Of eight ranks, experts are spread over two; the four that hold the same ones share nothing of them."""
    sharded, whole = (with_experts(**SHARDED, experts_whole=kept) for kept in (False, True))
    experts = 4 * 8 * 3 * 256 * 512
    each = state_bytes(whole) - state_bytes(sharded)
    assert each == pytest.approx(experts * (1 - 1 / 4) * 12)  # FP32 weights and moments


def test_gradients_of_whole_experts_are_all_reduced() -> None:
    def kinds(*, kept: bool, axis: str) -> set[str]:
        found = expert_collectives(lowered(with_experts(**SHARDED, experts_whole=kept)), axis)
        return {op.work.kind for op in found if isinstance(op.work, Collective)}

    assert kinds(kept=False, axis="edp") == {"all_gather", "reduce_scatter"}
    assert kinds(kept=True, axis="edp") == set()
    assert kinds(kept=True, axis="ehsdp") == {"all_reduce"}
