"""The channels that NCCL finds on a machine: how many, and what each carries, for rings and NVLS.

A closed form of NCCL's search on regular machines (every GPU on the same NVSwitches, NICs shared out
evenly): the largest number of channels times rate that the links bear. Trees get the ring's channels, and
within the node up to twice the rate; CollNet is taken to have the ring's. Knows no collective.

Sources: NCCL v2.28.9 src/graph/search.cc (rates tried, doubling of channels, heads of NVLS),
connect.cc (channels of the communicator); figures checked in the project's table of hardware facts,
section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .constants import ARCHITECTURES, MAX_CHANNELS, NVLS_ARITY, Architecture, Cpu
from .versions import OF_TABLES, Version, architecture_at, knows_c2c

if TYPE_CHECKING:
    from ....hardware.cluster import Cluster
    from ....hardware.interconnect import Interconnect

GIGA = 1e9

_UNKNOWN_PCIE_BYTES_PER_S = 12e9
"""What NCCL takes a PCIe link of unknown speed for: 16 lanes of generation 3 (topo.cc, kvDictPciGen)."""


@dataclass(frozen=True, kw_only=True)
class ChannelPaths:
    """``channels`` found by the search; each carries these rates within a node and between nodes."""

    channels: int
    intra_bytes_per_s: float
    inter_bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class Communicator:
    """``ranks`` over ``nodes`` (NVLink domains), and what NCCL found out about the machine.

    ``tree`` is None where it is as ``ring``; ``nvls`` where the GPUs or switches cannot multicast.
    ``sharp`` says whether the network reduces (NCCL_COLLNET_ENABLE, off by default); ``ll128`` whether
    128-byte stores are taken to arrive whole everywhere, as they do over NVLink and NICs behind the GPU's own
    PCIe switch. ``same_channels``: all channels take the same way through a node, as behind NVSwitches.

    Raises:
        ValueError: an architecture that NCCL's tables lack, or fewer ranks than nodes.
    """

    architecture: str
    ranks: int
    nodes: int
    ring: ChannelPaths
    tree: ChannelPaths | None = None
    nvls: ChannelPaths | None = None
    nvlink: bool = True
    ll128: bool = True
    sharp: bool = False
    same_channels: bool = True
    nics_per_node: int = 1
    cpu: Cpu = "intel"
    network_latency_s: float = 0.0
    version: Version = OF_TABLES

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ValueError(
                f"NCCL's tuning has no rows for {self.architecture!r}; it has {', '.join(ARCHITECTURES)}"
            )
        if self.ranks < 2 or not 1 <= self.nodes <= self.ranks:
            raise ValueError(f"{self.ranks} ranks over {self.nodes} nodes: at least 2, one on each node")

    @property
    def constants(self) -> Architecture:
        """The limits of this architecture in this version."""
        return architecture_at(self.architecture, self.version)

    @property
    def local(self) -> int:
        """Ranks per node, rounded down, as NCCL's latencies count them (tuning.cc: nRanks/nNodes)."""
        return self.ranks // self.nodes

    @property
    def channels(self) -> int:
        """Channels of the communicator: twice what the search found."""
        return min(MAX_CHANNELS, 2 * self.ring.channels)


def communicator_on(
    cluster: Cluster,
    *,
    ranks: int,
    domains: int,
    fewest: int | None = None,
    cpu: Cpu = "intel",
    sharp: bool = False,
    version: Version = OF_TABLES,
) -> Communicator:
    """The communicator of ``ranks`` over ``domains`` NVLink domains of a cluster.

    ``fewest`` are the ranks of the domain that has the fewest; None: all have as many. NCCL searches every
    node and takes the fewest channels and the lowest rates of all (init.cc, initTransportsRank): those of
    that one.
    """
    gpu, network = cluster.gpu, cluster.interconnect
    if gpu.collectives_as not in ARCHITECTURES:
        raise ValueError(
            f"NCCL's tuning has no rows for {gpu.collectives_as!r}; it has {', '.join(ARCHITECTURES)}"
        )
    constants, local = ARCHITECTURES[gpu.collectives_as], fewest or ranks // domains
    intra_bytes_per_s = cluster.intra_node_bytes_per_s_per_gpu
    through_c2c = cluster.node.nics_on_cpu and not knows_c2c(version)
    nics, nic_bytes_per_s = _nics(cluster, local, unknown_pcie=through_c2c)
    between, channels = domains > 1, min(nics, MAX_CHANNELS // 2)
    return Communicator(
        architecture=gpu.collectives_as,
        ranks=ranks,
        nodes=domains,
        ring=(
            ring_between_nodes(constants, intra_bytes_per_s, nic_bytes_per_s, channels, local)
            if between
            else ring_within_a_node(constants, intra_bytes_per_s)
        ),
        tree=tree_between_nodes(constants, intra_bytes_per_s, nic_bytes_per_s, channels, local)
        if between and local > 1
        else None,
        nvls=nvls(constants, intra_bytes_per_s, nic_bytes_per_s if between else 0.0, local)
        if gpu.nvls
        else None,
        nvlink=cluster.nvlink_domain >= min(local, cluster.gpus_per_node),
        ll128=not between or not through_c2c,
        nics_per_node=nics,
        cpu=cpu,
        sharp=sharp,
        network_latency_s=network.nccl_latency_s if between else 0.0,
        version=version,
    )


def _nics(cluster: Cluster, local: int, *, unknown_pcie: bool) -> tuple[int, float]:
    """NICs of ``local`` ranks of a node as NCCL counts them, and the bytes a second of each.

    ``unknown_pcie``: it does not know the way to them and takes a rate of its own.
    """
    network = cluster.interconnect
    nics, shares = max(1, min(local, network.links_per_host * local // cluster.gpus_per_node)), float(local)
    if network.nics_as_one:
        nics, shares = 1, shares_of_one_nic(local, network)
    bytes_per_s = network.link_bytes_per_s * network.links_per_host * shares / cluster.gpus_per_node / nics
    if unknown_pcie:
        bytes_per_s = min(bytes_per_s, _UNKNOWN_PCIE_BYTES_PER_S * max(1, local // nics))
    return nics, bytes_per_s


def shares_of_one_nic(local: int, network: Interconnect) -> float:
    """How many GPUs' shares of a host's NICs a group of ``local`` of them uses where NCCL takes them for one.

    That is one NIC: the shares of as many of its GPUs as there are to a NIC, one at least. Groups that fill a
    host between them begin at GPUs next to one another, which share NICs.
    """
    return max(1.0, local / network.links_per_host)


def ring_within_a_node(constants: Architecture, nvlink_bytes_per_s: float) -> ChannelPaths:
    """The channels of a ring within a node: as many of one rate as a GPU's links bear, or slower ones while
    they bring more in all.

    The search gives up at less than 0.49 of the rate of the best so far.
    """
    budget = nvlink_bytes_per_s / GIGA
    channels, best = 0, 0.0
    for speed in constants.intra_speeds:
        fitting = min(MAX_CHANNELS, int(budget / speed))
        if speed > 0.49 * best and fitting * speed > channels * best:
            channels, best = fitting, speed
    if not channels:
        channels, best = 1, budget
    return _doubled(constants, channels, best)


def ring_between_nodes(
    constants: Architecture, nvlink_bytes_per_s: float, nic_bytes_per_s: float, nics: int, local: int
) -> ChannelPaths:
    """A channel for each NIC; within the node a GPU passes on all of them but the one that it sends out."""
    return _doubled(constants, nics, _speed(constants, nvlink_bytes_per_s, nic_bytes_per_s, nics, local))


def tree_between_nodes(
    constants: Architecture, nvlink_bytes_per_s: float, nic_bytes_per_s: float, nics: int, local: int
) -> ChannelPaths:
    """The ring's channels; within the node the search goes on to faster ones up to twice the NIC's rate.

    The model uses that rate for two nodes, where every byte crosses the network only once.
    """
    inter = _speed(constants, nvlink_bytes_per_s, nic_bytes_per_s, nics, local)
    intra = inter
    for speed in sorted(constants.inter_speeds):
        if inter <= intra < min(2 * inter, speed) and speed * max(1, nics - 1) * GIGA <= nvlink_bytes_per_s:
            intra = speed
    found, within = _doubled(constants, nics, inter), _doubled(constants, nics, intra)
    scale = within.channels / found.channels
    return ChannelPaths(
        channels=found.channels,
        intra_bytes_per_s=within.intra_bytes_per_s * scale,
        inter_bytes_per_s=found.inter_bytes_per_s,
    )


def _speed(
    constants: Architecture, nvlink_bytes_per_s: float, nic_bytes_per_s: float, nics: int, local: int
) -> float:
    """The fastest that NIC and NVLink bear, in GB/s."""
    rates = [nic_bytes_per_s / GIGA]
    if local > 1:
        rates.append(nvlink_bytes_per_s / GIGA / max(1, nics - 1))
    return next((one for one in constants.inter_speeds if one <= min(rates)), min(rates))


def nvls(
    constants: Architecture, nvlink_bytes_per_s: float, nic_bytes_per_s: float, local: int
) -> ChannelPaths | None:
    """A channel for each head (each GPU, 32 at most); a GPU's NVLink carries heads + 1 of them.

    None for two GPUs or fewer, and where even the slowest rate is too much. No NIC: no rate between nodes.
    """
    heads, budget = min(local, NVLS_ARITY), nvlink_bytes_per_s / GIGA
    speed = next((one for one in constants.intra_speeds if (heads + 1) * one <= budget), None)
    if speed is None or local <= 2 or not constants.nvls_efficiency:
        return None
    beyond = next((one for one in constants.inter_speeds if one <= nic_bytes_per_s / GIGA), 0.0)
    return ChannelPaths(channels=heads, intra_bytes_per_s=speed * GIGA, inter_bytes_per_s=beyond * GIGA)


def _doubled(constants: Architecture, channels: int, speed: float) -> ChannelPaths:
    """Twice as many channels of half the rate, where channels are fast and few."""
    enough = constants.compute_capability > 80 and speed < 50 and channels > 4
    if speed >= 25 and not enough and 2 * channels <= MAX_CHANNELS:
        channels, speed = 2 * channels, speed / 2
    return ChannelPaths(channels=channels, intra_bytes_per_s=speed * GIGA, inter_bytes_per_s=speed * GIGA)
