"""What a spread of the cluster's parts costs a step: the figures, and as part of the JSON document.

Knows figures; draws and simulates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One draw: its seed, the step, and its bounds, equal where all ranks were replayed."""

    seed: int
    step_time_s: float
    lower_s: float
    upper_s: float


@dataclass(frozen=True, kw_only=True)
class StepVariation:
    """``slowest`` and ``mean`` speed of the GPUs in the first draw, as shares of what the catalogue says; all
    ``draws``, the first of which is the step that is told; and the step if all GPUs were alike.
    """

    slowest: float
    mean: float
    draws: tuple[Draw, ...]
    equal_step_time_s: float

    @property
    def mean_slowdown(self) -> float:
        """Of the draws, the mean step over that of equal GPUs."""
        return fmean(one.step_time_s for one in self.draws) / self.equal_step_time_s

    @property
    def spread_s(self) -> float:
        """The standard deviation of the step between draws; 0 of one draw."""
        return stdev(one.step_time_s for one in self.draws) if len(self.draws) > 1 else 0.0


def variation_document(found: StepVariation | None) -> dict[str, Any] | None:
    """Every figure, in SI units; None where all GPUs are alike."""
    if found is None:
        return None
    return {
        "slowest": float(found.slowest),
        "mean": float(found.mean),
        "equal_step_time_s": float(found.equal_step_time_s),
        "mean_slowdown": float(found.mean_slowdown),
        "step_time_sd_s": float(found.spread_s),
        "draws": [
            {
                "seed": one.seed,
                "step_time_s": float(one.step_time_s),
                "step_time_bounds_s": [float(one.lower_s), float(one.upper_s)],
            }
            for one in found.draws
        ],
    }
