"""Fat tree: all links of a host go to one leaf switch, which a group of hosts shares."""

from __future__ import annotations

from .clos import Clos


def plan(
    *, nodes: int, links_per_host: int, switch_ports: int, oversubscription: float, nodes_per_leaf: int | None
) -> Clos:
    """One leaf per group; a group fills half of the leaf's ports with its hosts' links."""
    return Clos(
        nodes=nodes,
        links_per_host=links_per_host,
        nodes_per_unit=nodes_per_leaf or max(1, switch_ports // 2 // links_per_host),
        leaves_per_unit=1,
        switch_ports=switch_ports,
        oversubscription=oversubscription,
    )
