"""Fat tree: all links of a host go to one leaf switch, which a group of hosts shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .clos import Clos
from .tiers import tiers_of

if TYPE_CHECKING:
    from .inputs import Options, Ports
    from .tiers import Tiers


def plan(fabric: Options, interconnect: Ports, nodes: int) -> Clos:
    """One leaf per group; a group fills half of the leaf's ports with its hosts' links."""
    ports, links = interconnect.switch_ports, interconnect.links_per_host
    return Clos(
        nodes=nodes,
        links_per_host=links,
        nodes_per_unit=fabric.nodes_per_leaf or max(1, ports // 2 // links),
        leaves_per_unit=1,
        switch_ports=ports,
        oversubscription=fabric.oversubscription,
        spine_oversubscription=fabric.spine_oversubscription,
        levels=fabric.levels,
    )


def network(fabric: Options, interconnect: Ports, nodes: int) -> Tiers:
    """The planned switches with their links and routes."""
    return tiers_of(plan(fabric, interconnect, nodes))
