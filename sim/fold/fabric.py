"""Which links of the fabric every communicator and message of a job crosses, and which of these can bind.

A link can bind if its capacity is below what the NICs on its two sides can send over it at once; of the
rest nothing is kept, so that a healthy non-blocking network costs nothing here. Arrays over ranks and
routes; knows neither classes nor time. Links inside hosts are the ranks' own (nvlink.out, nic.out, ...) and
are not looked at, but for the ports of a NIC with several, of which a hash picks one.

Sources: two channels, each with a queue pair of its own, per NIC and remote peer: NCCL v2.28.9
src/graph/paths.cc (ncclTopoGetNchannels); rings of multi-node H100 and B200 have 16 over 8 NICs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...hardware.topology import RegularTopology, Topology
from ..lowering.placed_groups import domains
from ..network.patterns import sent
from ..program.program import Collective, Exchange, Programs
from .can_bind import can_bind
from .weak_links import around, capacity_left, topology_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ...hardware.fabrics.links import LinkTable
    from ..lowering.lower import Lowered
    from .ranks import Degradation, Ranks

    Ids = NDArray[np.int64]

Use = tuple[str, str] | tuple[int, int]
"""A communicator and its pattern, or the sending and receiving pipeline rank of messages."""

FLOWS_PER_NIC = 2
"""Queue pairs of a NIC to each peer, which a hash spreads over links; the source is at the top."""
SLACK = 1 - 1e-9
"""A link whose capacity is what its NICs send, but for rounding, does not bind."""


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """The communications that cross each link. Entry e: ``owner[e]``, an instance of a communicator or the
    rank that sends a message, puts ``weight[e]`` bytes on ``link[e]`` for each byte that a member sends
    through its NIC."""

    owner: Ids
    link: Ids
    weight: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CrossedFabric:
    """The links that can bind, and who crosses them.

    Links are numbered from 0: ``ids`` are their numbers in ``table``, ``capacity`` is in bytes per second,
    and ``later`` has the capacities after each change of the degradation. ``collectives`` are by
    (communicator, pattern), ``messages`` by (sending, receiving) pipeline rank.
    """

    table: LinkTable
    ids: Ids
    capacity: NDArray[np.float64]
    later: tuple[NDArray[np.float64], ...] = ()
    collectives: Mapping[tuple[str, str], Crossing] = field(default_factory=dict)
    messages: Mapping[tuple[int, int], Crossing] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Routed:
    """The messages of one use of the network, and the links of each; ``sender`` and ``receiver`` are by
    entry."""

    owner: Ids
    sender: Ids
    receiver: Ids
    link: Ids
    weight: NDArray[np.float64]


def fabric_of(lowered: Lowered, ranks: Ranks, degradation: Degradation) -> CrossedFabric | None:
    """The links that can bind, and who crosses them; None if there are none."""
    cluster = lowered.plan.cluster
    if not can_bind(cluster) and not any(state.fabric_share for state in degradation.states):
        return None
    topology = topology_for(cluster)
    found = dict(uses(lowered, ranks, topology, degradation))
    if not found:
        return None
    return kept(found, topology, cluster, degradation)


def uses(
    lowered: Lowered, ranks: Ranks, topology: Topology, degradation: Degradation, *, ports: bool = False
) -> Iterator[tuple[Use, Routed]]:
    """Every communicator with its patterns, and the messages from every pipeline rank to every other.

    ``ports`` adds the links between NICs and switches, which are the ranks' own.
    """
    cluster, gpu = lowered.plan.cluster, lowered.plan.placed.gpu
    families = looked_at(topology, cluster, ports)
    hashed = cluster.fabric.ecmp == "hashed"
    lost = np.array(
        [link for link, share in degradation.fabric_share.items() if not share and hashed], dtype=np.int64
    )
    domain = domains(gpu, cluster)
    collectives, messages = network_users(lowered.programs)
    for number, (name, pattern) in enumerate(sorted(collectives)):
        over = sent(pattern, ranks.instance[name], domain)
        at = over.instance, over.sender, over.receiver
        yield (name, pattern), routed(cluster, topology, gpu, at, over.share, number, families, lost)
    for number, (source, target) in enumerate(sorted(messages), len(collectives)):
        sender = np.flatnonzero(ranks.signature == source)
        at = sender, sender, ranks.peer[target][sender]
        yield (
            (source, target),
            routed(cluster, topology, gpu, at, np.ones(len(sender)), number, families, lost),
        )


def network_users(programs: Programs) -> tuple[set[tuple[str, str]], set[tuple[int, int]]]:
    """Communicators with their patterns, and (sending, receiving) classes, that leave hosts."""
    collectives: set[tuple[str, str]] = set()
    messages: set[tuple[int, int]] = set()
    for r, program in enumerate(programs.classes):
        for op in program.each_op():
            if isinstance(op.work, Collective) and op.work.transfer.nic and op.work.transfer.bytes:
                collectives.add((op.work.communicator, op.work.transfer.pattern))
            elif isinstance(op.work, Exchange):
                messages |= {(r, part.peer) for part in op.work.parts if part.send and part.transfer.nic}
    return collectives, messages


def routed(
    cluster: Cluster,
    topology: Topology,
    gpu: Ids,
    at: tuple[Ids, Ids, Ids],
    share: NDArray[np.float64],
    number: int,
    families: NDArray[np.bool_],
    lost: Ids,
) -> Routed:
    """The links of ``families`` that messages ``at`` (owner, sender, receiver) cross, as use ``number``."""
    owner, sender, receiver = at
    flows = 1
    if cluster.fabric.ecmp == "hashed":
        flows = FLOWS_PER_NIC * max(1, cluster.interconnect.links_per_host // cluster.gpus_per_node)
    # Flows of different communicators have queue pairs of their own, which hash by themselves.
    flow = np.tile(np.arange(flows) + number * flows, len(owner))
    message = np.repeat(np.arange(len(owner)), flows)
    routes = around(topology, gpu[sender[message]], gpu[receiver[message]], flow, lost)
    looked_at = families[topology.links.family_of(routes.link)]
    of = message[routes.route[looked_at]]
    return Routed(
        owner=owner[of],
        sender=sender[of],
        receiver=receiver[of],
        link=routes.link[looked_at],
        weight=routes.weight[looked_at] * share[of] / flows,
    )


def looked_at(topology: Topology, cluster: Cluster, ports: bool) -> NDArray[np.bool_]:
    """Whether each family of links belongs to the fabric; in a custom graph all do."""
    families = topology.links.families
    if not isinstance(topology, RegularTopology):
        return np.ones(len(families), dtype=bool)
    own = {"nvlink", "pcie", "nic"}
    several = topology.network is not None and topology.network.planes > 1
    if ports or (cluster.fabric.ecmp == "hashed" and several):
        own.remove("nic")
    return np.array([family.kind not in own for family in families])


def kept(
    found: Mapping[Use, Routed],
    topology: Topology,
    cluster: Cluster,
    degradation: Degradation,
) -> CrossedFabric | None:
    """The links among those ``found`` that can bind; None if none can."""
    ids, numbers = np.unique(np.concatenate([use.link for use in found.values()]), return_inverse=True)
    capacity = [topology.links.usable_bytes_per_s(ids) for _ in degradation.states]
    for state, rates in zip(degradation.states, capacity, strict=True):
        for damaged, left in capacity_left(cluster, state.fabric_share).items():
            rates[ids == damaged] *= left
    parts = np.split(numbers, np.cumsum([len(use.link) for use in found.values()])[:-1])
    most = cluster.nic_bytes_per_s_per_gpu * np.minimum(
        *(_most(found, parts, end, len(ids)) for end in ("sender", "receiver"))
    )
    binds = np.minimum.reduce(capacity) < most * SLACK
    if not binds.any():
        return None
    new = np.cumsum(binds) - 1
    collectives: dict[tuple[str, str], Crossing] = {}
    messages: dict[tuple[int, int], Crossing] = {}
    for ((a, b), use), link in zip(found.items(), parts, strict=True):
        crossing = _summed(use, new[link], binds[link])
        if len(crossing.owner) and isinstance(a, str) and isinstance(b, str):
            collectives[a, b] = crossing
        elif len(crossing.owner) and isinstance(a, int) and isinstance(b, int):
            messages[a, b] = crossing
    return CrossedFabric(
        table=topology.links,
        ids=ids[binds],
        capacity=capacity[0][binds],
        later=tuple(rates[binds] for rates in capacity[1:]),
        collectives=collectives,
        messages=messages,
    )


def _most(
    found: Mapping[Use, Routed],
    parts: list[Ids],
    end: str,
    links: int,
) -> NDArray[np.float64]:
    """The most that the ranks at one end can put on each link, in units of a NIC's full rate."""
    keys, loads = [], []
    for use, link in zip(found.values(), parts, strict=True):
        key, where = np.unique(getattr(use, end) * links + link, return_inverse=True)
        keys.append(key)
        loads.append(np.bincount(where, use.weight, len(key)))
    key, where = np.unique(np.concatenate(keys), return_inverse=True)
    heaviest = np.zeros(len(key))
    np.maximum.at(heaviest, where, np.concatenate(loads))
    return np.bincount(key % links, heaviest, links).astype(np.float64)


def _summed(use: Routed, link: Ids, kept: NDArray[np.bool_]) -> Crossing:
    """The weights of each owner on each kept link, summed."""
    count = int(link.max(initial=-1)) + 1
    key, where = np.unique(use.owner[kept] * count + link[kept], return_inverse=True)
    weight = np.bincount(where, use.weight[kept], len(key)).astype(np.float64)
    return Crossing(owner=key // max(count, 1), link=key % max(count, 1), weight=weight)
