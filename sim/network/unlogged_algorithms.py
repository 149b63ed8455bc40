"""What algorithms cost that no log shows: link weights and steps of their plans, rates of what logs do show.

Knows PAT, CollNet (SHARP in the network's switches), NVLS beyond one all_reduce in a node, and those that
NCCL does not have: recursive halving and doubling, flat double binary trees, 2-D rings, hierarchical
all_to_all. A step costs what it costs a ring; a link bounds the payload by its weight; NCCL's own
algorithms are no quicker than NCCL says. Unverified by measurement. Refuses what the hardware cannot run.

References:
    NCCL 2.28.9 src/graph/tuning.cc (plateaus of PAT, CollNet, NVLS). Thakur, Rabenseifner, Gropp 2005
    (costs of flat algorithms). The phases of hierarchical ones follow one another (BlueConnect, Cho et al.
    2019; DeepSpeed-MoE, Rajbhandari et al. 2022, section 5.2).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ...schedules import collectives as schedules
from ...schedules.transfers.loads import Loads
from .algorithms import nvls_bytes_per_s, way_through, with_protocols
from .curve import Curve, Way
from .nccl.constants import NcclAlgorithm, NcclProtocol
from .nccl.cost_model import bytes_per_s, combinations
from .nccl.paths import Communicator, communicator_on
from .place import SCHEDULED, Place, over

if TYPE_CHECKING:
    from ...schedules.transfers.collective import CollectiveKind

OF_NCCL = {
    "nvls": NcclAlgorithm.NVLS,
    "collnet-direct": NcclAlgorithm.COLLNET_DIRECT,
    "collnet-chain": NcclAlgorithm.COLLNET_CHAIN,
    "pat": NcclAlgorithm.PAT,
}


def unlogged_curves(algorithm: str, kind: str, place: Place) -> tuple[Curve, ...]:
    """The algorithm with each protocol that it has: Simple alone, but for the flat ones that NCCL lacks.

    ValueError where it does not do ``kind``, or where the hardware or the group cannot run it.
    """
    loads = place.loads(algorithm, kind)
    _check_hardware(algorithm, kind, place)
    own = schedules.get(algorithm)
    if kind == "all_to_all" and own.in_phases:
        return (_all_to_all(algorithm, place, loads),)
    way = (_switched if own.reduces_in_node else _flat)(algorithm, place, loads)
    if algorithm in OF_NCCL:
        way = _capped_by_nccl(way, kind, place)
    switched = own.reduces_in_node or own.reduces_in_network
    return (_simple(way, place),) if switched or algorithm in OF_NCCL else with_protocols(way, place)


def has_sharp(place: Place) -> bool:
    """Whether the network's switches reduce: InfiniBand's do from HDR on (SHARP v2), and only those."""
    interconnect = place.cluster.interconnect
    return interconnect.kind == "infiniband" and interconnect.link_bytes_per_s >= 25e9


def _check_hardware(algorithm: str, kind: str, place: Place) -> None:
    cluster, own = place.cluster, schedules.get(algorithm)
    if own.reduces_in_node and not cluster.gpu.nvls:
        raise ValueError(
            f"{algorithm} reduces in the NVSwitches, as Hopper's and Blackwell's do; {cluster.gpu.name} has "
            "none"
        )
    if own.reduces_in_network and place.on_network and not has_sharp(place):
        raise ValueError(
            f"{algorithm} over several nodes reduces in the network's switches (SHARP), which InfiniBand has "
            f"from HDR on; {cluster.interconnect.name} is {cluster.interconnect.kind}"
        )
    if algorithm in OF_NCCL and (OF_NCCL[algorithm], NcclProtocol.SIMPLE) not in _combinations(kind, place):
        raise ValueError(
            f"NCCL does not run {algorithm} for {kind} on {place.group.local} ranks on each of "
            f"{place.group.nodes} nodes with {cluster.interconnect.name}"
        )


def _combinations(kind: str, place: Place) -> tuple[tuple[NcclAlgorithm, NcclProtocol], ...]:
    return tuple(combinations(_collective(kind), _communicator(place)))


def _communicator(place: Place) -> Communicator:
    """The group as NCCL sees it, with switches of the network that reduce where there are some."""
    group = place.group
    return communicator_on(place.cluster, ranks=group.ranks, domains=group.nodes, sharp=has_sharp(place))


def _flat(algorithm: str, place: Place, loads: Loads) -> Way:
    """The way of an algorithm that uses both tiers at once, or one after the other where its phases follow
    one another."""
    inside, outside = over(place.ring, loads.local), over(place.nic, loads.network)
    local_s = (loads.steps - loads.network_steps) * place.arch.step_s
    latency_s = place.arch.base_s + local_s + loads.network_steps * place.hop_s
    way = way_through(algorithm, place, loads, latency_s=latency_s, inside=inside, outside=outside)
    return replace(way, rate=1 / (1 / inside + 1 / outside)) if schedules.get(algorithm).in_phases else way


def _switched(algorithm: str, place: Place, loads: Loads) -> Way:
    """The switches of the nodes, and those of the network between them."""
    assert place.arch.nvls_latency_s is not None
    efficiency = place.constants.nvls.tree_efficiency if place.on_network else 1.0
    inside = over(nvls_bytes_per_s(place) * efficiency, loads.local)
    outside = over(place.nic, loads.network)
    return Way(
        algorithm=algorithm,
        latency_s=place.arch.nvls_latency_s / place.constants.protocols["Simple"].latency
        + loads.network_steps * place.hop_s,
        rate=min(inside, outside),
        nvlink=place.on_nvlink(loads.local),
        nic=float(loads.network),
        binding="nic" if outside < inside else "nvlink",
        steps=loads.steps,
        network_steps=loads.network_steps,
    )


def _capped_by_nccl(way: Way, kind: str, place: Place) -> Way:
    """``way`` with at most the rate that NCCL's model gives: thread blocks and switches bound what links do
    not."""
    algorithm, comm = OF_NCCL[way.algorithm], _communicator(place)
    most = bytes_per_s(algorithm, NcclProtocol.SIMPLE, _collective(kind), comm)
    return replace(way, rate=min(way.rate, most)) if most else way


def _simple(way: Way, place: Place) -> Curve:
    protocol = place.constants.protocols["Simple"]
    if schedules.get(way.algorithm).reduces_in_node:
        pipelining = place.constants.nvls.pipelining
    else:
        pipelining = protocol.network_pipelining if place.on_network else protocol.node_pipelining
    return way.curve("Simple", way.latency_s * protocol.latency, way.rate, pipelining)


def _all_to_all(algorithm: str, place: Place, loads: Loads) -> Curve:
    """Messages to the neighbours, then to the rail: what they cost among all pairs, but fewer."""
    pairwise, group = place.constants.pairwise, place.group
    inside = over(min(place.nvlink, place.ring) * pairwise.efficiency, loads.local)
    outside = over(place.scattered, loads.network)
    phases = (group.local > 1) + (group.nodes > 1)
    latency_s = phases * pairwise.latency_s + 2 * place.crossing_s
    latency_s += (group.local - 1) * pairwise.peer_s + (group.nodes - 1) * pairwise.remote_peer_s
    seconds = (0.0 if math.isinf(inside) else 1 / inside) + (0.0 if math.isinf(outside) else 1 / outside)
    way = way_through(algorithm, place, loads, latency_s=latency_s, inside=inside, outside=outside)
    way = replace(way, rate=1 / seconds)  # one phase after the other
    return way.curve("Simple", latency_s, way.rate, pairwise.pipelining)


def _collective(kind: str) -> CollectiveKind:
    from ...schedules.transfers.collective import CollectiveKind

    return CollectiveKind(SCHEDULED.get(kind, kind))
