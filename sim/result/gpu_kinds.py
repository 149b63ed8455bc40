"""GPUs of different kinds in one job: how many of each, and the layers by which stages would end together.

Knows figures; simulates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BalancedSplit:
    """``layers`` of each virtual stage, what the step takes with them, and whether it fits in memory."""

    layers: tuple[int, ...]
    step_time_s: float
    fits: bool


@dataclass(frozen=True, kw_only=True)
class GpuKinds:
    """``counts`` of GPUs by name, and a split that is shorter than the scenario's; None: none is, or there
    is no pipeline.
    """

    counts: tuple[tuple[str, int], ...]
    balanced: BalancedSplit | None = None


def gpu_kinds_document(found: GpuKinds | None) -> dict[str, Any] | None:
    """Every figure, in SI units; None of one kind."""
    if found is None:
        return None
    split = found.balanced
    return {
        "counts": [{"gpu": name, "gpus": count} for name, count in found.counts],
        "balanced": {
            "stage_split": list(split.layers),
            "step_time_s": float(split.step_time_s),
            "fits": split.fits,
        }
        if split
        else None,
    }
