"""One collective on an idle cluster as figures: time, bandwidths, and what was chosen.

Size, algorithm bandwidth and bus bandwidth are nccl-tests' (doc/PERFORMANCE.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...hardware.cluster import Cluster
from ..network.collectives import collective_curve
from ..network.seat import KINDS, Seat, payload_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCost:
    """One size. ``binding_link`` is nvlink, nic or pcie."""

    kind: str
    bytes: float
    ranks: int
    nodes: int
    algorithm: str
    protocol: str
    time_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    binding_link: str


def collective_cost(
    kind: str,
    payload_bytes: float,
    seat: Seat,
    cluster: Cluster,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
) -> CollectiveCost:
    """What ``kind`` costs a group that is alone. ValueError for a kind or forced choice that is not."""
    if kind not in KINDS:
        raise ValueError(f"no collective {kind!r}; known: {', '.join(KINDS)}")
    curve = collective_curve(kind, payload_bytes, seat, cluster, algorithm=algorithm, protocol=protocol)
    time_s = curve.solo_s(payload_bytes)
    rate = payload_bytes / time_s
    return CollectiveCost(
        kind=kind,
        bytes=payload_bytes,
        ranks=seat.ranks,
        nodes=cluster.nodes,
        algorithm=curve.algorithm,
        protocol=curve.protocol,
        time_s=time_s,
        algbw_bytes_per_s=rate,
        busbw_bytes_per_s=rate * payload_factor(kind, seat.ranks),
        binding_link=curve.binding,
    )
