"""The paths of classes: which links of the fabric one of a class's communicators crosses, and how full all of
them together make these.

Links of one colour are alike: a representative stands for them, and for equal links in a row on the same
way. Every weight counts all communicators of a colour that cross one of them. Knows partitions as arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..network.paths import Path, Paths

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from .fabric import CrossedFabric, Crossing
    from .partition import Partition
    from .ranks import Ranks

    Ids = NDArray[np.int64]


def paths_of_classes(
    fabric: CrossedFabric,
    ranks: Ranks,
    found: Partition,
    classes: Ids,
    first: Mapping[int, int],
    names: Mapping[int, Mapping[str, str]],
) -> Paths:
    """The links of the fabric that collectives and messages of each class cross, with their weights.

    ``first`` has the first rank of each class. ``names[class]`` has the new names of communicators that join
    several classes.
    """
    capacity = capacities(fabric, found)[0]
    name = list(capacity)
    collectives: dict[tuple[int, str, str], Path] = {}
    for (communicator, pattern), crossing in fabric.collectives.items():
        mine = {r: int(ranks.instance[communicator][rank]) for r, rank in first.items()}
        paths = _paths(crossing, found.instance[communicator], found.link, set(mine.values()), name)
        for r, instance in mine.items():
            if instance in paths:
                collectives[r, names[r].get(communicator, communicator), pattern] = paths[instance]
    messages: dict[tuple[int, int], Path] = {}
    for (_, target), crossing in fabric.messages.items():
        paths = _paths(crossing, classes, found.link, set(first.values()), name)
        for r, rank in first.items():
            if rank in paths:
                messages[r, int(classes[ranks.peer[target][rank]])] = paths[rank]
    return Paths(capacity=capacity, collectives=collectives, messages=messages)


def capacities(fabric: CrossedFabric, found: Partition) -> list[dict[str, float]]:
    """The capacity of the representative of each class of links, in bytes per second by name: at the
    start, and after each change."""
    _, representative = np.unique(found.link, return_index=True)
    name = [fabric.table.name(link) for link in fabric.ids[representative].tolist()]
    return [
        dict(zip(name, rates[representative].tolist(), strict=True))
        for rates in (fabric.capacity, *fabric.later)
    ]


def _paths(
    crossing: Crossing, colour: Ids, link_colour: Ids, owners: Collection[int], name: list[str]
) -> dict[int, Path]:
    """For each of ``owners``, the representatives of the links that it crosses, each with the weight of
    all communicators of its colour."""
    links = len(link_colour)
    key, where = np.unique(colour[crossing.owner] * links + crossing.link, return_inverse=True)
    total = np.bincount(where, crossing.weight, len(key))[where]
    wanted = np.flatnonzero(np.isin(crossing.owner, list(owners)))
    found: dict[int, dict[str, float]] = {}
    for entry in wanted.tolist():
        path = found.setdefault(int(crossing.owner[entry]), {})
        path[name[int(link_colour[crossing.link[entry]])]] = float(total[entry])
    return {owner: tuple(path.items()) for owner, path in found.items()}
