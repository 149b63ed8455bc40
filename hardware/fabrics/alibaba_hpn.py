"""Alibaba HPN 7.0: one pod of 15 segments, two tiers, two planes.

Each NIC has two 200 Gb/s ports, one to a leaf of either plane, and the planes stay apart up to the
spines. A segment is 128 hosts and 16 leaves (rail by plane); a leaf has 128 ports of 200 Gb/s down and
60 of 400 Gb/s up: 1.067:1. Its uplinks go to 60 spines of its plane, one each. Joining pods (15:1 above the
spines) is left out: a job lies in one pod. The counts 128, 60 and 8 follow from the printed ratios with
128 ports of 400 Gb/s a switch; they were not read in the paper (unverified).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .published import Published
from .tiers import Tiers

if TYPE_CHECKING:
    from .inputs import Options, Ports

PUBLISHED = Published(
    name="Alibaba HPN",
    nodes=1920,
    gpus_per_node=8,
    gpus=("H800-SXM5-80GB", "H100-SXM5-80GB"),
    interconnects=("roce-400-x8",),
    facts={
        "hosts": "1,920 hosts, 15,360 GPUs in 15 segments of 1,024",
        "links": "8 x (2 x 200 Gb/s) per host, dual ToR, dual plane",
        "leaf": "51.2 Tb/s: 128 x 200 Gb/s down, 60 x 400 Gb/s up, 1.067:1 (counts unverified)",
        "spine": "60 in each plane, any rail to any rail (count unverified)",
        "above": "15:1 between pods (not modelled)",
    },
    sources=(
        (
            "Qian et al. 2024, Alibaba HPN: A Data Center Network for Large Language Model Training, SIGCOMM "
            "(through reading notes: wuql20.bearblog.dev, secondary)"
        ),
        "GPU type of the hosts: unverified",
    ),
)


def network(fabric: Options, interconnect: Ports, nodes: int) -> Tiers:
    """All switches of the cluster, whatever part of it the job uses."""
    del fabric, nodes  # the printed shape holds for every job
    return Tiers(
        nodes=PUBLISHED.nodes,
        links_per_host=interconnect.links_per_host,
        nodes_per_unit=128,
        leaves_per_unit=8,
        leaves_per_pod=120,
        spines_per_pod=60,
        cores_per_group=0,
        oversubscription=128 * 200 / (60 * 400),
        planes=2,
        uplink_rate=2.0,
    )
