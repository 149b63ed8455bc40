"""Hierarchical (2-D): rings within each node over whole shares, rings between nodes over one share of the L.

A reduce_scatter runs within the nodes, then along the L rails between them; an all_gather the other
way round; an all_reduce is RS within, all_reduce on the rail, AG within. Whole nodes only.

References:
    Cho et al. 2019, "BlueConnect"; Jia et al. 2018, "Highly scalable deep learning training system with
    mixed-precision", section 3.3; the 2-D ring of TPU and torus systems is the same with p x q ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.loads import Loads
from ..transfers.plan import TransferPlan, in_sequence
from ..transfers.rings import ring_all_gather, ring_flows, ring_reduce_scatter
from ..transfers.transfer import PeerTransfer, PieceTransfer


def all_gather(group: RankGroup) -> TransferPlan:
    """(N-1) + (L-1) steps; (L-1)/L payloads within the node, (N-1)/n between nodes."""
    return _plan(CollectiveKind.ALL_GATHER, group)


def reduce_scatter(group: RankGroup) -> TransferPlan:
    """(L-1) + (N-1) steps; (L-1)/L payloads within the node, (N-1)/n between nodes."""
    return _plan(CollectiveKind.REDUCE_SCATTER, group)


def all_reduce(group: RankGroup) -> TransferPlan:
    """2(L-1) + 2(N-1) steps; 2(L-1)/L payloads within the node, 2(N-1)/n between nodes."""
    return in_sequence(CollectiveKind.ALL_REDUCE, reduce_scatter(group), all_gather(group))


def _plan(collective: CollectiveKind, group: RankGroup) -> TransferPlan:
    """Piece a·L+i belongs to local rank i of node a: a rail's pieces are every L-th."""
    n, local, nodes = group.ranks, group.local, group.nodes
    gathers = collective is CollectiveKind.ALL_GATHER
    ring = ring_all_gather if gathers else ring_reduce_scatter
    within_from, between_from = (nodes - 1, 0) if gathers else (0, local - 1)
    shares = [range(i, n, local) for i in range(local)]

    def transfers() -> Iterator[PieceTransfer]:
        for node in range(nodes):
            yield from ring(group.members(node), shares, within_from)
        for i in range(local):
            rail = group.rail(i)
            yield from ring(rail, [range(rank, rank + 1) for rank in rail], between_from)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        node, place = divmod(rank, local)
        yield from ring_flows(group.members(node), place, Fraction(1))
        yield from ring_flows(group.rail(place), node, Fraction(1, local))

    return TransferPlan(
        collective=collective,
        group=group,
        pieces=n,
        steps=local - 1 + nodes - 1,
        transfers=transfers,
        peers=peers,
    )


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """Steps, and payloads through the busiest NVLink and NIC, of one round or, for an all_reduce, of two."""
    rounds, local, nodes = 2 if collective is CollectiveKind.ALL_REDUCE else 1, group.local, group.nodes
    return Loads(
        steps=rounds * (local - 1 + nodes - 1),
        network_steps=rounds * (nodes - 1),
        local=Fraction(rounds * (local - 1), local),
        network=Fraction(rounds * (nodes - 1), group.ranks),
    )


ALGORITHM = Algorithm(
    name="hierarchical",
    title="Hierarchical (2-D rings)",
    loads_of=loads,
    plans={
        CollectiveKind.ALL_REDUCE: all_reduce,
        CollectiveKind.ALL_GATHER: all_gather,
        CollectiveKind.REDUCE_SCATTER: reduce_scatter,
    },
    in_phases=True,
    place=30,
)
