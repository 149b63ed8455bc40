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


C2C_BYTES_PER_S = 450e9
"""Rate of NVLink-C2C between a Grace and its GPUs, one way (NVIDIA Grace data sheet: 900 GB/s both ways, a
superchip)."""

GRACE_LAUNCHES = 0.3093 / 0.2150
"""How many times as long a launch from Python takes on Grace as on x86 (``Node.launch_factor``).

A step of Megatron core whose GPUs wait for their hosts takes 309.3 ms on eight GB200, and 215.0 on a DGX
H100 (NVIDIA/Megatron-LM tests/functional_tests/test_cases/gpt,
gpt3_mcore_te_tp4_pp1_dist_optimizer_overlap_grad_reduce_param_gather: twelve dense layers 512 wide;
iteration-time of its golden values at 191d70cf and c30b0464). Without tensor parallelism it is 1.44, too,
with experts 1.22 to 1.60 (docs/decisions/0147-launches-in-megatron-core.md). Vellaisamy et al. 2025, ISPASS,
arXiv:2504.11750, allow 1.5 to 2.1: work on a GH200 waits for its host up to four times the batch at which it
does so on hosts of H100 PCIe and A100, and the GH200 computes 1.9 to 2.7 times as fast.
"""

GRACE_LOOPS = 33.17 / 13.48
"""How many times as long a launch that a loop in C++ issues takes on Grace as on x86 (``Node.loop_factor``).

A forward of torch.nn.Linear, which is little Python and one launch, repeated on a GH200's host: 33.17 us,
against 13.48 us on a DGX H100's Xeon 8480C (github.com/NVIDIA/TransformerEngine/issues/2053, which measured
37.08 us on a GB200's).
"""

DGX_A100 = Node(
    name="DGX A100",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=6,
    pcie_switches=4,
    cpus="2 x AMD EPYC 7742",
    source="DGX A100 datasheet: six NVSwitches of generation 2; two GPUs and two NICs on each PCIe switch",
    memory_bytes_per_s=2 * 8 * 25.6e9,
)
HGX_HOPPER = Node(
    name="HGX H100/H200",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=4,
    pcie_switches=4,
    cpus="2 x Intel Xeon 8480C",
    source="DGX H100 datasheet: four NVSwitches of generation 3 with NVLink SHARP",
    memory_bytes_per_s=2 * 8 * 38.4e9,
)
HGX_BLACKWELL = Node(
    name="HGX B200/B300",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=2,
    pcie_switches=4,
    cpus="2 x Intel Xeon",
    source="DGX B200 datasheet: two NVSwitches of generation 4 (count unverified)",
    memory_bytes_per_s=2 * 8 * 44.8e9,
)
NVL72_TRAY = Node(
    name="NVL72 compute tray",
    max_gpus=4,
    hosts_per_domain=18,
    nvswitches=18,
    pcie_switches=0,
    cpus="2 x Grace",
    source="GB200 NVL72: 18 trays of four GPUs, nine of two NVSwitches (counts unverified);"
    " launches: github.com/NVIDIA/TransformerEngine/issues/2053, GH200",
    memory_bytes_per_s=2 * 500e9,
    c2c_bytes_per_s=C2C_BYTES_PER_S / 2,  # two GPUs share a Grace
    launch_factor=GRACE_LAUNCHES,
    loop_factor=GRACE_LOOPS,
)
MI300X_PLATFORM = Node(
    name="MI300X platform",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=0,
    pcie_switches=4,
    cpus="2 x AMD EPYC",
    source="AMD MI300X platform: eight GPUs, each with one xGMI link to every other",
    memory_bytes_per_s=2 * 12 * 38.4e9,
)
PCIE_SERVER = Node(
    name="PCIe server",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=0,
    pcie_switches=2,
    cpus="2 x x86",
    source="common server for double-width cards; NVLink bridges join cards in pairs",
    memory_bytes_per_s=2 * 8 * 25.6e9,
)
DGX_1 = Node(
    name="DGX-1",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=0,
    pcie_switches=4,
    cpus="2 x Intel Xeon E5-2698 v4",
    source="NVIDIA DGX-1 with Tesla V100 white paper: a cube mesh, taken as a full mesh",
    memory_bytes_per_s=2 * 4 * 19.2e9,
)
DGX_2 = Node(
    name="DGX-2",
    max_gpus=16,
    hosts_per_domain=1,
    nvswitches=12,
    pcie_switches=8,
    cpus="2 x Intel Xeon Platinum 8168",
    source="NVIDIA DGX-2/2H datasheet: sixteen GPUs, twelve NVSwitches of generation 1",
    memory_bytes_per_s=2 * 6 * 21.3e9,
)
GRACE_HOPPER = Node(
    name="Grace Hopper node",
    max_gpus=4,
    hosts_per_domain=1,
    nvswitches=0,
    pcie_switches=0,
    cpus="a Grace for each GPU",
    source="JUPITER: four GH200, 150 GB/s a pair and direction"
    " (apps.fz-juelich.de/jsc/hps/jupiter/configuration.html); C2C: NVIDIA Grace data sheet;"
    " launches: github.com/NVIDIA/TransformerEngine/issues/2053",
    memory_bytes_per_s=4 * 500e9,
    c2c_bytes_per_s=C2C_BYTES_PER_S,
    launch_factor=GRACE_LAUNCHES,
    loop_factor=GRACE_LOOPS,
    nics_on_cpu=True,  # so are those of GB200's trays; the one log, 20 racks with NCCL 2.26, does not show it
)
DA_VINCI = Node(
    name="BullSequana X2135",
    max_gpus=4,
    hosts_per_domain=1,
    nvswitches=0,
    pcie_switches=0,
    cpus="Intel Xeon Platinum 8358",
    source="Leonardo's user guide, CINECA: four A100 on one Xeon, NVLink 3.0 of 200 GB/s a pair, both ways"
    " together, 8 x DDR4-3200 (docs.hpc.cineca.it/hpc/leonardo.html)",
    memory_bytes_per_s=8 * 25.6e9,
)
XH3000_HOPPER = Node(
    name="BullSequana XH3000 with H100",
    max_gpus=4,
    hosts_per_domain=1,
    nvswitches=0,
    pcie_switches=0,
    cpus="2 x Intel Xeon Platinum 8460Y+",
    source="MareNostrum 5's overview, BSC: four H100, a NIC of 200 Gb/s each, 16 x DDR5-4800"
    " (bsc.es/supportkc); a mesh of six NVLinks a pair, as in the XH3000 blades of JUPITER (derived)",
    memory_bytes_per_s=16 * 38.4e9,
)
MI250X_NODE = Node(
    name="MI250X node",
    max_gpus=8,
    hosts_per_domain=1,
    nvswitches=0,
    pcie_switches=0,
    cpus="AMD EPYC 7A53",
    source="Frontier, LUMI: four MI250X of two devices, 1 to 4 xGMI links a pair; taken as a full mesh",
    memory_bytes_per_s=8 * 25.6e9,
    c2c_bytes_per_s=36e9,  # xGMI to the CPU, a device (36 GB/s each way, unverified)
)

NODES = {
    node.name: node
    for node in (
        DGX_A100,
        HGX_HOPPER,
        HGX_BLACKWELL,
        NVL72_TRAY,
        MI300X_PLATFORM,
        PCIE_SERVER,
        DGX_1,
        DGX_2,
        GRACE_HOPPER,
        DA_VINCI,
        XH3000_HOPPER,
        MI250X_NODE,
    )
}
"""Every host that a GPU of the catalogue is sold in, by its name."""

_BY_ARCHITECTURE = {
    "volta": DGX_1,
    "ampere": DGX_A100,
    "hopper": HGX_HOPPER,
    "blackwell": HGX_BLACKWELL,
    "cdna3": MI300X_PLATFORM,
    "cdna4": MI300X_PLATFORM,
}


def node_for(gpu: Gpu) -> Node:
    """The host that this GPU is sold in."""
    if gpu.host:
        return NODES[gpu.host]
    if gpu.nvlink_domain > 8:
        return NVL72_TRAY
    if gpu.nvlink_domain < 8:
        return PCIE_SERVER
    return _BY_ARCHITECTURE.get(gpu.architecture, HGX_BLACKWELL)
