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
from ..transfers.collective import Collective
from ..transfers.group import Group
from ..transfers.loads import Loads
from ..transfers.plan import Plan, in_sequence
from ..transfers.rings import ring_all_gather, ring_flows, ring_reduce_scatter
from ..transfers.transfer import Flow, Transfer

ONE = Fraction(1)


def all_gather(group: Group) -> Plan:
    """n-1 steps; (n-1)/n payloads from each rank to the next."""
    return _around(Collective.ALL_GATHER, group)


def reduce_scatter(group: Group) -> Plan:
    """n-1 steps; (n-1)/n payloads from each rank to the next."""
    return _around(Collective.REDUCE_SCATTER, group)


def all_reduce(group: Group) -> Plan:
    """2(n-1) steps; 2(n-1)/n payloads from each rank to the next."""
    return in_sequence(Collective.ALL_REDUCE, reduce_scatter(group), all_gather(group))


def broadcast(group: Group) -> Plan:
    """n-1 steps; one payload from each rank to the next, but none into the root."""
    return _along(Collective.BROADCAST, group, first=0, reduces=False)


def reduce(group: Group) -> Plan:
    """n-1 steps; one payload from each rank to the next, but none out of the root."""
    return _along(Collective.REDUCE, group, first=1, reduces=True)


def _around(collective: Collective, group: Group) -> Plan:
    n = group.ranks
    members = range(n)
    move = ring_all_gather if collective is Collective.ALL_GATHER else ring_reduce_scatter
    return Plan(
        collective=collective,
        group=group,
        pieces=n,
        steps=n - 1,
        transfers=lambda: move(members, [range(rank, rank + 1) for rank in members]),
        peers=lambda rank: ring_flows(members, rank, ONE),
    )


def _along(collective: Collective, group: Group, *, first: int, reduces: bool) -> Plan:
    """The whole payload from the rank ``first`` places after the root through all others, in n-1 steps."""
    n = group.ranks

    def transfers() -> Iterator[Transfer]:
        for step in range(n - 1):
            source, target = group.after_root(first + step), group.after_root(first + step + 1)
            yield Transfer(step, source, target, range(1), reduces)

    def peers(rank: int) -> Iterator[Flow]:
        place = (rank - group.root - first) % n
        if place < n - 1:
            yield Flow((rank + 1) % n, sent=ONE)
        if place > 0:
            yield Flow((rank - 1) % n, received=ONE)

    return Plan(collective=collective, group=group, pieces=1, steps=n - 1, transfers=transfers, peers=peers)


def loads(collective: Collective, group: Group) -> Loads:
    """Between nodes a piece goes N-1 times a round, as NCCL counts; each NIC has a ring of its own, so that
    all ranks share what leaves a node; a node has as many rings as the one with the fewest ranks."""
    n = group.ranks
    rooted = collective in (Collective.BROADCAST, Collective.REDUCE)
    rounds = 2 if collective is Collective.ALL_REDUCE else 1
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
        Collective.ALL_REDUCE: all_reduce,
        Collective.ALL_GATHER: all_gather,
        Collective.REDUCE_SCATTER: reduce_scatter,
        Collective.BROADCAST: broadcast,
        Collective.REDUCE: reduce,
    },
)
