"""MegaScale: ByteDance's cluster of 12,288 A100 on three layers of Tomahawk 4, 1:1 at each layer.

64 hosts share a set of eight leaf switches, one per rail. A leaf splits 32 of its 400 Gb/s ports into
64 x 200 Gb/s for hosts, so that each of its 32 uplinks is twice as fast as a host's link. Pods of 32
leaves follow from 32 ports down at the second layer; the third layer is sized to 1:1 (unverified).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .published import Published
from .tiers import Tiers

if TYPE_CHECKING:
    from .inputs import Options, Ports

PUBLISHED = Published(
    name="MegaScale",
    nodes=1536,
    gpus_per_node=8,
    gpus=("A100-SXM4-80GB",),
    interconnects=("roce-200-x8",),
    facts={
        "hosts": "1,536 hosts, 12,288 GPUs of the Ampere generation",
        "links": "8 x RoCE 200 Gb/s per host to 8 leaf switches",
        "switches": "Tomahawk 4, 64 x 400 Gb/s, 32 down and 32 up at each of three layers "
        "(counts above the leaves unverified)",
        "oversubscription": "1:1 at each layer",
    },
    sources=("Jiang et al. 2024, MegaScale, NSDI, section 3.6 (quoted text read)",),
)


def network(fabric: Options, interconnect: Ports, nodes: int) -> Tiers:
    """All switches of the cluster, whatever part of it the job uses."""
    del fabric, nodes  # the printed shape holds for every job
    return Tiers(
        nodes=PUBLISHED.nodes,
        links_per_host=interconnect.links_per_host,
        nodes_per_unit=64,
        leaves_per_unit=8,
        leaves_per_pod=32,
        spines_per_pod=32,
        cores_per_group=3,
        oversubscription=1.0,
        uplink_rate=2.0,
    )
