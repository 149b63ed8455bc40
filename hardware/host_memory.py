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
from .node import Node

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


def host_memory_of(gpu: Gpu, node: Node, gpus_per_node: int) -> HostMemory:
    """What such a host with ``gpus_per_node`` of these GPUs has."""
    link = gpu.pcie_bytes_per_s
    if node.pcie_switches:  # each has one way up to its socket, as wide as a GPU's own
        link *= min(1.0, node.pcie_switches / gpus_per_node)
    return HostMemory(
        memory_bytes_per_s=node.memory_bytes_per_s,
        link_bytes_per_s=link if node.c2c_bytes_per_s is None else node.c2c_bytes_per_s,
        disk_read_bytes_per_s=DRIVES * DRIVE_READ_BYTES_PER_S,
        disk_write_bytes_per_s=DRIVES * DRIVE_WRITE_BYTES_PER_S,
    )
