"""Memory that sharding needs besides shards: gathered parameters, and gradients on their way, by action.

While a unit computes, the parameters of the next one are gathered too. In a backward there are also the fresh
gradients of the unit at work, and those of the unit before, in the buffer that is being reduced.
"""

from __future__ import annotations

from collections.abc import Iterable

from .units import Piece


def largest_pair(row: Iterable[Piece], left_out: frozenset[str]) -> float:
    """The most parameters of two successive units, by their bytes once gathered, without those that are
    counted elsewhere."""
    sizes = [0.0 if piece.unit.name in left_out else piece.unit.gathered for piece in row]
    return max((one + other for one, other in zip([0.0, *sizes], [*sizes, 0.0], strict=True)), default=0.0)


def largest_gradients(row: Iterable[Piece], fresh_bytes: float, reduced_bytes: float) -> float:
    """The largest sum of one unit's fresh gradients and the reduction buffer of the unit before it."""
    sizes = [piece.unit.total for piece in row]
    pairs = zip([0.0, *sizes], [*sizes, 0.0], strict=True)
    return max((before * reduced_bytes + now * fresh_bytes for before, now in pairs), default=0.0)
