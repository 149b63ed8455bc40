"""Programs of classes of ranks: each class runs its pipeline rank's program, which names classes where
that of the pipeline rank named groups.

Programs are shared, not copied: what a class's program means there, whom it meets and how slow it is, is
its Binding. A communicator whose members are all of one class stays that class's own: its members are
equal and never wait for one another. Knows programs; which ranks make a class is given (ranks.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..network.paths import NO_PATHS
from ..program.program import Binding, Change, Programs
from .partition import partition
from .paths import capacities, paths_of_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from .fabric import CrossedFabric
    from .partition import Partition
    from .ranks import Degradation, Ranks


def programs_of_classes(
    programs: Programs,
    ranks: Ranks,
    classes: NDArray[np.int64],
    degradation: Degradation,
    fabric: CrossedFabric | None = None,
    found: Partition | None = None,
) -> Programs:
    """One program for each class of ranks; with one class for each rank, the whole job unfolded.
    ``found``: the partition that ``classes`` come from, if there is one."""
    first = np.unique(classes, return_index=True)[1].tolist()
    signature = ranks.signature[first].tolist()
    communicators, names_of = _communicators(ranks, classes, first)
    bindings = tuple(
        Binding(
            slow=degradation.slow.get(rank, 1.0),
            sms=programs.binding(int(ranks.signature[rank])).sms,
            communicators=names_of[one],
            peers={q: int(classes[peer[rank]]) for q, peer in ranks.peer.items() if peer[rank] >= 0},
        )
        for one, rank in enumerate(first)
    )
    paths, later = NO_PATHS, [dict[str, float]() for _ in degradation.later]
    if fabric is not None:
        found = found or partition(ranks, classes, fabric)
        paths = paths_of_classes(fabric, ranks, found, classes, dict(enumerate(first)), names_of)
        later = capacities(fabric, found)[1:]
    return replace(
        programs,
        paths=paths,
        classes=tuple(programs.classes[r] for r in signature),
        communicators=communicators,
        links=_links(programs, first, signature, degradation),
        bindings=bindings,
        changes=tuple(
            Change(
                at_s=at_s,
                slow=tuple(state.slow.get(rank, 1.0) for rank in first),
                links=_links(programs, first, signature, state),
                capacity=capacity,
            )
            for (at_s, state), capacity in zip(degradation.later, later, strict=True)
        ),
    )


def _communicators(
    ranks: Ranks, classes: NDArray[np.int64], first: list[int]
) -> tuple[dict[str, tuple[int, ...]], dict[int, dict[str, str]]]:
    """The classes in each communicator that joins several; and for each class, the communicators of its
    ``first`` rank, by the names that its program uses."""
    members: dict[str, tuple[int, ...]] = {}
    names_of: dict[int, dict[str, str]] = {one: {} for one in range(len(first))}
    for name, instance in ranks.instance.items():
        named: dict[int, str] = {}
        for number, joined in _members(instance, classes, instance[first]).items():
            if len(joined) > 1:
                named[number] = f"{name} of {', '.join(map(str, joined))}"
                members[named[number]] = joined
        for one, rank in enumerate(first):
            if (number := int(instance[rank])) in named:
                names_of[one][name] = named[number]
    return members, names_of


def _members(
    instance: NDArray[np.int64], classes: NDArray[np.int64], wanted: NDArray[np.int64]
) -> dict[int, tuple[int, ...]]:
    """For each ``wanted`` instance of a communicator, the classes of its members in order."""
    chosen = np.zeros(int(instance.max(initial=-1)) + 1, dtype=bool)
    chosen[wanted[wanted >= 0]] = True
    inside = (instance >= 0) & chosen[instance]
    count = int(classes.max(initial=0)) + 1
    pairs = np.unique(instance[inside] * count + classes[inside])
    found: dict[int, list[int]] = {}
    for number, member in zip((pairs // count).tolist(), (pairs % count).tolist(), strict=True):
        found.setdefault(number, []).append(member)
    return {number: tuple(joined) for number, joined in found.items()}


def _links(
    programs: Programs, first: list[int], signature: list[int], degradation: Degradation
) -> tuple[Mapping[str, float], ...]:
    """The links of each class, with the capacity that the degradation leaves."""
    links = [programs.links[r] for r in signature]
    place = {rank: number for number, rank in enumerate(first)}
    for (rank, name), share in degradation.link_share.items():
        number = place.get(rank)
        if number is not None and name in links[number]:
            links[number] = {**links[number], name: links[number][name] * share}
    return tuple(links)
