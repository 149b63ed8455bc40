"""The cluster as failures see it: how many of everything, and which hosts a target takes along.

Knows counts and index arithmetic. Hosts are slots of the job: slot 3 stays slot 3 when another host takes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .targets import Counts, Target


@dataclass(frozen=True, kw_only=True)
class Machine:
    """``replica_gpus`` are the GPUs of one data-parallel replica that lie together (tp * cp), ``replicas``
    the dp size: the replica of a GPU is ``gpu // replica_gpus % replicas``. ``spines`` is 0 where there
    are none that are known by number.
    """

    gpus: int
    gpus_per_node: int
    nics_per_node: int
    nodes_per_leaf: int
    nodes_per_rack: int
    racks_per_power: int
    replicas: int
    replica_gpus: int
    stages: int = 1
    spines: int = 0

    @property
    def nodes(self) -> int:
        """Hosts of the job; the last one may not be full."""
        return -(-self.gpus // self.gpus_per_node)

    def units(self, scope: str) -> int:
        """How many of a scope the job has."""
        match scope:
            case "job" | "storage":
                return 1
            case "gpu" | "rank":
                return self.gpus
            case "node":
                return self.nodes
            case "nic" | "link":
                return self.nodes * self.nics_per_node
            case "rail":
                return self.nics_per_node
            case "spine":
                return self.spines
            case "leaf":
                return -(-self.nodes // self.nodes_per_leaf)
            case "rack":
                return -(-self.nodes // self.nodes_per_rack)
            case "power":
                return -(-self.units("rack") // self.racks_per_power)
        raise ValueError(f"no scope is called {scope!r}")

    @property
    def counts(self) -> Counts:
        """How many units there are of each scope, and how many of one scope another has: by these the targets
        of faults are checked."""
        scopes = ("gpu", "rank", "node", "nic", "link", "rail", "leaf", "spine", "rack", "power")
        return Counts(
            total={scope: self.units(scope) for scope in scopes},
            per={
                ("gpu", "node"): min(self.gpus, self.gpus_per_node),
                ("nic", "node"): self.nics_per_node,
                ("link", "node"): self.nics_per_node,
                ("rail", "node"): self.nics_per_node,
                ("rail", "leaf"): self.nics_per_node,
                ("spine", "leaf"): self.spines,
                ("node", "rack"): self.nodes_per_rack,
                ("node", "leaf"): self.nodes_per_leaf,
            },
        )

    def nodes_of(self, target: Target) -> range:
        """The slots of the hosts that a target touches; none for the whole job."""
        index = target.index or 0
        if target.inside:
            hosts = self.nodes_of(target.inside)
            return range(hosts.start + index, hosts.start + index + 1) if target.scope == "node" else hosts
        match target.scope:
            case "gpu" | "rank":
                return self._hosts(index // self.gpus_per_node, 1)
            case "node":
                return self._hosts(index, 1)
            case "nic" | "link":
                return self._hosts(index // self.nics_per_node, 1)
            case "leaf":
                return self._hosts(index * self.nodes_per_leaf, self.nodes_per_leaf)
            case "rack":
                return self._hosts(index * self.nodes_per_rack, self.nodes_per_rack)
            case "power":
                racks = self.nodes_per_rack * self.racks_per_power
                return self._hosts(index * racks, racks)
            case "rail":
                return range(self.nodes)
        return range(0)

    def _hosts(self, first: int, count: int) -> range:
        return range(min(first, self.nodes), min(first + count, self.nodes))

    def replicas_of(self, node: int) -> tuple[int, ...]:
        """The data-parallel replicas that have GPUs in a host: one, or several small ones."""
        first = node * self.gpus_per_node
        last = min(first + self.gpus_per_node, self.gpus) - 1
        blocks = range(first // self.replica_gpus, last // self.replica_gpus + 1)
        return tuple(sorted({block % self.replicas for block in blocks}))
