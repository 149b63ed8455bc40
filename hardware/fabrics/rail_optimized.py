"""Rail-optimized fabric: link i of every host of a scalable unit goes to leaf switch i of that unit.

Traffic between equal rails of a unit crosses one switch. The spines join all leaves, so that other
traffic works too. As NVIDIA's DGX SuperPOD reference architecture has it.
"""

from __future__ import annotations

from .clos import Clos


def plan(
    *, nodes: int, links_per_host: int, switch_ports: int, oversubscription: float, nodes_per_leaf: int | None
) -> Clos:
    """One leaf per rail in each unit; a unit fills half of a leaf's ports with hosts (32 of 64 on H100)."""
    return Clos(
        nodes=nodes,
        links_per_host=links_per_host,
        nodes_per_unit=nodes_per_leaf or switch_ports // 2,
        leaves_per_unit=links_per_host,
        switch_ports=switch_ports,
        oversubscription=oversubscription,
    )
