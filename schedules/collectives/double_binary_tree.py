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
from ..transfers.collective import Collective
from ..transfers.group import Group
from ..transfers.loads import Loads, counted, steps_between_nodes
from ..transfers.plan import Plan, in_sequence, mirrored
from ..transfers.transfer import Flow, Transfer
from ..transfers.trees import down, down_flows, height, two_trees

HALF = Fraction(1, 2)


def all_reduce(group: Group) -> Plan:
    """2 ceil(log2 n) steps; no rank sends or receives more than 2 payloads."""
    trees = two_trees(range(group.ranks))

    def transfers() -> Iterator[Transfer]:
        for half, tree in enumerate(trees):
            yield from down(tree, range(half, half + 1))

    def peers(rank: int) -> Iterator[Flow]:
        for tree in trees:
            yield from down_flows(tree, rank, HALF)

    downwards = Plan(
        collective=Collective.ALL_REDUCE,
        group=group,
        pieces=2,
        steps=height(group.ranks),
        transfers=transfers,
        peers=peers,
    )
    return in_sequence(Collective.ALL_REDUCE, mirrored(downwards, Collective.ALL_REDUCE), downwards)


def broadcast(group: Group) -> Plan:
    """1 + ceil(log2(n-1)) steps; every other rank receives one payload, and none sends more than one."""
    others = [group.after_root(distance) for distance in range(1, group.ranks)]
    trees = two_trees(others)

    def transfers() -> Iterator[Transfer]:
        for half, tree in enumerate(trees):
            yield Transfer(0, group.root, tree.levels[0][0], range(half, half + 1), False)
            yield from down(tree, range(half, half + 1), start=1)

    def peers(rank: int) -> Iterator[Flow]:
        for tree in trees:
            top = tree.levels[0][0]
            if rank == group.root:
                yield Flow(top, sent=HALF)
                continue
            if rank == top:
                yield Flow(group.root, received=HALF)
            yield from down_flows(tree, rank, HALF)

    return Plan(
        collective=Collective.BROADCAST,
        group=group,
        pieces=2,
        steps=1 + height(len(others)),
        transfers=transfers,
        peers=peers,
    )


def reduce(group: Group) -> Plan:
    """1 + ceil(log2(n-1)) steps; every other rank sends one payload, and none receives more than one."""
    return mirrored(broadcast(group), Collective.REDUCE)


def loads(collective: Collective, group: Group) -> Loads:
    """By what each rank exchanges: the trees do not know the nodes."""
    plan = ALGORITHM.plan(collective, group)
    return counted(plan, steps_between_nodes(plan))


ALGORITHM = Algorithm(
    name="double-binary-tree",
    title="Double binary tree",
    loads_of=loads,
    plans={
        Collective.ALL_REDUCE: all_reduce,
        Collective.BROADCAST: broadcast,
        Collective.REDUCE: reduce,
    },
    place=20,
)
