"""Where a calibrated constant comes from, and how far it may be trusted."""

from __future__ import annotations

from dataclasses import dataclass


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
