"""NCCL's tuning model: latency and bandwidth of every algorithm and protocol, as NCCL itself predicts them.

``time = latency + bytes / bandwidth``. It ranks algorithms; it is no prediction to rely on (optimistic
below 64 MB by 1.1 to 2). Knows which combinations exist, not which one is chosen.

Sources: NCCL v2.28.9 src/graph/tuning.cc; the project's table of hardware facts, section 3.1, whose
symbols these functions keep: C channels, N nodes, R ranks, ppn ranks per node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ....schedules.transfers.collective import CollectiveKind
from .constants import (
    BASE_US,
    LL_BETWEEN_NODES,
    NET_OVERHEAD_US,
    NET_US,
    NVLINK_US,
    PCI_US,
    TREE_CORRECTION,
    NcclAlgorithm,
    NcclProtocol,
)
from .paths import GIGA, Communicator
from .versions import ll_share, nvls_share, tree_simple_base_us

Combination = tuple[NcclAlgorithm, NcclProtocol]

MICRO = 1e-6
SHARDED = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
TUNED = (CollectiveKind.ALL_REDUCE, *SHARDED, CollectiveKind.BROADCAST, CollectiveKind.REDUCE)
_A, _P = NcclAlgorithm, NcclProtocol


def combinations(kind: CollectiveKind, comm: Communicator) -> Iterator[Combination]:
    """What NCCL can run of a collective on a communicator, in NCCL's order."""
    for algorithm in NcclAlgorithm:
        if _runs(algorithm, kind, comm):
            many = algorithm in (_A.TREE, _A.RING)
            for protocol in NcclProtocol if many else (_P.SIMPLE,):
                if protocol is not _P.LL128 or (comm.ll128 and comm.nvlink):
                    yield algorithm, protocol


def _runs(algorithm: NcclAlgorithm, kind: CollectiveKind, comm: Communicator) -> bool:
    reduces_or_shards = kind is CollectiveKind.ALL_REDUCE or kind in SHARDED
    a_nic_each = comm.nics_per_node >= comm.local
    match algorithm:
        case NcclAlgorithm.RING:
            return kind in TUNED
        case NcclAlgorithm.TREE:
            return kind is CollectiveKind.ALL_REDUCE
        case NcclAlgorithm.NVLS:
            there = comm.nvls is not None and reduces_or_shards
            there &= kind is CollectiveKind.ALL_REDUCE or comm.version >= (2, 19)
            return there and (comm.nodes == 1 or (comm.sharp and (a_nic_each or kind not in SHARDED)))
        case NcclAlgorithm.NVLS_TREE:
            return comm.nvls is not None and kind is CollectiveKind.ALL_REDUCE and comm.nodes > 1
        case NcclAlgorithm.COLLNET_DIRECT:
            there = comm.sharp and comm.nodes > 1 and comm.nvlink and reduces_or_shards
            return there and (a_nic_each or kind not in SHARDED)
        case NcclAlgorithm.COLLNET_CHAIN:
            return comm.sharp and comm.nodes > 1 and kind is CollectiveKind.ALL_REDUCE
        case NcclAlgorithm.PAT:
            return comm.ranks == comm.nodes and kind in SHARDED and comm.version >= (2, 23)


def ring_steps(kind: CollectiveKind, ranks: int) -> int:
    """Steps by NCCL's count: a broadcast or reduce is a pipeline of R."""
    if kind is CollectiveKind.ALL_REDUCE:
        return 2 * (ranks - 1)
    return ranks - 1 if kind in SHARDED else ranks


# Bandwidth, in GB/s ---------------------------------------------------------------------------------


def bus_gb_per_s(
    algorithm: NcclAlgorithm, protocol: NcclProtocol, kind: CollectiveKind, comm: Communicator
) -> float:
    """C·bw with NCCL's corrections: what the links of the algorithm carry in all."""
    if algorithm in (_A.NVLS, _A.NVLS_TREE):
        return _nvls(algorithm, kind, comm)
    paths = comm.tree or comm.ring if algorithm is _A.TREE else comm.ring
    intra, inter = paths.intra_bytes_per_s / GIGA, paths.inter_bytes_per_s / GIGA
    collnet = algorithm in (_A.COLLNET_DIRECT, _A.COLLNET_CHAIN)
    bus = paths.channels * (intra if comm.nodes <= 2 or collnet else inter)
    match algorithm:
        case NcclAlgorithm.RING:
            return _ring(protocol, kind, comm, bus)
        case NcclAlgorithm.TREE:
            return _tree(protocol, comm, bus, paths.channels)
        case NcclAlgorithm.PAT:
            return 0.75 * bus
        case NcclAlgorithm.COLLNET_DIRECT:
            if kind in SHARDED:
                return comm.local * min(intra, 0.9 * inter)
            gpus_per_nic = comm.local / paths.channels
            bus /= gpus_per_nic - (gpus_per_nic - 1) / 2
            return 0.85 * bus if comm.constants.compute_capability >= 90 else bus
    return bus


def _ring(protocol: NcclProtocol, kind: CollectiveKind, comm: Communicator, bus: float) -> float:
    """A ring's share of ``bus``, below what its channels do with the protocol."""
    if protocol is _P.LL:
        return min(_ll(comm), ll_share(comm.version, kind, comm.nodes) * bus)
    if protocol is _P.LL128:
        share = 0.7 if comm.version <= (2, 22) and comm.local < 2 else 0.92
        return min(share * bus, comm.ring.channels * comm.constants.ring_ll128[_scale(comm)])
    return bus


def _tree(protocol: NcclProtocol, comm: Communicator, bus: float, channels: int) -> float:
    """A tree's share of ``bus``, below what its ``channels`` do with the protocol."""
    bus = min(0.92 * bus, channels * comm.constants.tree[_scale(comm)])
    if protocol is _P.LL:
        bus = min(bus / 3.8, _ll(comm))
    if protocol is _P.LL128:
        share = 7 / 9 if comm.nodes == 1 else 120 / 128
        bus = min(bus * share, channels * comm.constants.tree_ll128[_scale(comm)])
    # The pattern of one GPU per node is a plain tree: all of it through one GPU and its NIC.
    return 0.85 * bus if comm.local == 1 else bus


def _scale(comm: Communicator) -> int:
    """The column of NCCL's tables: one node, two, or more."""
    return min(comm.nodes, 3) - 1


def _ll(comm: Communicator) -> float:
    """The most that protocol LL moves, by the CPU's architecture between nodes."""
    return comm.constants.ll if comm.nodes == 1 else LL_BETWEEN_NODES[comm.cpu][_scale(comm)]


def _nvls(algorithm: NcclAlgorithm, kind: CollectiveKind, comm: Communicator) -> float:
    """An all_reduce overlaps its two halves; otherwise a rank's own share does not count."""
    paths, constants = comm.nvls, comm.constants
    if paths is None or paths.channels < 2:
        return 0.0
    channels = paths.channels
    if comm.version < (2, 28):
        return channels * (paths.intra_bytes_per_s if comm.nodes <= 2 else paths.inter_bytes_per_s) / GIGA
    intra = paths.intra_bytes_per_s / GIGA * constants.nvls_efficiency * (channels - 1) / channels
    intra *= 2 if kind is CollectiveKind.ALL_REDUCE else (comm.local - 1) / comm.local
    if comm.nodes == 1:
        return channels * intra
    inter = paths.inter_bytes_per_s / GIGA
    if algorithm is _A.NVLS_TREE:
        inter = min(inter * (2 if comm.nodes == 2 else 1), constants.nvls_tree[min(comm.nodes, 3) - 1])
    return channels * min(intra, inter)


def bytes_per_s(
    algorithm: NcclAlgorithm, protocol: NcclProtocol, kind: CollectiveKind, comm: Communicator
) -> float:
    """Payload per second at any size (algbw), before the corrections by size."""
    bus = bus_gb_per_s(algorithm, protocol, kind, comm)
    if kind in SHARDED and algorithm is not _A.RING:
        return bus * GIGA
    if algorithm in (_A.NVLS, _A.NVLS_TREE):
        older = nvls_share(comm.version, comm.nodes, tree=algorithm is _A.NVLS_TREE)
        if older is not None:
            return bus * GIGA * older
    if algorithm in (_A.RING, _A.NVLS, _A.NVLS_TREE):
        return bus * GIGA * comm.ranks / ring_steps(kind, comm.ranks)
    return bus * GIGA / 2


# Latency, in microseconds ---------------------------------------------------------------------------


def latency_us(
    algorithm: NcclAlgorithm, protocol: NcclProtocol, kind: CollectiveKind, comm: Communicator
) -> float:
    """base + terms, before the corrections by size."""
    within = NVLINK_US if comm.nvlink else PCI_US
    base, intra = BASE_US[algorithm][protocol], within[algorithm][protocol]
    if algorithm is _A.TREE and protocol is _P.SIMPLE:
        base = tree_simple_base_us(comm.version, base)
    alone = comm.local == 1 and comm.version >= (2, 23)
    inter = NET_US[_A.TREE if alone else algorithm][protocol]
    inter += comm.network_latency_s / MICRO * (2 if protocol is _P.SIMPLE else 1)
    levels = comm.nodes.bit_length() - 1
    match algorithm:
        case NcclAlgorithm.RING:
            return base + _ring_us(protocol, kind, comm, intra, inter)
        case NcclAlgorithm.TREE:
            return base + 2 * ((comm.local - 1) * intra + levels * inter)
        case NcclAlgorithm.NVLS:
            return intra + (inter if comm.nodes > 1 else 0.0)
        case NcclAlgorithm.NVLS_TREE:
            return base + intra + 2 * levels * inter
        case NcclAlgorithm.COLLNET_DIRECT:
            return base + 2 * (min(1, comm.local - 1) * intra + (comm.local - 1) * 0.4) + inter
        case NcclAlgorithm.COLLNET_CHAIN:
            return base + 2 * (comm.local - 1) * intra + inter
        case NcclAlgorithm.PAT:
            return base + levels * inter / 3.5 + 2.8 * comm.ranks


def _ring_us(
    protocol: NcclProtocol, kind: CollectiveKind, comm: Communicator, intra: float, inter: float
) -> float:
    steps = ring_steps(kind, comm.ranks)
    if kind in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        hop = NET_US if comm.nodes > 1 else (NVLINK_US if comm.nvlink else PCI_US)
        if comm.same_channels:
            return hop[_A.RING][protocol]
        return steps * hop[_A.TREE if protocol is _P.SIMPLE else _A.RING][protocol]
    if comm.nodes > 1:
        intra = max(intra, NET_OVERHEAD_US[comm.cpu] * (3 if protocol is _P.SIMPLE else 1))
    between = (comm.nodes - 1) * (2 if kind is CollectiveKind.ALL_REDUCE else 1)
    if kind is CollectiveKind.ALL_REDUCE and comm.version <= (2, 22) and comm.nodes > 1:
        between = 2 * comm.nodes
    return (steps - between) * intra + between * inter


# By size --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """What NCCL works out once for a communicator: latency and bandwidth of one combination."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    bytes_per_s: float
    latency_us: float


@lru_cache(maxsize=512)
def lines(kind: CollectiveKind, comm: Communicator) -> tuple[CostLine, ...]:
    """The combinations that are legal, in NCCL's order."""
    return tuple(
        CostLine(
            algorithm=algorithm,
            protocol=protocol,
            bytes_per_s=bytes_per_s(algorithm, protocol, kind, comm),
            latency_us=latency_us(algorithm, protocol, kind, comm),
        )
        for algorithm, protocol in combinations(kind, comm)
    )


def seconds_on(line: CostLine, kind: CollectiveKind, payload_bytes: float, comm: Communicator) -> float:
    """NCCL's predicted time: latency and bandwidth, corrected by size; infinite without any bandwidth."""
    algorithm, protocol, rate, latency = line.algorithm, line.protocol, line.bytes_per_s, line.latency_us
    if not rate:
        return math.inf
    place = (int(payload_bytes) >> 6).bit_length() - 1
    corrections = TREE_CORRECTION[protocol]
    if algorithm is _A.TREE and kind is CollectiveKind.ALL_REDUCE and 0 <= place < len(corrections):
        rate *= corrections[place]
    plateau = (
        algorithm is _A.RING
        and protocol is _P.SIMPLE
        and kind is CollectiveKind.ALL_REDUCE
        and comm.nodes > 1
    )
    if plateau and payload_bytes / (comm.channels * comm.ranks) >= 64:
        latency *= 1.4
    return latency * MICRO + payload_bytes / rate
