"""Meta's RoCE cluster of 24,576 H100, which trained Llama 3 405B: eight pods of 3,072 GPUs.

Two hosts share a rack switch; 192 racks make a pod, whose rack switches have twice the uplinks that
their hosts need; above the pods 1:7. How many cluster and aggregation switches there are is not in
print: 16 and 16 here, wide enough for that capacity (unverified; the capacity is what matters).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .published import Published
from .tiers import Tiers

if TYPE_CHECKING:
    from .inputs import Options, Ports

PUBLISHED = Published(
    name="Meta 24k RoCE",
    nodes=3072,
    gpus_per_node=8,
    gpus=("H100-SXM5-80GB",),
    interconnects=("roce-400-x8",),
    facts={
        "hosts": "3,072 Grand Teton in 1,536 racks, 24,576 H100",
        "links": "8 x RoCE 400 Gb/s per host, all to one rack switch",
        "rack switch": "Minipack2, 16 ports down; uplinks 2:1 under-subscribed",
        "pod": "192 racks, 3,072 GPUs, full bisection; 16 cluster switches, Arista 7800 (count unverified)",
        "above": "8 pods, oversubscribed 1:7; 16 aggregation switches (count unverified)",
    },
    sources=(
        (
            "Grattafiori et al. 2024, The Llama 3 Herd of Models, arXiv:2407.21783, section 3.3.1 "
            "(pods, racks, 1:7)"
        ),
        (
            "Gangidi et al. 2024, RDMA over Ethernet for Distributed AI Training at Meta Scale, SIGCOMM "
            "(rack uplinks 1:2; through glennklockwood.com, secondary)"
        ),
    ),
)


def network(fabric: Options, interconnect: Ports, nodes: int) -> Tiers:
    """All switches of the cluster, whatever part of it the job uses."""
    del fabric, nodes  # the printed shape holds for every job
    return Tiers(
        nodes=PUBLISHED.nodes,
        links_per_host=interconnect.links_per_host,
        nodes_per_unit=2,
        leaves_per_unit=1,
        leaves_per_pod=192,
        spines_per_pod=16,
        cores_per_group=1,
        oversubscription=0.5,
        spine_oversubscription=14.0,  # 1:7 of the hosts' rate; the rack switches send twice that rate up
    )
