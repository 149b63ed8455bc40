"""Which ranks of a job are placed differently: all groups of all axes, each where it is.

Ranks are placed alike if each of their groups has as many members in as many NVLink domains, whichever these
are, and their messages go as far. A layout that fills domains evenly has one placement; a group of 64 on
racks of 72 has nine, which come again every eight racks. Knows ranks and domains as arrays; knows no costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..network.group_placement import GroupPlacement, placement_of_parts
from .layers.amax import AMAX_GROUPS, amax_group
from .placed_groups import PlacedGroups, domains, domains_in_a_host
from .process_groups import GROUPS, ProcessGroups, holds_experts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..scenario.models import Scenario

    Ids = NDArray[np.int64]

Pair = tuple[int, int]
"""Two pipeline ranks that exchange messages."""


@dataclass(frozen=True, kw_only=True)
class Placements:
    """The distinct placements of ranks: ``of_rank`` numbers that of every rank, and ``first`` is the first
    rank with each.

    ``groups`` counts, by name and placement, the groups of an axis that are placed in several ways or
    unevenly.
    """

    of_rank: Ids
    first: tuple[int, ...]
    groups: Mapping[str, Mapping[GroupPlacement, int]]


def distinct_placements(scenario: Scenario, placed: PlacedGroups, *, talking: Iterable[Pair]) -> Placements:
    """The placements of the ranks of a job; ``talking``: pipeline ranks that exchange messages."""
    domain = domains(placed.gpu, placed.cluster)
    number, groups = np.zeros_like(domain), {}
    for name, rows in _used(placed.process_groups, scenario):
        if rows.shape[1] == 1:
            continue
        placements, of_row = _placements(domain[rows], domains_in_a_host(placed.cluster))
        if len(placements) > 1 or placements[0].parts:
            count = Counter(of_row.tolist())
            groups[name] = {placement: count[place] for place, placement in enumerate(placements)}
        if len(placements) > 1:
            mine = np.zeros_like(domain)
            mine[rows] = 1 + of_row[:, np.newaxis]
            number = _apart(number, mine)
    for mine in _distances(placed, domain, talking):
        number = _apart(number, mine)
    for mine in _kinds(placed, scenario):
        number = _apart(number, mine)
    _, first, of_rank = np.unique(number, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Placements(of_rank=place[of_rank.ravel()], first=tuple(first[order].tolist()), groups=groups)


def _kinds(placed: PlacedGroups, scenario: Scenario) -> Iterator[Ids]:
    """By rank, the kind of its GPU, and those of each of its groups and of its pipeline."""
    kind = placed.kind
    if kind is None:
        return
    yield kind
    rows_of = [placed.process_groups.of("pp"), *(rows for _, rows in _used(placed.process_groups, scenario))]
    for rows in rows_of:
        found = np.zeros_like(kind)
        found[rows] = np.unique(kind[rows], axis=0, return_inverse=True)[1].reshape(-1, 1)
        yield found


def used_groups(scenario: Scenario) -> tuple[str, ...]:
    """The names of all groups that a step may use; ``embedding`` are the two ends of a pipeline."""
    model, checks = scenario.model, scenario.software.host.collective_checks
    idle = {"pp", *AMAX_GROUPS.values()} - {amax_group(scenario)}
    if model.moe is None:
        idle |= {name for name in GROUPS if holds_experts(name)}
    names = tuple(name for name in GROUPS if name not in idle and (name != "model" or checks))
    ends = scenario.parallelism.pp > 1 and model.table_at_both_ends
    return (*names, "embedding") if ends else names


def _used(groups: ProcessGroups, scenario: Scenario) -> Iterator[tuple[str, Ids]]:
    """The ranks of every group that a step may use, one group a row, by name."""
    for name in used_groups(scenario):
        yield name, groups.of("pp")[:, [0, -1]] if name == "embedding" else groups.of(name)


def _placements(where: Ids, in_a_host: int) -> tuple[list[GroupPlacement], Ids]:
    """The distinct placements, and which of them each row of ranks has. ``where`` has the domains of a
    row's ranks; each host has so many domains."""
    if (where[:, 1:] < where[:, :-1]).any():
        where = np.sort(where, axis=1)
    new = where[:, 1:] != where[:, :-1]
    if in_a_host > 1:
        host = where // in_a_host
        new = np.concatenate([new, host[:, 1:] != host[:, :-1]], axis=1)
    if (new == new[0]).all():
        return [_placement(new[0], in_a_host)], np.zeros(len(where), dtype=np.int64)
    _, first, of_row = np.unique(np.packbits(new, axis=1), axis=0, return_index=True, return_inverse=True)
    known: dict[GroupPlacement, int] = {}
    place = [known.setdefault(_placement(new[row], in_a_host), len(known)) for row in first.tolist()]
    return list(known), np.array(place, dtype=np.int64)[of_row.ravel()]


def _placement(new: NDArray[np.bool_], in_a_host: int) -> GroupPlacement:
    """The placement of a row of ranks. ``new`` says of each next rank whether its domain is another one,
    and, where hosts have several domains, behind that whether its host is."""
    if in_a_host == 1:
        return placement_of_parts(_runs(new))
    domain, host = np.split(new, 2)
    return placement_of_parts(_runs(domain), _runs(host))


def _runs(new: NDArray[np.bool_]) -> list[int]:
    """The lengths of the runs that begin where ``new`` says."""
    starts = np.flatnonzero(np.concatenate([[True], new, [True]]))
    found: list[int] = np.diff(starts).tolist()
    return found


def _distances(placed: PlacedGroups, domain: Ids, talking: Iterable[Pair]) -> Iterator[Ids]:
    """By rank, how far its messages go, by pair of pipeline ranks that are not everywhere as far apart."""
    stages, host = placed.process_groups.stages, placed.gpu // placed.cluster.gpus_per_node
    for a, b in sorted({(min(pair), max(pair)) for pair in talking}):
        here, there = stages[a], stages[b]
        same = domain[here] == domain[there]
        far = np.where(same, 1, np.where(host[here] == host[there], 2, 3))
        if (far != far[0]).any():
            found = np.zeros_like(domain)
            found[here] = found[there] = far
            yield found


def _apart(number: Ids, mine: Ids) -> Ids:
    """One number for each distinct pair of numbers."""
    pair = number * (int(mine.max()) + 1) + mine
    numbers: Ids = np.unique(pair, return_inverse=True)[1].ravel()
    return numbers
