"""Eos: NVIDIA's DGX H100 SuperPOD of 576 hosts, rail-optimized NDR.

Units of 32 hosts with one leaf per rail, as in the DGX H100 SuperPOD reference architecture. Switch
counts above the leaves follow the rule of ``clos.py`` and are not in print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .clos import Clos
from .published import Published
from .tiers import Tiers, tiers_of

if TYPE_CHECKING:
    from .inputs import Options, Ports

PUBLISHED = Published(
    name="Eos",
    nodes=576,
    gpus_per_node=8,
    gpus=("H100-SXM5-80GB",),
    interconnects=("ib-ndr400-x8",),
    facts={
        "hosts": "576 DGX H100, 4,608 GPUs",
        "links": "8 x NDR 400 Gb/s per host, one per GPU",
        "switches": "Quantum-2 QM9700, 64 ports (counts unverified)",
        "oversubscription": "none (unverified)",
    },
    sources=(
        (
            "The Next Platform 2024-03-06, A Tale Of Two Nvidia Eos Supercomputers "
            "(4,608 GPUs without the NVLink network)"
        ),
        "NVIDIA DGX SuperPOD with DGX H100, RA-11333-001 (units of 32 hosts, 8 leaves)",
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
