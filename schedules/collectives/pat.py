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
from ..transfers.collective import Collective
from ..transfers.group import Group
from ..transfers.loads import Loads, counted
from ..transfers.plan import Plan, mirrored
from ..transfers.transfer import Flow, Transfer


def all_gather(group: Group) -> Plan:
    """ceil(log2 n) steps; (n-1)/n payloads each way on every rank."""
    n = group.ranks
    distances = [1 << bit for bit in reversed(range((n - 1).bit_length()))]

    def passed_on(rank: int, distance: int) -> range:
        """Pieces that came from multiples of 2·distance before, as far as somebody lacks them."""
        return range(rank, rank - (n - distance), -2 * distance)

    def transfers() -> Iterator[Transfer]:
        for step, distance in enumerate(distances):
            for rank in range(n):
                yield Transfer(step, rank, (rank + distance) % n, passed_on(rank, distance), False)

    def peers(rank: int) -> Iterator[Flow]:
        for distance in distances:
            amount = Fraction(len(passed_on(rank, distance)), n)
            yield Flow((rank + distance) % n, sent=amount)
            yield Flow((rank - distance) % n, received=amount)

    return Plan(
        collective=Collective.ALL_GATHER,
        group=group,
        pieces=n,
        steps=len(distances),
        transfers=transfers,
        peers=peers,
    )


def reduce_scatter(group: Group) -> Plan:
    """ceil(log2 n) steps, the nearest partners first; (n-1)/n payloads each way on every rank."""
    return mirrored(all_gather(group), Collective.REDUCE_SCATTER)


def loads(collective: Collective, group: Group) -> Loads:
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
    plans={Collective.ALL_GATHER: all_gather, Collective.REDUCE_SCATTER: reduce_scatter},
)
