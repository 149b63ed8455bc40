"""Standard deviations of what predictions are made of, each with its source (residuals.yaml)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .catalogue import read

NORMAL_MEDIAN = 1.4826
"""Standard deviation over the median absolute error of a normal distribution."""

NORMAL_MEAN = 1 / 0.7979
"""Standard deviation over its mean absolute error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """``sigma`` is of the natural logarithm of measured over predicted."""

    sigma: float
    source: str


@cache
def shipped_residuals() -> dict[str, Residual]:
    """By name, as residuals.yaml has them."""
    return {
        name: Residual(sigma=float(entry["sigma"]), source=str(entry["source"]))
        for name, entry in read("residuals.yaml").items()
    }
