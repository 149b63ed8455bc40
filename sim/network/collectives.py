"""What one collective costs on the cluster: latency, ceiling, and the weight it puts on each link.

Chooses among NCCL's algorithms and protocols, whose costs are in ``algorithms``, and knows
point-to-point messages. Payload and bus bandwidth are nccl-tests': a collective on ``n`` ranks
moves 2(n-1)/n bytes per payload byte for all_reduce, (n-1)/n for all_gather and reduce_scatter
(payload: the whole buffer).

References:
    nccl-tests doc/PERFORMANCE.md (bus bandwidth). NCCL src/graph/tuning.cc (the quickest by its
    own estimate runs; here the quickest by ours).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from ...hardware.collectives import CollectiveConstants, collective_constants
from .algorithms import ALGORITHMS, Curve, curves, on_network, share_above_the_leaf
from .seat import KINDS, Seat, payload_factor
from .transfer import Transfer

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ..scenario.models import MeasuredNetwork

Reach = Literal["domain", "host", "unit", "fabric"]
"""How far a message goes: one NVLink domain, one host, hosts on the same leaf switches, beyond."""

_PATTERNS = {"ring": "ring", "tree": "tree", "nvls": "ring", "nvls_tree": "tree", "pairs": "pairs"}
"""Who sends to whom over the network, by algorithm (patterns.py)."""

REFERENCE_BYTES = float(1 << 30)
"""Payload of the job-wide measurements that a scenario may carry (1 GiB of FP32)."""


def collective_transfer(
    kind: str, payload_bytes: float, seat: Seat, cluster: Cluster, measured: MeasuredNetwork | None = None
) -> Transfer:
    """``kind`` is all_reduce, all_gather, reduce_scatter, all_to_all, or one neighbour to the next: ring_step
    (userbuffers in an NVLink domain), neighbours (NCCL's send and receive, over whatever lies between).
    """
    if seat.ranks == 1:
        return Transfer(0.0, 0.0, math.inf)
    if kind == "ring_step":
        return ring_step_transfer(payload_bytes, cluster)
    if kind == "neighbours":
        return neighbour_transfer(payload_bytes, seat, cluster)
    ratio = _measured_ratio(kind, seat, cluster, measured)
    curve = chosen(curves(kind, seat, cluster, collective_constants(), ratio), payload_bytes)
    ceiling = payload_bytes / curve.transfer_s(payload_bytes) if payload_bytes else math.inf
    sms, pattern = _sms(curve.algorithm, seat, cluster), _PATTERNS[curve.algorithm]
    return Transfer(curve.latency_s, payload_bytes, ceiling, _weights(curve), sms, pattern, curve.binding)


def chosen(
    ways: Iterable[Curve], payload_bytes: float, algorithm: str | None = None, protocol: str | None = None
) -> Curve:
    """The curve that runs: the quickest, of those with the ``algorithm`` and ``protocol`` that a user forces.

    ValueError when the collective has none of these on this group.
    """
    ways = tuple(ways)
    allowed = [
        way
        for way in ways
        if algorithm in (None, way.algorithm) and (protocol is None or protocol == way.protocol)
    ]
    if not allowed:
        wanted = " with ".join(filter(None, (algorithm, protocol)))
        has = ", ".join(f"{way.algorithm} with {way.protocol}" for way in ways)
        raise ValueError(f"no {wanted} for this collective and group; there are: {has}")
    return min(allowed, key=lambda way: way.solo_s(payload_bytes))


def collective_curve(
    kind: str,
    payload_bytes: float,
    seat: Seat,
    cluster: Cluster,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    constants: CollectiveConstants | None = None,
) -> Curve:
    """What runs for one of KINDS on an idle network. ValueError for a kind or forced choice that is not."""
    if kind == "sendrecv":
        return chosen([_neighbours(payload_bytes, seat, cluster)], payload_bytes, algorithm, protocol)
    ways = curves(kind, seat, cluster, constants or collective_constants())
    return chosen(ways, payload_bytes, algorithm, protocol)


def _neighbours(payload_bytes: float, seat: Seat, cluster: Cluster) -> Curve:
    """nccl-tests' sendrecv: each rank sends to the next; where some cross to another domain, those decide."""
    reach = _farthest(seat, cluster)
    sent = message_transfer(payload_bytes, reach, cluster)
    link = {"domain": "nvlink", "host": "pcie"}.get(reach, "nic")
    nvlink, nic = float(link == "nvlink"), float(link == "nic")
    return Curve("pairs", "Simple", sent.latency_s, 1 / sent.ceiling_bytes_per_s, 0.0, nvlink, nic, link)


def _farthest(seat: Seat, cluster: Cluster) -> Reach:
    if not on_network(seat, cluster):
        return "domain" if seat.domains == 1 else "host"
    return "fabric" if seat.units > 1 else "unit"


def neighbour_transfer(payload_bytes: float, seat: Seat, cluster: Cluster) -> Transfer:
    """Every rank of a ring sends to the next and receives from the one before; the farthest hop decides."""
    sent = message_transfer(payload_bytes, _farthest(seat, cluster), cluster)
    weights = tuple((f"{link}.{way}", share) for link, share in sent.weights for way in ("out", "in"))
    ceiling = sent.ceiling_bytes_per_s
    return Transfer(sent.latency_s, payload_bytes, ceiling, weights, sent.sms, "neighbours", sent.binding)


def ring_step_transfer(payload_bytes: float, cluster: Cluster) -> Transfer:
    """One chunk to the next GPU of the NVLink domain, as userbuffers' ring exchange sends it (1 SM)."""
    rate = cluster.gpu.nccl_nvlink_bytes_per_s
    latency = collective_constants().architectures[cluster.gpu.architecture].step_s
    return Transfer(
        latency, payload_bytes, rate, (("nvlink.out", 1.0), ("nvlink.in", 1.0)), 1, "ring", "nvlink"
    )


def message_transfer(payload_bytes: float, reach: Reach, cluster: Cluster, *, messages: int = 1) -> Transfer:
    """One point-to-point message; ``messages`` counts it and the small ones before it, each a latency."""
    p2p = collective_constants().point_to_point
    if reach == "domain":
        # Up to a size NCCL keeps to a few channels per peer; beyond, more channels keep the time level.
        few_channels = collective_constants().architectures[cluster.gpu.architecture].message_bytes_per_s
        rate = few_channels * max(1.0, payload_bytes / p2p.nvlink_few_channels_bytes)
        rate = min(rate, cluster.gpu.nccl_nvlink_bytes_per_s * p2p.nvlink_efficiency)
        return Transfer(
            messages * p2p.nvlink_latency_s,
            payload_bytes,
            rate,
            (("nvlink", 1.0),),
            p2p.sms,
            binding="nvlink",
        )
    if reach == "host":
        rate = cluster.intra_node_bytes_per_s_per_gpu
        return Transfer(messages * p2p.nvlink_latency_s, payload_bytes, rate, (), p2p.sms, binding="pcie")
    share = 1.0 if reach == "unit" else share_above_the_leaf(1.0, cluster)
    rate = min(p2p.network_bytes_per_s, cluster.nic_bytes_per_s_per_gpu * share)
    # The receiver says that it is ready, then the data come: two crossings besides NCCL's own time.
    latency_s = p2p.nvlink_latency_s + 2 * cluster.interconnect.latency_s
    return Transfer(messages * latency_s, payload_bytes, rate, (("nic", 1.0),), p2p.sms, binding="nic")


def _weights(curve: Curve) -> tuple[tuple[str, float], ...]:
    nvlink = (("nvlink.out", curve.nvlink), ("nvlink.in", curve.nvlink)) if curve.nvlink else ()
    return (*nvlink, ("nic.out", curve.nic), ("nic.in", curve.nic)) if curve.nic else nvlink


def _sms(algorithm: str, seat: Seat, cluster: Cluster) -> int:
    sms = collective_constants().sms
    if on_network(seat, cluster):
        return sms["network"]
    return sms["nvls"] if algorithm == "nvls" else sms["node"]


def _measured_ratio(kind: str, seat: Seat, cluster: Cluster, measured: MeasuredNetwork | None) -> float:
    """Measured bus bandwidth over predicted, at the size of the measurement and for its group (all GPUs)."""
    if measured is None:
        return 1.0
    if not on_network(seat, cluster):
        # The intra-host figures of all_gather and reduce_scatter contain copies of the list
        # interface; the state of the links is read off the all_reduce.
        value, reference, kind = (
            measured.all_reduce_intra_bytes_per_s,
            Seat(ranks=cluster.nvlink_domain, domains=1),
            "all_reduce",
        )
    else:
        value = (
            measured.all_reduce_bytes_per_s
            if kind == "all_reduce"
            else getattr(measured, f"{kind}_bytes_per_s")
        )
        reference = Seat(ranks=cluster.gpus, domains=cluster.gpus // cluster.nvlink_domain)
    if value is None or reference.ranks < 2:
        return 1.0
    ideal = collective_transfer(kind, REFERENCE_BYTES, reference, cluster)
    predicted = REFERENCE_BYTES * payload_factor(kind, reference.ranks) / ideal.solo_s
    return min(1.0, value / predicted)


__all__ = [
    "ALGORITHMS",
    "KINDS",
    "CollectiveConstants",
    "Reach",
    "Seat",
    "chosen",
    "collective_transfer",
    "message_transfer",
    "payload_factor",
    "ring_step_transfer",
]
