"""The process groups of a layout, seated on the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..network.collectives import Reach, Seat
from .seats import expert_grid, gpus, rank_grid, reach, seat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ..scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Seats of the groups that a rank belongs to; which ranks' are alike is in ``seatings``.

    ``reach[r]`` says how far it is from pipeline rank r to the next one (cyclically) in the rank's
    ``replica``, which are its ranks by pipeline rank. ``first_rank`` is the lowest global rank of each
    pipeline rank. Where every stage is there twice (``two_way``), both copies belong to one data-parallel
    group. ``shards`` and ``replicas`` are the parts of it that hold one copy of the sharded state, and equal
    shards of it (hybrid sharding); all of it, and one rank, by default. ``model`` holds one copy of the model
    (tp and pp). Experts have groups of their own: ``ep`` exchanges tokens, ``etp`` shares experts, ``edp``
    holds the same ones, in ``expert_shards`` and ``expert_replicas``. ``gpu`` is where each rank runs.
    """

    tp: Seat
    cp: Seat
    cp_heads: Seat
    cp_ring: Seat
    dp: Seat
    shards: Seat
    replicas: Seat
    ep: Seat
    etp: Seat
    edp: Seat
    expert_shards: Seat
    expert_replicas: Seat
    world: Seat
    model: Seat
    embedding: Seat
    reach: tuple[Reach, ...]
    replica: tuple[int, ...]
    first_rank: tuple[int, ...]
    ranks_per_stage: int
    gpu: NDArray[np.int64]

    def reach_of(self, a: int, b: int, cluster: Cluster) -> Reach:
        """How far a message from pipeline rank ``a`` to pipeline rank ``b`` goes."""
        return reach(int(self.gpu[self.replica[a]]), int(self.gpu[self.replica[b]]), cluster)

    def along(self, axis: str) -> Seat:
        """A group whose collectives run inside a layer; a cp group may be cut in two ways at once."""
        inside = {"tp": self.tp, "cp": self.cp, "cp.heads": self.cp_heads, "cp.ring": self.cp_ring}
        return (inside | {"ep": self.ep, "etp": self.etp})[axis]


class GroupsOf:
    """The groups of any rank of a job: the grids once, the seats of one rank at a time."""

    def __init__(self, scenario: Scenario, cluster: Cluster, *, two_way: bool = False) -> None:
        par = scenario.parallelism
        self.cluster, self.two_way = cluster, two_way
        self.grid, self.experts = rank_grid(par), expert_grid(par)
        self.gpu = gpus(scenario.cluster, cluster)
        self.heads, self.shard_size = par.cp_a2a or 1, par.fsdp_shard_size
        self.world = self._seat(self.grid.ravel())

    def _seat(self, ranks: NDArray[np.int64]) -> Seat:
        return seat(self.gpu[ranks.ravel()], self.cluster)

    def rank(self, rank: int) -> Groups:
        """Those of one rank."""
        grid, heads, pp = self.grid, self.heads, self.grid.shape[0]
        stage, d, c, t = (int(place[0]) for place in np.nonzero(grid == rank))
        _, copy, place, part = (int(place[0]) for place in np.nonzero(self.experts == rank))
        copies = sorted({stage, pp - 1 - stage}) if self.two_way else [stage]
        first_head, replica = c // heads * heads, grid[:, d, c, t]
        dp, edp = grid[copies, :, :, t].ravel(), self.experts[copies, :, place, part].ravel()
        size = self.shard_size or len(dp)
        shards, replicas = _cut(dp, rank, size)
        expert_shards, expert_replicas = _cut(edp, rank, len(edp) // (len(dp) // size))
        return Groups(
            tp=self._seat(grid[stage, d, c, :]),
            cp=self._seat(grid[stage, d, :, t]),
            cp_heads=self._seat(grid[stage, d, first_head : first_head + heads, t]),
            cp_ring=self._seat(grid[stage, d, c % heads :: heads, t]),
            dp=self._seat(dp),
            shards=self._seat(shards),
            replicas=self._seat(replicas),
            ep=self._seat(self.experts[stage, copy, :, part]),
            etp=self._seat(self.experts[stage, copy, place, :]),
            edp=self._seat(edp),
            expert_shards=self._seat(expert_shards),
            expert_replicas=self._seat(expert_replicas),
            world=self.world,
            model=self._seat(grid[:, d, c, :]),
            embedding=self._seat(replica[[0, -1]]) if pp > 1 else Seat(ranks=1, domains=1),
            reach=tuple(self._reach(replica[r], replica[(r + 1) % pp]) for r in range(pp)),
            replica=tuple(replica.tolist()),
            first_rank=tuple(grid[:, 0, 0, 0].tolist()),
            ranks_per_stage=grid[0].size,
            gpu=self.gpu,
        )

    def _reach(self, a: int, b: int) -> Reach:
        return reach(int(self.gpu[a]), int(self.gpu[b]), self.cluster)


def _cut(ranks: NDArray[np.int64], rank: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The part of ``size`` ranks in a row that ``rank`` is in, and the ranks at its place in all parts."""
    place = int(np.flatnonzero(ranks == rank)[0])
    first = place // size * size
    return ranks[first : first + size], ranks[place % size :: size]
