"""CollNet chain: the network reduces (SHARP); within a node a chain leads to the rank that talks to it.

Each of the L shares has its own chain, which starts at the next rank, so that all NICs work alike.

References:
    NCCL 2.14 and later, src/device/all_reduce.h (COLLNET_CHAIN); Graham et al. 2016 (SHARP).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.in_network import from_network, network_flow, rail_shares
from ..transfers.loads import Loads
from ..transfers.plan import TransferPlan, in_sequence, mirrored
from ..transfers.transfer import PeerTransfer, PieceTransfer


def check(group: RankGroup) -> None:
    """Refuse a group on one node, which has no network to reduce in."""
    if group.nodes < 2:
        raise ValueError(
            f"collnet-chain reduces in the network, but this group of {group.ranks} ranks is on one node; "
            "use at least 2 nodes, or nvls, or tree"
        )


def all_reduce(group: RankGroup) -> TransferPlan:
    """2(L-1) + 2 steps; 2(L-1)/L payloads within the node, 1/L each way to the network."""
    local = group.local
    shares = rail_shares(group, local)

    def neighbour(rank: int, distance: int) -> int:
        return group.node_of(rank) * local + (rank + distance) % local

    def transfers() -> Iterator[PieceTransfer]:
        yield from from_network(group, shares, 0)
        for step in range(1, local):
            for rank in range(group.ranks):
                yield PieceTransfer(step, rank, neighbour(rank, 1), shares[(rank - step + 1) % local], False)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        passed = Fraction(local - 1, local)
        yield network_flow(group, own=False)
        yield PeerTransfer(neighbour(rank, 1), sent=passed)
        yield PeerTransfer(neighbour(rank, -1), received=passed)

    delivery = TransferPlan(
        collective=CollectiveKind.ALL_REDUCE,
        group=group,
        pieces=local,
        steps=local,
        transfers=transfers,
        peers=peers,
    )
    return in_sequence(CollectiveKind.ALL_REDUCE, mirrored(delivery, CollectiveKind.ALL_REDUCE), delivery)


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """Steps, and payloads through the busiest NVLink and NIC, as all_reduce and its halves have them."""
    del collective
    local = group.local
    return Loads(
        steps=2 * local,
        network_steps=2,
        local=Fraction(2 * (local - 1), local),
        network=Fraction(1, local),
    )


ALGORITHM = Algorithm(
    name="collnet-chain",
    title="CollNet chain (reduction in the network)",
    check=check,
    loads_of=loads,
    reduces_in_network=True,
    plans={CollectiveKind.ALL_REDUCE: all_reduce},
)
