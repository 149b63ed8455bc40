"""Programs of few replicas that stand for all: from above, and from below.

From above, the replicas of a group are merged into one, each of whose stages is as slow as the slowest rank
there; whoever meets one replica of the group meets the group. From below, some replicas run and nobody waits
for the others. Either all of their ranks run, or one for each stage at the pace of the slowest member of its
tensor-parallel group, for which the group waits in every layer; how far ranks may be ahead of that pace is
taken off afterwards (member_slack.py). Knows programs; replays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..fold.partition import partition_of
from ..fold.programs import programs_of_classes
from ..fold.ranks import Degradation, Ranks
from .layer_edges import TENSOR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..program.program import Programs
    from .replicas import Replicas

    Ids = NDArray[np.int64]
    Factors = NDArray[np.float64]

TIES = 1e-6
"""Weight that decides between places of a replica with equally slow ranks: the one with more slow ranks
stands for all."""


def from_above(programs: Programs, ranks: Ranks, replicas: Replicas, groups: list[Ids]) -> Programs:
    """One class for each group of replicas and stage; ``groups`` has all replicas, each once."""
    few = _few(ranks, replicas, groups)
    return programs_of_classes(programs, few, np.arange(few.world), _slow(replicas.worst(groups)))


def class_of_ranks(ranks: Ranks, replicas: Replicas, groups: list[Ids]) -> Ids:
    """For each rank its class among those of ``from_above``; -1 for ranks of replicas in no group."""
    group = np.full(replicas.count, -1)
    for number, members in enumerate(groups):
        group[members] = number
    stages = np.arange(replicas.stages)
    found = np.empty(ranks.world, dtype=np.int64)
    found[replicas.rank] = np.where(group < 0, -1, group * replicas.stages)[:, None, None]
    found[replicas.rank] += np.where(group[:, None] < 0, 0, stages)[:, :, None]
    return found


def from_below(programs: Programs, ranks: Ranks, replicas: Replicas, chosen: Ids) -> Programs:
    """One class for each stage of the ``chosen`` replicas, at the pace of its slowest tensor-parallel
    group."""
    few = _few(ranks, replicas, [np.array([u]) for u in chosen])
    return programs_of_classes(programs, few, np.arange(few.world), _slow(paces(ranks, replicas, chosen)[0]))


def whole(programs: Programs, ranks: Ranks, replicas: Replicas, chosen: Ids) -> Programs:
    """All ranks of the ``chosen`` replicas, in classes of ranks that do the same."""
    those = np.sort(replicas.rank[chosen].ravel())
    number = np.full(ranks.world + 1, -1)
    number[those] = np.arange(len(those))
    by_rank = np.ones(ranks.world)
    by_rank[replicas.rank[chosen]] = replicas.slow[chosen]
    few = Ranks(
        signature=ranks.signature[those],
        stage=ranks.stage[those],
        instance={name: _numbered(one[those]) for name, one in ranks.instance.items()},
        peer={q: number[peer[those]] for q, peer in ranks.peer.items()},
    )
    degradation = _slow(by_rank[those])
    found = partition_of(few, degradation)
    return programs_of_classes(programs, few, found.rank, degradation, found=found)


def _numbered(instance: Ids) -> Ids:
    """Instances of a communicator numbered from 0 without gaps; -1 stays where a rank has none."""
    found = np.full(len(instance), -1, dtype=np.int64)
    inside = instance >= 0
    found[inside] = np.unique(instance[inside], return_inverse=True)[1].ravel()
    return found


def paces(ranks: Ranks, replicas: Replicas, chosen: Ids) -> tuple[Factors, Factors]:
    """The largest factor within one tensor-parallel group, and how much the factors of that group differ, by
    chosen replica and stage. It is the group with the slowest rank of the replica."""
    slow = replicas.slow[chosen]
    place = (slow.max(axis=1) + TIES * slow.sum(axis=1)).argmax(axis=1)
    members = _group_of(ranks, replicas, chosen, place)
    slowest = np.where(members, slow, 0.0).max(axis=2)
    return slowest, slowest - np.where(members, slow, np.inf).min(axis=2)


def _group_of(ranks: Ranks, replicas: Replicas, chosen: Ids, place: Ids) -> NDArray[np.bool_]:
    """By replica, stage and rank: whether the rank is in the tensor-parallel group of the one at
    ``place``."""
    if TENSOR not in ranks.instance:
        found = np.zeros(replicas.slow[chosen].shape, dtype=bool)
        found[np.arange(len(chosen)), :, place] = True
        return found
    instance = ranks.instance[TENSOR][replicas.rank[chosen]]
    same: NDArray[np.bool_] = instance == instance[np.arange(len(chosen)), :, place][:, :, None]
    return same


def _few(ranks: Ranks, replicas: Replicas, groups: list[Ids]) -> Ranks:
    """One rank for each group of replicas and stage. Communicators with a single rank left are dropped."""
    of_rank, stages = class_of_ranks(ranks, replicas, groups), replicas.stages
    stage = np.tile(np.arange(stages), len(groups))
    number = np.repeat(np.arange(len(groups)), stages)
    instances = {name: _joined(one, of_rank, len(stage)) for name, one in ranks.instance.items()}
    talks = {q: sorted({int(s) for s in ranks.stage[peer >= 0]}) for q, peer in ranks.peer.items()}
    return Ranks(
        signature=stage,
        stage=stage,
        instance={name: i for name, i in instances.items() if np.bincount(i[i >= 0]).max(initial=0) > 1},
        peer={q: np.where(np.isin(stage, own), number * stages + q, -1) for q, own in talks.items()},
    )


def _joined(instance: Ids, of_rank: Ids, count: int) -> Ids:
    """For each rank of the few, its instance of a communicator. Instances that share a rank of the few become
    one."""
    inside = (instance >= 0) & (of_rank >= 0)
    pairs = np.unique(np.stack([instance[inside], of_rank[inside]]), axis=1)
    parent = list(range(count))

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    first: dict[int, int] = {}
    for number, one in pairs.T.tolist():
        parent[root(one)] = root(first.setdefault(number, one))
    found = np.full(count, -1, dtype=np.int64)
    for one in np.unique(pairs[1]).tolist():
        found[one] = root(one)
    return found


def _slow(factors: Factors) -> Degradation:
    flat = factors.ravel()
    return Degradation(slow={r: float(flat[r]) for r in np.flatnonzero(flat != 1.0).tolist()})
