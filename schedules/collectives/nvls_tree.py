"""NVLSTree: NVSwitches reduce and multicast within the nodes, double binary trees join the nodes.

Every rank is head of 1/L of the payload, half of it on each of its rail's two trees. Where nodes have
different numbers of ranks there are as many heads as on the smallest.

References:
    NCCL 2.18 and later, src/transport/nvls.cc, src/device/all_reduce.h (NVLS_TREE), src/graph/connect.cc
    (minHeadNum).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.in_network import rail_shares
from ..transfers.loads import Loads
from ..transfers.plan import TransferPlan, in_sequence, mirrored
from ..transfers.transfer import PeerTransfer, PieceTransfer
from ..transfers.trees import down, down_flows, height, two_trees, two_trees_edge


def check(group: RankGroup) -> None:
    """Refuse fewer than two nodes, and a single rank on each node."""
    if group.local < 2 or group.nodes < 2:
        raise ValueError(
            f"nvls-tree joins the NVSwitches of several nodes, but this group has {group.local} ranks "
            f"on each of {group.nodes} nodes; use at least 2 on 2, or nvls on one node, or double-binary-tree"
        )


def all_reduce(group: RankGroup) -> TransferPlan:
    """4 + 2 ceil(log2 N) steps; (L+1)/L payloads each way to the NVSwitch, 2/L at most to other nodes."""
    local, share = group.local, Fraction(1, group.local)
    shares = rail_shares(group, 2 * local)
    rails = [two_trees(group.rail(i)) for i in range(local)]
    levels = height(group.nodes)

    def transfers() -> Iterator[PieceTransfer]:
        for i, trees in enumerate(rails):
            for tree, piece in zip(trees, shares[i], strict=True):
                yield from down(tree, range(piece, piece + 1))
        for node in range(group.nodes):
            switch = group.node_switch(node)
            for place, rank in enumerate(group.members(node)):
                if place < local:
                    yield PieceTransfer(levels, rank, switch, shares[place], False)
                yield PieceTransfer(levels + 1, switch, rank, range(2 * local), False)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        node = group.node_of(rank)
        place = rank - group.members(node)[0]
        heads = place < local
        yield PeerTransfer(
            group.node_switch(node), sent=share if heads else Fraction(0), received=Fraction(1)
        )
        for tree in rails[place] if heads else ():
            yield from down_flows(tree, rank, share / 2)

    delivery = TransferPlan(
        collective=CollectiveKind.ALL_REDUCE,
        group=group,
        pieces=2 * local,
        steps=levels + 2,
        transfers=transfers,
        peers=peers,
    )
    return in_sequence(CollectiveKind.ALL_REDUCE, mirrored(delivery, CollectiveKind.ALL_REDUCE), delivery)


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """Steps, and payloads through the busiest NVLink and NIC, of the way up and the way down."""
    del collective
    levels, local = height(group.nodes), group.local
    return Loads(
        steps=2 * (levels + 2),
        network_steps=2 * levels,
        local=Fraction(local + 1, local),
        network=two_trees_edge(group.nodes) / local,
    )


ALGORITHM = Algorithm(
    name="nvls-tree",
    title="NVLSTree (NVSwitches within, double binary trees between nodes)",
    check=check,
    loads_of=loads,
    reduces_in_node=True,
    uneven=True,
    plans={CollectiveKind.ALL_REDUCE: all_reduce},
)
