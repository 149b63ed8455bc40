"""The process groups of a layout on the GPUs of a cluster: how each sits over NVLink domains.

The placement says which GPU each rank runs on. Oversubscribed links are no part of it: what a group may take
of them is decided while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ..network.collectives import Distance
from ..network.group_placement import GroupPlacement, placement_of_parts
from ..scenario.machine import gpus_of_job, placement_of
from .process_groups import GROUPS, ProcessGroups

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ..scenario.blocks import ClusterSpec

    Ids = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RankGroups:
    """How the groups of one rank are placed: ``named["dp"]``, and so on for all of ``GROUPS``.

    ``embedding`` joins the two ends of its pipeline. ``replica`` has the ranks of its pipeline, and
    ``distances[r]`` how far it is from pipeline rank r to the next one (cyclically). ``kind`` is the kind of
    the rank's GPU.
    """

    named: Mapping[str, GroupPlacement]
    replica: tuple[int, ...]
    distances: tuple[Distance, ...]
    kind: int = 0

    def __getitem__(self, name: str) -> GroupPlacement:
        """The placement of the group of that name."""
        return self.named[name]


@dataclass(frozen=True, kw_only=True)
class PlacedGroups:
    """The groups of all ranks of a job. ``gpu`` is where each rank runs, and ``kind`` the kind of that GPU
    (None: all are alike).

    Layouts whose ranks run on the same GPUs may share ``sits``: how a set of ranks is placed, whichever group
    of which layout it is.
    """

    process_groups: ProcessGroups
    cluster: Cluster
    gpu: Ids
    kind: Ids | None = None
    sits: dict[bytes, GroupPlacement] = field(default_factory=dict, repr=False)
    _known: dict[tuple[str, int], GroupPlacement] = field(default_factory=dict, repr=False)

    def of_rank(self, rank: int) -> RankGroups:
        """The groups of one rank, each with its placement."""
        replica = self.process_groups.containing("pp", rank)
        pp = len(replica)
        named = {name: self._of(name, self.process_groups.containing(name, rank)) for name in GROUPS}
        named["embedding"] = self._of("embedding", replica[[0, -1]] if pp > 1 else replica)
        return RankGroups(
            named=named,
            replica=tuple(replica.tolist()),
            kind=self.kinds_of([rank])[0],
            distances=tuple(self.distance(int(replica[r]), int(replica[(r + 1) % pp])) for r in range(pp)),
        )

    def kinds_of(self, ranks: Ids | list[int]) -> tuple[int, ...]:
        """The kinds of GPUs that some ranks have, in order."""
        return (0,) if self.kind is None else tuple(np.unique(self.kind[ranks]).tolist())

    def distance(self, a: int, b: int) -> Distance:
        """How far a message from rank ``a`` to rank ``b`` goes."""
        here, there = int(self.gpu[a]), int(self.gpu[b])
        if self.cluster.same_domain(here, there):
            return "domain"
        return "host" if self.cluster.same_node(here, there) else "unit"

    def _of(self, name: str, ranks: Ids) -> GroupPlacement:
        key = name, int(ranks[0])
        if key not in self._known:
            same = ranks.tobytes()
            if same not in self.sits:
                self.sits[same] = placement_on(self.gpu[ranks], self.cluster)
            sits = self.sits[same]
            self._known[key] = sits if self.kind is None else replace(sits, kinds=self.kinds_of(ranks))
        return self._known[key]


def gpus(spec: ClusterSpec, cluster: Cluster) -> Ids:
    """The GPU of every rank."""
    contiguous = placement_of(spec).kind == "contiguous"
    return np.arange(spec.gpus) if contiguous else gpus_of_job(spec, cluster)


def kinds(spec: ClusterSpec, gpu: Ids) -> Ids | None:
    """The kind of GPU of every rank, whose GPUs are ``gpu``: 0 is the cluster's own kind, others count
    ``cluster.other_gpus`` from 1. None where there is only one kind."""
    if not spec.other_gpus:
        return None
    found = np.zeros_like(gpu)
    for kind, one in enumerate(spec.other_gpus, 1):
        found[np.isin(gpu // spec.gpus_per_node, one.hosts)] = kind
    return found


def domains(gpu: Ids, cluster: Cluster) -> Ids:
    """The NVLink domain of each GPU."""
    return cluster.domain_of(gpu)


def placement_on(gpu: Ids, cluster: Cluster) -> GroupPlacement:
    """How a group on these GPUs sits over NVLink domains."""
    hosts = _counts(gpu // cluster.gpus_per_node) if domains_in_a_host(cluster) > 1 else []
    return placement_of_parts(_counts(domains(gpu, cluster)), hosts)


def domains_in_a_host(cluster: Cluster) -> int:
    """NVLink domains of one host; 1 where a domain is a host, or spans several."""
    return max(1, -(-cluster.gpus_per_node // cluster.nvlink_domain))


def _counts(where: Ids) -> list[int]:
    there = np.bincount(where)  # which, unlike np.unique, does not sort thousands of ranks
    found: list[int] = there[there > 0].tolist()
    return found
