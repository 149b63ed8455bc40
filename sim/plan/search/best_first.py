"""Best-first search by lower bounds: exact, and the same however many workers are at it.

Knows numbers alone. Candidates are judged in the order of their bounds, and the search ends when the next
bound cannot beat the last of the best: what is left is then proven to be no better. Workers run ahead, of
what is not ruled out yet, but results are taken in that order, so that what counts as judged does not depend
on how many there are.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Judge = Callable[[Iterable[int]], Generator[float, None, None]]
"""Values of candidates in the order in which they are asked for; inf of one that cannot be judged."""

Told = Callable[[int, int, int | None, float], None]
"""Called with how many were judged, how many may be left, the best so far and its value."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """``best`` candidates, best first, and the ``value`` of each that was judged, in order.

    ``proven``: no other candidate can be better than the last of the best, where there are as many as were
    asked for. ``interrupted``: by the user.
    """

    best: tuple[int, ...]
    value: dict[int, float]
    proven: bool
    interrupted: bool = False


def nothing_told(_judged: int, _left: int, _best: int | None, _value: float) -> None:
    """Tells nobody."""


def in_turn(bounds: NDArray[np.float64], first: Sequence[int] = ()) -> list[int]:
    """Candidates in the order in which they are judged: ``first``, then by their bounds.

    >>> in_turn(np.array([2.0, math.inf, 1.0, 3.0]), [3])
    [3, 2, 0]
    """
    order = np.argsort(bounds, kind="stable")
    order = order[np.isfinite(bounds[order])]
    return [*dict.fromkeys([*first, *order.tolist()])]


def best_first(
    bounds: Sequence[float] | NDArray[np.float64],
    judge: Judge,
    *,
    top: int,
    first: Sequence[int] = (),
    final: Callable[[int, float], float] | None = None,
    limit: int | None = None,
    tell: Told = nothing_told,
) -> Ranked:
    """The ``top`` candidates of the least value, where no value is below its bound.

    Those of ``first`` are judged before all others. A candidate whose bound is inf is none. ``final`` turns
    the value of a candidate that may be among the best into its true one, which is no smaller: what is dear
    to know is asked of few. At most ``limit`` are judged. Equal values rank by their number.
    """
    given = np.asarray(bounds, dtype=np.float64)
    ahead, queue = [*dict.fromkeys(first)], in_turn(given, first)
    ascending = np.sort(given[np.isfinite(given)])
    best: list[tuple[float, int]] = []
    value: dict[int, float] = {}

    def kth() -> float:
        return best[top - 1][0] if len(best) >= top else math.inf

    def hopeful() -> Iterator[int]:
        """Whom it may come to, as far as is known when workers that are ahead ask for the next."""
        for number, i in enumerate(queue[:limit]):
            if number >= len(ahead) and given[i] >= kth():
                return
            yield i

    proven = interrupted = False
    results = judge(hopeful())
    try:
        for number, i in enumerate(queue):
            if number >= len(ahead) and given[i] >= kth():
                proven = True
                break
            if limit is not None and number >= limit:
                break
            value[i] = next(results)
            if final is not None and value[i] < math.inf and value[i] <= kth():  # of equals the first ranks
                value[i] = final(i, value[i])
            if value[i] < math.inf:
                bisect.insort(best, (value[i], i))
            left = int(np.searchsorted(ascending, kth()))
            tell(len(value), max(0, left - len(value)), best[0][1] if best else None, kth())
        else:
            proven = True
    except KeyboardInterrupt:
        interrupted = True
    finally:
        results.close()
    return Ranked(best=tuple(i for _, i in best[:top]), value=value, proven=proven, interrupted=interrupted)
