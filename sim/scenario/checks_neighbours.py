"""What must hold between a job and its neighbours: every host has one job, and a network joins them.

Knows hosts by number; reads no scenario of a neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .finding import Finding
from .machine import cluster_of, gpus_of_job, interconnect_of

if TYPE_CHECKING:
    from .blocks import ClusterSpec

PATH = ("cluster", "neighbours")


def neighbours_fit(cluster: ClusterSpec) -> Iterator[Finding]:
    """Each neighbour has hosts of its own on a network that joins them to ours."""
    if not cluster.neighbours:
        return
    if cluster.gpus <= cluster.gpus_per_node:
        message = "a job of one host puts nothing on the fabric, so no other job slows it; leave them out"
        yield Finding(path=PATH, message=message)
        return
    if not interconnect_of(cluster).connects_hosts:
        message = f"{cluster.interconnect_name} joins no hosts; name the network (cluster.interconnect)"
        yield Finding(path=PATH, message=message)
        return
    try:
        built = cluster_of(cluster)
        there = built.topology.gpus // cluster.gpus_per_node
        taken = dict.fromkeys(own_hosts(cluster), "the job itself")
    except ValueError as error:
        yield Finding(path=PATH, message=str(error))
        return
    for number, one in enumerate(cluster.neighbours):
        for host in one.hosts:
            who = taken.setdefault(host, f"neighbours[{number}]")
            if who != f"neighbours[{number}]" or host >= there:
                why = f"has {who}" if host < there else f"is not there: the fabric has {there}"
                yield Finding(path=(*PATH, number, "hosts"), message=f"host {host} {why}")
                break


def own_hosts(cluster: ClusterSpec) -> list[int]:
    """The hosts that the job itself fills."""
    per_node = cluster.gpus_per_node
    if cluster.placement is None:
        return list(range(cluster.nodes))
    gpu = gpus_of_job(cluster, cluster_of(cluster))
    return sorted(set((gpu // per_node).tolist()))
