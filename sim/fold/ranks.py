"""Every rank of a job: what it runs, whom it meets, and what is wrong with it. Arrays, no loops over ranks.

Ranks run the program of their pipeline rank. A communicator of the programs (tp, dp, world, ...) stands
for one instance per group of ranks; a message goes to the rank of the other stage in the same replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..lowering.seats import group_numbers, rank_grid
from ..program.program import Collective, Exchange, Programs, RepeatedBlocks
from .partition import Partition, partition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..lowering.lower import Lowered
    from .fabric import CrossedFabric


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """What sets ranks apart: kernels that take ``slow[rank]`` times as long, and the share of its
    capacity that ``link_share[rank, link]`` leaves of a rank's own link (nic.out, ...), and
    ``fabric_share[id]`` of a link between switches (``Cluster.topology.links``, in one direction). A rank
    that is infinitely slow stops, for ever.

    ``later``: from each of these seconds after the start of the step on, that instead, in order of time.
    """

    slow: Mapping[int, float] = field(default_factory=dict)
    link_share: Mapping[tuple[int, str], float] = field(default_factory=dict)
    fabric_share: Mapping[int, float] = field(default_factory=dict)
    later: tuple[tuple[float, Degradation], ...] = ()

    @property
    def states(self) -> tuple[Degradation, ...]:
        """What is wrong from the start, and from each later time on."""
        return (self, *(state for _, state in self.later))


HEALTHY = Degradation()


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """``signature[rank]`` is its program, ``stage[rank]`` its pipeline rank; ``instance[name][rank]`` its
    instance of a communicator (-1: none) that programs call and that joins ranks; ``peer[q][rank]`` the rank
    of pipeline rank q that it exchanges messages with (-1: none).
    """

    signature: NDArray[np.int64]
    stage: NDArray[np.int64]
    instance: Mapping[str, NDArray[np.int64]]
    peer: Mapping[int, NDArray[np.int64]]

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return len(self.signature)

    def members(self, name: str, rank: int) -> NDArray[np.int64]:
        """The ranks of a rank's instance of a communicator."""
        number = self.instance[name][rank]
        return np.flatnonzero(self.instance[name] == number)


def ranks_of(lowered: Lowered) -> Ranks:
    """The ranks of a lowered scenario."""
    grid = rank_grid(lowered.plan.scenario.parallelism)
    pp, world = grid.shape[0], grid.size
    place = np.empty((world, 4), dtype=np.int64)  # (pp, dp, cp, tp) of each rank
    place[grid.ravel()] = np.indices(grid.shape).reshape(4, world).T
    stage, replica, part, local = place.T
    numbers = partial(
        group_numbers,
        lowered.plan.scenario.parallelism,
        heads=lowered.plan.local.cp_a2a,
        shards=lowered.plan.groups.shards.ranks,
    )
    instance, across = numbers(), numbers(across_stages=True)
    for name, members in lowered.programs.communicators.items():
        if name != "world":  # joins pipeline ranks: the ends of a tied table, both copies of a stage
            instance[name] = np.where(np.isin(stage, members), across[name.split(" ")[0]], -1)
    signature = lowered.program_of
    peer = {
        q: np.where(np.isin(signature, sorted(talking)), grid[q, replica, part, local], -1)
        for q, talking in _partners(lowered.programs).items()
        if q < pp
    }
    called = _called(lowered.programs)
    joining = {
        name: one
        for name, one in instance.items()
        if name in called and np.bincount(one[one >= 0]).max(initial=0) > 1
    }
    return Ranks(signature=signature, stage=stage, instance=joining, peer=peer)


def _partners(programs: Programs) -> dict[int, set[int]]:
    """By pipeline rank in order, the programs that exchange messages with it."""
    found: dict[int, set[int]] = {}
    for r, program in enumerate(programs.classes):
        exchanges = (op.work for op in program.ops if isinstance(op.work, Exchange))
        for q in {part.peer for work in exchanges for part in work.parts}:
            found.setdefault(q, set()).add(r)
    return dict(sorted(found.items()))


def _called(programs: Programs) -> set[str]:
    """The communicators that programs call."""
    found: set[str] = set()
    for program in programs.classes:
        works = {id(op.work): op.work for op in program.ops}.values()
        found.update(work.communicator for work in works if isinstance(work, Collective))
        for work in works:
            if isinstance(work, RepeatedBlocks):
                found |= work.communicators
    return found


def partition_of(ranks: Ranks, degradation: Degradation, fabric: CrossedFabric | None = None) -> Partition:
    """The classes of ranks, communicators and links."""
    # Healthy ranks of one stage are alike by construction, unless their experts' loads or seats differ.
    alike = bool((ranks.signature == ranks.stage).all())
    start = start_colours(ranks, degradation)
    return partition(ranks, start, fabric, healthy=ranks.stage if alike else None)


def start_colours(ranks: Ranks, degradation: Degradation) -> NDArray[np.int64]:
    """What a rank's own behaviour depends on: its program, how slow it is, and its links."""
    wrong: dict[int, list[tuple[int, str, float]]] = {}
    for number, state in enumerate(degradation.states):
        for rank, factor in state.slow.items():
            wrong.setdefault(rank, []).append((number, "", factor))
        for (rank, link), share in state.link_share.items():
            wrong.setdefault(rank, []).append((number, link, share))
    kinds = {kind: 1 + i for i, kind in enumerate(sorted({tuple(sorted(w)) for w in wrong.values()}))}
    kind_of = np.zeros(ranks.world, dtype=np.int64)
    for rank, what in wrong.items():
        kind_of[rank] = kinds[tuple(sorted(what))]
    return ranks.signature * (len(kinds) + 1) + kind_of
