"""What surrounds a group of ranks on a cluster: the rates and step times that its algorithms meet.

Knows rates, not what an algorithm sends over them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from ...hardware.collectives import ArchitectureCollectives, CollectiveConstants, FabricCollectives
from ...schedules import collectives as schedules
from ...schedules.transfers.group import RankGroup
from ...schedules.transfers.loads import Loads
from .group_placement import GroupPlacement
from .nccl.paths import shares_of_one_nic

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class Place:
    """A group's surroundings.

    Rates in bytes per second: of a GPU's NVLink, of a chain and a ring through a host's GPUs, of a
    GPU's NICs alone and under messages to many peers, and of a domain's edge as far as rings and trees
    use it: of the domain with the fewest ranks, since NCCL gives all as many channels as that has. ``hop_s``
    is one step between nodes with LL, ``crossing_s`` the network's part of it; ``pace_s`` is what a step of a
    ring that leaves the host takes at least. ``reached`` is the share of a GPU's NVLinks that lead to others
    of the group, which the rates of NVLink, chain and ring are of.
    """

    placement: GroupPlacement
    cluster: Cluster
    constants: CollectiveConstants
    arch: ArchitectureCollectives
    on_network: bool
    nvlink: float
    chain: float
    ring: float
    nic: float
    scattered: float
    edge: float
    hop_s: float
    crossing_s: float
    pace_s: float
    inside: str
    reached: float

    @property
    def group(self) -> RankGroup:
        """The ranks as algorithms know them: nodes are NVLink domains, or the one host of bridged cards."""
        return group_of(self.placement, on_network=self.on_network)

    def loads(self, algorithm: str, kind: str) -> Loads:
        """Closed forms of an algorithm's plan here. ValueError where it does not do that here."""
        return _loads(algorithm, SCHEDULED.get(kind, kind), self.group)

    def on_nvlink(self, weight: Fraction) -> float:
        """Weight that falls on NVLink: none of a GPU alone in its domain, which has only PCIe."""
        return float(weight) if self.placement.most > 1 else 0.0


SCHEDULED = {"sendrecv": "send_recv"}
"""nccl-tests' names of collectives that schedules call otherwise."""


def group_of(placement: GroupPlacement, *, on_network: bool) -> RankGroup:
    """The ranks as algorithms know them."""
    if not on_network:
        return RankGroup(local=placement.ranks)
    if placement.hosts:
        return RankGroup(local=placement.ranks // placement.hosts, nodes=placement.hosts)
    return RankGroup(local=placement.fewest, nodes=placement.domains, parts=placement.parts)


@lru_cache(maxsize=1024)
def _loads(algorithm: str, kind: str, group: RankGroup) -> Loads:
    return schedules.get(algorithm).loads(kind, group)


def on_network(placement: GroupPlacement, cluster: Cluster) -> bool:
    """Whether the group leaves its host; cards that NVLink joins in pairs meet over PCIe before that."""
    return placement.nodes > 1 and cluster.nodes > 1


def share_above_the_leaf(domains_per_unit: float, cluster: Cluster) -> float:
    """Share of the NIC rate that oversubscribed uplinks leave.

    A ring leaves a unit once, whatever the domains in it, so that only one in ``domains_per_unit``
    sends upwards; messages between units all do (1).
    """
    return min(1.0, domains_per_unit / cluster.fabric.oversubscription)


def place_of(
    placement: GroupPlacement, cluster: Cluster, constants: CollectiveConstants, ratio: float = 1.0
) -> Place:
    """The surroundings of ``placement``; ``ratio`` scales all rates."""
    arch = constants.architectures[cluster.gpu.collectives_as]
    away = on_network(placement, cluster)
    group = group_of(placement, on_network=away)
    nic = cluster.nic_bytes_per_s_per_gpu * ratio
    share = share_above_the_leaf(placement.nodes / placement.units, cluster) if placement.units > 1 else 1.0
    fabric = constants.fabrics[cluster.interconnect.kind] if away else None
    most = _to_many_peers(arch, fabric, cluster)
    inside = "nvlink" if cluster.nvlink_domain >= min(cluster.gpus_per_node, cluster.gpus) else "pcie"
    reached = cluster.share_of_links(placement.most) if inside == "nvlink" else 1.0
    counted = cluster.intra_node_bytes_per_s_per_gpu * arch.ring_efficiency * reached
    copied = cluster.gpu.nvlink_bytes_per_s * constants.copy_efficiency * reached
    crossing_s = cluster.interconnect.latency_s if away else 0.0
    scattered = nic * (share_above_the_leaf(1.0, cluster) if placement.units > 1 else 1.0)
    return Place(
        placement=placement,
        cluster=cluster,
        constants=constants,
        arch=arch,
        on_network=away,
        nvlink=cluster.gpu.nccl_nvlink_bytes_per_s * reached * ratio,
        chain=counted * ratio,
        ring=(copied if away and inside == "nvlink" else counted) * ratio,
        nic=nic * share,
        scattered=min(scattered, most * ratio) if most else scattered,
        edge=_leading(group, cluster, constants) * nic * share if away else math.inf,
        hop_s=fabric.hop_s + crossing_s if fabric else 0.0,
        crossing_s=crossing_s,
        pace_s=cluster.interconnect.ring_step_s if away else 0.0,
        inside=inside,
        reached=reached,
    )


def _to_many_peers(
    arch: ArchitectureCollectives, fabric: FabricCollectives | None, cluster: Cluster
) -> float | None:
    """What NCCL's channels draw of a NIC in messages to many peers; None where nothing but the NIC is known.

    A channel has so many chunks of a message on their way at once, whatever the size of the chunks.
    """
    if fabric is None or fabric.pairwise_bytes_per_s is None:
        return None
    drawn = arch.pairwise_bytes_per_s or fabric.pairwise_bytes_per_s
    return drawn * cluster.interconnect.longer_chunks


def _leading(group: RankGroup, cluster: Cluster, constants: CollectiveConstants) -> float:
    """GPUs of a host or domain whose shares of the NICs a ring or tree uses."""
    if cluster.interconnect.nics_as_one:
        return shares_of_one_nic(group.local, cluster.interconnect)
    return min(group.local, constants.network_gpus)


def over(rate: float, weight: float | Fraction) -> float:
    """Payload rate over a link of ``rate`` that carries ``weight`` payloads; infinite where none."""
    return rate / float(weight) if weight else math.inf
