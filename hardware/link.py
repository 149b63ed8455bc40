"""What joins two vertices of the cluster graph.

Knows rates and latencies of one link; does not know who shares it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .fabrics.link_kinds import LinkKind

NVLINK_LATENCY_S = 0.855e-6
"""Latency of NVLink, one way from GPU to GPU, in seconds: half of the 1.71 us round trip that nvbandwidth
reads on GB300 (OCI); carried to the other GPUs. The HGX H100 input of ASTRA-sim has 0.94 us."""

PCIE_LATENCY_S = 0.5e-6
"""Latency of PCIe, one way between a GPU and its NIC or host bridge, in seconds (unverified; GB300 reads host
memory over C2C in 0.58 us: OCI, nvbandwidth)."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link, or a bundle of equal cables between the same two ends. Full duplex.

    ``bytes_per_s`` is the line rate per direction, ``efficiency`` the share of it that large
    messages reach. ``kind``: ``nvlink`` (xGMI too), ``pcie`` (GPU to NIC or host bridge), ``nic``
    (NIC to leaf switch), ``uplink`` (leaf to spine), ``core`` (spine to core), ``local`` and ``global``
    (inside and between the groups of a dragonfly), ``torus`` (neighbours), ``cable`` (of a custom graph).
    """

    kind: LinkKind
    bytes_per_s: float
    latency_s: float
    efficiency: float = 1.0

    @property
    def usable_bytes_per_s(self) -> float:
        """The rate per direction that large messages reach."""
        return self.bytes_per_s * self.efficiency


__all__ = ["NVLINK_LATENCY_S", "PCIE_LATENCY_S", "Link", "LinkKind"]
