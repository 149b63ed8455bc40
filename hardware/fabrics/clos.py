"""Leaf, spine and core switches in closed form: how many there are and which of them a message crosses.

Knows counts and positions of switches. Does not know rates, latencies or GPUs.

Hosts come in units that share leaf switches; a rail-optimized unit has one leaf per rail, a
fat-tree unit one leaf. Up to as many leaves as a switch has ports, every leaf reaches every spine.
More leaves are cut into pods with spines of their own, and core switches join the pods: spine k of
every pod reaches the cores of group k. Unless ``levels`` fixes the number of tiers. With 64 ports
and 8 rails this gives the switch counts of NVIDIA's DGX SuperPOD B200 reference architecture.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, kw_only=True)
class Clos:
    """The switches of ``nodes`` hosts with ``links_per_host`` links each.

    ``oversubscription`` is the capacity below a leaf over that above it, ``spine_oversubscription``
    the same of a spine. ``levels`` 2 or 3 fixes the tiers; None takes cores only where they are needed.

    Raises:
        ValueError: two levels cannot join so many leaves.
    """

    nodes: int
    links_per_host: int
    nodes_per_unit: int
    leaves_per_unit: int
    switch_ports: int
    oversubscription: float
    spine_oversubscription: float = 1.0
    levels: int | None = None

    def __post_init__(self) -> None:
        if self.levels == 2 and self.leaves > self.switch_ports:
            raise ValueError(
                f"levels 2: {self.leaves} leaf switches exceed the {self.switch_ports} ports of a spine; "
                "choose levels 3, or more nodes_per_leaf"
            )
        if self.levels == 3 and self.pods == 1:
            raise ValueError(
                f"levels 3: {self.leaves} leaf switch(es) fit one pod of {self.leaves_per_pod}: cores would "
                "join nothing; choose levels 2, or fewer nodes_per_leaf"
            )

    @property
    def units(self) -> int:
        return ceil(self.nodes / self.nodes_per_unit)

    @property
    def leaves(self) -> int:
        return self.units * self.leaves_per_unit

    @property
    def leaves_per_pod(self) -> int:
        """All leaves, or as many whole units of them as half of a spine's ports can serve."""
        if self.leaves <= self.switch_ports and self.levels != 3:
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
        ports = self.switch_ports if self.pods == 1 and self.levels != 3 else self.switch_ports / 2
        return ceil(self.leaves_per_pod * downlinks / self.oversubscription / ports)

    @property
    def spines(self) -> int:
        return self.pods * self.spines_per_pod

    @property
    def cores_per_group(self) -> int:
        """Cores that spine k of every pod reaches: each spine brings half of its ports."""
        return 0 if self.pods == 1 else ceil(self.pods / 2 / self.spine_oversubscription)

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
        if self.pods > 1 and self.spine_oversubscription != 1:
            return self._bisection_over_cores(first_half)
        smaller_side = min(first_half, self.nodes - first_half)
        return smaller_side * self.links_per_host / max(1.0, self.oversubscription)

    def _bisection_over_cores(self, first_half: int) -> float:
        """Units of one pod meet at its spines, all others at the cores: the pod in the middle may do both."""
        per_host = self.links_per_host / max(1.0, self.oversubscription)
        per_pod = self.leaves_per_pod // self.leaves_per_unit * self.nodes_per_unit
        # What a host brings to the cores; the leaves' uplinks may be more or less than its links.
        to_core = self.links_per_host / self.oversubscription / self.spine_oversubscription
        middle = first_half // per_pod
        sends = receives = inside_a = inside_b = core = 0.0
        for pod in range(self.pods):
            first, last = pod * per_pod, min((pod + 1) * per_pod, self.nodes)
            crossing = min((last - first) * per_host, (last - first) * to_core)
            if pod == middle:
                inside_a, inside_b = (first_half - first) * per_host, (last - first_half) * per_host
                core = (last - first) * to_core
            elif pod < middle:
                sends += crossing
            else:
                receives += crossing
        stays = (0.0, min(inside_a, inside_b), inside_a - core, inside_b - core)
        return max(
            t + min(sends + min(inside_a - t, core), receives + min(inside_b - t, core))
            for t in (min(max(0.0, stay), inside_a, inside_b) for stay in stays)
        )
