"""Ring: every rank sends to the next one only, and receives from the one before.

An all_reduce is a reduce_scatter and an all_gather around the same ring; a broadcast or reduce passes
the payload from rank to rank. Cut into k slices, those take k-1 steps more and overlap: that is below
this view, which counts the steps of the first slice.

References:
    Patarasuk & Yuan 2009 (no all_reduce can move fewer bytes). Thakur, Rabenseifner, Gropp 2005,
    section 4. NCCL src/device/{all_reduce,all_gather,reduce_scatter,broadcast,reduce}.h (the same way
    around the ring in both halves).
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

ONE = Fraction(1)


def all_gather(group: RankGroup) -> TransferPlan:
    """n-1 steps; (n-1)/n payloads from each rank to the next."""
    return _around(CollectiveKind.ALL_GATHER, group)


def reduce_scatter(group: RankGroup) -> TransferPlan:
    """n-1 steps; (n-1)/n payloads from each rank to the next."""
    return _around(CollectiveKind.REDUCE_SCATTER, group)


def all_reduce(group: RankGroup) -> TransferPlan:
    """2(n-1) steps; 2(n-1)/n payloads from each rank to the next."""
    return in_sequence(CollectiveKind.ALL_REDUCE, reduce_scatter(group), all_gather(group))


def broadcast(group: RankGroup) -> TransferPlan:
    """n-1 steps; one payload from each rank to the next, but none into the root."""
    return _along(CollectiveKind.BROADCAST, group, first=0, reduces=False)


def reduce(group: RankGroup) -> TransferPlan:
    """n-1 steps; one payload from each rank to the next, but none out of the root."""
    return _along(CollectiveKind.REDUCE, group, first=1, reduces=True)


def _around(collective: CollectiveKind, group: RankGroup) -> TransferPlan:
    n = group.ranks
    members = range(n)
    move = ring_all_gather if collective is CollectiveKind.ALL_GATHER else ring_reduce_scatter
    return TransferPlan(
        collective=collective,
        group=group,
        pieces=n,
        steps=n - 1,
        transfers=lambda: move(members, [range(rank, rank + 1) for rank in members]),
        peers=lambda rank: ring_flows(members, rank, ONE),
    )


def _along(collective: CollectiveKind, group: RankGroup, *, first: int, reduces: bool) -> TransferPlan:
    """The whole payload from the rank ``first`` places after the root through all others, in n-1 steps."""
    n = group.ranks

    def transfers() -> Iterator[PieceTransfer]:
        for step in range(n - 1):
            source, target = group.after_root(first + step), group.after_root(first + step + 1)
            yield PieceTransfer(step, source, target, range(1), reduces)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        place = (rank - group.root - first) % n
        if place < n - 1:
            yield PeerTransfer((rank + 1) % n, sent=ONE)
        if place > 0:
            yield PeerTransfer((rank - 1) % n, received=ONE)

    return TransferPlan(
        collective=collective, group=group, pieces=1, steps=n - 1, transfers=transfers, peers=peers
    )


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """Between nodes a piece goes N-1 times a round, as NCCL counts; each NIC has a ring of its own, so that
    all ranks share what leaves a node; a node has as many rings as the one with the fewest ranks."""
    n = group.ranks
    rooted = collective in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE)
    rounds = 2 if collective is CollectiveKind.ALL_REDUCE else 1
    amount = ONE if rooted else Fraction(rounds * (n - 1), n)
    return Loads(
        steps=rounds * (n - 1),
        network_steps=rounds * (group.nodes - 1),
        local=amount if group.most > 1 else Fraction(0),
        network=amount / group.local if group.nodes > 1 else Fraction(0),
    )


ALGORITHM = Algorithm(
    name="ring",
    title="Ring",
    loads_of=loads,
    uneven=True,
    plans={
        CollectiveKind.ALL_REDUCE: all_reduce,
        CollectiveKind.ALL_GATHER: all_gather,
        CollectiveKind.REDUCE_SCATTER: reduce_scatter,
        CollectiveKind.BROADCAST: broadcast,
        CollectiveKind.REDUCE: reduce,
    },
)
