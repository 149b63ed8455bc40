"""Trees over ranks: binary trees whose leaves and inner vertices alternate, two of them, and chains.

In the first tree every odd vertex is a leaf; the second is its mirror image or its shift by one, where
the even ones are (all but one, of an odd number). With half of the payload on each tree, all links
are busy both ways.

References:
    Sanders, Speck, Träff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and scan".
    NCCL 2.4 and later, src/graph/trees.cc (which parent a vertex has).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from .transfer import PeerTransfer, PieceTransfer


@dataclass(frozen=True)
class Tree:
    """The parent of each vertex; None at the root."""

    parents: Mapping[int, int | None]

    @cached_property
    def children(self) -> Mapping[int, Sequence[int]]:
        """The children of each vertex."""
        found: dict[int, list[int]] = {vertex: [] for vertex in self.parents}
        for vertex, parent in self.parents.items():
            if parent is not None:
                found[parent].append(vertex)
        return found

    @cached_property
    def levels(self) -> Sequence[Sequence[int]]:
        """The vertices by their distance from the root, the root first."""
        found = [[vertex for vertex, parent in self.parents.items() if parent is None]]
        while below := [child for vertex in found[-1] for child in self.children[vertex]]:
            found.append(below)
        return found

    def renamed(self, names: Mapping[int, int]) -> Tree:
        """The tree with other names for its vertices."""
        return Tree(
            {names[v]: None if parent is None else names[parent] for v, parent in self.parents.items()}
        )

    def with_chains(self, tails: Mapping[int, Sequence[int]]) -> Tree:
        """The tree with a chain ``tails[vertex]`` hanging from each of its vertices."""
        grown = dict(self.parents)
        for head, tail in tails.items():
            grown.update(zip(tail, [head, *tail[:-1]], strict=False))
        return Tree(grown)


def binary_tree(n: int) -> Tree:
    """Vertex 0 is the root with one child; the parent of others clears the lowest bit and sets the next."""
    return Tree({vertex: _parent(vertex, n) for vertex in range(n)})


def _parent(vertex: int, n: int) -> int | None:
    if vertex == 0:
        return None
    lowest = vertex & -vertex
    without = vertex - lowest
    above = without | lowest << 1
    return above if above < n else without


def two_trees(vertices: Sequence[int]) -> tuple[Tree, Tree]:
    """The binary tree and its image over these vertices: mirrored for an even number, shifted for odd."""
    n = len(vertices)
    image = [n - 1 - v for v in range(n)] if n % 2 == 0 else [(v + 1) % n for v in range(n)]
    first = binary_tree(n)
    return (
        first.renamed({v: vertices[v] for v in range(n)}),
        first.renamed({v: vertices[image[v]] for v in range(n)}),
    )


def two_trees_edge(n: int) -> Fraction:
    """Payloads that the busiest vertex sends, and receives, on its way up and down both trees.

    >>> [str(two_trees_edge(n)) for n in (1, 2, 3, 4, 5)]
    ['0', '1', '3/2', '2', '2']
    """
    return Fraction(0) if n == 1 else min(Fraction(n, 2), Fraction(2))


def height(n: int) -> int:
    """Levels below the root of a binary tree of n vertices: ceil(log2 n)."""
    return (n - 1).bit_length()


def down(tree: Tree, pieces: range, start: int = 0) -> Iterator[PieceTransfer]:
    """The root's pieces to all: a vertex on level k hands them on in step k."""
    for level, vertices in enumerate(tree.levels):
        for vertex in vertices:
            for child in tree.children[vertex]:
                yield PieceTransfer(start + level, vertex, child, pieces, False)


def down_flows(tree: Tree, vertex: int, amount: Fraction) -> Iterator[PeerTransfer]:
    """What one vertex gets from its parent and hands to its children."""
    parent = tree.parents[vertex]
    if parent is not None:
        yield PeerTransfer(parent, received=amount)
    for child in tree.children[vertex]:
        yield PeerTransfer(child, sent=amount)
