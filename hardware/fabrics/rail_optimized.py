"""Rail-optimized fabric: link i of every host of a scalable unit goes to leaf switch i of that unit.

Traffic between equal rails of a unit crosses one switch. The spines join all leaves, so that other
traffic works too. As NVIDIA's DGX SuperPOD reference architecture has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .clos import Clos
from .tiers import tiers_of

if TYPE_CHECKING:
    from .inputs import Options, Ports
    from .tiers import Tiers


def plan(fabric: Options, interconnect: Ports, nodes: int) -> Clos:
    """One leaf per rail in each unit; a unit fills half of a leaf's ports with hosts (32 of 64 on H100)."""
    ports, links = interconnect.switch_ports, interconnect.links_per_host
    return Clos(
        nodes=nodes,
        links_per_host=links,
        nodes_per_unit=fabric.nodes_per_leaf or ports // 2,
        leaves_per_unit=links,
        switch_ports=ports,
        oversubscription=fabric.oversubscription,
        spine_oversubscription=fabric.spine_oversubscription,
        levels=fabric.levels,
    )


def network(fabric: Options, interconnect: Ports, nodes: int) -> Tiers:
    """The planned switches with their links and routes."""
    return tiers_of(plan(fabric, interconnect, nodes))
