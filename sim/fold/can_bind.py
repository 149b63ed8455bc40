"""Whether links of a fabric can slow anything down at all, which decides how a healthy step is folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster


def can_bind(cluster: Cluster) -> bool:
    """Whether any link of a healthy fabric can limit a flow. None can in a tree with as much bandwidth
    above each switch as below it."""
    if not cluster.interconnect.connects_hosts or cluster.gpus <= cluster.nvlink_domain:
        return False
    from ...hardware.fabrics.tiers import Tiers
    from ...hardware.topology import RegularTopology

    topology = cluster.topology
    network = topology.network if isinstance(topology, RegularTopology) else None
    if not isinstance(network, Tiers) or cluster.fabric.ecmp == "hashed":
        return True
    above = network.oversubscription * (network.spine_oversubscription if network.cores else 1.0)
    return max(network.oversubscription if network.spines else 0.0, above) > 1
