"""Colour refinement from a partition that was equitable, after some of its vertices were set apart.

What a vertex sees of a colour that no vertex left is as it was, so only edges to vertices that changed colour
are looked at: cost follows what a fault touches. When a colour is parted, one part keeps it: how many of its
vertices another sees follows from how many of the others. Knows only numbers, as refine.py does.

References:
    Paige and Tarjan 1987, "Three partition refinement algorithms" (all parts but one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .refine import Edges, numbered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]


def refine_from(stable: Ids, start: Ids, edges: Edges, new: Edges | None = None) -> Ids:
    """The same partition as ``refine`` finds for ``start``, computed from ``stable``, which must be
    equitable.

    ``new`` are the edges among ``edges`` that ``stable`` did not take into account. Vertices with equal
    colours in ``start`` may have different colours in ``stable``.
    """
    random = np.random.default_rng(0)
    colours = numbered(stable)
    changed = _parted(colours, np.arange(len(colours)), start)
    if new is not None:
        changed = np.union1d(changed, _seen_anew(colours, new, random))
    while len(changed):
        moved = np.zeros(len(colours), dtype=bool)
        moved[changed] = True
        seen = moved[edges.neighbour]
        to_moved = Edges(vertex=edges.vertex[seen], neighbour=edges.neighbour[seen], label=edges.label[seen])
        changed = _seen_anew(colours, to_moved, random)
    return numbered(colours)


def _seen_anew(colours: Ids, edges: Edges, random: np.random.Generator) -> Ids:
    """Split colours by what their vertices see along ``edges``. Returns the vertices whose colour changed."""
    if not len(edges.vertex):
        return edges.vertex
    name = edges.label * (int(colours.max()) + 1) + colours[edges.neighbour]
    return _parted(colours, *_views(edges.vertex, name, colours, random))


def _parted(colours: Ids, vertices: Ids, views: Ids) -> Ids:
    """Split each colour whose vertices have different ``views``. Returns the vertices whose colour changed.

    Vertices of a colour that are not among ``vertices`` all have the same view, and keep the colour; where
    there are none, the most frequent view keeps it.
    """
    if not len(vertices):
        return vertices
    sizes = np.bincount(colours)
    _, view = np.unique(views, return_inverse=True)
    pairs, part, counts = np.unique(
        colours[vertices] * (int(view.max()) + 1) + view, return_inverse=True, return_counts=True
    )
    colour = pairs // (int(view.max()) + 1)
    whole = np.bincount(colour, counts, len(sizes))[colour] == sizes[colour]  # nobody else has the colour
    largest_first = np.lexsort((-counts, colour))
    first = np.ones(len(pairs), dtype=bool)
    first[1:] = colour[largest_first][1:] != colour[largest_first][:-1]
    keeps = np.zeros(len(pairs), dtype=bool)
    keeps[largest_first[first]] = True
    keeps &= whole
    new = np.where(keeps, colour, len(sizes) + np.cumsum(~keeps) - 1)
    moved = ~keeps[part]
    colours[vertices[moved]] = new[part[moved]]
    return vertices[moved]


def _views(vertex: Ids, name: Ids, colours: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
    """The vertices that see anything, and for each a number of what it sees: equal for equal multisets of
    ``name``."""
    order = np.lexsort((name, vertex))
    vertex, name = vertex[order], name[order]
    starts = np.flatnonzero(np.append(True, vertex[1:] != vertex[:-1]))
    lengths = np.diff(np.append(starts, len(vertex)))
    _, number = np.unique(name, return_inverse=True)
    values = random.integers(0, 2**63, size=int(number.max()) + 1, dtype=np.uint64)[number]
    _, view = np.unique(np.add.reduceat(values, starts), return_inverse=True)
    vertices = vertex[starts]
    while True:  # sums of random numbers can only merge by accident; compare the multisets themselves
        key = colours[vertices] * (int(view.max()) + 1) + view
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        model = first[group]
        odd = lengths != lengths[model]
        row = np.repeat(np.arange(len(vertices)), lengths)
        place = np.arange(len(name)) - starts[row]
        alike = ~odd[row]
        there = starts[model[row[alike]]] + place[alike]
        odd[row[alike][name[alike] != name[there]]] = True
        if not odd.any():
            return vertices, view.astype(np.int64)
        view = 2 * view + odd
