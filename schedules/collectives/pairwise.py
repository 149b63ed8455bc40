"""Pairwise all_to_all: in step k every rank sends its block to the rank k places on.

That is what grouped sends and receives do, which NCCL runs an all_to_all with; how many of the steps
are under way at once is the network's business.

References:
    Thakur, Rabenseifner, Gropp 2005, section 4.3 (pairwise exchange). NCCL src/enqueue.cc (the order
    of peers in a group of ncclSend and ncclRecv).
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
    """n-1 steps; 1/n of the payload to each other rank and from it."""
    n = group.ranks

    def transfers() -> Iterator[PieceTransfer]:
        for step in range(n - 1):
            for rank in range(n):
                peer = (rank + step + 1) % n
                yield PieceTransfer(step, rank, peer, range(rank * n + peer, rank * n + peer + 1), False)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        block = Fraction(1, n)
        return (PeerTransfer(peer, sent=block, received=block) for peer in range(n) if peer != rank)

    return TransferPlan(
        collective=CollectiveKind.ALL_TO_ALL,
        group=group,
        pieces=n * n,
        steps=n - 1,
        transfers=transfers,
        peers=peers,
    )


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """See all_to_all; all messages may be under way at once. Whoever has the most neighbours sends most to
    them, whoever has the fewest most to other nodes."""
    del collective
    n = group.ranks
    return Loads(
        steps=n - 1,
        network_steps=n - 1 if group.nodes > 1 else 0,
        local=Fraction(group.most - 1, n),
        network=Fraction(n - group.local, n),
    )


ALGORITHM = Algorithm(
    name="pairwise",
    title="Pairwise all_to_all",
    loads_of=loads,
    uneven=True,
    plans={CollectiveKind.ALL_TO_ALL: all_to_all},
)
