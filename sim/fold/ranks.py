"""Every rank of a job: what it runs, whom it meets, and what is wrong with it. Arrays, no loops over ranks.

Ranks run the program of their pipeline rank. A communicator of the programs (tp, dp, world, ...) stands
for one instance per group of ranks; a message goes to the rank of the other stage in the same replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..program.program import Exchange, Programs
from ..step.seats import expert_grid, rank_grid
from .refine import Edges, refine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..scenario.models import Parallelism
    from ..step.lower import Lowered


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What sets ranks apart: kernels that take ``slow[rank]`` times as long, and the share of its
    capacity that ``link_share[rank, link]`` leaves of a rank's own link (nic.out, ...).
    """

    slow: Mapping[int, float] = field(default_factory=dict)
    link_share: Mapping[tuple[int, str], float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """``signature[rank]`` is its program; ``instance[name][rank]`` its instance of a communicator (-1:
    none); ``peer[q][rank]`` the rank of pipeline rank q that it exchanges messages with.
    """

    signature: NDArray[np.int64]
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
    stage, replica, part, shard = place.T
    _, dp, cp, tp = grid.shape
    heads = lowered.plan.shard.cp_a2a
    instance = {
        "tp": (stage * dp + replica) * cp + part,
        "cp": (stage * dp + replica) * tp + shard,
        "cp.heads": ((stage * dp + replica) * cp + part // heads) * tp + shard,
        "cp.ring": ((stage * dp + replica) * cp + part % heads) * tp + shard,
        "dp": stage * tp + shard,
        "world": np.zeros(world, dtype=np.int64),
    }
    instance |= _expert_groups(lowered.plan.scenario.parallelism)
    for name, members in lowered.programs.communicators.items():
        if name != "world":  # joins pipeline ranks: the ends of a tied table, both copies of a stage
            own = (replica * cp + part) * tp + shard if name == "embedding" else shard
            if name.startswith("edp"):
                own = _place_in(expert_grid(lowered.plan.scenario.parallelism), (2, 3))
            instance[name] = np.where(np.isin(stage, members), own, -1)
    peers = sorted({part.peer for op in _exchanges(lowered.programs) for part in op.parts})
    peer = {q: grid[q, replica, part, shard] for q in peers if q < pp}
    return Ranks(signature=stage, instance=instance, peer=peer)


def _expert_groups(parallelism: Parallelism) -> dict[str, NDArray[np.int64]]:
    """The groups of experts that each rank is in."""
    grid = expert_grid(parallelism)
    axes = {"ep": (0, 1, 3), "etp": (0, 1, 2), "edp": (0, 2, 3)}
    return {name: _place_in(grid, kept) for name, kept in axes.items()}


def _place_in(grid: NDArray[np.int64], kept: tuple[int, ...]) -> NDArray[np.int64]:
    """By rank, a number of its place along the axes ``kept`` of ``grid``."""
    numbers = np.empty(grid.size, dtype=np.int64)
    places = np.indices(grid.shape)
    shape = tuple(grid.shape[axis] for axis in kept)
    numbers[grid.ravel()] = np.ravel_multi_index([places[axis].ravel() for axis in kept], shape)
    return numbers


def classes_of(ranks: Ranks, trouble: Trouble) -> NDArray[np.int64]:
    """The class of each rank: ranks of one class do the same at the same time."""
    vertices, edges, colours = ranks.world, [], [_start_colours(ranks, trouble)]
    for label, (_, instance) in enumerate(sorted(ranks.instance.items())):
        member = np.flatnonzero(instance >= 0)
        edges.append((member, vertices + instance[member], label))
        count = int(instance.max(initial=-1)) + 1
        colours.append(np.full(count, -1 - label))
        vertices += count
    joined = [_edges(*one).both_ways() for one in edges]
    everyone = np.arange(ranks.world)
    for q, peer in ranks.peer.items():
        joined.append(_edges(everyone, peer, len(edges) + q))
    return refine(np.concatenate(colours), _all(joined))[: ranks.world]


def _start_colours(ranks: Ranks, trouble: Trouble) -> NDArray[np.int64]:
    """What a rank's own behaviour depends on: its program, how slow it is, and its links."""
    wrong: dict[int, list[tuple[str, float]]] = {}
    for rank, factor in trouble.slow.items():
        wrong.setdefault(rank, []).append(("", factor))
    for (rank, link), share in trouble.link_share.items():
        wrong.setdefault(rank, []).append((link, share))
    kinds = {kind: 1 + i for i, kind in enumerate(sorted({tuple(sorted(w)) for w in wrong.values()}))}
    kind_of = np.zeros(ranks.world, dtype=np.int64)
    for rank, what in wrong.items():
        kind_of[rank] = kinds[tuple(sorted(what))]
    return ranks.signature * (len(kinds) + 1) + kind_of


def _edges(vertex: NDArray[np.int64], neighbour: NDArray[np.int64], label: int) -> Edges:
    return Edges(vertex=vertex, neighbour=neighbour, label=np.full(len(vertex), label))


def _all(edges: list[Edges]) -> Edges:
    return Edges(
        vertex=np.concatenate([e.vertex for e in edges]),
        neighbour=np.concatenate([e.neighbour for e in edges]),
        label=np.concatenate([e.label for e in edges]),
    )


def _exchanges(programs: Programs) -> list[Exchange]:
    return [op.work for program in programs.classes for op in program.ops if isinstance(op.work, Exchange)]
