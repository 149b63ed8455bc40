"""The cost of one collective on an idle cluster: time, bandwidths, and what was chosen.

Size, algorithm bandwidth and bus bandwidth are nccl-tests' (doc/PERFORMANCE.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...hardware.cluster import Cluster
from ...hardware.collective_kinds import KINDS
from ..network.collectives import collective_curve, pattern_of
from ..network.group_placement import GroupPlacement, payload_factor
from ..network.nccl.settings import NCCL_DEFAULTS, NcclSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCost:
    """One size. ``binding_link`` is nvlink, nic, pcie, or a link of the fabric by its name.

    ``steps`` latencies pass one after another, ``network_steps`` of them between nodes; ``nvlink_bytes`` and
    ``nic_bytes`` pass through a GPU's NVLink (PCIe where there is none) and its share of the NICs.
    """

    kind: str
    bytes: float
    ranks: int
    nodes: int
    algorithm: str
    protocol: str
    time_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    binding_link: str
    steps: int
    network_steps: int
    nvlink_bytes: float
    nic_bytes: float


Limit = Callable[[str], tuple[str, float]]
"""The fullest link of the fabric under a pattern (patterns.py), and the bytes per second that it leaves each
NIC of the group; infinite where none binds."""

INTERFACE = (
    "kind", "bytes", "ranks", "nodes", "algorithm", "protocol", "time_s", "algbw_bytes_per_s",
    "busbw_bytes_per_s", "binding_link",
)  # fmt: skip
"""Keys of the JSON document, which stay fixed."""


def collective_cost(
    kind: str,
    payload_bytes: float,
    placement: GroupPlacement,
    cluster: Cluster,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    nccl: NcclSettings = NCCL_DEFAULTS,
    limit: Limit | None = None,
) -> CollectiveCost:
    """What ``kind`` costs a group that is alone; ``limit`` says what the fabric leaves it.

    ValueError for a kind or forced choice that is not.
    """
    if kind not in KINDS:
        raise ValueError(f"no collective {kind!r}; known: {', '.join(KINDS)}")
    curve = collective_curve(
        kind, payload_bytes, placement, cluster, algorithm=algorithm, protocol=protocol, nccl=nccl
    )
    time_s, binding = curve.solo_s(payload_bytes), curve.binding
    if limit is not None and curve.nic:
        link, rate = limit("neighbours" if kind == "sendrecv" else pattern_of(curve.algorithm))
        through_s = curve.latency_s + payload_bytes * curve.nic / rate
        if through_s > time_s:
            time_s, binding = through_s, link
    rate = payload_bytes / time_s
    return CollectiveCost(
        kind=kind,
        bytes=payload_bytes,
        ranks=placement.ranks,
        nodes=cluster.nodes,
        algorithm=curve.algorithm,
        protocol=curve.protocol,
        time_s=time_s,
        algbw_bytes_per_s=rate,
        busbw_bytes_per_s=rate * payload_factor(kind, placement.ranks),
        binding_link=binding,
        steps=curve.steps,
        network_steps=curve.network_steps,
        nvlink_bytes=curve.nvlink * payload_bytes,
        nic_bytes=curve.nic * payload_bytes,
    )
