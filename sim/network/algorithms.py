"""What each of NCCL's algorithms with each of its protocols costs one group: a curve over the payload.

Knows rings, trees, the reduction in the NVSwitch (NVLS), trees of it over nodes (NVLSTree) and
messages between all pairs. A curve is ``a + 2 c sqrt(a m) + m`` with m the time that the payload
moves: a pipeline of latency a, whose best chunk size gives c = 1. Does not choose; choosing is in
``collectives``.

Bytes through a GPU's link per payload byte, n ranks, g of them in a domain, N domains:

    ring      2(n-1)/n all_reduce, (n-1)/n all_gather and reduce_scatter; a host's edge carries the same
    tree      2 over NVLink (up and down a chain); a host's edge 1 for N = 2, else 2 (double binary tree:
              inner node of one, leaf of the other)
    NVLS      1 + 1/g: a GPU's payload goes up once for all shards, its reduced shard comes down
    pairs     (n-1)/n over NVLink; (n-g)/n over its NIC

References:
    Patarasuk & Yuan 2009 (rings); Sanders, Speck, Traff 2009 (two trees); NCCL 2.28.9
    src/graph/tuning.cc (steps, and which algorithm is for what), search.cc (channels).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...hardware.collectives import ArchitectureCollectives, CollectiveConstants
from .seat import ROUNDS, Seat, payload_factor

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster

ALGORITHMS = ("ring", "tree", "nvls", "nvls_tree", "pairs")
RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class Curve:
    """Time over payload of one algorithm with one protocol.

    ``nvlink`` and ``nic`` are bytes per payload byte through a GPU's NVLink and its share of the
    NICs; ``binding`` is the link that bounds the rate.
    """

    algorithm: str
    protocol: str
    latency_s: float
    seconds_per_byte: float
    pipelining: float
    nvlink: float
    nic: float
    binding: str

    def transfer_s(self, payload_bytes: float) -> float:
        """Time after the latency."""
        moving_s = payload_bytes * self.seconds_per_byte
        return moving_s + 2 * self.pipelining * math.sqrt(self.latency_s * moving_s)

    def solo_s(self, payload_bytes: float) -> float:
        return self.latency_s + self.transfer_s(payload_bytes)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A group's surroundings.

    Rates in bytes per second: of a GPU's NVLink, of a chain and a ring through a host's GPUs, of a
    GPU's NICs under messages to many peers, and of a domain's edge as far as rings and trees use it.
    ``hop_s`` is one step between nodes with LL, ``crossing_s`` the network's part of it.
    """

    seat: Seat
    constants: CollectiveConstants
    arch: ArchitectureCollectives
    on_network: bool
    nvlink: float
    chain: float
    ring: float
    scattered: float
    edge: float
    hop_s: float
    crossing_s: float
    inside: str


@dataclass(frozen=True, kw_only=True)
class _Way:
    """An algorithm before its protocol: ``latency_s`` with LL, payload rate with Simple, link weights."""

    algorithm: str
    latency_s: float
    rate: float
    nvlink: float
    nic: float
    binding: str


def curves(
    kind: str, seat: Seat, cluster: Cluster, constants: CollectiveConstants, ratio: float = 1.0
) -> tuple[Curve, ...]:
    """Every way that NCCL has for this collective and group; ``ratio`` scales all rates.

    ValueError for a kind that is no collective.
    """
    if kind not in (*RINGS, *ROUNDS):
        known = ", ".join(dict.fromkeys((*RINGS, *ROUNDS)))
        raise ValueError(f"no collective {kind!r}; known: {known}")
    place = _place(seat, cluster, constants, ratio)
    if kind not in RINGS:
        return (_pairs(place),)
    found = _protocols(_ring(kind, place), place)
    if kind == "all_reduce" and place.on_network:
        found += _protocols(_tree(place), place, simple=constants.tree.pipelining)
    if kind == "all_reduce" and _switch_reduces(place, cluster):
        found += _nvls(place)
    return found


def on_network(seat: Seat, cluster: Cluster) -> bool:
    """Whether the group leaves its host; cards that NVLink joins in pairs meet over PCIe before that."""
    return seat.domains > 1 and cluster.nodes > 1


def share_above_the_leaf(domains_per_unit: float, cluster: Cluster) -> float:
    """Share of the NIC rate that oversubscribed uplinks leave.

    A ring leaves a unit once, whatever the domains in it, so that only one in ``domains_per_unit``
    sends upwards; messages between units all do (1).
    """
    return min(1.0, domains_per_unit / cluster.fabric.oversubscription)


def _place(seat: Seat, cluster: Cluster, constants: CollectiveConstants, ratio: float) -> _Place:
    arch = constants.architectures[cluster.gpu.architecture]
    away = on_network(seat, cluster)
    nic = cluster.nic_bytes_per_s_per_gpu * ratio
    share = share_above_the_leaf(seat.domains / seat.units, cluster) if seat.units > 1 else 1.0
    fabric = constants.fabrics[cluster.interconnect.kind] if away else None
    most = fabric.pairwise_bytes_per_s if fabric else None
    inside = "nvlink" if cluster.nvlink_domain >= min(cluster.gpus_per_node, cluster.gpus) else "pcie"
    counted = cluster.intra_node_bytes_per_s_per_gpu * arch.ring_efficiency
    copied = cluster.gpu.nvlink_bytes_per_s * constants.copy_efficiency
    crossing_s = cluster.interconnect.latency_s if away else 0.0
    scattered = nic * (share_above_the_leaf(1.0, cluster) if seat.units > 1 else 1.0)
    return _Place(
        seat=seat,
        constants=constants,
        arch=arch,
        on_network=away,
        nvlink=cluster.gpu.nccl_nvlink_bytes_per_s * ratio,
        chain=counted * ratio,
        ring=(copied if away and inside == "nvlink" else counted) * ratio,
        scattered=min(scattered, most * ratio) if most else scattered,
        edge=min(seat.per_domain, constants.network_gpus) * nic * share if away else math.inf,
        hop_s=fabric.hop_s + crossing_s if fabric else 0.0,
        crossing_s=crossing_s,
        inside=inside,
    )


def _ring(kind: str, place: _Place) -> _Way:
    """Every rank sends to the next; one step in g of them crosses to another domain."""
    seat, factor = place.seat, payload_factor(kind, place.seat.ranks)
    crossings = seat.domains if place.on_network else 1
    local_s = (seat.ranks - crossings) * place.arch.step_s + (crossings - 1) * place.hop_s
    inside = place.ring if seat.per_domain > 1 or not place.on_network else math.inf
    return _Way(
        algorithm="ring",
        latency_s=place.arch.base_s + ROUNDS.get(kind, 1) * local_s,
        rate=min(inside, place.edge) / factor,
        nvlink=factor,
        nic=factor / seat.per_domain,
        binding="nic" if place.edge < inside else place.inside,
    )


def _tree(place: _Place) -> _Way:
    """A chain inside each domain, two binary trees over the domains; up to reduce, down to spread."""
    seat = place.seat
    up_s = (seat.per_domain - 1) * place.arch.step_s + math.log2(seat.domains) * place.hop_s
    inside = place.chain * place.constants.tree.efficiency / 2 if seat.per_domain > 1 else math.inf
    outside = place.edge / _tree_edge(seat)
    return _Way(
        algorithm="tree",
        latency_s=place.arch.base_s + 2 * up_s,
        rate=min(inside, outside),
        nvlink=2.0,
        nic=_tree_edge(seat) / seat.per_domain,
        binding="nic" if outside < inside else place.inside,
    )


def _tree_edge(seat: Seat) -> float:
    """Bytes out of a domain per payload byte: two domains send each other one; of more each sends two."""
    return 1.0 if seat.domains == 2 else 2.0


def _protocols(way: _Way, place: _Place, simple: float | None = None) -> tuple[Curve, ...]:
    """The way with each protocol; ``simple`` overrides how coarsely Simple pipelines."""
    found = []
    for name, protocol in place.constants.protocols.items():
        pipelining = protocol.network_pipelining if place.on_network else protocol.node_pipelining
        if name == "Simple" and simple is not None:
            pipelining = simple
        share = place.arch.ll_rate if protocol.rate is None else protocol.rate
        latency_s = way.latency_s * protocol.latency
        found.append(_curve(way, place, name, latency_s, way.rate * share, pipelining))
    return tuple(found)


def _switch_reduces(place: _Place, cluster: Cluster) -> bool:
    """Racks of hosts reduce inside only: 20 racks of GB200 (CoreWeave, NCCL 2.26) run at a tree's rate."""
    if not cluster.gpu.nvls or place.seat.per_domain < 3:
        return False
    racks = cluster.nvlink_domain > cluster.gpus_per_node
    return not racks if place.on_network else place.seat.domains == 1


def _nvls(place: _Place) -> tuple[Curve, ...]:
    """The switch reduces and spreads; over nodes its results go through a tree. Simple is its protocol."""
    seat, nvls, arch = place.seat, place.constants.nvls, place.arch
    assert arch.nvls_efficiency is not None
    assert arch.nvls_latency_s is not None
    crowd = 1 + nvls.rank_loss * max(0, seat.per_domain - 8)
    passes = 1 + 1 / seat.per_domain
    rate = place.nvlink * arch.nvls_efficiency / crowd / passes
    if not place.on_network:
        way = _Way(algorithm="nvls", latency_s=0.0, rate=rate, nvlink=passes, nic=0.0, binding="nvlink")
        return (_curve(way, place, "Simple", arch.nvls_latency_s, rate, nvls.pipelining),)
    inside, outside = rate * nvls.tree_efficiency, place.edge / _tree_edge(seat)
    way = _Way(
        algorithm="nvls_tree",
        latency_s=2 * math.log2(seat.domains) * place.hop_s,
        rate=min(inside, outside),
        nvlink=passes,
        nic=_tree_edge(seat) / seat.per_domain,
        binding="nic" if outside < inside else "nvlink",
    )
    latency_s = arch.nvls_latency_s + way.latency_s * place.constants.protocols["Simple"].latency
    return (_curve(way, place, "Simple", latency_s, way.rate, nvls.tree_pipelining),)


def _pairs(place: _Place) -> Curve:
    """A message to every other rank; those to other domains pass NVLink too, to the GPU on their rail."""
    seat, pairwise = place.seat, place.constants.pairwise
    n, local = seat.ranks, seat.per_domain if place.on_network else seat.ranks
    nvlink, nic = (n - 1) / n, (n - local) / n
    outside = place.scattered / nic if nic else math.inf
    inside = min(place.nvlink, place.ring) * pairwise.efficiency / nvlink
    # The receiver says that it is ready, then the data come: two crossings.
    latency_s = pairwise.latency_s + 2 * place.crossing_s
    latency_s += (local - 1) * pairwise.peer_s + (n - local) * pairwise.remote_peer_s
    way = _Way(
        algorithm="pairs",
        latency_s=latency_s,
        rate=min(inside, outside),
        nvlink=nvlink,
        nic=nic,
        binding="nic" if outside < inside else place.inside,
    )
    return _curve(way, place, "Simple", latency_s, way.rate, pairwise.pipelining)


def _curve(
    way: _Way, place: _Place, protocol: str, latency_s: float, rate: float, pipelining: float
) -> Curve:
    return Curve(
        algorithm=way.algorithm,
        protocol=protocol,
        latency_s=latency_s,
        seconds_per_byte=1 / rate,
        pipelining=pipelining,
        nvlink=way.nvlink if place.seat.per_domain > 1 else 0.0,
        nic=way.nic if place.on_network else 0.0,
        binding=way.binding,
    )
