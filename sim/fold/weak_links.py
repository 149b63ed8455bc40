"""What degradation between switches does to capacities and routes: weak and lost links, ways around them.

An even spread puts equal shares on the cables of a trunk, so that its weakest one decides for all, and of
lost ones the others carry the traffic. A hashed flow over a lost link hashes anew. Links that have none
beside them (dragonfly, torus between neighbours, a graph of one's own under an even spread) cannot be lost:
detours are not modelled. Knows links by number; degrades none itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...hardware.routes import Routes
from ...hardware.topology import RegularTopology, Topology

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster

    Ids = NDArray[np.int64]

TRIES = 64
REHASH = 1 << 20
"""How often a flow over a lost link hashes anew, and what that adds to its number."""


def topology_for(cluster: Cluster) -> Topology:
    """The topology whose links are single cables if flows are hashed onto them, else trunks of cables."""
    topology = cluster.topology
    if cluster.fabric.ecmp == "hashed" or not isinstance(topology, RegularTopology):
        return topology
    return topology.as_trunks()


def capacity_left(cluster: Cluster, shares: Mapping[int, float]) -> dict[int, float]:
    """What degradation leaves of the links of ``topology_for``.

    An even spread loads the cables of a trunk alike, so that its weakest decides; of lost ones (share 0) the
    others carry the traffic.

    Raises:
        ValueError: nothing is left of a trunk, or of a link that no other runs beside.
    """
    trunks: dict[int, tuple[int, list[float]]] = {}
    topology, hashed = cluster.topology, cluster.fabric.ecmp == "hashed"
    for link, share in shares.items():
        trunk, cables = link, 1
        if isinstance(topology, RegularTopology) and not hashed:
            trunk, cables = topology.trunk_of(link)
        trunks.setdefault(trunk, (cables, []))[1].append(share)
    left = {}
    for trunk, (cables, found) in trunks.items():
        lost = found.count(0.0)
        if lost == cables and not hashed:
            name = topology_for(cluster).links.name(trunk)
            raise ValueError(f"{name} is lost, and no other way is modelled")
        left[trunk] = (cables - lost) / cables * min((share for share in found if share), default=1.0)
    return left


def around(topology: Topology, a: Ids, b: Ids, flow: Ids, lost: Ids) -> Routes:
    """Routes of hashed flows, where those over ``lost`` links are hashed again onto what is left, as
    switches do. ValueError for a flow without any route left."""
    routes = topology.links_of(a, b, flow)
    for _ in range(TRIES):
        hit = np.unique(routes.route[np.isin(routes.link, lost)])
        if not len(hit):
            return routes
        flow = flow.copy()
        flow[hit] += REHASH
        routes = topology.links_of(a, b, flow)
    raise ValueError(
        f"no way from GPU {a[hit[0]]} to GPU {b[hit[0]]} around {topology.links.name(int(lost[0]))} "
        f"({len(lost)} links are lost)"
    )
