"""The constants of NCCL's tuning model, as NCCL states them: microseconds and GB/s.

Version 2.28.9 (src/graph/tuning.cc, search.cc); how other versions differ is in ``versions.py``.
Knows no equations: those are in ``cost_model.py``.

Sources: the project's table of hardware facts, section 3.1 and 3.2 (read in NCCL's source).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

Cpu = Literal["intel", "amd", "other"]


class NcclAlgorithm(StrEnum):
    """NCCL's algorithms in its own order and by its own names; ``schedule`` is the name among
    ``schedules.collectives``."""

    TREE = "Tree"
    RING = "Ring"
    COLLNET_DIRECT = "CollNetDirect"
    COLLNET_CHAIN = "CollNetChain"
    NVLS = "NVLS"
    NVLS_TREE = "NVLSTree"
    PAT = "PAT"

    @property
    def schedule(self) -> str:
        """The algorithm among ``schedules.collectives`` that says which rank sends what to which."""
        return {
            "CollNetDirect": "collnet-direct",
            "CollNetChain": "collnet-chain",
            "NVLSTree": "nvls-tree",
        }.get(self.value, self.value.lower())


class NcclProtocol(StrEnum):
    """NCCL's protocols in its own order: low latency with a flag per 8 bytes, per 128 bytes, and none."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Limits in GB/s; three numbers are for one node, two nodes, and more.

    The limits are per channel but for ``ll``, which is absolute and holds on one node; between nodes
    the CPU sets it. ``*_speeds`` are what the search tries for a channel, from the fastest on.
    """

    compute_capability: int
    ll: float
    ring_ll128: tuple[float, float, float]
    tree_ll128: tuple[float, float, float]
    tree: tuple[float, float, float]
    nvls_tree: tuple[float, float, float]
    nvls_efficiency: float
    intra_speeds: tuple[float, ...]
    inter_speeds: tuple[float, ...]


# fmt: off
_AMPERE = Architecture(
    compute_capability=80, ll=87.7,
    ring_ll128=(20.0, 20.0, 20.0), tree_ll128=(20.0, 20.0, 20.0), tree=(24.0, 23.6, 17.8),
    nvls_tree=(24.0, 23.6, 17.8), nvls_efficiency=0.0,
    intra_speeds=(40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    inter_speeds=(48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
)

# NCCL goes by compute capability: from 8.0 on Ampere's rows, from 9.0 on Hopper's (tuning.cc).
ARCHITECTURES: Mapping[str, Architecture] = {
    "ampere": _AMPERE,
    "ada": replace(_AMPERE, compute_capability=89),
    "hopper": Architecture(
        compute_capability=90, ll=141.0,
        ring_ll128=(36.7, 36.7, 36.7), tree_ll128=(36.7, 36.7, 29.0), tree=(38.7, 41.4, 36.0),
        nvls_tree=(0.0, 57.7, 45.5), nvls_efficiency=0.85,
        intra_speeds=(60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
        inter_speeds=(48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    ),
    "blackwell": Architecture(
        compute_capability=100, ll=282.0,
        ring_ll128=(73.4, 34.6, 73.4), tree_ll128=(55.6, 31.67, 20.0), tree=(70.0, 42.8, 24.0),
        nvls_tree=(0.0, 96.0, 43.8), nvls_efficiency=0.74,
        intra_speeds=(90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18),
        inter_speeds=(96, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    ),
}

LL_BETWEEN_NODES: Mapping[Cpu, tuple[float, float, float]] = {
    "intel": (39.0, 39.0, 20.4), "amd": (87.7, 22.5, 19.0), "other": (39.0, 39.0, 20.4),
}
"""GB/s of the LL protocol between nodes, whose CPUs poll for the flags."""

NET_OVERHEAD_US: Mapping[Cpu, float] = {"intel": 1.0, "amd": 2.0, "other": 1.0}

_A, _P = NcclAlgorithm, NcclProtocol
Latencies = Mapping[NcclAlgorithm, Mapping[NcclProtocol, float]]

BASE_US: Latencies = {
    _A.TREE: {_P.LL: 6.8, _P.LL128: 14.0, _P.SIMPLE: 8.4},
    _A.RING: {_P.LL: 6.6, _P.LL128: 14.0, _P.SIMPLE: 8.4},
    _A.COLLNET_DIRECT: {_P.SIMPLE: 0.0}, _A.COLLNET_CHAIN: {_P.SIMPLE: 0.0},
    _A.NVLS: {_P.SIMPLE: 0.0}, _A.NVLS_TREE: {_P.SIMPLE: 0.0}, _A.PAT: {_P.SIMPLE: 8.0},
}
NVLINK_US: Latencies = {
    _A.TREE: {_P.LL: 0.6, _P.LL128: 1.25, _P.SIMPLE: 4.0},
    _A.RING: {_P.LL: 0.6, _P.LL128: 1.9, _P.SIMPLE: 3.4},
    _A.COLLNET_DIRECT: {_P.SIMPLE: 3.7}, _A.COLLNET_CHAIN: {_P.SIMPLE: 2.8},
    _A.NVLS: {_P.SIMPLE: 25.0}, _A.NVLS_TREE: {_P.SIMPLE: 25.0}, _A.PAT: {_P.SIMPLE: 4.0},
}
PCI_US: Latencies = {
    _A.TREE: {_P.LL: 1.0, _P.LL128: 1.9, _P.SIMPLE: 4.0},
    _A.RING: {_P.LL: 1.0, _P.LL128: 2.5, _P.SIMPLE: 5.7},
    _A.COLLNET_DIRECT: {_P.SIMPLE: 3.7}, _A.COLLNET_CHAIN: {_P.SIMPLE: 2.8}, _A.PAT: {_P.SIMPLE: 4.0},
}
NET_US: Latencies = {
    _A.TREE: {_P.LL: 5.0, _P.LL128: 8.5, _P.SIMPLE: 14.0},
    _A.RING: {_P.LL: 2.7, _P.LL128: 4.0, _P.SIMPLE: 14.0},
    _A.COLLNET_DIRECT: {_P.SIMPLE: 31.0}, _A.COLLNET_CHAIN: {_P.SIMPLE: 30.0},
    _A.NVLS: {_P.SIMPLE: 18.0}, _A.NVLS_TREE: {_P.SIMPLE: 20.9}, _A.PAT: {_P.SIMPLE: 14.0},
}

TREE_CORRECTION: Mapping[NcclProtocol, tuple[float, ...]] = {
    _P.LL: (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1),
    _P.LL128: (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1),
    _P.SIMPLE: (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9),
}
"""What NCCL multiplies a tree's bandwidth with, by powers of two of the size from 64 B to 256 MB."""

THREADS: Mapping[NcclProtocol, int] = {_P.LL: 512, _P.LL128: 640, _P.SIMPLE: 512}
BYTES_PER_THREAD: Mapping[NcclProtocol, int] = {_P.LL: 8, _P.LL128: 8, _P.SIMPLE: 64}
"""A message that gives the threads of all channels less gets fewer channels (LL rings: per rank)."""

RING_CHUNKS_ON_THEIR_WAY: Mapping[NcclProtocol, int] = {_P.LL: 8, _P.LL128: 8, _P.SIMPLE: 2}
"""Chunks of a ring that a connection holds before the first has been taken: its buffer has NCCL_STEPS (8)
places, of which a chunk takes half with Simple (src/include/collectives.h, ALLGATHER_CHUNKSTEPS and its like)
and one with LL and LL128 (src/device/prims_ll.h, prims_ll128.h: a step for each send)."""
# fmt: on

MAX_CHANNELS = 32
"""Most channels of rings and trees that the search gives a communicator."""
NVLS_CHANNELS = 16
"""Channels of NVLS."""
NVLS_ARITY = 32
"""Most heads of NVLS (NCCL_MAX_NVLS_ARITY)."""
