"""Hierarchical all_to_all: within the node first, so that few large messages leave it, along its rail.

A rank gives each neighbour the blocks for that neighbour's rail, on all nodes; then every rank sends to
the peers on its rail what its whole node has for them: L blocks a message. Bytes between nodes stay
what they are pairwise, (N-1)/N; the messages are L times larger and L times fewer.

References:
    Rajbhandari et al. 2022, "DeepSpeed-MoE", section 5.2; NCCL's PXN (2.12) forwards the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.loads import Loads
from ..transfers.plan import TransferPlan
from ..transfers.transfer import PeerTransfer, PieceTransfer


def all_to_all(group: RankGroup) -> TransferPlan:
    """(L-1) + (N-1) steps; 1/L of the payload to each neighbour, 1/N to each peer of the rail."""
    n, local, nodes = group.ranks, group.local, group.nodes

    def within() -> Iterator[PieceTransfer]:
        for step in range(local - 1):
            for rank in range(n):
                neighbour = group.node_of(rank) * local + (rank + step + 1) % local
                blocks = range(rank * n + neighbour % local, (rank + 1) * n, local)
                yield PieceTransfer(step, rank, neighbour, blocks, False)

    def between() -> Iterator[PieceTransfer]:
        for step in range(nodes - 1):
            for rank in range(n):
                peer = (rank + (step + 1) * local) % n
                first = group.node_of(rank) * local * n + peer
                yield PieceTransfer(local - 1 + step, rank, peer, range(first, first + local * n, n), False)

    def transfers() -> Iterator[PieceTransfer]:
        yield from within()
        yield from between()

    def peers(rank: int) -> Iterator[PeerTransfer]:
        for neighbour in group.members(group.node_of(rank)):
            if neighbour != rank:
                yield PeerTransfer(neighbour, sent=Fraction(1, local), received=Fraction(1, local))
        for peer in group.rail(rank % local):
            if peer != rank:
                yield PeerTransfer(peer, sent=Fraction(1, nodes), received=Fraction(1, nodes))

    return TransferPlan(
        collective=CollectiveKind.ALL_TO_ALL,
        group=group,
        pieces=n * n,
        steps=local - 1 + nodes - 1,
        transfers=transfers,
        peers=peers,
    )


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """Steps, and payloads through the busiest NVLink and NIC, as all_to_all has them."""
    del collective
    local, nodes = group.local, group.nodes
    return Loads(
        steps=local - 1 + nodes - 1,
        network_steps=nodes - 1,
        local=Fraction(local - 1, local),
        network=Fraction(nodes - 1, nodes),
    )


ALGORITHM = Algorithm(
    name="hierarchical-pairwise",
    title="Hierarchical all_to_all (within the node, then along the rails)",
    loads_of=loads,
    plans={CollectiveKind.ALL_TO_ALL: all_to_all},
    in_phases=True,
    place=40,
)
