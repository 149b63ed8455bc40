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
from ..transfers.collective import Collective
from ..transfers.group import Group
from ..transfers.in_network import from_network, network_flow, own_to_network, rail_shares
from ..transfers.loads import Loads
from ..transfers.plan import Plan, in_sequence, mirrored
from ..transfers.transfer import Flow, Transfer


def check(group: Group) -> None:
    """A network to reduce in."""
    if group.nodes < 2:
        raise ValueError(
            f"collnet-direct reduces in the network, but this group of {group.ranks} ranks is on one node; "
            "use at least 2 nodes, or nvls, or ring"
        )


def all_reduce(group: Group) -> Plan:
    """4 steps, 2 with one rank per node; 2(L-1)/L payloads within the node, 1/L each way to the network."""
    delivery = _delivery(Collective.ALL_REDUCE, group, group.local)
    return in_sequence(Collective.ALL_REDUCE, mirrored(delivery, Collective.ALL_REDUCE), delivery)


def all_gather(group: Group) -> Plan:
    """3 steps, 2 with one rank per node; (L-1)/L payloads within the node, 1/n to the network, 1/L back."""
    return _delivery(Collective.ALL_GATHER, group, group.ranks)


def reduce_scatter(group: Group) -> Plan:
    """The all_gather backwards."""
    return mirrored(all_gather(group), Collective.REDUCE_SCATTER)


def _delivery(collective: Collective, group: Group, pieces: int) -> Plan:
    """Own pieces to the network (all_gather only), each rail's share from there, then to all neighbours."""
    own = collective is Collective.ALL_GATHER
    shares = rail_shares(group, pieces)

    def neighbours(rank: int) -> Iterator[int]:
        return (other for other in group.members(group.node_of(rank)) if other != rank)

    def transfers() -> Iterator[Transfer]:
        if own:
            yield from own_to_network(group)
        yield from from_network(group, shares, own)
        for rank in range(group.ranks):
            for other in neighbours(rank):
                yield Transfer(own + 1, rank, other, shares[rank % group.local], False)

    def peers(rank: int) -> Iterator[Flow]:
        share = Fraction(1, group.local)
        yield network_flow(group, own=own)
        yield from (Flow(other, sent=share, received=share) for other in neighbours(rank))

    return Plan(
        collective=collective,
        group=group,
        pieces=pieces,
        steps=own + 1 + (group.local > 1),
        transfers=transfers,
        peers=peers,
    )


def loads(collective: Collective, group: Group) -> Loads:
    """See the plans; every rank's NIC carries a share of L."""
    local, reduces = group.local, collective is Collective.ALL_REDUCE
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
    plans={
        Collective.ALL_REDUCE: all_reduce,
        Collective.ALL_GATHER: all_gather,
        Collective.REDUCE_SCATTER: reduce_scatter,
    },
)
