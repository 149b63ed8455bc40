"""Leaf, spine and core switches in closed form: how many there are and which of them a message crosses.

Knows counts and positions of switches. Does not know rates, latencies or GPUs.

Hosts come in units that share leaf switches; a rail-optimized unit has one leaf per rail, a
fat-tree unit one leaf. Up to as many leaves as a switch has ports, every leaf reaches every spine.
More leaves are cut into pods with spines of their own, and core switches join the pods: spine k of
every pod reaches the cores of group k. Above the leaves nothing is oversubscribed. With 64 ports
and 8 rails this gives the switch counts of NVIDIA's DGX SuperPOD B200 reference architecture.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, kw_only=True)
class Clos:
    """The switches of ``nodes`` hosts with ``links_per_host`` links each.

    ``oversubscription`` is the capacity below a leaf over that above it.
    """

    nodes: int
    links_per_host: int
    nodes_per_unit: int
    leaves_per_unit: int
    switch_ports: int
    oversubscription: float

    @property
    def units(self) -> int:
        return ceil(self.nodes / self.nodes_per_unit)

    @property
    def leaves(self) -> int:
        return self.units * self.leaves_per_unit

    @property
    def leaves_per_pod(self) -> int:
        """All leaves, or as many whole units of them as half of a spine's ports can serve."""
        if self.leaves <= self.switch_ports:
            return self.leaves
        return max(1, self.switch_ports // 2 // self.leaves_per_unit) * self.leaves_per_unit

    @property
    def pods(self) -> int:
        return ceil(self.leaves / self.leaves_per_pod)

    @property
    def spines_per_pod(self) -> int:
        """Enough ports for all uplinks of a full pod; none if there is one leaf."""
        if self.leaves == 1:
            return 0
        downlinks = self.nodes_per_unit * self.links_per_host / self.leaves_per_unit
        ports = self.switch_ports if self.pods == 1 else self.switch_ports / 2
        return ceil(self.leaves_per_pod * downlinks / self.oversubscription / ports)

    @property
    def spines(self) -> int:
        return self.pods * self.spines_per_pod

    @property
    def cores_per_group(self) -> int:
        """Cores that spine k of every pod reaches: each spine brings half of its ports."""
        return 0 if self.pods == 1 else ceil(self.pods / 2)

    @property
    def cores(self) -> int:
        return self.cores_per_group * self.spines_per_pod

    def leaf(self, node: int, link: int) -> int:
        """The leaf switch that this link of the host is plugged into."""
        return node // self.nodes_per_unit * self.leaves_per_unit + link % self.leaves_per_unit

    def pod(self, leaf: int) -> int:
        return leaf // self.leaves_per_pod

    def links_below(self, leaf: int) -> int:
        """How many links of hosts are plugged into this leaf; fewer in a last unit that is not full."""
        first_node = leaf // self.leaves_per_unit * self.nodes_per_unit
        nodes = min(self.nodes_per_unit, self.nodes - first_node)
        return nodes * len(range(leaf % self.leaves_per_unit, self.links_per_host, self.leaves_per_unit))

    def switches_between(self, leaf_a: int, leaf_b: int) -> int:
        """How many switches a message from one leaf to the other crosses, both leaves counted: 1, 3 or 5."""
        if leaf_a == leaf_b:
            return 1
        return 3 if self.pod(leaf_a) == self.pod(leaf_b) else 5

    @property
    def bisection_links(self) -> float:
        """Host links' worth of capacity between the first half of the units and the rest.

        With one unit, between the first half of its hosts and the rest: leaves never block.
        """
        if self.units == 1:
            return float(self.nodes // 2 * self.links_per_host)
        first_half = self.units // 2 * self.nodes_per_unit
        smaller_side = min(first_half, self.nodes - first_half)
        return smaller_side * self.links_per_host / max(1.0, self.oversubscription)
