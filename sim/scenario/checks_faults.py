"""What must hold between the block ``faults`` and the cluster: targets exist, presets are known.

Knows how the cluster's counts follow from the scenario. Does not know campaigns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...hardware.catalogue import unknown_name
from .faults.machine import Machine
from .faults.presets import preset_names
from .finding import Finding, choices, divisors
from .machine import cluster_of, interconnect_of, node_of

if TYPE_CHECKING:
    from .blocks import ClusterSpec, Parallelism
    from .faults.bare import Bare, BareCluster
    from .faults.faults import Domains, Faults
    from .faults.targets import Counts

NODES_PER_LEAF = 16
"""Hosts under a leaf switch where the fabric does not say: SU of 16 or 32 hosts in rail-optimised designs."""


def presets_exist(faults: Faults) -> Iterator[Finding]:
    """Every name of published rates is one of ours."""
    for name in faults.presets:
        if name not in preset_names():
            message = str(unknown_name("preset of faults", name, preset_names()))
            yield Finding(path=("faults", "presets"), message=message)


def targets_exist(faults: Faults, counts: Counts) -> Iterator[Finding]:
    """Every target of an event is part of the cluster."""
    for number, event in enumerate(faults.events):
        if event.trace is not None:
            continue
        try:
            counts.check(event.where)
        except ValueError as error:
            yield Finding(path=("faults", "events", number, "target"), message=str(error))


def machine_of(cluster: ClusterSpec, layout: Parallelism | None, domains: Domains) -> Machine:
    """The cluster as failures see it."""
    interconnect = interconnect_of(cluster)
    per_node = min(cluster.gpus, cluster.gpus_per_node)
    nodes_per_leaf = domains.nodes_per_leaf or cluster.fabric.nodes_per_leaf
    if nodes_per_leaf is None:
        switches = cluster_of(cluster).switches
        nodes_per_leaf = switches.nodes_per_unit if switches else NODES_PER_LEAF
    node = node_of(cluster)
    nodes_per_rack = domains.nodes_per_rack
    if node.hosts_per_domain > 1 and "nodes_per_rack" not in domains.model_fields_set:
        nodes_per_rack = -(-cluster_of(cluster).nvlink_domain // per_node)
    return Machine(
        gpus=cluster.gpus,
        gpus_per_node=per_node,
        nics_per_node=max(1, interconnect.links_per_host),
        nodes_per_leaf=nodes_per_leaf,
        nodes_per_rack=nodes_per_rack,
        racks_per_power=domains.racks_per_power,
        replicas=layout.dp if layout else 1,
        replica_gpus=layout.tp * layout.cp if layout else cluster.gpus,
        stages=layout.pp if layout else 1,
        spines=_spines(cluster),
    )


def _spines(cluster: ClusterSpec) -> int:
    """Spine switches of the fabric; 0 where it has no such tier, or is a graph of one's own."""
    if cluster.fabric.kind == "custom":
        return 0
    from ...hardware.topology import RegularTopology

    topology = cluster_of(cluster).topology
    network = topology.network if isinstance(topology, RegularTopology) else None
    return dict(network.tiers).get("spine", 0) if network else 0


def bare_machine(cluster: BareCluster, domains: Domains, replicas: int | None) -> Machine:
    """The cluster of a campaign without a model: replicas, if it has any, are even shares of the GPUs in a
    row. Of spines there may be as many as leaves, which is the most that two tiers need.
    """
    per_node = min(cluster.gpus, cluster.gpus_per_node)
    per_leaf = domains.nodes_per_leaf or NODES_PER_LEAF
    return Machine(
        gpus=cluster.gpus,
        gpus_per_node=per_node,
        nics_per_node=per_node,
        nodes_per_leaf=per_leaf,
        nodes_per_rack=domains.nodes_per_rack,
        racks_per_power=domains.racks_per_power,
        replicas=replicas or 1,
        replica_gpus=max(1, cluster.gpus // (replicas or 1)),
        spines=-(-cluster.gpus // (per_node * per_leaf)),
    )


def of_bare(read: Bare) -> Iterator[Finding]:
    """What contradicts itself in a campaign without a model."""
    replicas = read.recovery.elastic.replicas
    machine = bare_machine(read.cluster, read.faults.domains, replicas)
    if replicas and replicas not in (possible := _replicas_possible(machine)):
        message = (
            f"{replicas} replicas do not share out {machine.gpus:,} GPUs on hosts of "
            f"{machine.gpus_per_node}: each has whole hosts, or an even part of one; "
            f"it can be {choices(possible)}"
        )
        yield Finding(path=("recovery", "elastic", "replicas"), message=message)
    yield from presets_exist(read.faults)
    yield from targets_exist(read.faults, machine.counts)


def _replicas_possible(machine: Machine) -> list[int]:
    """How many replicas the GPUs make, each of whole hosts or of an even part of one."""
    sizes = ((replicas, machine.gpus // replicas) for replicas in divisors(machine.gpus))
    host = machine.gpus_per_node
    return [replicas for replicas, size in sizes if size % host == 0 or host % size == 0]
