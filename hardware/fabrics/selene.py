"""Selene: NVIDIA's DGX A100 SuperPOD of 560 hosts, a three-level HDR fat tree, rail-optimized.

Units of 20 hosts with one leaf per rail, as in the DGX A100 SuperPOD reference architecture. How the
leaves of 28 units meet above is not in print; they are wired by the rule of ``clos.py``, non-blocking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .clos import Clos
from .published import Published
from .tiers import Tiers, tiers_of

if TYPE_CHECKING:
    from .inputs import Options, Ports

PUBLISHED = Published(
    name="Selene",
    nodes=560,
    gpus_per_node=8,
    gpus=("A100-SXM4-80GB",),
    interconnects=("ib-hdr200-x8",),
    facts={
        "hosts": "560 DGX A100, 4,480 GPUs",
        "links": "8 x HDR 200 Gb/s per host, one per GPU",
        "switches": "Quantum QM8790, 40 ports; three levels; 850 with storage and management "
        "in print, of which the compute fabric here has 560 (split unverified)",
        "oversubscription": "none (unverified)",
    },
    sources=(
        (
            "Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters, "
            "arXiv:2104.04473, section 5 (three-level fat tree, 850 switches; unverified)"
        ),
        (
            "NVIDIA DGX SuperPOD with DGX A100, RA-09950-001 "
            "(units of 20 hosts; counts above the leaves unverified)"
        ),
    ),
)


def network(fabric: Options, interconnect: Ports, nodes: int) -> Tiers:
    """All switches of the cluster, whatever part of it the job uses."""
    del fabric, nodes  # the printed shape holds for every job
    return tiers_of(
        Clos(
            nodes=PUBLISHED.nodes,
            links_per_host=interconnect.links_per_host,
            nodes_per_unit=20,
            leaves_per_unit=8,
            switch_ports=interconnect.switch_ports,
            oversubscription=1.0,
        )
    )
