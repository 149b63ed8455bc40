"""Constants of collective communication, by GPU architecture and fabric.

Knows measured latencies and plateaus with their sources; the cost model that uses them is in
``sim/network``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True, kw_only=True)
class ArchitectureCollectives:
    """Inside a node: one-off and per-step latency, share of the NCCL link rate that a ring and NVLS reach.

    ``message_bytes_per_s`` is the rate of one point-to-point message by NCCL's default channels per peer.
    """

    base_s: float
    step_s: float
    ring_efficiency: float
    nvls_efficiency: float | None
    ring_pipelining: float
    message_bytes_per_s: float
    source: str


@dataclass(frozen=True, kw_only=True)
class FabricCollectives:
    """Between nodes: one-off latency, and latency per tree level and per node of a ring."""

    base_s: float
    tree_hop_s: float
    ring_hop_s: float
    source: str


@dataclass(frozen=True, kw_only=True)
class PointToPointConstants:
    """Latency and default rate of one message, and the SMs that its kernel holds."""

    nvlink_latency_s: float
    nvlink_few_channels_bytes: float
    nvlink_efficiency: float
    network_bytes_per_s: float
    sms: int


@dataclass(frozen=True, kw_only=True)
class CollectiveConstants:
    """All constants of collectives.yaml."""

    architectures: Mapping[str, ArchitectureCollectives] = field(hash=False)
    fabrics: Mapping[str, FabricCollectives] = field(hash=False)
    network_pipelining: float
    point_to_point: PointToPointConstants
    sms: Mapping[str, int] = field(hash=False)


@lru_cache(maxsize=1)
def collective_constants() -> CollectiveConstants:
    """Read collectives.yaml."""
    document = yaml.safe_load(files(__package__).joinpath("collectives.yaml").read_text())
    return CollectiveConstants(
        architectures={
            k: ArchitectureCollectives(**_floats(v)) for k, v in document["architectures"].items()
        },
        fabrics={k: FabricCollectives(**_floats(v)) for k, v in document["fabrics"].items()},
        network_pipelining=document["network_pipelining"],
        point_to_point=PointToPointConstants(**_floats(document["point_to_point"])),
        sms=document["sms"],
    )


def _floats(entry: Mapping[str, Any]) -> dict[str, Any]:
    """PyYAML reads 10.0e-6 as text (YAML 1.1); figures here are floats."""
    return {k: float(v) if isinstance(v, str) and k != "source" else v for k, v in entry.items()}
