"""Double binary tree over the ranks: half of the payload on each of two trees, so that all do like work.

An all_reduce goes up and down both trees. A broadcast hands each half to the root of a tree over the
other ranks; a reduce is the same backwards. Any number of ranks, at whatever nodes they sit.

References:
    Sanders, Speck, Träff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and scan".
    Jeaugey 2019, "Massively scale your deep learning training with NCCL 2.4".
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.loads import Loads, counted, steps_between_nodes
from ..transfers.plan import TransferPlan, in_sequence, mirrored
from ..transfers.transfer import PeerTransfer, PieceTransfer
from ..transfers.trees import down, down_flows, height, two_trees

HALF = Fraction(1, 2)


def all_reduce(group: RankGroup) -> TransferPlan:
    """2 ceil(log2 n) steps; no rank sends or receives more than 2 payloads."""
    trees = two_trees(range(group.ranks))

    def transfers() -> Iterator[PieceTransfer]:
        for half, tree in enumerate(trees):
            yield from down(tree, range(half, half + 1))

    def peers(rank: int) -> Iterator[PeerTransfer]:
        for tree in trees:
            yield from down_flows(tree, rank, HALF)

    downwards = TransferPlan(
        collective=CollectiveKind.ALL_REDUCE,
        group=group,
        pieces=2,
        steps=height(group.ranks),
        transfers=transfers,
        peers=peers,
    )
    return in_sequence(CollectiveKind.ALL_REDUCE, mirrored(downwards, CollectiveKind.ALL_REDUCE), downwards)


def broadcast(group: RankGroup) -> TransferPlan:
    """1 + ceil(log2(n-1)) steps; every other rank receives one payload, and none sends more than one."""
    others = [group.after_root(distance) for distance in range(1, group.ranks)]
    trees = two_trees(others)

    def transfers() -> Iterator[PieceTransfer]:
        for half, tree in enumerate(trees):
            yield PieceTransfer(0, group.root, tree.levels[0][0], range(half, half + 1), False)
            yield from down(tree, range(half, half + 1), start=1)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        for tree in trees:
            top = tree.levels[0][0]
            if rank == group.root:
                yield PeerTransfer(top, sent=HALF)
                continue
            if rank == top:
                yield PeerTransfer(group.root, received=HALF)
            yield from down_flows(tree, rank, HALF)

    return TransferPlan(
        collective=CollectiveKind.BROADCAST,
        group=group,
        pieces=2,
        steps=1 + height(len(others)),
        transfers=transfers,
        peers=peers,
    )


def reduce(group: RankGroup) -> TransferPlan:
    """1 + ceil(log2(n-1)) steps; every other rank sends one payload, and none receives more than one."""
    return mirrored(broadcast(group), CollectiveKind.REDUCE)


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """Loads from what each rank exchanges, since these trees do not depend on nodes."""
    plan = ALGORITHM.plan(collective, group)
    return counted(plan, steps_between_nodes(plan))


ALGORITHM = Algorithm(
    name="double-binary-tree",
    title="Double binary tree",
    loads_of=loads,
    plans={
        CollectiveKind.ALL_REDUCE: all_reduce,
        CollectiveKind.BROADCAST: broadcast,
        CollectiveKind.REDUCE: reduce,
    },
    place=20,
)
