"""Many routes in flat arrays: the links of each, in the order in which a message meets them.

Knows link ids and shares; does not know what the links are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ids = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RoutePart:
    """Links that some routes cross at position ``order`` of their way."""

    order: int
    route: Ids
    link: Ids
    weight: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Routes:
    """``count`` routes. Entry e says that route ``route[e]`` puts ``weight[e]`` of its bytes on ``link[e]``.

    Entries are sorted by route and then by position; ``first[r]`` to ``first[r + 1]`` are those of route r.
    Weights of the equal-cost links at one position sum to 1.
    """

    count: int
    route: Ids
    link: Ids
    weight: NDArray[np.float64]

    @property
    def first(self) -> Ids:
        return np.searchsorted(self.route, np.arange(self.count + 1)).astype(np.int64)

    @property
    def hops(self) -> NDArray[np.float64]:
        """Links on the way of each route: the sum of its weights."""
        return np.asarray(np.bincount(self.route, self.weight, self.count), dtype=np.float64)

    def of(self, route: int) -> tuple[Ids, NDArray[np.float64]]:
        """Links and weights of one route."""
        low, high = self.first[route : route + 2]
        return self.link[low:high], self.weight[low:high]

    def loads(self, links: int, bytes_: NDArray[np.float64] | float = 1.0) -> NDArray[np.float64]:
        """Bytes on each of ``links`` links when every route carries ``bytes_``."""
        carried = np.broadcast_to(np.asarray(bytes_, dtype=np.float64), (self.count,))
        loads = np.bincount(self.link, self.weight * carried[self.route], links)
        return np.asarray(loads, dtype=np.float64)


def joined(count: int, parts: Sequence[RoutePart], *, merge: bool) -> Routes:
    """The parts of ``count`` routes as one; ``merge`` adds up links that a route meets more than once."""
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Routes(count=count, route=empty, link=empty, weight=np.zeros(0))
    route = np.concatenate([part.route for part in parts])
    link = np.concatenate([part.link for part in parts])
    weight = np.concatenate([part.weight for part in parts])
    order = np.concatenate([np.full(len(part.route), part.order) for part in parts])
    if merge:
        ranked = np.lexsort((link, order, route))
        route, link, weight, order = (array[ranked] for array in (route, link, weight, order))
        new = np.ones(len(route), dtype=bool)
        new[1:] = (route[1:] != route[:-1]) | (link[1:] != link[:-1]) | (order[1:] != order[:-1])
        starts = np.flatnonzero(new)
        weight = np.add.reduceat(weight, starts) if len(starts) else weight
        route, link = route[starts], link[starts]
    else:
        ranked = np.lexsort((order, route))
        route, link, weight = (array[ranked] for array in (route, link, weight))
    return Routes(count=count, route=route, link=link, weight=weight)


def gpu_vectors(a: ArrayLike, b: ArrayLike, flow: ArrayLike, count: int) -> tuple[Ids, Ids, Ids]:
    """Both ends and the flow of messages among ``count`` GPUs, as vectors of equal length (numbers are
    broadcast). Raises ValueError for a GPU that is not there."""
    ends = (np.atleast_1d(np.asarray(vector, dtype=np.int64)) for vector in (a, b, flow))
    from_, to, flows = np.broadcast_arrays(*ends)
    check_gpus(from_, count)
    check_gpus(to, count)
    return from_, to, flows


def check_gpus(gpus: Ids, count: int) -> None:
    """Raise ValueError for a number that none of ``count`` GPUs has."""
    wrong = gpus[(gpus < 0) | (gpus >= count)]
    if len(wrong):
        raise ValueError(f"there is no GPU {wrong[0]}: the topology has GPUs 0 to {count - 1}")
