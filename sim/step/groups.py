"""The process groups of a layout, seated on the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..network.collectives import Reach, Seat
from .seats import expert_grid, rank_grid, reach, seat

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ..scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Seats of the groups that rank 0 belongs to; by symmetry every rank's are alike.

    ``reach[r]`` says how far it is from pipeline rank r to the next one (cyclically). ``first_rank``
    is the lowest global rank of each pipeline rank. Where every stage is there twice (``two_way``), both
    copies belong to one data-parallel group. Experts have groups of their own: ``ep`` exchanges tokens,
    ``etp`` shares experts, ``edp`` holds the same ones.
    """

    tp: Seat
    cp: Seat
    cp_heads: Seat
    cp_ring: Seat
    dp: Seat
    ep: Seat
    etp: Seat
    edp: Seat
    world: Seat
    embedding: Seat
    reach: tuple[Reach, ...]
    first_rank: tuple[int, ...]
    ranks_per_stage: int

    def along(self, axis: str) -> Seat:
        """A group whose collectives run inside a layer; a cp group may be cut in two ways at once."""
        inside = {"tp": self.tp, "cp": self.cp, "cp.heads": self.cp_heads, "cp.ring": self.cp_ring}
        return (inside | {"ep": self.ep, "etp": self.etp})[axis]


def build_groups(scenario: Scenario, cluster: Cluster, *, two_way: bool = False) -> Groups:
    """Slice the rank grid along each axis and seat the groups."""
    heads = scenario.parallelism.cp_a2a or 1
    grid = rank_grid(scenario.parallelism)
    pp = grid.shape[0]
    experts = expert_grid(scenario.parallelism)
    copies = [0, pp - 1] if two_way else [0]
    firsts = [int(grid[r, 0, 0, 0]) for r in range(pp)]
    return Groups(
        tp=seat(grid[0, 0, 0, :], cluster),
        cp=seat(grid[0, 0, :, 0], cluster),
        cp_heads=seat(grid[0, 0, :heads, 0], cluster),
        cp_ring=seat(grid[0, 0, ::heads, 0], cluster),
        dp=seat(grid[copies, :, :, 0].ravel(), cluster),
        ep=seat(experts[0, 0, :, 0], cluster),
        etp=seat(experts[0, 0, 0, :], cluster),
        edp=seat(experts[copies, :, 0, 0].ravel(), cluster),
        world=seat(grid.ravel(), cluster),
        embedding=seat(grid[[0, pp - 1], 0, 0, 0], cluster) if pp > 1 else Seat(ranks=1, domains=1),
        reach=tuple(reach(firsts[r], firsts[(r + 1) % pp], cluster) for r in range(pp)),
        first_rank=tuple(firsts),
        ranks_per_stage=grid[0].size,
    )
