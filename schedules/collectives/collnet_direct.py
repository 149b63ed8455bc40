"""CollNet direct: the network reduces (SHARP); in a node every rank exchanges shares with all others at once.

Local rank i is head of share i of the L: it reduces the share for its node, has the network reduce it
over the nodes, and hands the result to its neighbours. An all_gather needs a NIC for every rank.

References:
    NCCL 2.6 and later, src/transport/coll_net.cc, src/device/all_reduce.h; Graham et al. 2016 (SHARP).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.in_network import from_network, network_flow, own_to_network, rail_shares
from ..transfers.loads import Loads
from ..transfers.plan import TransferPlan, in_sequence, mirrored
from ..transfers.transfer import PeerTransfer, PieceTransfer


def check(group: RankGroup) -> None:
    """Refuse a group on one node, which has no network to reduce in."""
    if group.nodes < 2:
        raise ValueError(
            f"collnet-direct reduces in the network, but this group of {group.ranks} ranks is on one node; "
            "use at least 2 nodes, or nvls, or ring"
        )


def all_reduce(group: RankGroup) -> TransferPlan:
    """4 steps, 2 with one rank per node; 2(L-1)/L payloads within the node, 1/L each way to the network."""
    delivery = _delivery(CollectiveKind.ALL_REDUCE, group, group.local)
    return in_sequence(CollectiveKind.ALL_REDUCE, mirrored(delivery, CollectiveKind.ALL_REDUCE), delivery)


def all_gather(group: RankGroup) -> TransferPlan:
    """3 steps, 2 with one rank per node; (L-1)/L payloads within the node, 1/n to the network, 1/L back."""
    return _delivery(CollectiveKind.ALL_GATHER, group, group.ranks)


def reduce_scatter(group: RankGroup) -> TransferPlan:
    """The all_gather backwards."""
    return mirrored(all_gather(group), CollectiveKind.REDUCE_SCATTER)


def _delivery(collective: CollectiveKind, group: RankGroup, pieces: int) -> TransferPlan:
    """Own pieces to the network (all_gather only), each rail's share from there, then to all neighbours."""
    own = collective is CollectiveKind.ALL_GATHER
    shares = rail_shares(group, pieces)

    def neighbours(rank: int) -> Iterator[int]:
        return (other for other in group.members(group.node_of(rank)) if other != rank)

    def transfers() -> Iterator[PieceTransfer]:
        if own:
            yield from own_to_network(group)
        yield from from_network(group, shares, own)
        for rank in range(group.ranks):
            for other in neighbours(rank):
                yield PieceTransfer(own + 1, rank, other, shares[rank % group.local], False)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        share = Fraction(1, group.local)
        yield network_flow(group, own=own)
        yield from (PeerTransfer(other, sent=share, received=share) for other in neighbours(rank))

    return TransferPlan(
        collective=collective,
        group=group,
        pieces=pieces,
        steps=own + 1 + (group.local > 1),
        transfers=transfers,
        peers=peers,
    )


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """Steps, and payloads through the busiest NVLink and NIC: an all_reduce passes the node twice, and every
    rank's NIC carries one share of L."""
    local, reduces = group.local, collective is CollectiveKind.ALL_REDUCE
    within = 2 if reduces else 1
    return Loads(
        steps=2 + within * (local > 1),
        network_steps=2,
        local=within * Fraction(local - 1, local),
        network=Fraction(1, local),
    )


ALGORITHM = Algorithm(
    name="collnet-direct",
    title="CollNet direct (reduction in the network)",
    check=check,
    loads_of=loads,
    reduces_in_network=True,
    plans={
        CollectiveKind.ALL_REDUCE: all_reduce,
        CollectiveKind.ALL_GATHER: all_gather,
        CollectiveKind.REDUCE_SCATTER: reduce_scatter,
    },
)
