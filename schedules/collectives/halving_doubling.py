"""Recursive halving and doubling: log2 n steps, with partners 1, 2, 4, ... away, halving what is exchanged.

A reduce_scatter halves while distances double; an all_gather is the same backwards; an all_reduce is
both. Beyond the largest power of two p <= n, rank p+j is folded: it hands its data to rank j first and
gets its result from it last.

References:
    Rabenseifner 2004, "Optimization of collective reduction operations" (vector halving, distance
    doubling). Thakur, Rabenseifner, Gropp 2005, sections 4.1 and 4.5 (other numbers of ranks).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.loads import Loads, counted
from ..transfers.plan import TransferPlan, in_sequence, mirrored
from ..transfers.transfer import PeerTransfer, PieceTransfer


def all_gather(group: RankGroup) -> TransferPlan:
    """log2 n steps and (n-1)/n payloads each way; log2 p + 2 steps where ranks are folded."""
    return _doubling(CollectiveKind.ALL_GATHER, group, group.ranks)


def reduce_scatter(group: RankGroup) -> TransferPlan:
    """log2 n steps and (n-1)/n payloads each way; log2 p + 2 steps where ranks are folded."""
    return mirrored(all_gather(group), CollectiveKind.REDUCE_SCATTER)


def all_reduce(group: RankGroup) -> TransferPlan:
    """2 log2 n steps and 2(n-1)/n payloads each way; 2 log2 p + 2 steps where ranks are folded."""
    doubling = _doubling(CollectiveKind.ALL_REDUCE, group, unfolded(group.ranks))
    return in_sequence(CollectiveKind.ALL_REDUCE, mirrored(doubling, CollectiveKind.ALL_REDUCE), doubling)


def unfolded(ranks: int) -> int:
    """The largest power of two that is not above ``ranks``. So many ranks double and halve; each rank above
    them is folded onto one of these before, and gets the result from it after."""
    return 1 << ranks.bit_length() - 1


def _doubling(collective: CollectiveKind, group: RankGroup, pieces: int) -> TransferPlan:
    """Rank j < p starts with the pieces j mod p (of n pieces: a folded rank's too), and all end with all."""
    n, p = group.ranks, unfolded(group.ranks)
    distances = [1 << bit for bit in reversed(range(p.bit_length() - 1))]
    handed_in = n > p and pieces == n
    folded_gets = pieces - 1 if handed_in else pieces  # not what it has itself

    def held(rank: int, distance: int) -> range:
        """Before the step of that distance."""
        return range(rank % (2 * distance), pieces, 2 * distance)

    def transfers() -> Iterator[PieceTransfer]:
        if handed_in:
            yield from (
                PieceTransfer(0, rank, rank - p, range(rank, rank + 1), False) for rank in range(p, n)
            )
        for step, distance in enumerate(distances, start=handed_in):
            for rank in range(p):
                yield PieceTransfer(step, rank, rank ^ distance, held(rank, distance), False)
        last = len(distances) + handed_in
        for rank in range(p, n):
            yield PieceTransfer(last, rank - p, rank, range(rank + 1, rank + 1 + folded_gets), False)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        one, all_others = Fraction(handed_in, pieces), Fraction(folded_gets, pieces)
        if rank >= p:
            yield PeerTransfer(rank - p, sent=one, received=all_others)
            return
        for distance in distances:
            peer = rank ^ distance
            sent, received = len(held(rank, distance)), len(held(peer, distance))
            yield PeerTransfer(peer, sent=Fraction(sent, pieces), received=Fraction(received, pieces))
        if rank + p < n:
            yield PeerTransfer(rank + p, sent=all_others, received=one)

    return TransferPlan(
        collective=collective,
        group=group,
        pieces=pieces,
        steps=len(distances) + handed_in + (n > p),
        transfers=transfers,
        peers=peers,
    )


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """Steps at distance d stay within nodes whose size 2d divides; folded ranks may sit on other nodes."""
    n, p, local = group.ranks, unfolded(group.ranks), group.local
    rounds = 2 if collective is CollectiveKind.ALL_REDUCE else 1
    distances = [1 << bit for bit in range(p.bit_length() - 1)]
    crossing = rounds * sum(group.nodes > 1 and local % (2 * distance) > 0 for distance in distances)
    if n > p:
        folded = any(group.node_of(rank) != group.node_of(rank - p) for rank in range(p, n))
        return counted(ALGORITHM.plan(collective, group), crossing + 2 * folded)
    if p % local:
        return counted(ALGORITHM.plan(collective, group), crossing)
    return Loads(
        steps=rounds * len(distances),
        network_steps=crossing,
        local=rounds * Fraction(local - 1, local),
        network=rounds * Fraction(group.nodes - 1, n),
    )


ALGORITHM = Algorithm(
    name="halving-doubling",
    title="Recursive halving and doubling (Rabenseifner)",
    loads_of=loads,
    plans={
        CollectiveKind.ALL_REDUCE: all_reduce,
        CollectiveKind.ALL_GATHER: all_gather,
        CollectiveKind.REDUCE_SCATTER: reduce_scatter,
    },
    place=10,
)
