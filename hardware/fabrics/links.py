"""Every directed link of a topology as an id, in closed form: capacity, latency, kind, ends and name by id.

Links come in families of equal kind whose ids are consecutive, so nothing is stored per link and a
table of a million links costs what a table of ten does. Knows numbering; does not know who joins what:
each family brings a function that gives the ends of its i-th link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .link_kinds import LinkKind

Ids = NDArray[np.int64]
Vertex = tuple[str, *tuple[int, ...]]
"""What a link ends at: ``("gpu", 5)``, ``("nvswitch", domain)``, ``("pcie", host)``, ``("nic", host,
link)``, or a switch of a tier with its number: ``("leaf", 3)``."""


@dataclass(frozen=True, kw_only=True)
class LinkFamily:
    """``count`` directed links of one kind and direction.

    ``bytes_per_s`` maps local numbers (0 to count - 1) to line rates; ``ends`` maps one to the vertices that
    it leaves and reaches, and to None where numbering leaves a gap. ``efficiency`` is the share of the line
    rate that large messages reach. ``cables`` parallel links join the same two ends; ``gaps`` ids are free.
    """

    kind: LinkKind
    count: int
    latency_s: float
    bytes_per_s: Callable[[Ids], NDArray[np.float64]]
    ends: Callable[[int], tuple[Vertex, Vertex] | None]
    efficiency: float = 1.0
    cables: int = 1
    gaps: int = 0

    @property
    def used(self) -> int:
        """How many ids of the family belong to a link; the others are gaps."""
        return self.count - self.gaps


def constant(rate: float) -> Callable[[Ids], NDArray[np.float64]]:
    """The rates of a family of equal links."""
    return lambda local: np.full(local.shape, rate)


@dataclass(frozen=True)
class LinkTable:
    """Families one after another; the first id of family f is ``first[f]``."""

    families: tuple[LinkFamily, ...]

    @cached_property
    def first(self) -> Ids:
        counts = [family.count for family in self.families]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.first[-1])

    def family_of(self, ids: Ids) -> Ids:
        """Which family each id is of.

        Raises:
            ValueError: an id that no link has.
        """
        ids = np.asarray(ids, dtype=np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= len(self)):
            raise ValueError(
                f"no link has id {ids.min() if ids.min() < 0 else ids.max()}: 0 to {len(self) - 1}"
            )
        return np.searchsorted(self.first, ids, side="right").astype(np.int64) - 1

    def bytes_per_s(self, ids: Ids) -> NDArray[np.float64]:
        """Line rate of each link, per direction: these are directed."""
        rates = np.zeros(np.shape(ids))
        for family, where, local in self._parts(ids):
            rates[where] = family.bytes_per_s(local)
        return rates

    def usable_bytes_per_s(self, ids: Ids) -> NDArray[np.float64]:
        """The share of the line rate that large messages reach."""
        rates = self.bytes_per_s(ids)
        for family, where, _ in self._parts(ids):
            rates[where] *= family.efficiency
        return rates

    def latency_s(self, ids: Ids) -> NDArray[np.float64]:
        latencies = np.zeros(np.shape(ids))
        for family, where, _ in self._parts(ids):
            latencies[where] = family.latency_s
        return latencies

    def kinds(self, ids: Ids) -> list[LinkKind]:
        return [self.families[f].kind for f in self.family_of(ids)]

    def ends(self, link: int) -> tuple[Vertex, Vertex] | None:
        """The vertices that a link leaves and reaches; None for an id that numbering leaves free."""
        f = int(self.family_of(np.array([link]))[0])
        return self.families[f].ends(int(link - self.first[f]))

    def name(self, link: int) -> str:
        """The name of a link, such as ``leaf 3 -> spine 1``, with ``#2`` for the third of parallel cables.

        Raises:
            ValueError: the id is free.
        """
        ends = self.ends(link)
        if ends is None:
            raise ValueError(f"link id {link} is not in use")
        f = int(self.family_of(np.array([link]))[0])
        cables = self.families[f].cables
        cable = f" #{int(link - self.first[f]) % cables}" if cables > 1 else ""
        return f"{vertex_name(ends[0])} -> {vertex_name(ends[1])}{cable}"

    def _parts(self, ids: Ids) -> Sequence[tuple[LinkFamily, NDArray[np.bool_], Ids]]:
        ids = np.asarray(ids, dtype=np.int64)
        owner = self.family_of(ids)
        return [
            (self.families[f], owner == f, ids[owner == f] - self.first[f]) for f in np.unique(owner).tolist()
        ]


def vertex_name(vertex: Vertex) -> str:
    """``leaf 3``, ``nic 12.5``."""
    return " ".join([vertex[0], ".".join(map(str, vertex[1:]))]).rstrip()
