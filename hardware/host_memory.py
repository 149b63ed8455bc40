"""What a host offers for state that GPUs keep there: memory, the way to it, and disks.

Sources:
    DGX A100 user guide (2 x EPYC 7742: eight channels of DDR4-3200 each; eight 3.84 TB PCIe 4 drives).
    DGX H100 user guide (2 x Xeon 8480C: eight channels of DDR5-4800 each; eight such drives).
    NVIDIA Grace data sheet (LPDDR5X, up to 500 GB/s a CPU; NVLink-C2C 900 GB/s both ways, a superchip).
    A drive: Samsung PM9A3 data sheet, 6.9 GB/s read and 4.1 GB/s write. Servers of other makes are taken
    like the nearest of these (unverified).
"""

from __future__ import annotations

from dataclasses import dataclass

from .gpu import Gpu
from .node import node_for

DRIVES = 8
DRIVE_READ_BYTES_PER_S, DRIVE_WRITE_BYTES_PER_S = 6.9e9, 4.1e9


@dataclass(frozen=True, kw_only=True)
class HostMemory:
    """Rates of one host, in bytes per second: of its memory, of one GPU's way to it in one direction while
    all GPUs use theirs, and of its disks."""

    memory_bytes_per_s: float
    link_bytes_per_s: float
    disk_read_bytes_per_s: float
    disk_write_bytes_per_s: float


_MEMORY = {
    "DGX A100": 2 * 8 * 25.6e9,
    "HGX H100/H200": 2 * 8 * 38.4e9,
    "HGX B200/B300": 2 * 8 * 44.8e9,
    "NVL72 compute tray": 2 * 500e9,
    "MI300X platform": 2 * 12 * 38.4e9,
    "PCIe server": 2 * 8 * 25.6e9,
}
"""Two sockets; channels of 8 bytes at their transfer rate."""

C2C_BYTES_PER_S = 450e9  # one way; two GPUs share a Grace


def host_memory_of(gpu: Gpu, gpus_per_node: int) -> HostMemory:
    """What a host with ``gpus_per_node`` of these GPUs has."""
    node = node_for(gpu)
    link = gpu.pcie_bytes_per_s
    if node.pcie_switches:  # each has one way up to its socket, as wide as a GPU's own
        link *= min(1.0, node.pcie_switches / gpus_per_node)
    else:
        link = C2C_BYTES_PER_S / 2 if node.hosts_per_domain > 1 else link
    return HostMemory(
        memory_bytes_per_s=_MEMORY[node.name],
        link_bytes_per_s=link,
        disk_read_bytes_per_s=DRIVES * DRIVE_READ_BYTES_PER_S,
        disk_write_bytes_per_s=DRIVES * DRIVE_WRITE_BYTES_PER_S,
    )
