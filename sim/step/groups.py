"""The process groups of a layout, seated on the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..network.collectives import Reach, Seat
from ..scenario.refusal import NotSupported
from .seats import domains, expert_grid, gpus, group_numbers, rank_grid, reach, seat, uneven

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ..scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Seats of the groups that rank 0 belongs to; by symmetry every rank's are alike.

    ``reach[r]`` says how far it is from pipeline rank r to the next one (cyclically). ``first_rank``
    is the lowest global rank of each pipeline rank. Where every stage is there twice (``two_way``), both
    copies belong to one data-parallel group. ``shards`` and ``replicas`` are the parts of it that hold one
    copy of the sharded state, and equal shards of it (hybrid sharding); all of it, and one rank, by default.
    ``model`` holds one copy of the model (tp and pp).
    Experts have groups of their own: ``ep`` exchanges tokens, ``etp`` shares experts, ``edp`` holds the
    same ones, in ``expert_shards`` and ``expert_replicas``. ``gpu`` is where each rank runs.
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
    first_rank: tuple[int, ...]
    ranks_per_stage: int
    gpu: NDArray[np.int64]

    def reach_of(self, a: int, b: int, cluster: Cluster) -> Reach:
        """How far a message from pipeline rank ``a`` to pipeline rank ``b`` goes."""
        return reach(int(self.gpu[self.first_rank[a]]), int(self.gpu[self.first_rank[b]]), cluster)

    def along(self, axis: str) -> Seat:
        """A group whose collectives run inside a layer; a cp group may be cut in two ways at once."""
        inside = {"tp": self.tp, "cp": self.cp, "cp.heads": self.cp_heads, "cp.ring": self.cp_ring}
        return (inside | {"ep": self.ep, "etp": self.etp})[axis]


def build_groups(scenario: Scenario, cluster: Cluster, *, two_way: bool = False) -> Groups:
    """Slice the rank grid along each axis and seat the groups."""
    heads = scenario.parallelism.cp_a2a or 1
    grid = rank_grid(scenario.parallelism)
    pp = grid.shape[0]
    gpu = gpus(scenario.cluster, cluster)
    if scenario.cluster.placement is not None:
        _refuse_uneven(scenario, gpu, cluster)
    at, experts = gpu[grid], gpu[expert_grid(scenario.parallelism)]
    copies = [0, pp - 1] if two_way else [0]
    firsts = at[:, 0, 0, 0].tolist()
    dp = at[copies, :, :, 0].ravel()
    shard_size = scenario.parallelism.fsdp_shard_size or len(dp)
    edp = experts[copies, :, 0, 0].ravel()
    expert_shards = len(edp) // (len(dp) // shard_size)
    return Groups(
        tp=seat(at[0, 0, 0, :], cluster),
        cp=seat(at[0, 0, :, 0], cluster),
        cp_heads=seat(at[0, 0, :heads, 0], cluster),
        cp_ring=seat(at[0, 0, ::heads, 0], cluster),
        dp=seat(dp, cluster),
        shards=seat(dp[:shard_size], cluster),
        replicas=seat(dp[::shard_size], cluster),
        ep=seat(experts[0, 0, :, 0], cluster),
        etp=seat(experts[0, 0, 0, :], cluster),
        edp=seat(edp, cluster),
        expert_shards=seat(edp[:expert_shards], cluster),
        expert_replicas=seat(edp[::expert_shards], cluster),
        world=seat(at.ravel(), cluster),
        model=seat(at[:, 0, 0, :].ravel(), cluster),
        embedding=seat(at[[0, pp - 1], 0, 0, 0], cluster) if pp > 1 else Seat(ranks=1, domains=1),
        reach=tuple(reach(firsts[r], firsts[(r + 1) % pp], cluster) for r in range(pp)),
        first_rank=tuple(grid[:, 0, 0, 0].tolist()),
        ranks_per_stage=grid[0].size,
        gpu=gpu,
    )


def _refuse_uneven(scenario: Scenario, gpu: NDArray[np.int64], cluster: Cluster) -> None:
    """Equal ranks run one program, so their groups must sit alike. Raises NotSupported."""
    grid, domain = rank_grid(scenario.parallelism), domains(gpu, cluster)
    par = scenario.parallelism
    shards = par.fsdp_shard_size or par.dp * par.cp
    for name, numbers in group_numbers(par, heads=par.cp_a2a or 1, shards=shards).items():
        if uneven(numbers, domain):
            raise NotSupported(
                "cluster.placement",
                f"it spreads the {name} groups over NVLink domains unequally, which is not modelled; "
                "give every group equally many ranks in each of equally many domains",
            )
    for a in range(len(grid)):
        for b in range(a):
            near = domain[grid[a]] == domain[grid[b]]
            if near.any() and not near.all():
                raise NotSupported(
                    "cluster.placement",
                    f"pipeline ranks {b} and {a} meet inside an NVLink domain in some replicas only, "
                    "which is not modelled",
                )
