"""CollNet chain: the network reduces (SHARP); within a node a chain leads to the rank that talks to it.

Each of the L shares has its own chain, which starts at the next rank, so that all NICs work alike.

References:
    NCCL 2.14 and later, src/device/all_reduce.h (COLLNET_CHAIN); Graham et al. 2016 (SHARP).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import Collective
from ..transfers.group import Group
from ..transfers.in_network import from_network, network_flow, rail_shares
from ..transfers.loads import Loads
from ..transfers.plan import Plan, in_sequence, mirrored
from ..transfers.transfer import Flow, Transfer


def check(group: Group) -> None:
    """A network to reduce in."""
    if group.nodes < 2:
        raise ValueError(
            f"collnet-chain reduces in the network, but this group of {group.ranks} ranks is on one node; "
            "use at least 2 nodes, or nvls, or tree"
        )


def all_reduce(group: Group) -> Plan:
    """2(L-1) + 2 steps; 2(L-1)/L payloads within the node, 1/L each way to the network."""
    local = group.local
    shares = rail_shares(group, local)

    def neighbour(rank: int, distance: int) -> int:
        return group.node_of(rank) * local + (rank + distance) % local

    def transfers() -> Iterator[Transfer]:
        yield from from_network(group, shares, 0)
        for step in range(1, local):
            for rank in range(group.ranks):
                yield Transfer(step, rank, neighbour(rank, 1), shares[(rank - step + 1) % local], False)

    def peers(rank: int) -> Iterator[Flow]:
        passed = Fraction(local - 1, local)
        yield network_flow(group, own=False)
        yield Flow(neighbour(rank, 1), sent=passed)
        yield Flow(neighbour(rank, -1), received=passed)

    delivery = Plan(
        collective=Collective.ALL_REDUCE,
        group=group,
        pieces=local,
        steps=local,
        transfers=transfers,
        peers=peers,
    )
    return in_sequence(Collective.ALL_REDUCE, mirrored(delivery, Collective.ALL_REDUCE), delivery)


def loads(collective: Collective, group: Group) -> Loads:
    """See all_reduce."""
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
    plans={Collective.ALL_REDUCE: all_reduce},
)
