"""Colour refinement: the coarsest equitable partition of a graph that is finer than a given one.

Vertices of one colour have, for every label and colour, equally many edges of that label to vertices of
that colour. Ranks, communicators and links are vertices (partition.py); knows only numbers.

Each round hashes the multiset of a vertex's neighbours (a sum of 64-bit random numbers, one per label
and colour, so that order does not matter) and splits colours by it. Hashes can only merge by accident;
the last step compares the multisets themselves, and refines on where any differ.

References:
    Cardon and Crochemore 1982, "Partitioning a graph in O(|A| log2 |V|)". Berkholz, Bonsma and Grohe
    2017, "Tight lower and upper bounds for the complexity of canonical colour refinement".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Edges:
    """Directed edges as three arrays of equal length: a vertex, its neighbour, and what joins them."""

    vertex: NDArray[np.int64]
    neighbour: NDArray[np.int64]
    label: NDArray[np.int64]

    def both_ways(self) -> Edges:
        """The same edges, and each once more from its other end under the same label."""
        return Edges(
            vertex=np.concatenate([self.vertex, self.neighbour]),
            neighbour=np.concatenate([self.neighbour, self.vertex]),
            label=np.concatenate([self.label, self.label]),
        )


def refine(colours: NDArray[np.int64], edges: Edges, *, seed: int = 0) -> NDArray[np.int64]:
    """Colours 0, 1, ... of the coarsest equitable partition, in the order of their first vertices.

    ``colours`` are those to start from, one per vertex; ``edges`` are read from ``vertex`` to
    ``neighbour`` only.
    """
    rows = _Rows.of(len(colours), edges)
    random = np.random.default_rng(seed)
    current = numbered(colours)
    while True:
        current = rows.to_fixed_point(current, random)
        odd = rows.unlike_their_first(current)
        if not odd.any():
            return current
        current = _split_by(current, odd.astype(np.uint64))  # an accident of hashing: part them, and go on


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The edges sorted by vertex: those of vertex v are the ``degree[v]`` from ``start[v]`` on."""

    vertex: NDArray[np.int64]
    neighbour: NDArray[np.int64]
    label: NDArray[np.int64]
    start: NDArray[np.int64]
    degree: NDArray[np.int64]

    @classmethod
    def of(cls, count: int, edges: Edges) -> _Rows:
        _, label = np.unique(edges.label, return_inverse=True)
        order = np.argsort(edges.vertex, kind="stable")
        degree = np.bincount(edges.vertex, minlength=count)
        return cls(
            vertex=edges.vertex[order],
            neighbour=edges.neighbour[order],
            label=label[order],
            start=np.concatenate([[0], np.cumsum(degree)[:-1]]),
            degree=degree,
        )

    def to_fixed_point(self, colours: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """Split colours by hashes of what their vertices see until nothing splits."""
        kinds = int(self.label.max(initial=-1)) + 1
        while True:
            count = int(colours.max(initial=-1)) + 1
            # One random number per label and colour; sums of them tell multisets apart, but for accidents.
            numbers = random.integers(0, 2**63, size=kinds * count, dtype=np.uint64)
            refined = _split_by(colours, self._sums(numbers[self.label * count + colours[self.neighbour]]))
            if refined.max(initial=-1) + 1 == count:
                return colours
            colours = refined

    def _sums(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The sum of the ``values`` of each vertex's edges, modulo 2**64."""
        total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(values, dtype=np.uint64)])
        sums: NDArray[np.uint64] = total[self.start + self.degree] - total[self.start]
        return sums

    def unlike_their_first(self, colours: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Vertices that see another multiset than the first vertex of their colour: none, if equitable."""
        count = int(colours.max(initial=-1)) + 1
        names = self.label * count + colours[self.neighbour]
        names = names[np.lexsort((names, self.vertex))]
        _, first = np.unique(colours, return_index=True)
        model = first[colours]
        odd: NDArray[np.bool_] = self.degree != self.degree[model]
        place = np.arange(len(names)) - self.start[self.vertex]
        alike = ~odd[self.vertex]
        there = self.start[model[self.vertex[alike]]] + place[alike]
        odd[self.vertex[alike][names[alike] != names[there]]] = True
        return odd


def _split_by(colours: NDArray[np.int64], values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """One colour per distinct pair."""
    _, narrow = np.unique(values, return_inverse=True)
    return numbered(colours * (int(narrow.max(initial=0)) + 1) + narrow)


def numbered(colours: NDArray[np.int64]) -> NDArray[np.int64]:
    """The partition with colours numbered in the order of first vertices."""
    _, first, inverse = np.unique(colours, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]
