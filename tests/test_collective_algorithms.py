"""Collective algorithms: their transfers, run on symbolic data, deliver what the collective promises.

Every registered algorithm, every collective that it supports, every size from 2 to 17 ranks, 24, 32 and 33,
and every way to sit on nodes; the closed forms against what the transfers move.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import pytest
from oracles.execute import execute

from stepsim.schedules import collectives
from stepsim.schedules.transfers.algorithm import Algorithm
from stepsim.schedules.transfers.collective import CollectiveKind
from stepsim.schedules.transfers.group import RankGroup
from stepsim.schedules.transfers.plan import TransferPlan
from stepsim.schedules.transfers.transfer import PeerTransfer

SIZES = (*range(2, 18), 24, 32, 33)
"""Powers of two with what is beside them, primes, squares and multiples: what algorithms tell apart. Plans
grow with the square of the ranks: sizes between these, which repeat them, would take most of the time."""

GROUPS = [
    RankGroup(local=ranks // nodes, nodes=nodes)
    for ranks in SIZES
    for nodes in range(1, ranks + 1)
    if ranks % nodes == 0
]
UNEVEN = [
    RankGroup(local=min(parts), nodes=len(parts), parts=parts)
    for parts in (
        (2, 1),
        (1, 2),
        (3, 1),
        (3, 2),
        (5, 3),
        (2, 5),
        (1, 1, 2),
        (3, 1, 2),
        (4, 4, 2),
        (2, 3, 4, 5),
    )
]
ALGORITHMS = [collectives.get(name) for name in collectives.names()]
ALL = [(algorithm, collective) for algorithm in ALGORITHMS for collective in algorithm.collectives]
NAMES = [f"{algorithm.name}-{collective}" for algorithm, collective in ALL]
ROOTED = [(algorithm, collective) for algorithm, collective in ALL if collective in ("broadcast", "reduce")]

every = pytest.mark.parametrize(("algorithm", "collective"), ALL, ids=NAMES)


def legal(algorithm: Algorithm, group: RankGroup) -> bool:
    try:
        algorithm.plan(algorithm.collectives[0], group)
    except ValueError:
        return False
    return True


def plans(algorithm: Algorithm, collective: CollectiveKind) -> list[TransferPlan]:
    found = [algorithm.plan(collective, group) for group in (*GROUPS, *UNEVEN) if legal(algorithm, group)]
    assert len(found) >= 25  # a check that refused everything would let every law pass
    return found


def moved(plan: TransferPlan) -> dict[int, tuple[PeerTransfer, ...]]:
    """Of each vertex: what its transfers send to each peer and receive from it."""
    pieces: dict[tuple[int, int], int] = defaultdict(int)
    for t in plan.transfers():
        pieces[t.source, t.target] += len(t.pieces)
    pairs = sorted({(a, b) for a, b in pieces} | {(b, a) for a, b in pieces})
    flows: dict[int, tuple[PeerTransfer, ...]] = defaultdict(tuple)
    for a, b in pairs:
        sent, received = pieces.get((a, b), 0), pieces.get((b, a), 0)
        flows[a] += (PeerTransfer(b, sent * plan.fraction, received * plan.fraction),)
    return flows


@pytest.mark.slow
@every
def test_everybody_ends_with_what_the_collective_promises(
    algorithm: Algorithm, collective: CollectiveKind
) -> None:
    """Nobody sends what it does not have yet; nothing counts twice; the steps are as many as stated."""
    for plan in plans(algorithm, collective):
        execute(plan)


@pytest.mark.slow
@every
def test_closed_forms_are_what_the_transfers_move(algorithm: Algorithm, collective: CollectiveKind) -> None:
    for plan in plans(algorithm, collective):
        flows = moved(plan)
        for rank in range(plan.group.ranks):
            assert plan.flows(rank) == flows[rank]


@every
def test_tiers_add_up(algorithm: Algorithm, collective: CollectiveKind) -> None:
    for plan in plans(algorithm, collective):
        rank = plan.group.ranks - 1
        both, local, beyond = (plan.traffic(rank, tier) for tier in (None, "local", "network"))
        assert (both.sent, both.received) == (local.sent + beyond.sent, local.received + beyond.received)
        assert plan.group.nodes > 1 or not beyond.sent


@pytest.mark.slow
@every
def test_a_message_never_goes_to_its_sender_and_carries_something(
    algorithm: Algorithm, collective: CollectiveKind
) -> None:
    for plan in plans(algorithm, collective):
        vertices = range(plan.group.network_switch + 1)
        for t in plan.transfers():
            assert t.source != t.target
            assert t.source in vertices
            assert t.target in vertices
            assert 0 < len(t.pieces) <= plan.pieces


@pytest.mark.parametrize("root", range(6))
@pytest.mark.parametrize(("algorithm", "collective"), ROOTED)
def test_any_rank_can_be_the_root(algorithm: Algorithm, collective: CollectiveKind, root: int) -> None:
    execute(algorithm.plan(collective, RankGroup(local=3, nodes=2, root=root)))


@pytest.mark.slow
@every
def test_no_fewer_bytes_than_the_bound(algorithm: Algorithm, collective: CollectiveKind) -> None:
    """Thakur et al. 2005, section 3: without a switch that reduces, some rank must receive so much."""
    for plan in plans(algorithm, collective):
        n = plan.group.ranks
        least = {
            CollectiveKind.ALL_REDUCE: Fraction(2 * (n - 1), n),
            CollectiveKind.BROADCAST: Fraction(1),
            CollectiveKind.REDUCE: Fraction(1),
            CollectiveKind.SEND_RECV: Fraction(1),
        }.get(collective, Fraction(n - 1, n))
        if any(plan.group.is_switch(flow.peer) for flow in plan.flows(0)):
            continue
        traffic = [plan.traffic(rank) for rank in range(n)]
        assert max(t.received for t in traffic) >= least
        assert max(t.sent for t in traffic) >= least
