"""What one collective costs on the cluster: latency, ceiling, and the weight it puts on each link.

Rings over the GPUs of a group and, for all-reduce inside an NVSwitch that reduces, NVLS; pairwise
point-to-point messages. A collective on ``n`` ranks moves 2(n-1)/n bytes per payload byte through
every rank's link for all_reduce, (n-1)/n for all_gather and reduce_scatter (payload: the whole
buffer), as nccl-tests counts.

Time alone is ``a + 2 c sqrt(a S/B) + S/B``: a pipeline of latency a and bandwidth B, whose best
chunk size gives c = 1.

References:
    Thakur, Rabenseifner, Gropp 2005; Patarasuk & Yuan 2009 (rings). NCCL src/graph/tuning.cc
    v2.28.9 (latency steps). nccl-tests doc/PERFORMANCE.md (bus bandwidth).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...hardware.collectives import collective_constants
from .transfer import Transfer

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ..scenario.models import MeasuredNetwork

Reach = Literal["domain", "host", "unit", "fabric"]
"""How far a message goes: one NVLink domain, one host, hosts on the same leaf switches, beyond."""

REFERENCE_BYTES = float(1 << 30)
"""Payload of the job-wide measurements that a scenario may carry (1 GiB of FP32)."""


@dataclass(frozen=True, kw_only=True)
class Seat:
    """How a group sits on the cluster: ``ranks`` over ``domains`` NVLink domains, equally.

    ``units`` counts the groups of hosts with leaf switches of their own that it spans.
    """

    ranks: int
    domains: int
    units: int = 1

    @property
    def per_domain(self) -> int:
        return self.ranks // self.domains


def payload_factor(kind: str, ranks: int) -> float:
    """Bytes through each rank's link per payload byte (nccl-tests' bus-bandwidth factor)."""
    return 2.0 * (ranks - 1) / ranks if kind == "all_reduce" else (ranks - 1) / ranks


def collective_transfer(
    kind: str, payload_bytes: float, seat: Seat, cluster: Cluster, measured: MeasuredNetwork | None = None
) -> Transfer:
    """``kind`` is all_reduce, all_gather, reduce_scatter or ring_step (one neighbour to the next)."""
    if seat.ranks == 1:
        return Transfer(0.0, 0.0, math.inf)
    if kind == "ring_step":
        return ring_step_transfer(payload_bytes, cluster)
    latency_s, pipelining = _latency(kind, seat, cluster)
    bus = _bus_bytes_per_s(kind, seat, cluster) * _measured_ratio(kind, seat, cluster, measured)
    factor = payload_factor(kind, seat.ranks)
    moving_s = payload_bytes * factor / bus
    total_s = moving_s + 2 * pipelining * math.sqrt(latency_s * moving_s)
    ceiling = payload_bytes / total_s if payload_bytes else math.inf
    return Transfer(
        latency_s, payload_bytes, ceiling, _weights(factor, seat, cluster), _sms(kind, seat, cluster)
    )


def ring_step_transfer(payload_bytes: float, cluster: Cluster) -> Transfer:
    """One chunk to the next GPU of the NVLink domain, as userbuffers' ring exchange sends it (1 SM)."""
    rate = cluster.gpu.nccl_nvlink_bytes_per_s
    latency = collective_constants().architectures[cluster.gpu.architecture].step_s
    return Transfer(latency, payload_bytes, rate, (("nvlink.out", 1.0), ("nvlink.in", 1.0)), 1)


def message_transfer(payload_bytes: float, reach: Reach, cluster: Cluster, *, messages: int = 1) -> Transfer:
    """One point-to-point message; ``messages`` counts it and the small ones before it, each a latency."""
    p2p = collective_constants().point_to_point
    if reach == "domain":
        # Up to a size NCCL keeps to a few channels per peer; beyond, more channels keep the time level.
        few_channels = collective_constants().architectures[cluster.gpu.architecture].message_bytes_per_s
        rate = few_channels * max(1.0, payload_bytes / p2p.nvlink_few_channels_bytes)
        rate = min(rate, cluster.gpu.nccl_nvlink_bytes_per_s * p2p.nvlink_efficiency)
        return Transfer(messages * p2p.nvlink_latency_s, payload_bytes, rate, (("nvlink", 1.0),), p2p.sms)
    if reach == "host":
        rate = cluster.intra_node_bytes_per_s_per_gpu
        return Transfer(messages * p2p.nvlink_latency_s, payload_bytes, rate, (), p2p.sms)
    share = 1.0 if reach == "unit" else _share_above_the_leaf(1.0, cluster)
    rate = min(p2p.network_bytes_per_s, cluster.nic_bytes_per_s_per_gpu * share)
    # The receiver says that it is ready, then the data come: two crossings besides NCCL's own time.
    latency_s = p2p.nvlink_latency_s + 2 * cluster.interconnect.latency_s
    return Transfer(messages * latency_s, payload_bytes, rate, (("nic", 1.0),), p2p.sms)


def _on_network(seat: Seat, cluster: Cluster) -> bool:
    """Whether the group leaves its host; cards that NVLink joins in pairs meet over PCIe before that."""
    return seat.domains > 1 and cluster.nodes > 1


def _latency(kind: str, seat: Seat, cluster: Cluster) -> tuple[float, float]:
    constants = collective_constants()
    arch = constants.architectures[cluster.gpu.architecture]
    rounds = 2 if kind == "all_reduce" else 1
    local_s = arch.base_s + rounds * (seat.per_domain - 1) * arch.step_s
    if not _on_network(seat, cluster):
        if kind == "all_reduce" and arch.nvls_efficiency and seat.ranks > 2:
            return arch.base_s + 7 * arch.step_s, 1.0  # one pass through the switch, whatever the ranks
        return local_s, 1.0 if kind == "all_reduce" else arch.ring_pipelining
    fabric, pipelining = constants.fabrics[cluster.interconnect.kind], constants.network_pipelining
    if kind == "all_reduce":
        return local_s + fabric.base_s + 2 * math.log2(seat.domains) * fabric.tree_hop_s, pipelining
    return local_s + fabric.base_s + (seat.domains - 1) * fabric.ring_hop_s, pipelining


def _bus_bytes_per_s(kind: str, seat: Seat, cluster: Cluster) -> float:
    arch = collective_constants().architectures[cluster.gpu.architecture]
    ring = cluster.intra_node_bytes_per_s_per_gpu * arch.ring_efficiency
    if not _on_network(seat, cluster):
        if kind == "all_reduce" and arch.nvls_efficiency and seat.ranks > 2:
            return cluster.gpu.nccl_nvlink_bytes_per_s * arch.nvls_efficiency
        return ring
    share = _share_above_the_leaf(seat.domains / seat.units, cluster) if seat.units > 1 else 1.0
    network = seat.per_domain * cluster.nic_bytes_per_s_per_gpu * share
    return min(ring, network) if seat.per_domain > 1 else network


def _share_above_the_leaf(domains_per_unit: float, cluster: Cluster) -> float:
    """Share of the NIC rate that oversubscribed uplinks leave.

    A ring leaves a unit once, whatever the domains in it, so that only one in ``domains_per_unit``
    sends upwards; messages between units all do (1).
    """
    return min(1.0, domains_per_unit / cluster.fabric.oversubscription)


def _weights(factor: float, seat: Seat, cluster: Cluster) -> tuple[tuple[str, float], ...]:
    nvlink = (("nvlink.out", factor), ("nvlink.in", factor)) if seat.per_domain > 1 else ()
    if not _on_network(seat, cluster):
        return nvlink
    # A ring crosses each domain's edge once per channel; the channels spread over the members' NICs.
    share = factor / seat.per_domain
    return (*nvlink, ("nic.out", share), ("nic.in", share))


def _sms(kind: str, seat: Seat, cluster: Cluster) -> int:
    sms = collective_constants().sms
    if _on_network(seat, cluster):
        return sms["network"]
    nvls = collective_constants().architectures[cluster.gpu.architecture].nvls_efficiency
    return sms["nvls"] if kind == "all_reduce" and nvls else sms["node"]


def _measured_ratio(kind: str, seat: Seat, cluster: Cluster, measured: MeasuredNetwork | None) -> float:
    """Measured bus bandwidth over predicted, at the size of the measurement and for its group (all GPUs)."""
    if measured is None:
        return 1.0
    if not _on_network(seat, cluster):
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
