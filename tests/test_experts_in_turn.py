"""Tokens whose experts follow one another: which ranks and hosts they visit, how long exchanges take."""

from __future__ import annotations

import pytest
from small_experts import expert_collectives, with_experts
from small_scenarios import lowered

from stepsim.sim.lowering.layers.experts import experts_of
from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.network.token_exchange import Router, visited_in_turn, visits
from stepsim.sim.program.program import Collective


@pytest.mark.parametrize(
    ("experts", "ranks", "domains", "visited"),
    [
        (128, 8, 1, (1.0, 1.0)),  # sixteen on a rank: the eight of a token are all there
        (256, 64, 8, (1.0, 2.0)),  # four on a rank, 32 on a host
        (384, 32, 4, (1.0, 1.0 + 1 / 3)),  # twelve on a rank: of three tokens one has two ranks
    ],
)
def test_neighbours_are_on_few_ranks(
    experts: int, ranks: int, domains: int, visited: tuple[float, float]
) -> None:
    router = Router(experts=experts, topk=8, copies=8.0, node_limit=4, in_turn=True)
    found = visits(router, GroupPlacement(ranks=ranks, domains=domains))
    assert (found.domains, found.gpus) == pytest.approx(visited)


def test_all_ranks_get_the_same() -> None:
    """Counted over tokens one by one."""
    experts, topk, ranks = 96, 7, 8
    held, tokens = experts // ranks, 96
    hits = [0] * ranks
    for token in range(tokens):
        for rank in {(token * topk + one) % experts // held for one in range(topk)}:
            hits[rank] += 1
    assert visited_in_turn(experts, topk, (1,) * ranks) == tuple(one / tokens for one in hits)
    uneven = visited_in_turn(128, 8, (2, 6))
    assert uneven == (0.25, 0.75)


@pytest.mark.parametrize(("dispatcher", "less"), [("deepep", True), ("hybridep", True), ("alltoall", False)])
def test_exchanges_by_ranks_take_less_and_those_by_rows_as_long(dispatcher: str, less: bool) -> None:
    def exchanges_s(routing: str) -> float:
        run = with_experts(
            moe_dispatcher=dispatcher, routing=routing, num_experts=64, topk=4, seq_length=8192
        )
        works = [op.work for op in expert_collectives(lowered(run), "ep")]
        return sum(work.transfer.solo_s for work in works if isinstance(work, Collective))

    in_turn, forced = exchanges_s("in_turn"), exchanges_s("forced")
    assert 0 < in_turn < 0.9 * forced if less else in_turn == forced


def test_what_a_checkpoint_replays_is_of_the_ranks_that_a_token_visits() -> None:
    def visited(routing: str) -> float:
        experts = experts_of(with_experts(routing=routing))
        assert experts is not None
        return experts.visited()

    assert visited("in_turn") < visited("forced")
