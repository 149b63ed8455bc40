"""The replicas of a pipeline, with what is wrong in each: by replica and stage, the slowest of its ranks.

A replica is made of the ranks at one place in the data-parallel groups: all of its pipeline stages, with the
tensor- and context-parallel ranks of each. Knows arrays of ranks; knows no programs and no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..fold.ranks import Degradation, Ranks
    from ..lowering.process_groups import ProcessGroups

    Ids = NDArray[np.int64]
    Factors = NDArray[np.float64]

REPLICA = ("pp.stages", "pp.copies", "cp.ring", "cp.heads", "tp")


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """``rank[u, s, j]`` is rank j in stage s of replica u, and ``slow[u, s, j]`` its factor (1 is
    healthy)."""

    rank: Ids
    slow: Factors

    @property
    def count(self) -> int:
        """How many replicas there are."""
        return len(self.rank)

    @property
    def stages(self) -> int:
        """How many pipeline stages each has."""
        return int(self.rank.shape[1])

    def worst(self, members: list[Ids]) -> Factors:
        """Slow factor of the slowest rank, by group of replicas and stage."""
        return np.array([self.slow[group].max(axis=(0, 2)) for group in members])

    def kinds(self) -> list[Ids]:
        """The replicas in groups that have the same factors in each stage; all healthy ones are one group."""
        _, kind = np.unique(self.slow.reshape(self.count, -1), axis=0, return_inverse=True)
        return [np.flatnonzero(kind.ravel() == k) for k in range(int(kind.max()) + 1)]


def replicas_of(groups: ProcessGroups, ranks: Ranks, degradation: Degradation) -> Replicas | None:
    """The replicas of a job; None where messages leave a replica, or its stages are not of equal size."""
    of = groups.number(REPLICA)
    stages = int(ranks.stage.max()) + 1
    order = np.lexsort((np.arange(ranks.world), ranks.stage, of))
    count = int(of.max()) + 1
    if ranks.world % (count * stages):
        return None
    rank = order.reshape(count, stages, -1)
    if (of[rank] != np.arange(count)[:, None, None]).any():
        return None
    if (ranks.stage[rank] != np.arange(stages)[None, :, None]).any():
        return None
    for q, peer in ranks.peer.items():
        there = peer[rank]
        if ((there >= 0) & (there != rank[:, q : q + 1, :])).any():
            return None
    by_rank = np.ones(ranks.world)
    by_rank[list(degradation.slow)] = list(degradation.slow.values())
    return Replicas(rank=rank, slow=by_rank[rank])
