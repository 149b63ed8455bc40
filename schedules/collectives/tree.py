"""Tree, as NCCL builds it: double binary trees between nodes, and a chain through the ranks of each node.

Every local rank heads the chains of its own share of the payload (NCCL's channels), so that all NICs
work alike. Where nodes have different numbers of ranks there are as many heads as on the smallest. With one
rank per node it is the double binary tree, on one node a chain there and back.

References:
    NCCL src/graph/trees.cc, connect.cc; its tuning model counts 2((L-1) + log2 N) steps (tuning.cc).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.loads import Loads
from ..transfers.plan import TransferPlan, in_sequence, mirrored
from ..transfers.transfer import PeerTransfer, PieceTransfer
from ..transfers.trees import Tree, down, down_flows, height, two_trees, two_trees_edge


def all_reduce(group: RankGroup) -> TransferPlan:
    """2((L-1) + ceil(log2 N)) steps; a rank sends 2(L-1)/L payloads at most within its node, 2/L beyond."""
    trees = _trees(group)
    share = Fraction(1, len(trees))

    def transfers() -> Iterator[PieceTransfer]:
        for piece, tree in enumerate(trees):
            yield from down(tree, range(piece, piece + 1))

    def peers(rank: int) -> Iterator[PeerTransfer]:
        for tree in trees:
            yield from down_flows(tree, rank, share)

    downwards = TransferPlan(
        collective=CollectiveKind.ALL_REDUCE,
        group=group,
        pieces=len(trees),
        steps=_depth(group),
        transfers=transfers,
        peers=peers,
    )
    return in_sequence(CollectiveKind.ALL_REDUCE, mirrored(downwards, CollectiveKind.ALL_REDUCE), downwards)


def _trees(group: RankGroup) -> list[Tree]:
    """Two for each local rank: its rail's trees, and below each vertex the rest of its node in a chain."""
    found = []
    for head in range(group.local):
        tails = {
            rank: [members[(head + i) % len(members)] for i in range(1, len(members))]
            for rank, members in ((rank, group.members(group.node_of(rank))) for rank in group.rail(head))
        }
        found += [tree.with_chains(tails) for tree in two_trees(group.rail(head))]
    return found


def _depth(group: RankGroup) -> int:
    """Steps down: the levels of nodes, and the chain of the node where they end last."""
    if not group.parts:
        return height(group.nodes) + group.local - 1
    levels = (enumerate(tree.levels) for tree in two_trees(range(group.nodes)))
    return max(level + group.parts[node] - 1 for tree in levels for level, nodes in tree for node in nodes)


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """Steps, and payloads through the busiest NVLink and NIC, of the way up and the way down."""
    del collective
    local, most = group.local, group.most
    # With fewer heads than ranks some link of the node is in the chains of all of them.
    chains = Fraction(2 * (local - 1), local) if local == most else Fraction(2)
    return Loads(
        steps=2 * _depth(group),
        network_steps=2 * height(group.nodes),
        local=chains,
        network=two_trees_edge(group.nodes) / local,
    )


ALGORITHM = Algorithm(
    name="tree",
    title="Tree (NCCL: double binary trees between nodes, chains within)",
    loads_of=loads,
    uneven=True,
    plans={CollectiveKind.ALL_REDUCE: all_reduce},
)
