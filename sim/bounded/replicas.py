"""The replicas of a pipeline, with what is wrong in each: by replica and stage, the slowest of its ranks.

A replica is what the ranks of one place in the data-parallel groups make: all of its pipeline stages, and in
each of them its tensor- and context-parallel ranks. Knows arrays of ranks; knows no programs and no time.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """``rank[u, s, j]`` is rank j of stage s of replica u; ``slow[u, s, j]`` how slow it is (1: healthy), and
    ``share[link][u, s, j]`` what is left of its own link, of links that any rank has weak.
    """

    rank: Ids
    slow: Factors
    share: Mapping[str, Factors]

    @property
    def count(self) -> int:
        """How many replicas there are."""
        return len(self.rank)

    @property
    def stages(self) -> int:
        """How many pipeline stages each has."""
        return int(self.rank.shape[1])

    def worst(self, members: list[Ids]) -> tuple[Factors, dict[str, Factors]]:
        """By group of replicas and stage, the slowest of its ranks, and the least share of each link."""
        slow = np.array([self.slow[group].max(axis=(0, 2)) for group in members])
        share = {
            link: np.array([left[group].min(axis=(0, 2)) for group in members])
            for link, left in self.share.items()
        }
        return slow, share

    def kinds(self) -> list[Ids]:
        """The replicas in groups of equal ones, by what is wrong in each stage; the healthy ones are one."""
        tables = (self.slow, *(self.share[link] for link in sorted(self.share)))
        rows = np.concatenate([one.reshape(self.count, -1) for one in tables], axis=1)
        _, kind = np.unique(rows, axis=0, return_inverse=True)
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
    return Replicas(rank=rank, slow=_factors(rank, degradation.slow), share=_shares(rank, degradation))


def _shares(rank: Ids, degradation: Degradation) -> dict[str, Factors]:
    links = sorted({link for _, link in degradation.link_share})
    return {
        link: _factors(
            rank, {r: share for (r, name), share in degradation.link_share.items() if name == link}
        )
        for link in links
    }


def _factors(rank: Ids, values: Mapping[int, float]) -> Factors:
    by_rank = np.ones(rank.size)
    by_rank[list(values)] = list(values.values())
    found: Factors = by_rank[rank]
    return found
