"""Parts of a Result as JSON: the interface that programs read (``Result.to_dict``).

Keys are only ever added. Numbers are plain floats in SI units, shares are fractions, and the order
of keys and lists is the same every time. Knows no files.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .cost import StepCost
from .outlook import Outlook
from .step import Interval, StageMemory

if TYPE_CHECKING:
    from ..scenario.models import Scenario
    from .loss_scaling import LossScaling


def interval_document(interval: Interval) -> dict[str, Any]:
    """What the interval is made of: each part's share of the step, its sigma, and where that is from."""
    return {
        "level": interval.level,
        "quantile": interval.quantile,
        "quantile_below": interval.quantile_below,
        "low_s": interval.low_s,
        "high_s": interval.high_s,
        "parts": [
            {
                "name": part.name,
                "share": part.share,
                "sigma": part.sigma,
                "source": part.source,
                "kind": part.kind,
                "distance": part.distance,
            }
            for part in interval.parts
        ],
    }


def loss_scaling_document(found: LossScaling | None) -> dict[str, Any] | None:
    """What skipped steps cost, where that was asked for."""
    if found is None:
        return None
    return {
        "skipped_share": found.skipped_share,
        "skipped_step_s": found.skipped_step_s,
        "effective_step_s": found.effective_step_s,
        "goodput": found.goodput,
        "first_skipped_steps": found.first_steps,
    }


def known(figure: float) -> float | None:
    """``figure`` as JSON has it: None in place of nan, which JSON lacks."""
    return None if math.isnan(figure) else float(figure)


def published_document(scenario: Scenario | None, step_time_s: float) -> dict[str, Any] | None:
    """What the run took in print, beside ``step_time_s`` as predicted."""
    published = scenario.published if scenario else None
    if published is None:
        return None
    measured_s = published.step_time_s
    return {
        "step_time_s": None if measured_s is None else float(measured_s),
        "error": None if measured_s is None else float(step_time_s / measured_s - 1),
        "mfu": None if published.mfu is None else float(published.mfu),
        "source": published.source,
        "note": published.note,
    }


def memory_document(stage: StageMemory) -> dict[str, Any]:
    """The bill of one pipeline rank."""
    return {
        "pp": int(stage.pp),
        "peak_bytes": float(stage.peak_bytes),
        "capacity_bytes": float(stage.capacity_bytes),
        "fits": bool(stage.fits),
        "peak_s": float(stage.peak_s),
        "peak_action": stage.peak_action,
        "static_bytes": float(stage.static_bytes),
        "terms": {name: float(size_bytes) for name, size_bytes in stage.terms.items()},
    }


def training_document(ahead: Outlook | None) -> dict[str, Any] | None:
    """What training on the whole token budget takes, as the document has it; None without a budget."""
    if ahead is None:
        return None
    return {
        "tokens": ahead.tokens,
        "steps": ahead.steps,
        "days": ahead.days,
        "gpu_hours": ahead.gpu_hours,
        "price": ahead.price,
        "currency": ahead.currency,
    }


def cost_document(cost: StepCost | None) -> dict[str, Any] | None:
    """What a step costs in money, as the document has it; None without a price of a GPU-hour."""
    if cost is None:
        return None
    return {
        "currency": cost.currency,
        "price_per_gpu_hour": cost.price_per_gpu_hour,
        "per_step": cost.per_step,
        "per_trillion_tokens": cost.per_trillion_tokens,
        "source": cost.source,
    }
