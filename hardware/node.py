"""What a host is built of around its GPUs, and how many hosts share one NVLink domain.

Knows boards and trays. Does not know their network: NICs belong to the interconnect, because the
same board is sold with different ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from .gpu import Gpu


@dataclass(frozen=True, kw_only=True)
class Node:
    """One kind of host.

    ``max_gpus`` is how many GPUs it holds; ``hosts_per_domain`` how many hosts NVLink joins
    (1, or the 18 trays of a rack). ``nvswitches`` counts the NVSwitch chips of one domain; 0 means
    that every two GPUs of a domain have a link of their own. ``pcie_switches`` is per host.
    """

    name: str
    max_gpus: int
    hosts_per_domain: int
    nvswitches: int
    pcie_switches: int
    cpus: str
    source: str


DGX_A100 = Node(
    name="DGX A100",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=6,
    pcie_switches=4,
    cpus="2 x AMD EPYC 7742",
    source="DGX A100 datasheet: six NVSwitches of generation 2; two GPUs and two NICs on each PCIe switch",
)
HGX_HOPPER = Node(
    name="HGX H100/H200",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=4,
    pcie_switches=4,
    cpus="2 x Intel Xeon 8480C",
    source="DGX H100 datasheet: four NVSwitches of generation 3 with NVLink SHARP",
)
HGX_BLACKWELL = Node(
    name="HGX B200/B300",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=2,
    pcie_switches=4,
    cpus="2 x Intel Xeon",
    source="DGX B200 datasheet: two NVSwitches of generation 4 (count unverified)",
)
NVL72_TRAY = Node(
    name="NVL72 compute tray",
    max_gpus=4,
    hosts_per_domain=18,
    nvswitches=18,
    pcie_switches=0,
    cpus="2 x Grace",
    source="GB200 NVL72: 18 trays of four GPUs, nine of two NVSwitches (counts unverified)",
)
MI300X_PLATFORM = Node(
    name="MI300X platform",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=0,
    pcie_switches=4,
    cpus="2 x AMD EPYC",
    source="AMD MI300X platform: eight GPUs, each with one xGMI link to every other",
)
PCIE_SERVER = Node(
    name="PCIe server",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=0,
    pcie_switches=2,
    cpus="2 x x86",
    source="common server for double-width cards; NVLink bridges join cards in pairs",
)

_BY_ARCHITECTURE = {
    "ampere": DGX_A100,
    "hopper": HGX_HOPPER,
    "blackwell": HGX_BLACKWELL,
    "cdna3": MI300X_PLATFORM,
}


def node_for(gpu: Gpu) -> Node:
    """The host that this GPU is sold in."""
    if gpu.nvlink_domain > 8:
        return NVL72_TRAY
    if gpu.nvlink_domain < 8:
        return PCIE_SERVER
    return _BY_ARCHITECTURE[gpu.architecture]
