"""Which ranks of a job are seated differently: all groups of all axes, each where it is.

Ranks are seated alike if each of their groups has as many members in as many NVLink domains, whichever these
are, and their messages go as far. A layout that fills domains evenly has one seating; a group of 64 on racks
of 72 has nine, which come again every eight racks. Knows ranks and domains as arrays; knows no costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..network.seat import Seat, seat_of
from .seats import AXES, domains, group_grids, members, rank_grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ..scenario.blocks import Parallelism
    from ..scenario.models import Scenario

    Ids = NDArray[np.int64]

BOTH_COPIES = ("dp", "hsdp", "edp", "ehsdp")
"""Groups that join both copies of a stage, where every stage is there twice."""

Pair = tuple[int, int]
"""Two pipeline ranks that exchange messages."""


@dataclass(frozen=True, kw_only=True)
class Seatings:
    """``of_rank`` numbers the seating of every rank, from 0 in the order of the ``first`` ranks that have it.

    ``groups`` counts, by name and seat, the groups of an axis whose groups are seated in several ways, or
    unevenly.
    """

    of_rank: Ids
    first: tuple[int, ...]
    groups: Mapping[str, Mapping[Seat, int]]


def seatings_of(
    scenario: Scenario, gpu: Ids, cluster: Cluster, *, two_way: bool, talking: Iterable[Pair]
) -> Seatings:
    """The seatings of a job on ``gpu`` (by rank); ``talking``: pipeline ranks that exchange messages."""
    domain = domains(gpu, cluster)
    number, groups = np.zeros(len(gpu), dtype=np.int64), {}
    for name, rows in _groups(scenario, two_way):
        if rows.shape[1] == 1:
            continue
        seats, of_row = _seats(domain[rows])
        if len(seats) > 1 or seats[0].parts:
            count = Counter(of_row.tolist())
            groups[name] = {seat: count[place] for place, seat in enumerate(seats)}
        if len(seats) > 1:
            mine = np.zeros(len(gpu), dtype=np.int64)
            mine[rows] = 1 + of_row[:, np.newaxis]
            number = _apart(number, mine)
    for mine in _distances(scenario.parallelism, gpu, domain, cluster, talking):
        number = _apart(number, mine)
    _, first, of_rank = np.unique(number, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Seatings(of_rank=place[of_rank.ravel()], first=tuple(first[order].tolist()), groups=groups)


def _groups(scenario: Scenario, two_way: bool) -> Iterator[tuple[str, Ids]]:
    """The ranks of every group that a step may use, one group a row, by name."""
    par, model = scenario.parallelism, scenario.model
    whole = par.dp * par.cp
    grids = group_grids(par, heads=par.cp_a2a or 1, shards=par.fsdp_shard_size or whole)
    for grid, axes, groups in grids if model.moe is not None else grids[:2]:
        for name, along in groups.items():
            rows = members(grid, axes, along)
            both = name in BOTH_COPIES or (name in ("fsdp", "efsdp") and par.fsdp_shard_size is None)
            yield name, _of_both_copies(rows, par.pp) if two_way and both else rows
    dense = rank_grid(par)
    if par.pp > 1 and (model.tied_embeddings or model.mtp_layers):
        yield "embedding", dense[[0, -1]].reshape(2, -1).T
    if scenario.software.collective_checks:
        yield "model", members(dense, AXES, ("pp", "tp"))


def _of_both_copies(rows: Ids, pp: int) -> Ids:
    """Groups of stage s together with those of stage pp - 1 - s."""
    of_stage = rows.reshape(pp, -1, rows.shape[1])
    both = np.concatenate([of_stage[: pp // 2], of_stage[::-1][: pp // 2]], axis=2)
    return both.reshape(-1, both.shape[2])


def _seats(where: Ids) -> tuple[list[Seat], Ids]:
    """The seats that occur, and which of them each row has; ``where`` are the domains of a row's ranks."""
    if (where[:, 1:] < where[:, :-1]).any():
        where = np.sort(where, axis=1)
    new = where[:, 1:] != where[:, :-1]
    if (new == new[0]).all():
        return [_seat(new[0])], np.zeros(len(where), dtype=np.int64)
    _, first, of_row = np.unique(np.packbits(new, axis=1), axis=0, return_index=True, return_inverse=True)
    known: dict[Seat, int] = {}
    place = [known.setdefault(_seat(new[row]), len(known)) for row in first.tolist()]
    return list(known), np.array(place, dtype=np.int64)[of_row.ravel()]


def _seat(new: NDArray[np.bool_]) -> Seat:
    """Of a row whose next rank is in a new domain or not."""
    starts = np.flatnonzero(np.concatenate([[True], new, [True]]))
    return seat_of(np.diff(starts).tolist())


def _distances(
    parallelism: Parallelism, gpu: Ids, domain: Ids, cluster: Cluster, talking: Iterable[Pair]
) -> Iterator[Ids]:
    """By rank, how far its messages go, by pair of pipeline ranks that are not everywhere as far apart."""
    grid = rank_grid(parallelism)
    host = gpu // cluster.gpus_per_node
    for a, b in sorted({(min(pair), max(pair)) for pair in talking}):
        here, there = grid[a].ravel(), grid[b].ravel()
        same = domain[here] == domain[there]
        far = np.where(same, 1, np.where(host[here] == host[there], 2, 3))
        if (far != far[0]).any():
            found = np.zeros(len(gpu), dtype=np.int64)
            found[here] = found[there] = far
            yield found


def _apart(number: Ids, mine: Ids) -> Ids:
    """One number for each distinct pair."""
    pair = number * (int(mine.max()) + 1) + mine
    numbers: Ids = np.unique(pair, return_inverse=True)[1].ravel()
    return numbers
