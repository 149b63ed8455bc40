"""Classes of ranks, communicators and links: colour refinement over all of them at once.

Vertices are ranks, instances of communicators, messages that cross links of the fabric, and these links.
Edges say which slot of a rank's program a communicator fills, who exchanges messages with whom, and with
what weight a communicator or message loads a link. Knows arrays; knows no programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .refine import Edges, refine
from .refine_from import refine_from

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .fabric import CrossedFabric, Crossing
    from .ranks import Degradation, Ranks

    Ids = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The class of each rank, of each instance of a communicator (by name), of each link of the fabric.

    Communicators of single ranks have no class of their own.
    """

    rank: Ids
    instance: Mapping[str, Ids]
    link: Ids


def partition_of(ranks: Ranks, degradation: Degradation, fabric: CrossedFabric | None = None) -> Partition:
    """The classes of ranks, communicators and links."""
    # Healthy ranks of one stage are alike by construction, unless their experts' loads or placements differ.
    alike = bool((ranks.signature == ranks.stage).all())
    start = start_colours(ranks, degradation)
    return partition(ranks, start, fabric, healthy=ranks.stage if alike else None)


def start_colours(ranks: Ranks, degradation: Degradation) -> NDArray[np.int64]:
    """A colour for each rank by its own behaviour: its program, its speed and its links."""
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


def partition(
    ranks: Ranks, start: Ids, fabric: CrossedFabric | None, *, healthy: Ids | None = None
) -> Partition:
    """The coarsest equitable partition in which ranks are at least as fine as ``start``.

    If ``start`` is equitable already, it stays, and classes of communicators and links follow. ``healthy``
    are the classes of ranks without degradation and without links that can bind: with them, only what
    ``start`` and ``fabric`` change is looked at.
    """
    graph = _Graph(ranks, start)
    alike: dict[bytes, str] = {}
    for name, instance in sorted(ranks.instance.items()):
        known = alike.setdefault(instance.tobytes(), name)
        if known == name:
            graph.communicator(name, instance)
        elif known in graph.first:  # the same groups by another name add nothing
            graph.first[name] = graph.first[known]
    for peer in ranks.peer.values():
        graph.peers(peer)
    graph.known = len(graph.edges)
    if fabric is not None:
        graph.fabric(fabric)
    colours, edges = np.concatenate(graph.colours), _all(graph.edges)
    if healthy is None:
        found = refine(colours, edges)
    else:
        new = _all(graph.edges[graph.known :])
        found = refine_from(graph.stable(healthy), colours, edges, new)
    return Partition(
        rank=found[: ranks.world],
        instance={
            name: found[first : first + int(ranks.instance[name].max(initial=-1)) + 1]
            for name, first in graph.first.items()
        },
        link=_numbered(found[graph.links : graph.links + len(fabric.ids)] if fabric else found[:0]),
    )


class _Graph:
    """Vertices with their start colours, numbered as they come, and edges both ways."""

    def __init__(self, ranks: Ranks, start: Ids) -> None:
        self.ranks = ranks
        self.colours: list[Ids] = [start]
        self.edges: list[Edges] = []
        self.first: dict[str, int] = {}
        self.members: list[tuple[int, Ids, Ids]] = []
        self.count = ranks.world
        self.links = 0
        self.known = 0  # edges that are not of the fabric
        self.label = 0
        self.kind = 0

    def communicator(self, name: str, instance: Ids) -> None:
        member, count = np.flatnonzero(instance >= 0), int(instance.max(initial=-1)) + 1
        if count == len(member):
            return  # groups of one
        self.first[name] = self._vertices(count)
        self.members.append((self.first[name], member, instance[member]))
        self._join(member, self.first[name] + instance[member])

    def stable(self, healthy: Ids) -> Ids:
        """Colours of all vertices if ranks have their ``healthy`` classes: each communicator gets its
        members' colour."""
        count = int(healthy.max(initial=-1)) + 1
        found = [healthy]
        for first, member, instance in self.members:
            colour = np.zeros(int(instance.max(initial=-1)) + 1, dtype=np.int64)
            colour[instance] = healthy[member]
            found.append((first + 1) * count + colour)
        fabric = self.count - sum(map(len, found))
        return np.concatenate([*found, np.full(fabric, -1)])

    def peers(self, peer: Ids) -> None:
        who = np.flatnonzero(peer >= 0)
        self.edges.append(_edges(who, peer[who], np.full(len(who), self._labels(1))))

    def fabric(self, fabric: CrossedFabric) -> None:
        """Add links, coloured by capacity, and edges from communicators and messages to them, labelled by
        weight."""
        _, capacity = np.unique(_rounded(fabric.capacity), return_inverse=True)
        for rates in fabric.later:
            _, now = np.unique(_rounded(rates), return_inverse=True)
            _, capacity = np.unique(capacity * (int(now.max(initial=0)) + 1) + now, return_inverse=True)
        self.links = self._vertices(len(capacity), capacity)
        for (name, _), crossing in sorted(fabric.collectives.items()):
            self._load(crossing, self.first[name] + crossing.owner)
        for (_, target), crossing in sorted(fabric.messages.items()):
            senders, number = np.unique(crossing.owner, return_inverse=True)
            message = self._vertices(len(senders)) + np.arange(len(senders))
            self._join(senders, message)
            self._join(self.ranks.peer[target][senders], message)
            self._load(crossing, message[number])

    def _load(self, crossing: Crossing, vertex: Ids) -> None:
        distinct, weight = np.unique(_rounded(crossing.weight), return_inverse=True)
        self._join(vertex, self.links + crossing.link, self._labels(len(distinct)) + weight)

    def _vertices(self, count: int, colour: Ids | None = None) -> int:
        """Add vertices of a new kind. Returns the number of the first."""
        first, self.count = self.count, self.count + count
        offset = np.zeros(count, dtype=np.int64) if colour is None else colour
        self.kind -= 1 + int(offset.max(initial=0))
        self.colours.append(self.kind + offset)
        return first

    def _labels(self, count: int) -> int:
        first, self.label = self.label, self.label + count
        return first

    def _join(self, vertex: Ids, neighbour: Ids, label: Ids | None = None) -> None:
        labels = np.full(len(vertex), self._labels(1)) if label is None else label
        self.edges.append(_edges(vertex, neighbour, labels).both_ways())


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values to eleven digits, so that sums in different order are equal."""
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (10 - np.floor(np.log10(np.abs(values))))
    scale[~np.isfinite(scale)] = 1.0
    rounded: NDArray[np.float64] = np.round(values * scale) / scale
    return rounded


def _numbered(colours: Ids) -> Ids:
    _, numbers = np.unique(colours, return_inverse=True)
    return numbers.astype(np.int64)


def _edges(vertex: Ids, neighbour: Ids, label: Ids) -> Edges:
    return Edges(vertex=vertex, neighbour=neighbour, label=label)


def _all(edges: list[Edges]) -> Edges:
    none = np.zeros(0, dtype=np.int64)  # a job of one rank has none
    return Edges(
        vertex=np.concatenate([none, *(e.vertex for e in edges)]),
        neighbour=np.concatenate([none, *(e.neighbour for e in edges)]),
        label=np.concatenate([none, *(e.label for e in edges)]),
    )
