"""Meta's InfiniBand cluster of 24,576 H100, the sister of the RoCE cluster that trained Llama 3 405B.

In print: GPUs, hosts, 400 Gb/s and Quantum-2. The wiring is not; here it is NVIDIA's reference
(rail-optimized, non-blocking), which is unverified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .clos import Clos
from .published import Published
from .tiers import Tiers, tiers_of

if TYPE_CHECKING:
    from .inputs import Options, Ports

PUBLISHED = Published(
    name="Meta 24k InfiniBand",
    nodes=3072,
    gpus_per_node=8,
    gpus=("H100-SXM5-80GB",),
    interconnects=("ib-ndr400-x8",),
    facts={
        "hosts": "3,072 Grand Teton, 24,576 H100",
        "links": "8 x NDR 400 Gb/s per host",
        "switches": "Quantum-2, 64 ports (counts unverified)",
        "oversubscription": "none here (unverified)",
    },
    sources=(
        "Meta 2024-03-12, Building Meta's GenAI Infrastructure (GPUs, 400 Gb/s, Quantum-2)",
        "glennklockwood.com/garden/systems/meta's-h100-clusters (secondary)",
    ),
)


def network(fabric: Options, interconnect: Ports, nodes: int) -> Tiers:
    """All switches of the cluster, whatever part of it the job uses."""
    del fabric, nodes  # the printed shape holds for every job
    return tiers_of(
        Clos(
            nodes=PUBLISHED.nodes,
            links_per_host=interconnect.links_per_host,
            nodes_per_unit=32,
            leaves_per_unit=8,
            switch_ports=interconnect.switch_ports,
            oversubscription=1.0,
        )
    )
