"""NVLS (NVLink SHARP): the NVSwitches of a node reduce what they are given and multicast what they have.

Of a share 1/L each, every rank is the head: it has the switch reduce the share from all ranks, its own
with them, and later store the result to all, itself too. So a rank's link carries (L+1)/L payloads each way
in an all_reduce instead of 2(L-1)/L. Over several nodes the heads' shares are reduced by the network
(SHARP) in between; without SHARP, NCCL has nvls-tree.

References:
    NVIDIA Hopper architecture whitepaper 2022 (NVLink SHARP). NCCL src/device/all_reduce.h,
    src/graph/search.cc v2.28.9 (a GPU's NVLink carries heads + 1 times the rate of one head).
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
    """Refuse a single rank on each node: its NVSwitch would have nothing to reduce."""
    if group.local < 2:
        raise ValueError(
            f"nvls reduces in the switches of a node, but this group has 1 rank on each of "
            f"{group.nodes} nodes; use at least 2 ranks per node, or collnet-direct, or ring"
        )


def all_reduce(group: RankGroup) -> TransferPlan:
    """4 steps, 6 over several nodes; (L+1)/L payloads each way to the NVSwitch, 1/L to the network."""
    delivery = _delivery(CollectiveKind.ALL_REDUCE, group, group.local)
    return in_sequence(CollectiveKind.ALL_REDUCE, mirrored(delivery, CollectiveKind.ALL_REDUCE), delivery)


def all_gather(group: RankGroup) -> TransferPlan:
    """2 steps, 4 over several nodes; 1/L payloads to the NVSwitch, 1 back; 1/n to the network, 1/L back."""
    return _delivery(CollectiveKind.ALL_GATHER, group, group.ranks)


def reduce_scatter(group: RankGroup) -> TransferPlan:
    """The all_gather backwards."""
    return mirrored(all_gather(group), CollectiveKind.REDUCE_SCATTER)


def _delivery(collective: CollectiveKind, group: RankGroup, pieces: int) -> TransferPlan:
    """Own pieces to the network (all_gather only), each rail's share back; share to NVSwitch, all to all."""
    beyond = group.nodes > 1
    own = beyond and collective is CollectiveKind.ALL_GATHER
    shares = rail_shares(group, pieces)

    def transfers() -> Iterator[PieceTransfer]:
        if own:
            yield from own_to_network(group)
        if beyond:
            yield from from_network(group, shares, own)
        for rank in range(group.ranks):
            switch = group.node_switch(group.node_of(rank))
            yield PieceTransfer(own + beyond, rank, switch, shares[rank % group.local], False)
            yield PieceTransfer(own + beyond + 1, switch, rank, range(pieces), False)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        if beyond:
            yield network_flow(group, own=own)
        switch = group.node_switch(group.node_of(rank))
        yield PeerTransfer(switch, sent=Fraction(1, group.local), received=Fraction(1))

    return TransferPlan(
        collective=collective,
        group=group,
        pieces=pieces,
        steps=own + beyond + 2,
        transfers=transfers,
        peers=peers,
    )


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """See the plans: both ways the same but for the share that an all_gather's ranks give to the network."""
    local, beyond = group.local, group.nodes > 1
    if collective is CollectiveKind.ALL_REDUCE:
        return Loads(
            steps=4 + 2 * beyond,
            network_steps=2 * beyond,
            local=Fraction(local + 1, local),
            network=Fraction(beyond, local),
        )
    return Loads(
        steps=2 + 2 * beyond,
        network_steps=2 * beyond,
        local=Fraction(1),
        network=Fraction(beyond, local),
    )


ALGORITHM = Algorithm(
    name="nvls",
    title="NVLS (reduction in the NVSwitches)",
    check=check,
    loads_of=loads,
    reduces_in_node=True,
    reduces_in_network=True,
    plans={
        CollectiveKind.ALL_REDUCE: all_reduce,
        CollectiveKind.ALL_GATHER: all_gather,
        CollectiveKind.REDUCE_SCATTER: reduce_scatter,
    },
)
