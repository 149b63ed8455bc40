"""What each of NCCL's algorithms that logs show costs one group, with each of its protocols: curves.

Knows rings, trees, the reduction in the NVSwitch (NVLS), trees of it over nodes (NVLSTree) and messages
between all pairs; algorithms without a log are in unlogged_algorithms.py. Weights and steps are those of the
algorithm's own plan (``schedules/collectives``). Does not choose; that is in ``selection``.

Bytes through a GPU's link per payload byte, n ranks, g of them in a domain, N domains:

    ring      2(n-1)/n all_reduce, (n-1)/n all_gather and reduce_scatter; a host's edge carries the same
    tree      2(g-1)/g over NVLink (up and down a chain); a host's edge 1 for N = 2, 3/2 for 3, else 2
              (double binary tree: inner node of one, leaf of the other)
    NVLS      1 + 1/g: a GPU's payload goes up once for all shards, its reduced shard comes down
    pairs     (n-1)/n over NVLink, where PXN forwards what leaves on the peer's rail; (n-g)/n over its NIC

Where domains hold different numbers of ranks, the busiest member's link counts: rings and trees have as many
channels as the domain with the fewest ranks (g at the edge), and of pairs its ranks send the most over NICs;
chains are as long as the domain with the most.

References:
    Patarasuk & Yuan 2009 (rings); Sanders, Speck, Traff 2009 (two trees); NCCL 2.28.9
    src/graph/tuning.cc (steps, and which algorithm is for what), search.cc (channels).
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from .chunks import NetworkMessages, TreeChunks
from .curve import Curve, Way
from .group_placement import ROUNDS
from .nccl.constants import ARCHITECTURES, BYTES_PER_THREAD, THREADS, NcclProtocol
from .nccl.paths import GIGA, Communicator, communicator_on
from .nccl.versions import OF_TABLES, USUAL, Version, tree_chunks_by_depth
from .place import Place, over

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ...schedules.transfers.group import RankGroup
    from ...schedules.transfers.loads import Loads

ALGORITHMS = ("ring", "tree", "nvls", "nvls_tree", "pairs")
_WITH_OWN_PART = ("all_reduce", "all_gather", "reduce_scatter")
RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


def logged(kind: str, place: Place) -> tuple[Curve, ...]:
    """Every way of NCCL's that logs show for this collective on a place.

    ValueError for a kind that is not a collective.
    """
    return tuple(curve for name in logged_names(kind, place) for curve in logged_curves(name, kind, place))


def logged_names(kind: str, place: Place) -> tuple[str, ...]:
    """Names of ALGORITHMS that do ``kind`` here. ValueError for a kind that is not a collective."""
    if kind not in (*RINGS, *ROUNDS):
        known = ", ".join(dict.fromkeys((*RINGS, *ROUNDS)))
        raise ValueError(f"no collective {kind!r}; known: {known}")
    if kind not in RINGS:
        return ("pairs",)
    if kind != "all_reduce":
        return ("ring",)
    if not _switch_reduces(place):
        return ("ring", "tree")
    return ("ring", "tree", "nvls_tree" if place.on_network else "nvls")


def logged_curves(algorithm: str, kind: str, place: Place) -> tuple[Curve, ...]:
    """The curves of one of ``logged_names``, with each of its protocols."""
    match algorithm:
        case "ring":
            return with_protocols(_ring(kind, place), place)
        case "tree":
            return with_protocols(
                _tree(place), place, simple=place.constants.tree.pipelining, chunks=_tree_chunks(place)
            )
        case "nvls":
            return (_nvls(place),)
        case "nvls_tree":
            return (_nvls_tree(place),)
        case _:
            return (_pairs(place),)


def way_through(
    algorithm: str, place: Place, loads: Loads, *, latency_s: float, inside: float, outside: float
) -> Way:
    """A way through NVLink domains and the network between them at once. ``inside`` and ``outside`` are the
    bytes of payload a second that each of them lets through: the slower one binds."""
    return Way(
        algorithm=algorithm,
        latency_s=latency_s,
        rate=min(inside, outside),
        nvlink=place.on_nvlink(loads.local),
        nic=float(loads.network),
        binding="nic" if outside < inside else place.inside,
        steps=loads.steps,
        network_steps=loads.network_steps,
    )


def _ring(kind: str, place: Place) -> Way:
    """Every rank sends to the next; one step in g of them crosses to another domain."""
    loads = place.loads("ring", kind)
    rounds = ROUNDS.get(kind, 1)
    local_s = rounds * (place.placement.ranks - max(1, place.group.nodes)) * place.arch.step_s
    inside = over(place.ring, float(loads.local) + _ring_ends(kind, place))
    outside = over(place.edge / place.group.local, loads.network)
    latency_s = place.arch.base_s + local_s + loads.network_steps * place.hop_s
    return replace(
        way_through("ring", place, loads, latency_s=latency_s, inside=inside, outside=outside),
        paced_s=loads.steps * place.pace_s,
        parts=place.placement.ranks,
        channels=_paced_channels(place),
    )


def _paced_channels(place: Place) -> int:
    """Channels of a ring whose steps wait for the network; 0 of others, and of GPUs unknown to NCCL."""
    if not place.pace_s or not _is_in_tables(place.cluster):
        return 0
    return _communicator(place.group, place.cluster, _usual_version(place.cluster)).channels


def _is_in_tables(cluster: Cluster) -> bool:
    """Whether NCCL's tables have the architecture of the GPUs."""
    return cluster.gpu.collectives_as in ARCHITECTURES


def _usual_version(cluster: Cluster) -> Version:
    """The version of NCCL in the logs of the GPUs' architecture."""
    return USUAL[cluster.gpu.collectives_as]


def _communicator(group: RankGroup, cluster: Cluster, version: Version) -> Communicator:
    return communicator_on(
        cluster, ranks=group.ranks, domains=group.nodes, fewest=group.local, version=version
    )


def _ring_ends(kind: str, place: Place) -> float:
    """What the ends of a ring inside a domain cost, as payload that its links could have carried.

    A rank copies its own part from its input before the first step, or out of the buffer after the last, and
    that is not all behind its n-1 sends. It shows where these are few: a pair of H100 reaches 258 GB/s in an
    all_gather, four 317 and eight 337; of B200 438, 557 and 617 (aiconfigurator, 512 MB).
    """
    if place.on_network or kind not in _WITH_OWN_PART:
        return 0.0
    return place.arch.ring_ends * place.reached / place.placement.ranks


def _tree(place: Place) -> Way:
    """A chain inside each domain, two binary trees over the domains; up to reduce, down to spread."""
    group, loads = place.group, place.loads("tree", "all_reduce")
    up_s = (group.most - 1) * place.arch.step_s + math.log2(group.nodes) * place.hop_s
    chain = place.chain * place.constants.tree.efficiency / 2 if group.most > 1 else math.inf
    inside = min(chain, _tree_channels(group, place.cluster)) if place.on_network else chain
    outside = over(place.edge / group.local, loads.network)
    latency_s = place.arch.base_s + 2 * up_s
    return way_through("tree", place, loads, latency_s=latency_s, inside=inside, outside=outside)


@lru_cache(maxsize=256)
def _tree_channels(group: RankGroup, cluster: Cluster) -> float:
    """Payload rate of what the thread blocks of all channels reduce and copy, as NCCL 2.28 states it.

    24 GB/s a channel on three Blackwell nodes and more, where 2.27 still believed in 72: 20 racks of
    GB200 with 16 channels are measured at 203 GB/s (2 x 203 / 16 = 25).
    """
    if not _is_in_tables(cluster):
        return math.inf
    comm = _communicator(group, cluster, OF_TABLES)
    channels = (comm.tree or comm.ring).channels
    return channels * comm.constants.tree[min(group.nodes, 3) - 1] * GIGA / 2


def _tree_chunks(place: Place) -> TreeChunks | None:
    """How chunks fill a tree over hosts; None inside one, and for GPUs that NCCL's tables lack.

    The longest way passes a chain up and down. At every host but the lowest it also passes between the two
    GPUs that children reach (NCCL's balanced trees).
    """
    cluster, group = place.cluster, place.group
    if not place.on_network or not _is_in_tables(cluster):
        return None
    version = _usual_version(cluster)
    comm = _communicator(group, cluster, version)
    levels, network = math.log2(group.nodes), cluster.interconnect
    passed_on = max(0.0, levels - 1) if group.local > 1 else 0.0
    return TreeChunks(
        channels=comm.channels,
        local_stages=2 * (group.most - 1 + passed_on),
        network_stages=2 * levels,
        local_bytes_per_s=comm.constants.tree[0] * GIGA,
        network_bytes_per_s=max(place.nic, network.link_bytes_per_s * network.efficiency),
        depth=group.local - 1 + math.floor(levels) if tree_chunks_by_depth(version) else None,
    )


def with_protocols(
    way: Way, place: Place, simple: float | None = None, chunks: TreeChunks | None = None
) -> tuple[Curve, ...]:
    """The way with each protocol; ``simple`` overrides how coarsely Simple pipelines, ``chunks`` say it."""
    found = []
    for name, protocol in place.constants.protocols.items():
        pipelining = protocol.network_pipelining if place.on_network else protocol.node_pipelining
        if name == "Simple" and simple is not None:
            pipelining = simple
        share = place.arch.ll_rate if protocol.rate is None else protocol.rate
        found.append(
            way.curve(
                name,
                way.latency_s * protocol.latency,
                way.rate * share,
                pipelining,
                chunks=chunks if name == "Simple" else None,
                messages=_messages(way, place, NcclProtocol(name)),
            )
        )
    return tuple(found)


_WIRE = {NcclProtocol.LL: 2.0, NcclProtocol.LL128: 128 / 120, NcclProtocol.SIMPLE: 1.0}
"""Bytes on the wire for each byte of the payload, flags included."""


def _messages(way: Way, place: Place, protocol: NcclProtocol) -> NetworkMessages | None:
    """The messages of a network whose receivers fetch what is large; None on others."""
    cluster = place.cluster
    network = cluster.interconnect
    if not place.on_network or not network.rendezvous_s:
        return None
    least = BYTES_PER_THREAD[protocol] * THREADS[protocol]
    return NetworkMessages(
        parts=way.parts,
        most_channels=2 * max(1, network.links_per_host),
        least_bytes=float(least * (way.parts if protocol is NcclProtocol.LL else 1)),
        wire=_WIRE[protocol],
        eager_bytes=network.eager_bytes,
        rendezvous_s=network.rendezvous_s,
    )


def _switch_reduces(place: Place) -> bool:
    """Racks of hosts reduce inside only: 20 racks of GB200 (CoreWeave, NCCL 2.26) run at a tree's rate."""
    cluster = place.cluster
    if not cluster.gpu.nvls or place.placement.fewest < 3:
        return False
    racks = cluster.nvlink_domain > cluster.gpus_per_node
    return not racks if place.on_network else place.placement.domains == 1


def nvls_bytes_per_s(place: Place) -> float:
    """What a GPU's NVLink carries to and from switches that reduce; a little less in larger domains."""
    assert place.arch.nvls_efficiency is not None
    crowd = 1 + place.constants.nvls.rank_loss * max(0, place.placement.most - 8)
    return place.nvlink * place.arch.nvls_efficiency / crowd


def _nvls(place: Place) -> Curve:
    """The switch reduces and spreads. Simple is its protocol."""
    loads = place.loads("nvls", "all_reduce")
    assert place.arch.nvls_latency_s is not None
    way = Way(
        algorithm="nvls",
        latency_s=place.arch.nvls_latency_s,
        rate=over(nvls_bytes_per_s(place), loads.local),
        nvlink=float(loads.local),
        nic=0.0,
        binding="nvlink",
        steps=loads.steps,
        network_steps=0,
    )
    return way.curve("Simple", way.latency_s, way.rate, place.constants.nvls.pipelining)


def _nvls_tree(place: Place) -> Curve:
    """The switches reduce and spread; over nodes their results go through a tree. Simple is its protocol."""
    loads, nvls = place.loads("nvls-tree", "all_reduce"), place.constants.nvls
    assert place.arch.nvls_latency_s is not None
    inside = over(nvls_bytes_per_s(place), loads.local) * nvls.tree_efficiency
    outside = over(place.edge / place.group.local, loads.network)
    between_s = 2 * math.log2(place.group.nodes) * place.hop_s
    way = Way(
        algorithm="nvls_tree",
        latency_s=place.arch.nvls_latency_s + between_s * place.constants.protocols["Simple"].latency,
        rate=min(inside, outside),
        nvlink=float(loads.local),
        nic=float(loads.network),
        binding="nic" if outside < inside else "nvlink",
        steps=loads.steps,
        network_steps=loads.network_steps,
    )
    return way.curve("Simple", way.latency_s, way.rate, nvls.tree_pipelining)


def _pairs(place: Place) -> Curve:
    """A message to every other rank; those to other domains pass NVLink too, to the GPU on their rail."""
    if not place.on_network and place.arch.pair_s is not None:
        return _pairs_in_a_host(place, place.arch.pair_s)
    loads, pairwise = place.loads("pairwise", "all_to_all"), place.constants.pairwise
    n, local = place.group.ranks, place.group.local
    through = Fraction(n - 1, n)  # to neighbours, and to whoever sends it on
    outside = over(place.scattered, loads.network)
    link = (
        min(place.nvlink, place.ring) if place.inside == "nvlink" else place.ring
    )  # bridges join pairs alone
    inside = over(link * pairwise.efficiency, through)
    # The receiver says that it is ready, then the data come: two crossings.
    latency_s = pairwise.latency_s + 2 * place.crossing_s
    latency_s += (local - 1) * pairwise.peer_s + (n - local) * pairwise.remote_peer_s
    way = way_through("pairs", place, loads, latency_s=latency_s, inside=inside, outside=outside)
    way = replace(way, nvlink=place.on_nvlink(through))
    return way.curve("Simple", latency_s, way.rate, pairwise.pipelining)


def _pairs_in_a_host(place: Place, pair_s: float) -> Curve:
    """Messages that need no network. Over NVLink a rank copies its own part besides, as in a ring
    (``_ring_ends``): two H100 exchange 512 MB at 280 GB/s, four at 320 (aiconfigurator).
    """
    loads, pairwise, arch = place.loads("pairwise", "all_to_all"), place.constants.pairwise, place.arch
    if place.inside == "nvlink" and arch.pair_efficiency is not None:
        ends = arch.ring_ends * place.reached / place.placement.ranks
        rate = over(place.nvlink * arch.pair_efficiency, float(loads.local) + ends)
    else:
        rate = over(place.ring * pairwise.efficiency, loads.local)
    way = Way(
        algorithm="pairs",
        latency_s=pair_s + (place.group.local - 1) * pairwise.peer_s,
        rate=rate,
        nvlink=place.on_nvlink(loads.local),
        nic=0.0,
        binding=place.inside,
        steps=loads.steps,
        network_steps=0,
    )
    return way.curve("Simple", way.latency_s, way.rate, pairwise.node_pipelining)
