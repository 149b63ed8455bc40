"""The origin of a calibrated constant, and how far it may be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """How far a value lies outside the measured range of ``quantity``: in doublings, past which end."""

    quantity: str
    doublings: float
    end: Literal["largest", "smallest"]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a constant or a curve comes from.

    ``median_residual`` and ``p90_residual`` are of |predicted / measured - 1| over ``points``
    measurements; None where nothing was measured. ``held_out_median`` and ``held_out_p90`` are the
    same over measurements that the fit did not see. ``ranges`` holds (quantity, lowest, highest) of
    those measurements. ``carried`` marks what was taken from another GPU or from a document.
    """

    source: str
    points: int = 0
    median_residual: float | None = None
    p90_residual: float | None = None
    held_out_median: float | None = None
    held_out_p90: float | None = None
    ranges: tuple[tuple[str, float, float], ...] = ()
    carried: bool = False
    note: str = ""

    def covers(self, **quantities: float) -> bool:
        """Whether every quantity named here lies in its measured range; False where none was measured."""
        inside = [low <= quantities[name] <= high for name, low, high in self.ranges if name in quantities]
        return bool(inside) and all(inside)

    def beyond(self, **quantities: float) -> Beyond | None:
        """The quantity that lies farthest outside its measured range; None where all lie inside, or none
        has one."""
        found = [
            one
            for name, low, high in self.ranges
            if name in quantities and (one := beyond(name, quantities[name], low, high))
        ]
        return max(found, key=lambda one: one.doublings, default=None)


def beyond(quantity: str, value: float, low: float, high: float) -> Beyond | None:
    """How far ``value`` lies outside ``low`` to ``high``; None inside.

    >>> beyond("seq", 65536, 512, 16384)
    Beyond(quantity='seq', doublings=2.0, end='largest')
    """
    if value > high:
        return Beyond(quantity=quantity, doublings=math.log2(value / high), end="largest")
    if value < low:
        return Beyond(quantity=quantity, doublings=math.log2(low / value), end="smallest")
    return None
