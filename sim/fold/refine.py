"""Colour refinement: the coarsest equitable partition of a graph that is finer than a given one.

Vertices of one colour have, for every label and colour, equally many edges of that label to vertices of
that colour. Ranks, communicators and links are vertices (fold.py); knows only numbers.

Each round hashes the multiset of a vertex's neighbours (a sum of 64-bit random numbers, one per label
and colour, so that order does not matter) and splits colours by it. Hashes can only merge by accident;
the last step compares the multisets themselves, and refines on if it finds any that differ.

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
        """With every edge once more from its other end, under the same label."""
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
    _, labels = np.unique(edges.label, return_inverse=True)
    random = np.random.default_rng(seed)
    current = _numbered(colours)
    while True:
        current = _to_fixed_point(current, edges, labels, random)
        exact = _split_exactly(current, edges, labels)
        if exact.max(initial=-1) == current.max(initial=-1):
            return current
        current = exact


def is_equitable(colours: NDArray[np.int64], edges: Edges) -> bool:
    """Whether vertices of one colour see the same multiset of labels and colours."""
    _, labels = np.unique(edges.label, return_inverse=True)
    numbered = _numbered(colours)
    return bool(_split_exactly(numbered, edges, labels).max(initial=-1) == numbered.max(initial=-1))


def _to_fixed_point(
    colours: NDArray[np.int64], edges: Edges, labels: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    kinds = int(labels.max(initial=-1)) + 1
    while True:
        count = int(colours.max(initial=-1)) + 1
        # One random number per label and colour; sums of them tell multisets apart, but for accidents.
        numbers = random.integers(0, 2**63, size=kinds * count, dtype=np.uint64)
        seen = np.zeros(len(colours), dtype=np.uint64)
        np.add.at(seen, edges.vertex, numbers[labels * count + colours[edges.neighbour]])
        refined = _paired(colours, seen)
        if refined.max(initial=-1) + 1 == count:
            return colours
        colours = refined


def _split_exactly(colours: NDArray[np.int64], edges: Edges, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Split by the multisets themselves: neighbours sorted per vertex, compared as sequences."""
    count = int(colours.max(initial=-1)) + 1
    names = labels * count + colours[edges.neighbour]
    order = np.lexsort((names, edges.vertex))
    names, degree = names[order], np.bincount(edges.vertex, minlength=len(colours))
    starts = np.concatenate([[0], np.cumsum(degree)[:-1]])
    refined = _paired(colours, degree.astype(np.uint64))
    for position in range(int(degree.max(initial=0))):
        has = degree > position
        name = np.zeros(len(colours), dtype=np.uint64)
        name[has] = names[starts[has] + position].astype(np.uint64) + 1
        refined = _paired(refined, name)
    return refined


def _paired(colours: NDArray[np.int64], values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """One colour per distinct pair."""
    _, narrow = np.unique(values, return_inverse=True)
    return _numbered(colours * (int(narrow.max(initial=0)) + 1) + narrow)


def _numbered(colours: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same partition, numbered in the order of first vertices."""
    _, first, inverse = np.unique(colours, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]
