"""Constants of collective communication, by GPU architecture, protocol and fabric.

Knows measured latencies and plateaus with their sources; the cost model that uses them is in
``sim/network``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from .files.shipped_yaml import load_shipped


@dataclass(frozen=True, kw_only=True)
class ArchitectureCollectives:
    """Inside a node: launch, latency per step, and the shares of NCCL's NVLink rate that ring and NVLS reach.

    ``ll_rate`` is protocol LL's share of a rate. ``nvls_latency_s`` is one pass through the
    switches. ``ring_ends`` is what copying its own part costs a rank of a ring inside a domain, in steps
    of the ring. ``pair_s`` and ``pair_efficiency`` are latency and share of NCCL's NVLink rate of messages
    of all with all over NVLink (None: as between nodes). ``message_bytes_per_s`` is the rate of one
    point-to-point message by NCCL's default channels per peer. ``pairwise_bytes_per_s`` is what a GPU draws
    of its NIC in messages to many peers where its hosts were measured (None: what the fabric has).
    """

    base_s: float
    step_s: float
    ring_efficiency: float
    ll_rate: float
    nvls_efficiency: float | None
    nvls_latency_s: float | None
    message_bytes_per_s: float
    source: str
    ring_ends: float = 0.0
    pair_s: float | None = None
    pair_efficiency: float | None = None
    pairwise_bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProtocolConstants:
    """How a protocol sends: its latency over LL's, its share of a rate (None: the architecture's
    ``ll_rate``), and how coarsely it pipelines inside a node and between nodes."""

    latency: float
    rate: float | None
    node_pipelining: float
    network_pipelining: float


@dataclass(frozen=True, kw_only=True)
class FabricCollectives:
    """Between nodes: NCCL's own time of a step, and what it draws of a NIC in messages to many peers
    (None: the NIC's rate)."""

    hop_s: float
    pairwise_bytes_per_s: float | None
    source: str


@dataclass(frozen=True, kw_only=True)
class TreeConstants:
    """Share of half the ring's rate that a tree reaches inside a node, and its pipelining."""

    efficiency: float
    pipelining: float


@dataclass(frozen=True, kw_only=True)
class NvlsConstants:
    """Reduction in the NVSwitch: pipelining, loss of rate per rank beyond eight, and the tree over nodes."""

    pipelining: float
    rank_loss: float
    tree_efficiency: float
    tree_pipelining: float


@dataclass(frozen=True, kw_only=True)
class PairwiseConstants:
    """Grouped messages of every rank with every other: latency, time per peer, share of the NVLink rate.

    Between nodes; among GPUs that NVLink joins latency and rate are the architecture's, and the pipelining is
    ``node_pipelining``.
    """

    latency_s: float
    peer_s: float
    remote_peer_s: float
    efficiency: float
    pipelining: float
    node_pipelining: float


@dataclass(frozen=True, kw_only=True)
class PointToPointConstants:
    """Latency and default rate of one message, and the SMs that its kernel holds."""

    nvlink_latency_s: float
    nvlink_few_channels_bytes: float
    nvlink_efficiency: float
    network_bytes_per_s: float
    sms: int


@dataclass(frozen=True, kw_only=True)
class RcclChannels:
    """Channels of RCCL's collectives on one architecture: by the ranks of one ``node``, and over a
    ``network`` (None: not known)."""

    node: Mapping[int, int] = field(hash=False)
    network: int | None

    def within(self, ranks: int) -> int:
        """Those of so many ranks of one host: as of the next number of ranks that is known."""
        return self.node[min((known for known in self.node if known >= ranks), default=max(self.node))]


@dataclass(frozen=True, kw_only=True)
class CollectiveConstants:
    """All constants of collectives.yaml.

    A ring between nodes draws ``copy_efficiency`` of NVLink's line rate. At most ``network_gpus``
    GPUs of a domain lead a ring or tree outwards. ``sms`` are the channels of a collective, a block
    and its SM each, ``rccl_channels`` those of AMD's architectures; ``taken_in_clusters``, by NCCL's, what
    kernels lose whose blocks come in clusters.
    """

    architectures: Mapping[str, ArchitectureCollectives] = field(hash=False)
    protocols: Mapping[str, ProtocolConstants] = field(hash=False)
    tree: TreeConstants
    nvls: NvlsConstants
    copy_efficiency: float
    network_gpus: int
    fabrics: Mapping[str, FabricCollectives] = field(hash=False)
    pairwise: PairwiseConstants
    point_to_point: PointToPointConstants
    sms: Mapping[str, int] = field(hash=False)
    rccl_channels: Mapping[str, RcclChannels] = field(hash=False)
    taken_in_clusters: Mapping[int, int] = field(hash=False)


@lru_cache(maxsize=1)
def collective_constants() -> CollectiveConstants:
    """The shipped constants."""
    return constants_from_document(collectives_document())


def collectives_text() -> str:
    """The text of collectives.yaml."""
    return files(__package__).joinpath("collectives.yaml").read_text(encoding="utf-8")


def collectives_document() -> dict[str, Any]:
    """collectives.yaml as mappings and numbers."""
    document: dict[str, Any] = _numbers(load_shipped(collectives_text()))
    return document


def constants_from_document(document: Mapping[str, Any]) -> CollectiveConstants:
    """The constants that a document of collectives.yaml's form states."""
    return CollectiveConstants(
        architectures={k: ArchitectureCollectives(**v) for k, v in document["architectures"].items()},
        protocols={k: ProtocolConstants(**v) for k, v in document["protocols"].items()},
        tree=TreeConstants(**document["tree"]),
        nvls=NvlsConstants(**document["nvls"]),
        copy_efficiency=document["copy_efficiency"],
        network_gpus=document["network_gpus"],
        fabrics={k: FabricCollectives(**v) for k, v in document["fabrics"].items()},
        pairwise=PairwiseConstants(**document["pairwise"]),
        point_to_point=PointToPointConstants(**document["point_to_point"]),
        sms=document["sms"],
        rccl_channels={k: RcclChannels(**v) for k, v in document["rccl_channels"].items()},
        taken_in_clusters=document["taken_in_clusters"],
    )


def _numbers(item: Any) -> Any:
    """PyYAML reads 10.0e-6 as text (YAML 1.1); figures here are floats, and only sources are text."""
    if isinstance(item, dict):
        return {key: value if key == "source" else _numbers(value) for key, value in item.items()}
    return float(item) if isinstance(item, str) else item
