"""Faults of the network inside a step, as Degradation: half-rate links and rails, lost NICs, lost switches.

A lost NIC's traffic goes through the other NICs of its host: each GPU of it has (R - 1)/R of its rate left,
of R NICs. A lost leaf switch does so to every host on it, where hosts have other leaves; a lost spine or
core leaves its traffic to those beside it. Latencies stay. Knows links and ranks; knows no time.

That the other NICs share the lost one's traffic evenly is an assumption (derived: R NICs' bytes over R - 1);
a library that moves it to one backup would slow that one more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...hardware.fabrics.links import vertex_name
from ...hardware.topology import RegularTopology
from ..fold.ranks import Degradation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster

    Ids = NDArray[np.int64]

Key = TypeVar("Key", bound=Hashable)

PORTS = ("nic.out", "nic.in")


def together(degradations: Iterable[Degradation]) -> Degradation:
    """Several faults at once: slowness multiplies, and so do shares of what is left."""
    slow: dict[int, float] = {}
    link: dict[tuple[int, str], float] = {}
    fabric: dict[int, float] = {}
    for one in degradations:
        _multiply(slow, one.slow)
        _multiply(link, one.link_share)
        _multiply(fabric, one.fabric_share)
    return Degradation(slow=slow, link_share=link, fabric_share=fabric)


def weak_nic(cluster: Cluster, gpu: Ids, node: int, nic: int, share: float) -> Degradation:
    """A NIC at ``share`` of its rate, both ways: of the ranks whose messages it carries. A GPU that deals its
    messages to several NICs goes at the pace of the slowest. ``gpu`` is where each rank runs.
    """
    _check_nic(cluster, gpu, node, nic)
    ranks = [rank for rank in _ranks_on_node(cluster, gpu, node) if nic in cluster.nics_of(int(gpu[rank]))]
    return Degradation(link_share={(rank, port): share for rank in ranks for port in PORTS})


def weak_rail(cluster: Cluster, gpu: Ids, rail: int, share: float) -> Degradation:
    """NIC ``rail`` of every host at ``share`` of its rate."""
    return together(weak_nic(cluster, gpu, node, rail, share) for node in _hosts(cluster, gpu))


def lost_nic(cluster: Cluster, gpu: Ids, node: int, nic: int) -> Degradation:
    """A host without one NIC, whose traffic goes through the others. ValueError where it has only one."""
    _check_nic(cluster, gpu, node, nic)
    return _fewer_nics(cluster, gpu, node, 1)


def weak_link(cluster: Cluster, name: str, share: float) -> Degradation:
    """A link between switches by its name (``leaf 3 -> spine 1``), in both directions. ``share`` 0: lost.

    ValueError for a name that no link between switches has.
    """
    a, arrow, b = name.partition(" -> ")
    found = [link for link in _between_switches(cluster) if _ends(cluster, link) in ((a, b), (b, a))]
    if not arrow or not found:
        some = ", ".join(f"{a} -> {b}" for a, b in _some_ends(cluster))
        raise ValueError(f"no link is called {name!r}; links between switches are such as {some}")
    return Degradation(fabric_share=dict.fromkeys(found, share))


def lost_switch(cluster: Cluster, gpu: Ids, name: str) -> Degradation:
    """A switch by its name (``leaf 3``, ``spine 1``), with all its links.

    ValueError for a switch that is not there, or that hosts cannot do without.
    """
    topology = cluster.topology
    network = topology.network if isinstance(topology, RegularTopology) else None
    tiers = dict(network.tiers) if network else {}
    kind, _, number = name.partition(" ")
    if not number.isdigit() or int(number) >= tiers.get(kind, 0):
        known = ", ".join(f"{tier} 0 to {count - 1}" for tier, count in tiers.items()) or "none"
        raise ValueError(f"no switch is called {name!r}; there are: {known}")
    assert network is not None  # it has that switch
    if kind != next(iter(tiers)):
        lost = [link for link in _between_switches(cluster) if name in (_ends(cluster, link) or ())]
        return Degradation(fabric_share=dict.fromkeys(lost, 0.0))
    leaf = int(number) % (tiers[kind] // network.planes)
    nic = np.arange(cluster.interconnect.links_per_host)
    gone = {
        node: int((network.leaf(np.full_like(nic, node), nic) == leaf).sum()) for node in _hosts(cluster, gpu)
    }
    # Of NICs with a port in each plane the other ports are left.
    return together(
        _fewer_nics(cluster, gpu, node, count / network.planes, name) for node, count in gone.items() if count
    )


def _fewer_nics(cluster: Cluster, gpu: Ids, node: int, lost: float, why: str = "a NIC") -> Degradation:
    nics = cluster.interconnect.links_per_host
    if lost >= nics:
        raise ValueError(f"{why} is lost, and host {node} has no other way: the job stops")
    share = (nics - lost) / nics
    ranks = _ranks_on_node(cluster, gpu, node)
    return Degradation(link_share={(rank, port): share for rank in ranks for port in PORTS})


def _ranks_on_node(cluster: Cluster, gpu: Ids, node: int) -> list[int]:
    return np.flatnonzero(gpu // cluster.gpus_per_node == node).tolist()


def _hosts(cluster: Cluster, gpu: Ids) -> list[int]:
    """Hosts with ranks on them."""
    return [int(node) for node in np.unique(gpu // cluster.gpus_per_node)]


def _check_nic(cluster: Cluster, gpu: Ids, node: int, nic: int) -> None:
    if node not in _hosts(cluster, gpu):
        raise ValueError(f"host {node} runs no rank of the job")
    if not 0 <= nic < cluster.interconnect.links_per_host:
        raise ValueError(f"no NIC {nic}: a host has NICs 0 to {cluster.interconnect.links_per_host - 1}")


def _between_switches(cluster: Cluster) -> range:
    """Links of the fabric by number; the hosts' own come first."""
    links = cluster.topology.links
    own = sum(family.kind in ("nvlink", "pcie", "nic") for family in links.families)
    custom = not isinstance(cluster.topology, RegularTopology)
    return range(0 if custom else int(links.first[own]), len(links))


def _ends(cluster: Cluster, link: int) -> tuple[str, str] | None:
    ends = cluster.topology.links.ends(link)
    return (vertex_name(ends[0]), vertex_name(ends[1])) if ends else None


def _some_ends(cluster: Cluster) -> list[tuple[str, str]]:
    named = (_ends(cluster, link) for link in _between_switches(cluster)[:64])
    return list(dict.fromkeys(pair for pair in named if pair))[:3]


def _multiply(into: dict[Key, float], shares: Mapping[Key, float]) -> None:
    for key, share in shares.items():
        into[key] = into.get(key, 1.0) * share
