"""A plot with two logarithmic axes: where values come to lie. Draws nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

Span = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ChartPanel:
    """A rectangle in pixels from ``left`` and ``top``, and the ranges of its axes."""

    left: float
    top: float
    width: float
    height: float
    x: Span
    y: Span

    def at_x(self, value: float) -> float:
        return self.left + self.width * part(value, self.x)

    def at_y(self, value: float) -> float:
        return self.top + self.height * (1 - part(value, self.y))


def part(value: float, span: Span) -> float:
    """Where ``value`` lies in ``span``, of its logarithm: 0 at the low end, 1 at the high one."""
    low, high = map(math.log, span)
    return (math.log(value) - low) / (high - low)
