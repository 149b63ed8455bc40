"""What a host is built of around its GPUs, and how many hosts share one NVLink domain.

Knows boards and trays, by the catalogue file nodes.yaml. Does not know their network: NICs belong to the
interconnect, because the same board is sold with different ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from .catalogue import Table
from .gpu import Gpu


@dataclass(frozen=True, kw_only=True)
class Node:
    """One kind of host.

    ``max_gpus`` is how many GPUs it holds; ``hosts_per_domain`` how many hosts NVLink joins
    (1, or the 18 trays of a rack). ``nvswitches`` counts the NVSwitch chips of one domain; 0 means
    that every two GPUs of a domain have a link of their own. ``pcie_switches`` is per host.
    ``memory_bytes_per_s`` is the rate of the host's memory, ``c2c_bytes_per_s`` a GPU's own way to it in one
    direction where that is not PCIe. ``nics_on_cpu``: NCCL looks for the way to a NIC through the CPU.
    ``launch_factor``: how many times as long a launch from Python takes as on a host of x86, ``loop_factor``
    one that a loop in C++ issues.
    """

    name: str
    max_gpus: int
    hosts_per_domain: int
    nvswitches: int
    pcie_switches: int
    cpus: str
    source: str
    memory_bytes_per_s: float
    c2c_bytes_per_s: float | None = None
    nics_on_cpu: bool = False
    launch_factor: float = 1.0
    loop_factor: float = 1.0


NODES = Table("host", __package__, "nodes.yaml", Node)
"""Every host that a GPU of the catalogue is sold in, by its name."""

NVL72_TRAY, PCIE_SERVER, HGX_BLACKWELL = "NVL72 compute tray", "PCIe server", "HGX B200/B300"

_BY_ARCHITECTURE = {
    "volta": "DGX-1",
    "ampere": "DGX A100",
    "hopper": "HGX H100/H200",
    "blackwell": HGX_BLACKWELL,
    "cdna3": "MI300X platform",
    "cdna4": "MI300X platform",
}


def node_for(gpu: Gpu) -> Node:
    """The host that this GPU is sold in."""
    if gpu.host:
        return NODES.get(gpu.host)
    if gpu.nvlink_domain > 8:
        return NODES.get(NVL72_TRAY)
    if gpu.nvlink_domain < 8:
        return NODES.get(PCIE_SERVER)
    return NODES.get(_BY_ARCHITECTURE.get(gpu.architecture, HGX_BLACKWELL))
