"""What the links of a fabric leave one collective that is alone on it: the routes and capacities of a step.

A step's replay shares these links among all that cross them; alone, the fullest link of a collective's own
routes decides. Knows rates; knows neither time nor what else runs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..lowering.placed_groups import domains
from ..network.patterns import sent
from .can_bind import can_bind
from .fabric import SLACK, looked_at, routed
from .weak_links import topology_for

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster


NONE = "", math.inf

MOST_PAIRS = 2048
"""Ranks whose messages to one another are routed one by one: four million."""


def fullest_link(pattern: str, ranks: int, cluster: Cluster) -> tuple[str, float]:
    """The fullest link of a collective of the given pattern (patterns.py) on the first GPUs of ``cluster``.

    Returns its name, and what it leaves each NIC, in bytes per second on average over the ranks; infinite
    where no link binds. Raises ValueError for messages between all pairs of too many ranks.
    """
    if not can_bind(cluster):
        return NONE
    if pattern == "pairs" and ranks > MOST_PAIRS:
        raise ValueError(
            f"{ranks:,} ranks that all send to one another over a fabric that can be full are too many to "
            f"route (at most {MOST_PAIRS:,}): take fewer GPUs"
        )
    topology, gpu = topology_for(cluster), np.arange(ranks)
    over = sent(pattern, np.zeros(ranks, dtype=np.int64), domains(gpu, cluster))
    at = over.instance, over.sender, over.receiver
    lost = np.zeros(0, dtype=np.int64)
    use = routed(cluster, topology, gpu, at, over.share, 0, looked_at(topology, cluster, False), lost)
    if not len(use.link):
        return NONE
    links, where = np.unique(use.link, return_inverse=True)
    rates = topology.links.usable_bytes_per_s(links) / np.bincount(where, use.weight, len(links))
    least = int(np.argmin(rates))
    if rates[least] >= cluster.nic_bytes_per_s_per_gpu * SLACK:
        return NONE
    return topology.links.name(int(links[least])), float(rates[least])
