"""PAT (parallel aggregated trees): ceil(log2 n) steps for any n, the farthest partners first.

Bruck's all_gather with its dimensions reversed: the piece of every rank goes down a binomial tree
shifted to start there, so that few pieces travel far and many near. A reduce_scatter is the same
backwards. This is PAT with buffers for all pieces of a step; NCCL, where buffers are too small, takes
a step apart, and then its number of steps grows with n towards a ring's while its bytes stay.

References:
    Jeaugey 2025, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
    arXiv:2506.20252. Bruck et al. 1997 (the dimensions in order). NCCL 2.23, src/include/collectives.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.loads import Loads, counted
from ..transfers.plan import TransferPlan, mirrored
from ..transfers.transfer import PeerTransfer, PieceTransfer


def all_gather(group: RankGroup) -> TransferPlan:
    """ceil(log2 n) steps; (n-1)/n payloads each way on every rank."""
    n = group.ranks
    distances = [1 << bit for bit in reversed(range((n - 1).bit_length()))]

    def passed_on(rank: int, distance: int) -> range:
        """Pieces that came from multiples of 2·distance before, as far as somebody lacks them."""
        return range(rank, rank - (n - distance), -2 * distance)

    def transfers() -> Iterator[PieceTransfer]:
        for step, distance in enumerate(distances):
            for rank in range(n):
                yield PieceTransfer(step, rank, (rank + distance) % n, passed_on(rank, distance), False)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        for distance in distances:
            amount = Fraction(len(passed_on(rank, distance)), n)
            yield PeerTransfer((rank + distance) % n, sent=amount)
            yield PeerTransfer((rank - distance) % n, received=amount)

    return TransferPlan(
        collective=CollectiveKind.ALL_GATHER,
        group=group,
        pieces=n,
        steps=len(distances),
        transfers=transfers,
        peers=peers,
    )


def reduce_scatter(group: RankGroup) -> TransferPlan:
    """ceil(log2 n) steps, the nearest partners first; (n-1)/n payloads each way on every rank."""
    return mirrored(all_gather(group), CollectiveKind.REDUCE_SCATTER)


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """See the plans. On nodes of several ranks, where NCCL has none, by what each rank exchanges."""
    n, local = group.ranks, group.local
    distances = [1 << bit for bit in range((n - 1).bit_length())]
    crossing = len(distances) if group.nodes > 1 else 0
    if local == 1:
        return Loads(
            steps=len(distances), network_steps=crossing, local=Fraction(0), network=Fraction(n - 1, n)
        )
    return counted(ALGORITHM.plan(collective, group), crossing)


ALGORITHM = Algorithm(
    name="pat",
    title="PAT (parallel aggregated trees)",
    loads_of=loads,
    plans={CollectiveKind.ALL_GATHER: all_gather, CollectiveKind.REDUCE_SCATTER: reduce_scatter},
)
